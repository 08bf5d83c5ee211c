"""PyTorch import: traced FX graphs and exported programs."""

from autosched.frontend.torch.exported import from_exported_program
from autosched.frontend.torch.files import load_program_file
from autosched.frontend.torch.fx import from_fx
from autosched.frontend.torch.converters import supported_operators

__all__ = ["from_exported_program", "from_fx", "load_program_file", "supported_operators"]

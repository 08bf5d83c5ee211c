# Made by `python -m tests.stubs` from the file beside it and autosched/public_names.py.
from autosched.frontend.torch.converters import supported_operators as supported_operators
from autosched.frontend.torch.exported import from_exported_program as from_exported_program
from autosched.frontend.torch.files import load_program_file as load_program_file
from autosched.frontend.torch.fx import from_fx as from_fx

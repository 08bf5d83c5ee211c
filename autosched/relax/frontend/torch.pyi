# Made by `python -m tests.stubs` from the file beside it and autosched/public_names.py.
from autosched.frontend.torch import from_exported_program as from_exported_program
from autosched.frontend.torch import from_fx as from_fx

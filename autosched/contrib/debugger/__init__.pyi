# Made by `python -m tests.stubs` from the file beside it and autosched/public_names.py.
from autosched.contrib.debugger import debug_executor as debug_executor

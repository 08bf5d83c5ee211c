# Made by `python -m tests.stubs` from the file beside it and autosched/public_names.py.
from autosched.script.parser.module import from_source as _parse
from autosched.script.parser.module import from_source as from_source
parse = _parse

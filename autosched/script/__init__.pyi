# Made by `python -m tests.stubs` from the file beside it and autosched/public_names.py.
from autosched.script.ir import ir_module as ir_module
from autosched.script.parser import from_source as from_source
from autosched.script.printer import Options as Options
from autosched.script.printer import load_json as load_json
from autosched.script.printer import script as script
from autosched.script.printer import text_with_mark as text_with_mark

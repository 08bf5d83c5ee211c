# Made by `python -m tests.stubs` from the file beside it and autosched/public_names.py.
from autosched.script.printer.metadata import load_json as load_json
from autosched.script.printer.options import Options as Options
from autosched.script.printer.script import script as script
from autosched.script.printer.script import text_with_mark as text_with_mark

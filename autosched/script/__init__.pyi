# Made by `python -m tests.stubs` from the file beside it and autosched/public_names.py.
from autosched.script import ir as ir
from autosched.script import parser as parser
from autosched.script import relax as relax
from autosched.script import tir as tir
from autosched.script import tirx as tirx
from autosched.script.ir import ir_module as ir_module
from autosched.script.parser import from_source as _parse
from autosched.script.parser import from_source as from_source
from autosched.script.printer import Options as Options
from autosched.script.printer import load_json as load_json
from autosched.script.printer import script as script
from autosched.script.printer import text_with_mark as text_with_mark
parse = _parse

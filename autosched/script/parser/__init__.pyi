# Made by `python -m tests.stubs` from the file beside it and autosched/public_names.py.
from autosched.script import ir as ir
from autosched.script import relax as relax
from autosched.script import tir as tir
from autosched.script import tirx as tirx
from autosched.script.ir import ir_module as ir_module
from autosched.script.parser.module import from_source as _parse
from autosched.script.parser.module import from_source as from_source
parse = _parse

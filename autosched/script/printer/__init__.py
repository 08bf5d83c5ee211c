"""From nodes to text: modules, functions of both levels, statements, expressions."""

from autosched.script.printer.metadata import load_json
from autosched.script.printer.options import Options
from autosched.script.printer.script import script, text_with_mark

__all__ = ["Options", "load_json", "script", "text_with_mark"]

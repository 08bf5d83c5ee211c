"""From nodes to text: modules, functions of both levels, statements, expressions."""

from autosched.script.printer.options import Options
from autosched.script.printer.script import script, text_with_mark

__all__ = ["Options", "script", "text_with_mark"]

"""The text form of modules and functions, a dialect of TVMScript: printer and parser."""

from autosched.script.printer import Options, load_json, script, text_with_mark

__all__ = ["Options", "load_json", "script", "text_with_mark"]

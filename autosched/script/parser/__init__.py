"""From text to nodes; the text is read by Python's grammar and never executed."""

from autosched.script.parser.module import from_source

__all__ = ["from_source"]

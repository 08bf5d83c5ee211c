"""From text to nodes; the text is read by Python's grammar and never executed."""

from autosched.script.parser.module import from_source

parse = from_source  # TVM's newer name

__all__ = ["from_source", "parse"]

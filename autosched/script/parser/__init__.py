"""From text to nodes; the text is read by Python's grammar and never executed."""

from autosched.lazy_names import lazy_names
from autosched.script.parser.module import from_source

parse = from_source  # TVM's newer name

__all__ = ["from_source", "parse"]

__getattr__, __dir__ = lazy_names(__name__)

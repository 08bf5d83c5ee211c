"""The version of the code generator: part of every cache key and of every kernel."""

from __future__ import annotations

from autosched.version import __version__

GENERATOR = f"{__version__}+4"  # the number after + grows whenever equal input gives other code

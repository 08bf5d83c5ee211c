"""The one hook through which nodes reach the printer, which lies in a higher room.

`autosched.faces` fills it on first use; this room knows only the shape of the function.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

_printer: Callable[..., str] | None = None


def set_printer(printer: Callable[..., str]) -> None:
    """Install the function that turns a node and printing options into text."""
    global _printer
    _printer = printer


def text(node: Any, **options: Any) -> str:
    """The TVMScript-style text of a node; options as `IRModule.script` documents them."""
    if _printer is None:
        importlib.import_module("autosched.faces").install_printer()
    assert _printer is not None, "autosched.faces installs the printer"
    return _printer(node, **options)

"""The one hook through which nodes reach the printer, which lies in a higher room.

`autosched.faces` fills it on first use; this room knows only the shape of the function.
"""

from __future__ import annotations

import importlib
import sys
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


def show(node: Any, style: str | None = None, black_format: bool | None = None, **options: Any) -> None:
    """Print a node's text, in colours where the output is a terminal.

    style         "light", "dark", a pygments style, or "" for no colours; None: dark colours on a terminal, else none
    black_format  accepted for TVM's signature; the text is printed as `script` gives it
    """
    if style is None:
        style = "dark" if sys.stdout.isatty() else ""
    print(text(node, style=style, **options))

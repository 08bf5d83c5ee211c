"""Nodes as text: the printer lies in a higher package and is reached through the hook "script"."""

from __future__ import annotations

import sys
from typing import Any

from autosched.lazy_names import hook


def text(node: Any, **options: Any) -> str:
    """The TVMScript-style text of a node; options as `IRModule.script` documents them."""
    return str(hook("script")(node, **options))


def show(node: Any, style: str | None = None, black_format: bool | None = None, **options: Any) -> None:
    """Print a node's text, in colours where the output is a terminal.

    style         "light", "dark", a pygments style, or "" for no colours; None: dark colours on a terminal, else none
    black_format  accepted for TVM's signature; the text is printed as `script` gives it
    """
    if style is None:
        style = "dark" if sys.stdout.isatty() else ""
    print(text(node, style=style, **options))

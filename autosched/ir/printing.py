"""Nodes as text: the printer lies in a higher package and is reached through the hook "script"."""

from __future__ import annotations

import sys

from autosched.lazy_names import hook


class Scripted:
    """What modules and functions have: their text as TVMScript."""

    __slots__ = ()

    def script(self, **options: object) -> str:
        """The TVMScript text."""
        return text(self, **options)

    def astext(self, show_meta_data: bool = True) -> str:
        """TVM's older name of `script`."""
        return self.script(show_meta=show_meta_data)

    def show(self, style: str | None = None, black_format: bool | None = None, **options: object) -> None:
        """Print the script."""
        show(self, style, black_format, **options)

    def __str__(self) -> str:
        return self.script()


def text(node: object, **options: object) -> str:
    """The TVMScript-style text of a node; options as `IRModule.script` documents them."""
    return str(hook("script")(node, **options))


def show(node: object, style: str | None = None, black_format: bool | None = None, **options: object) -> None:
    """Print a node's text, in colours where the output is a terminal.

    style         "light", "dark", a pygments style, or "" for no colours; None: dark colours on a terminal, else none
    black_format  accepted for TVM's signature; the text is printed as `script` gives it
    """
    if style is None:
        style = "dark" if sys.stdout.isatty() else ""
    print(text(node, style=style, **options))

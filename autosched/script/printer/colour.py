"""Colours for terminals, by pygments where it is installed."""

from __future__ import annotations

import importlib.util

from autosched.errors import InvalidValueError

NAMED = {"light": "default", "dark": "monokai", "ansi": "default"}


def colourise(text: str, style: str) -> str:
    """`text` with ANSI colours; unchanged where pygments is not installed. Raises ValueError for an unknown style."""
    if importlib.util.find_spec("pygments") is None:
        return text
    from pygments import highlight  # type: ignore[import-untyped]
    from pygments.formatters import Terminal256Formatter  # type: ignore[import-untyped]
    from pygments.lexers import PythonLexer  # type: ignore[import-untyped]
    from pygments.util import ClassNotFound  # type: ignore[import-untyped]

    try:
        formatter = Terminal256Formatter(style=NAMED.get(style, style))
    except ClassNotFound as error:
        hint = f"use {', '.join(NAMED)} or a pygments style"
        raise InvalidValueError(f"unknown style '{style}'", hint=hint) from error
    return str(highlight(text, PythonLexer(stripnl=False, ensurenl=False), formatter))

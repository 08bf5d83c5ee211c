"""Numbers of files that native code and memory maps trust."""

from __future__ import annotations

from typing import Any

LARGEST = 1 << 47  # more bytes, elements or pieces than any process can hold


def check_count(what: str, number: Any, most: int = LARGEST) -> None:
    """See that a number read from a file is a count that can be. Raises ValueError naming `what`."""
    if type(number) is not int or not 0 <= number <= most:
        raise ValueError(f"{what} is {str(number)[:40]}")

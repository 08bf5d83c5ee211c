"""Texts from files, names and records as they may be shown: nothing in them steers a terminal or reorders a line."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any

# Control characters of ASCII and Latin-1, those that change the direction of text or end a line, and lone surrogates,
# which no terminal's encoding has.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(text: str, keep: str = "") -> str:
    """The text with such characters as Python writes them in a literal (`\\x1b`), except for those in `keep`."""
    return _UNSAFE.sub(lambda found: found[0] if found[0] in keep else _escape(found[0]), text)


def _escape(char: str) -> str:
    code = ord(char)
    return _NAMED.get(char) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def printable_values(value: object) -> Any:
    """Plain data with all texts in it made printable; lines and tabs in them stay."""
    if isinstance(value, str):
        return printable(value, "\n\t")
    if isinstance(value, dict):
        return {printable_values(key): printable_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [printable_values(item) for item in value]
    return value


def html_table(rows: Sequence[Mapping[str, object]], title: str = "") -> str:
    """Rows as a table of HTML, as notebooks show objects; the columns are the keys of the first row."""
    columns = list(rows[0]) if rows else []
    head = "".join(f"<th>{_html(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{_html(row.get(c))}</td>' for c in columns)}</tr>" for row in rows)
    caption = f"<caption>{_html(title)}</caption>" if title else ""
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_code(text: str) -> str:
    """A text as it is, in a fixed font."""
    return f"<pre>{_html(text)}</pre>"


def _html(value: object) -> str:
    text = "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
    return html.escape(printable(text, "\n\t"))

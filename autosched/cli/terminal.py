"""Text laid out for a terminal: tables that fit its width, and lines that are drawn over each other."""

from __future__ import annotations

import shutil
import unicodedata
from collections.abc import Sequence
from typing import IO

from autosched.cli.output import Table
from autosched.printable import printable

GAP = "  "


def cells_wide(text: str) -> int:
    """How many cells of a terminal a text takes: wide characters two, combining ones none."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.combining(char) > 0 for char in text)


def cut(text: str, width: int) -> str:
    """The text, if it is wider than `width` cells its beginning and an ellipsis."""
    if cells_wide(text) <= width:
        return text
    kept = ""
    for char in text:
        if cells_wide(kept + char) > width - 1:
            break
        kept += char
    return f"{kept}…"[: max(width, 0)]


def fit(table: Table, width: int, height: int | None = None) -> list[str]:
    """Lines of a table that are at most `width` cells wide: title, head, rows; no more than `height` of them.

    Columns leave by their `leaves` (the highest first) until the others fit with those that shrink at their narrowest.
    Rows that have no place are counted in the last line.
    """
    lines = [[column.title for column in table.columns], *table.cells()]
    widths = [max(cells_wide(line[i]) for line in lines) for i in range(len(table.columns))]
    least = [min(w, column.shrinks or w) for w, column in zip(widths, table.columns)]
    kept = list(range(len(table.columns)))

    def total(of: Sequence[int]) -> int:
        return sum(of[i] for i in kept) + len(GAP) * (len(kept) - 1)

    while total(least) > width and any(table.columns[i].leaves for i in kept):
        kept.remove(max(kept, key=lambda i: (table.columns[i].leaves, i)))
    for i in sorted(kept, key=lambda i: -widths[i]):
        if table.columns[i].shrinks:
            widths[i] = max(least[i], widths[i] - max(0, total(widths) - width))
    title = [cut(printable(table.title), width)] if table.title else []
    shown = lines
    room = len(lines) if height is None else max(1, height - len(title))
    if len(lines) > room:
        shown = lines[: max(1, room - 1)]
    result = []
    for line in shown:
        cells = []
        for i in kept:
            text = cut(line[i], widths[i])
            pad = " " * (widths[i] - cells_wide(text))
            cells.append(pad + text if table.columns[i].right else text + pad)
        result.append(cut(GAP.join(cells).rstrip(), width))
    more = [cut(f"… {len(lines) - len(shown)} more", width)] if len(shown) < len(lines) and room > 1 else []
    return [*title, *result, *more]


class Live:
    """Lines on a terminal that replace those of before; use it in a `with` block."""

    def __init__(self, out: IO[str]):
        self.out = out
        self._n_lines = 0

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows that lines may take: one less than there are, so that no line wraps or scrolls."""
        columns, rows = shutil.get_terminal_size()
        return max(20, columns - 1), max(4, rows - 1)

    def __enter__(self) -> Live:
        self.out.write("\x1b[?25l")  # the cursor is hidden
        return self

    def __exit__(self, *_: object) -> None:
        self.out.write("\x1b[?25h")
        self.out.flush()

    def show(self, lines: Sequence[str], *, is_last: bool = False) -> None:
        """Draw lines in the place of the last ones. What is wider than the terminal is cut; the last may be higher."""
        width, height = self.size
        lines = [cut(line, width) for line in (lines if is_last else lines[:height])]
        up = f"\x1b[{self._n_lines}A" if self._n_lines else ""
        self.out.write(f"{up}\r\x1b[J" + "".join(f"{line}\n" for line in lines))
        self.out.flush()
        self._n_lines = len(lines)

"""Marking nodes in the text: two control characters around their text become a line of carets below it.

The characters cannot be part of the text itself, since strings are printed with escapes.
"""

from __future__ import annotations

from collections.abc import Sequence

START, END = "\x02", "\x03"


def around(text: str) -> str:
    """`text` with marks around it."""
    return f"{START}{text}{END}"


def _columns(line: str) -> tuple[str, list[tuple[int, int]]]:
    """The line without marks, and the marked [start, end) columns."""
    if START not in line:
        return line, []
    plain: list[str] = []
    spans: list[tuple[int, int]] = []
    starts: list[int] = []
    for char in line:
        if char == START:
            starts.append(len(plain))
        elif char == END:
            spans.append((starts.pop() if starts else 0, len(plain)))
        else:
            plain.append(char)
    return "".join(plain), spans


def _carets(spans: Sequence[tuple[int, int]]) -> str:
    width = max(end for _, end in spans)
    cells = [" "] * width
    for start, end in spans:
        cells[start:end] = "^" * (end - start)
    return "".join(cells)


def render(lines: Sequence[str], *, numbers: bool = False, context: int = -1) -> str:
    """The final text: marked lines get a line of carets, `numbers` adds line numbers.

    context  with a mark: how many lines around it stay; -1 for all. Left out lines become "…".
    """
    rows = [_columns(line) for line in lines]
    marked = [i for i, (_, spans) in enumerate(rows) if spans]
    near = range(len(rows)) if context < 0 or not marked else _near(marked, context, len(rows))
    width = len(str(len(rows)))
    out: list[str] = []
    last = -1
    for i in near:
        if i != last + 1:
            out.append("…")
        last = i
        plain, spans = rows[i]
        out.append(f"{i + 1:>{width}} {plain}".rstrip() if numbers else plain)
        if spans:
            out.append((" " * (width + 1) if numbers else "") + _carets(spans))
    if near and last != len(rows) - 1:
        out.append("…")
    return "\n".join(out)


def _near(marked: Sequence[int], context: int, n_lines: int) -> list[int]:
    return sorted({j for i in marked for j in range(max(0, i - context), min(n_lines, i + context + 1))})

"""Tables on stdout as text, JSON or CSV. Numbers keep their full value and unit outside of text tables."""

from __future__ import annotations

import csv
import json
import math
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from autosched.errors import UsageError
from autosched.json_types import Json
from autosched.printable import printable

if TYPE_CHECKING:
    pass

Row = Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Column:
    """One column: `key` names it in JSON and CSV, `title` in a table, `text` turns a value into table text.

    `shrinks` is the least width on a live display; a column with `leaves` goes, the highest first, for want of place.
    `joined`: it came later, and stands behind the others in JSON and CSV, where scripts count columns.
    """

    key: str
    title: str
    text: Callable[[Any], str] = str
    right: bool = False
    shrinks: int = 0
    leaves: int = 0
    joined: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under columns, and what is said of all of them together."""

    columns: Sequence[Column]
    rows: Sequence[Row]
    title: str = ""
    summary: Mapping[str, Json] = field(default_factory=dict)

    def cells(self) -> list[list[str]]:
        """Give the text of every cell; "–" where there is no value. What records and names hold steers no terminal."""

        def text(column: Column, value: object) -> str:
            return "–" if value is None else printable(column.text(value))

        return [[text(column, row.get(column.key)) for column in self.columns] for row in self.rows]


def show(table: Table, form: str, out: IO[str] | None = None) -> None:
    """Print a table in the form that -f asks for."""
    out = out or sys.stdout
    columns = sorted(table.columns, key=lambda column: column.joined)
    match form:
        case "json":
            rows = [{column.key: row.get(column.key) for column in columns} for row in table.rows]
            print_json({**table.summary, "rows": rows} if table.summary else rows, out)
        case "csv":
            writer = csv.writer(out, lineterminator="\n")
            writer.writerow([column.key for column in columns])
            writer.writerows([_csv_cell(row.get(column.key)) for column in columns] for row in table.rows)
        case "markdown":
            _show_markdown(table, out)
        case _:
            _show_plain(table, out)


def _show_markdown(table: Table, out: IO[str]) -> None:
    if table.title:
        print(f"{printable(table.title)}\n", file=out)
    titles = [column.title for column in table.columns]
    rules = ["---:" if column.right else "---" for column in table.columns]
    for line in (titles, rules, *table.cells()):
        print(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |", file=out)


def _csv_cell(value: object) -> object:
    """Give what stands in a CSV cell: numbers and text as they are, lists and dictionaries as JSON."""
    if isinstance(value, list | tuple | Mapping):
        return json.dumps(value, default=str)
    return printable(value, "\n\t") if isinstance(value, str) else value


def print_json(document: object, out: IO[str] | None = None) -> None:
    """Print plain data as JSON."""
    print(json.dumps(document, indent=2, default=str), file=out or sys.stdout)


def say(text: str, *, quiet: bool = False) -> None:
    """Tell the user something that is no result; it goes to stderr, on a terminal wrapped between words."""
    if quiet:
        return
    text = printable(text, "\n\t")
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns
        wrapper = textwrap.TextWrapper(width, break_long_words=False, break_on_hyphens=False)
        text = "\n".join(wrapper.fill(line) for line in text.split("\n"))
    click.echo(text, err=True)


def _show_plain(table: Table, out: IO[str]) -> None:
    titles = [column.title for column in table.columns]
    lines = [titles, *table.cells()]
    widths = [max(len(line[i]) for line in lines) for i in range(len(titles))]
    if table.title:
        print(printable(table.title), file=out)
    bold = out.isatty()
    for number, line in enumerate(lines):
        cells = [
            cell.rjust(width) if column.right else cell.ljust(width)
            for cell, width, column in zip(line, widths, table.columns, strict=True)
        ]
        text = "  ".join(cells).rstrip()
        print(f"\x1b[1m{text}\x1b[0m" if bold and number == 0 else text, file=out)


def milliseconds(seconds: float) -> str:
    """Write a time in milliseconds with three digits that mean something: 0.00521, 1.92, 373."""
    ms = seconds * 1e3
    if not 0 < ms < 100:
        return f"{ms:.0f}"
    return f"{ms:.{2 - math.floor(math.log10(ms))}f}"


def count(number: int, thing: str) -> str:
    """Write how many there are of a thing: "1 record", "2 records"."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def percent(share: float) -> str:
    """Write a share as percent."""
    return f"{share * 100:.0f} %"


def factor(value: float) -> str:
    """Write a speed-up."""
    return f"{value:.2f}×"


def size(size_bytes: float) -> str:
    """Write a number of bytes with its unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < 1024 or unit == "GiB":
            return f"{size_bytes:.0f} {unit}" if unit == "B" or size_bytes >= 10 else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    raise AssertionError("the loop ends at GiB")


def clock(seconds: float) -> str:
    """Write a duration as 4:10 or 1:02:03."""
    whole = max(0, round(seconds))
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


def export(table: Table, files: Mapping[str, Path], document: Mapping[str, object]) -> None:
    """Write a table to files by their form ("csv", "markdown"); "json" gets the whole document. Raises UsageError."""
    for form, path in files.items():
        try:
            with open(path, "w", encoding="utf-8") as out:
                if form == "json":
                    json.dump(document, out, indent=2, default=str)
                else:
                    show(table, form, out)
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror or error}") from None

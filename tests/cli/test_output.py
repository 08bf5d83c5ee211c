"""The three forms of a table, and how numbers are written."""

from __future__ import annotations

import io
import json

import pytest

from autosched.cli.output import Column, Table, clock, milliseconds, show, size

COLUMNS = (Column("name", "what"), Column("best_s", "best ms", milliseconds, right=True))
ROWS = [{"name": "conv, 3x3", "best_s": 0.00131}, {"name": "dense", "best_s": None}]


def text_of(form: str, table: Table) -> str:
    out = io.StringIO()
    show(table, form, out)
    return out.getvalue()


def test_plain_table_lines_up_without_a_terminal() -> None:
    assert text_of("table", Table(COLUMNS, ROWS)) == (
        "what       best ms\n"
        "conv, 3x3     1.31\n"
        "dense            –\n"
    )  # fmt: skip


def test_json_keeps_seconds() -> None:
    assert json.loads(text_of("json", Table(COLUMNS, ROWS))) == ROWS
    with_summary = json.loads(text_of("json", Table(COLUMNS, ROWS, summary={"n_trials": 3})))
    assert with_summary == {"n_trials": 3, "rows": ROWS}


def test_csv_quotes() -> None:
    assert text_of("csv", Table(COLUMNS, ROWS)) == 'name,best_s\n"conv, 3x3",0.00131\ndense,\n'


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.373, "373"),
        (0.0259, "25.9"),
        (0.00192, "1.92"),
        (0.000318, "0.318"),
        (0.0000052, "0.00520"),
        (1.39e-7, "0.000139"),
        (0.0, "0"),
    ],
)
def test_milliseconds_show_digits_that_mean_something(seconds: float, text: str) -> None:
    assert milliseconds(seconds) == text


def test_sizes_and_clocks() -> None:
    assert [size(n) for n in (0, 1023, 1536, 20 << 20, 5 << 40)] == ["0 B", "1023 B", "1.5 KiB", "20 MiB", "5120 GiB"]
    assert [clock(s) for s in (0, 59.6, 250, 3723)] == ["0:00", "1:00", "4:10", "1:02:03"]


@pytest.mark.parametrize("form", ["table", "markdown", "csv", "json"])
def test_names_steer_no_terminal(form: str) -> None:
    evil = "conv\x1b[2J\x9b1m\u202etxt\r\udcff"
    shown = text_of(form, Table(COLUMNS, [{"name": evil}], title=f"of {evil}"))
    assert "conv" in shown
    assert not set(shown) & set("\x1b\x9b\u202e\r\udcff")
    if form != "json":
        assert "conv\\x1b[2J\\x9b1m\\u202etxt\\r\\udcff" in shown


def test_a_cell_is_one_line() -> None:
    assert len(text_of("table", Table(COLUMNS, [{"name": "a\nb"}])).splitlines()) == 2

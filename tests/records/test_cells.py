"""A database whose structure is whole and whose cells hold nonsense: every command says so, none falls over."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from autosched.cli import main
from autosched.records import open_store
from autosched.testing.tasks import record
from tests.spread import spread

CELLS = {
    "records": (
        "workload_id", "device_id", "threads", "template", "config", "status", "median_s", "baseline_s", "is_default",
        "is_winner", "time", "host", "session", "details", "uid",
    ),
    "workloads": ("key", "op"),
    "devices": ("key", "family", "document"),
    "autosched_meta": ("value",),
}  # fmt: skip
NONSENSE: tuple[Any, ...] = ("abc", 999, -1.5, 1e308, b"\xff\x00\xfe", "[" * 3000, "<script>", 2**62, "\x00")
COMMANDS = (
    ["list"],
    ["ls", "--where", "ms>0"],
    ["best"],
    ["stats"],
    ["show"],
    ["watch", "--once"],
    ["verify"],
    ["explain", "matmul"],
)
PARTS = 4
CELL_NAMES = [(table, column) for table, columns in CELLS.items() for column in columns]
CASES = [(number, cell, part) for number, cell in enumerate(CELL_NAMES) for part in range(PARTS)]


def spoil(path: Path, table: str, column: str, value: Any) -> bool:
    """Put a value into one cell; False where the database itself refuses it."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA foreign_keys=OFF")
        try:
            last = f"(SELECT max(rowid) FROM {table})"
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = {last}", (value,))
        except sqlite3.Error:
            return False
    return True


@spread(PARTS, "number, cell, part", CASES)
def test_nonsense_in_a_cell(
    number: int, cell: tuple[str, str], part: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every day each cell meets each value and each command, by a quarter of their pairs; another one for each cell."""
    good = tmp_path / "good.db"
    with open_store(good) as store:
        store.add([record(i, winner=i == 5) for i in range(1, 6)])
    with closing(sqlite3.connect(good)) as connection:
        connection.execute("pragma wal_checkpoint(truncate)")
    content = good.read_bytes()
    for i, value in enumerate(NONSENSE):
        path = tmp_path / f"{i}.db"
        path.write_bytes(content)
        if not spoil(path, *cell, value):
            continue
        for command in COMMANDS[(number + part + i) % PARTS :: PARTS]:
            code = main(["logs", *command, "--db", str(path), "-f", "json"])
            said = capsys.readouterr().err
            assert code in (0, 2, 4) and "Traceback" not in said, (cell, value, command, said)

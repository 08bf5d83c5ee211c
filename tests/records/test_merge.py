"""Merging databases is idempotent and commutative, and keeps raw measurements."""

from __future__ import annotations

import dataclasses
import itertools
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from autosched.records import open_store
from autosched.testing.tasks import matmul_task, record

POOL = [
    dataclasses.replace(record(rows, winner=rows % 2 == 0), time=float(time), host=host, versions={"numba": "1"})
    for rows, time, host in itertools.product(range(1, 4), (1, 2), ("here", "there"))
]
RECORDS = st.lists(st.sampled_from(POOL), max_size=8)


@settings(max_examples=15, deadline=None)
@given(first=RECORDS, second=RECORDS)
def test_merge(first: list[object], second: list[object]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        with open_store(where / "a") as a, open_store(where / "b") as b:
            a.add(first)  # type: ignore[arg-type]
            b.add(second)  # type: ignore[arg-type]
            with open_store(where / "ab") as ab, open_store(where / "ba") as ba:
                ab.merge(a), ab.merge(b), ba.merge(b), ba.merge(a)
                lines = sorted(r.line for r in ab.records())
                assert lines == sorted(r.line for r in ba.records()) == sorted({r.line for r in [*first, *second]})  # type: ignore[attr-defined]
                assert ab.best(matmul_task()) == dataclasses.replace(ba.best(matmul_task()), origin=ab.origin)
                assert ab.merge(a) == ab.merge(b) == 0 and ab.merge(ba) == 0

"""A sample of what `python -m tests.fuzz` reads."""

from __future__ import annotations

import pytest

from tests.fuzz.kinds import KINDS
from tests.fuzz.run import GOOD, fuzz

COUNTS = {"onnx": 30, "jsonl": 25, "sqlite": 12, "toml": 120, "script": 120, "npz": 150, "asx": 60}


@pytest.mark.parametrize("name", COUNTS)
def test_mutants_are_read_or_refused(name: str) -> None:
    found = fuzz(name, COUNTS[name])
    assert not found.bad, found.bad[:3]
    assert sum(found.counts[outcome] for outcome in GOOD) == COUNTS[name] and found.counts["refused"]


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_many_mutants(name: str) -> None:
    found = fuzz(name, 600, seed=1)
    assert not found.bad, found.bad[:3]

"""The gate against an earlier measurement."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autosched.driver.bench.baseline import compare_with_baseline, read_baseline
from autosched.driver.bench.entry import BenchReport
from autosched.errors import UsageError


def report(median_s: float, interval_s: float = 0.0, name: str = "m", threads: int = 1) -> BenchReport:
    row = {"name": name, "threads": threads, "median_s": median_s, "interval_s": interval_s}
    return BenchReport((row,), (), "a machine")


def test_change_and_limit() -> None:
    (change,), warnings = compare_with_baseline(report(1.06), report(1.0).to_json())
    assert not warnings
    assert change.text == "m (1 thread): +6.0 ± 0.0 %"
    assert change.is_worse(0.05)
    assert not change.is_worse(0.07)


def test_a_change_within_the_interval_is_none() -> None:
    (change,), _ = compare_with_baseline(report(1.06, 0.05), report(1.0, 0.05).to_json())
    assert "no change found at ± 7.3 % (+6.0 %)" in change.text
    assert not change.is_worse(0.05)


def test_faster_never_fails() -> None:
    (change,), _ = compare_with_baseline(report(0.5), report(1.0).to_json())
    assert change.text == "m (1 thread): -50.0 ± 0.0 %"
    assert not change.is_worse(0.0)


def test_rows_go_by_name_and_threads() -> None:
    with pytest.raises(UsageError, match=r"none of these programs.*m \(2 threads\)"):
        compare_with_baseline(report(1.0), report(1.0, threads=2).to_json())


def test_another_machine_is_said() -> None:
    _, (warning,) = compare_with_baseline(report(1.0), {**report(1.0).to_json(), "environment": "old machine"})
    assert "another machine: old machine" in warning


def test_only_reports_are_read(tmp_path: Path) -> None:
    good = tmp_path / "good.json"
    good.write_text(json.dumps(report(1.0).to_json()))
    assert read_baseline(good)["rows"][0]["median_s"] == 1.0
    for text in (
        "",
        "[]",
        "{}",
        '{"rows": []}',
        '{"rows": [{"name": "a"}]}',
        '{"rows": [{"median_s": 1}]}',
        "not json",
    ):
        bad = tmp_path / "bad.json"
        bad.write_text(text)
        with pytest.raises(UsageError, match="holds no measurements"):
            read_baseline(bad)
    with pytest.raises(UsageError, match="cannot read"):
        read_baseline(tmp_path / "none.json")

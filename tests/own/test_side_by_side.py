"""An own function's default beside what is known."""

from __future__ import annotations

import numpy as np
import pytest

from autosched.driver.options import TuneOptions
from autosched.errors import AutoschedError
from autosched.own.side_by_side import bench_call
from autosched.records import Found
from autosched.records.found import Trust, miss
from autosched.space import Config
from tests.own import kernels

pytestmark = pytest.mark.early


def known(**knobs: int) -> Found:
    """What a look-up finds."""
    return Found(Config(kernels.scale.space.name, knobs), "a test", Trust.HERE)


def test_the_default_and_what_was_found_in_turn() -> None:
    x = np.arange(100_000.0)
    report = bench_call(kernels.scale, (x, 2.0), known(block=64), runs=30)
    assert (x == np.arange(100_000.0)).all(), "in copies"
    default, tuned = report.rows
    assert (default["name"], tuned["name"]) == ("scale default", "scale tuned")
    assert min(default["n_runs"], tuned["n_runs"]) >= 30 and tuned["median_s"] > 0 and default["cpu_s"] is None
    assert "block=1" in default["config"] and "block=64" in tuned["config"]
    assert len(report.verdicts) == 1 and "scale tuned" in report.verdicts[0]


def test_one_row_where_there_is_nothing_to_compare_with() -> None:
    values = (np.arange(1000.0), 2.0)
    report = bench_call(kernels.scale, values, known(block=1), runs=6)
    assert [row["name"] for row in report.rows] == ["scale default"]
    assert report.verdicts == ("scale: the default is the best that is known for these arguments",)
    report = bench_call(kernels.scale, values, miss("a test", "no record"), time_s=0.1)
    (text,) = report.verdicts
    assert text == "scale: nothing tuned to compare with (no record); autosched tune tests.own.kernels:scale"


def test_what_fails_is_an_error_with_its_text() -> None:
    x = np.linspace(1.0, 2.0, 100)
    wrong = Found(Config(kernels.double.space.name, {"mode": kernels.WRONG}), "a test", Trust.HERE)
    with pytest.raises(AutoschedError, match="double tuned does not run .wrong_result."):
        bench_call(kernels.double, (x, np.empty_like(x)), wrong, runs=6)


def test_throughput_has_other_instances_beside() -> None:
    options = TuneOptions(run_as="throughput")
    report = bench_call(kernels.scale, (np.arange(1000.0), 2.0), known(block=64), runs=6, options=options)
    assert [row["threads"] for row in report.rows] == [1, 1]

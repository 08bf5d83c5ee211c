"""Tuning of own functions end to end: real workers, real crashes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import autosched
from autosched.errors import UsageError
from autosched.own.function import AutotunedFunction
from autosched.records import Record
from autosched.task import Status
from tests.driver.programs import TUNED_HERE
from tests.own import kernels
from tests.own.kernels import CRASH, FAST, GOOD, HALF, HANG, HUGE, RAISE, SCRIBBLE, WRONG

pytestmark = pytest.mark.early


@pytest.fixture(autouse=True)
def _forgets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOSCHED_DB", str(tmp_path / "usual.db"))
    for function in vars(kernels).values():
        if isinstance(function, AutotunedFunction):
            function.forget()


def by_knob(function: AutotunedFunction, knob: str) -> dict[object, Record]:
    """The first record of each value of a knob."""
    found: dict[object, Record] = {}
    for record in function.records():
        found.setdefault(record.config[knob], record)
    return found


def workers() -> set[int]:
    """The processes whose parent we are and that serve a tuning."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and b"measure.worker" in (path.parent / "cmdline").read_bytes():
                found.add(int(path.parent.name))
    return found


FIRST = """
import autosched, numba, numpy as np
from collections import namedtuple

Factor = namedtuple("Factor", "value")

@autosched.autotune({"block": [64, 256]})
@numba.njit
def scale(x, a, block=256):
    for i in range(x.size):
        x[i] = x[i] * a.value
    return Factor(x[0])

print(scale.tune(np.ones(1000), Factor(2.0), trials=2).tasks[0].state)
"""


def test_a_function_of_the_command_line_has_a_winner_and_takes_its_named_tuples(tmp_path: Path) -> None:
    env = {**os.environ, "AUTOSCHED_DB": str(tmp_path / "first.db"), "AUTOSCHED_CACHE_DIR": str(tmp_path / "cache")}
    ran = subprocess.run([sys.executable, "-c", FIRST], env=env, capture_output=True, text=True, timeout=120)
    assert ran.stdout.startswith("done"), ran.stdout + ran.stderr


def test_an_in_place_function_is_right_before_during_and_after_tuning() -> None:
    x = np.arange(5000.0)
    kernels.scale(x, 2.0)
    assert (x == 2 * np.arange(5000.0)).all()
    report = kernels.scale.tune(x, 2.0)
    assert report.peak is not None and report.peak.flops == 2 * x.size and report.peak.size_bytes == x.nbytes
    assert report.peak.share > 0 and "of this machine's " in report.peak.text
    assert (x == 2 * np.arange(5000.0)).all(), "tuning works on copies"
    assert report.n_trials == 3 and report.n_failed == 0
    kernels.scale(x, 0.5)
    assert (x == np.arange(5000.0)).all()
    best = kernels.scale.best_config(x, 2.0)
    assert str(best) == report.tasks[0].config
    assert kernels.scale.explain(x, 2.0).trust in TUNED_HERE
    winner = [record for record in kernels.scale.records(x, 2.0) if record.is_winner][-1]
    assert winner.config == best and winner.workload.op == "own/tests.own.kernels:scale"
    assert winner.measurement.checked_against == "the default's results"


def test_bad_candidates_cost_one_trial_each_and_never_win() -> None:
    x = np.linspace(1.0, 2.0, 3000)
    out = np.empty_like(x)
    report = kernels.double.tune(x, out, timeout=3.0, budget="2m")
    found = {mode: record.measurement.status for mode, record in by_knob(kernels.double, "mode").items()}
    assert found == {
        GOOD: Status.OK, FAST: Status.OK, HALF: Status.WRONG_RESULT, CRASH: Status.CRASH, HANG: Status.TIMEOUT,
        HUGE: Status.OUT_OF_MEMORY, WRONG: Status.WRONG_RESULT, SCRIBBLE: Status.WRONG_RESULT, RAISE: Status.RUN_ERROR,
    }  # fmt: skip
    texts = {mode: record.measurement.error for mode, record in by_knob(kernels.double, "mode").items()}
    assert "not written" in texts[HALF] and "out[1500]" in texts[HALF]
    assert "changed its input 'x'" in texts[SCRIBBLE]
    assert "no good" in texts[RAISE]
    assert kernels.double.best_config(x, out)["mode"] == FAST
    assert report.failures["wrong_result"] == 3
    assert not workers(), "none is left"


def test_leftovers_of_another_candidate_cannot_pass() -> None:
    x, out = np.ones(1000), np.zeros(1000)
    report = kernels.fill.tune(x, out)
    statuses = {half: record.measurement.status for half, record in by_knob(kernels.fill, "half").items()}
    assert statuses == {0: Status.WRONG_RESULT, 1: Status.WRONG_RESULT}
    assert report.tasks[0].state == "nothing worked"
    assert kernels.fill.best_config(x, out)["half"] == 0, "the default is all that there is"


def test_a_default_that_fails_is_told() -> None:
    with pytest.raises(UsageError, match="the default of scale does not run"):
        kernels.scale.tune(np.arange(3), "text")


def test_records_and_named_tuples_are_tuned_and_random_numbers_told() -> None:
    table = np.ones(100, [("a", "f8"), ("b", "f8")])
    assert kernels.add_fields.tune(kernels.Pair(table, 2.0)).n_failed == 0
    assert (table["a"] == 1).all()
    kernels.add_fields(kernels.Pair(table, 2.0))
    assert (table["a"] == 3).all()
    with pytest.raises(UsageError, match="draw is not deterministic") as refused:
        kernels.draw.tune(np.ones(10))
    assert "draw random numbers outside" in str(refused.value) and "Traceback" not in str(refused.value)


def test_another_candidate_is_measured_alone() -> None:
    x = np.ones(64)
    assert kernels.total.tune(x, 64).n_trials == 3
    wider = autosched.autotune({"unroll": [1, 2, 4, 8]}, key=["n"])(kernels.total.py_func)
    assert wider.tune(x, 50).n_trials == 1, "the same bucket, and three are known"
    assert wider(x, 10) == 10.0
    assert {record.config["unroll"] for record in wider.records()} == {1, 2, 4, 8}

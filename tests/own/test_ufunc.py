"""Ufuncs of Numba, tuned."""

from __future__ import annotations

from pathlib import Path

import numba
import numpy as np
import pytest

import autosched
from autosched.errors import UsageError
from autosched.space import Config


@autosched.autotune({"parts": [1, 2], "fastmath": [False, True]})
@numba.vectorize
def plus_one(x, parts=1):
    for _ in range(parts):
        x = x + 1.0 / parts
    return x


@autosched.autotune({"block": [4, 64]})
@numba.guvectorize("(n),()->(n)")
def times(x, a, out, block=4):
    for start in range(0, x.size, block):
        for i in range(start, min(start + block, x.size)):
            out[i] = x[i] * a


@autosched.autotune("auto")
@numba.guvectorize(["void(float64[:], float64, float64[:])"], "(n),()->(n)")
def typed(x, a, out):
    for i in range(x.size):
        out[i] = x[i] / a


@autosched.autotune({"fastmath": [False, True]})
@numba.vectorize(["float32(float32, float32)", "float64(float64, float64)"], identity=0)
def add(x, a):
    return x + a


@pytest.fixture(autouse=True)
def usual(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOSCHED_DB", str(tmp_path / "usual.db"))


def test_a_ufunc_is_called_as_numpys_are() -> None:
    x = np.arange(6.0).reshape(2, 3)
    out = np.zeros_like(x)
    assert np.array_equal(plus_one(x, parts=2), x + 1)
    assert plus_one(x, out=out) is out and np.array_equal(out, x + 1)
    assert plus_one(2.0) == 3.0 and plus_one(x.astype("float32")).dtype == np.float64
    assert np.array_equal(plus_one(x[:, ::2]), x[:, ::2] + 1)
    times(x, np.array([2.0, 3.0]), out)
    assert np.array_equal(out, x * [[2.0], [3.0]])
    assert np.array_equal(typed(x, 2.0), x / 2) and typed(x, 2.0, out) is out
    assert add(x.astype("float32"), np.float32(1)).dtype == np.float32
    with pytest.raises(TypeError, match="'out'"):
        times(x, 2.0)


def test_knobs_are_constants_of_a_ufunc() -> None:
    x = np.ones(3)
    assert "range(2)" in plus_one.source(x, config=Config(plus_one.space.name, {"parts": 2, "fastmath": True}))
    assert "x.size, 64" in times.source(x, 2.0, x, config=Config(times.space.name, {"block": 64}))
    assert [knob.name for knob in typed.space.knobs] == ["fastmath"], "error_model is no option of ufuncs"
    inner = plus_one.jitted(x)

    @numba.njit
    def calls(values):
        return inner(values)

    assert np.array_equal(calls(x), x + 1)


def test_ufuncs_are_tuned_and_checked(tmp_path: Path) -> None:
    x = np.arange(12.0).reshape(3, 4)
    for function, values in ((plus_one, (x,)), (times, (x, 2.0, np.empty_like(x)))):
        report = function.tune(*values, trials=2, until=0.0, records=tmp_path / "own.db")
        assert report.n_trials == 2 and not report.n_failed, report.failures
        assert len(function.records(*values)) >= 2, "trials, and what was measured at the end"


def test_what_cannot_be_tuned_is_said() -> None:
    with pytest.raises(UsageError, match="parallel"):
        autosched.autotune({"fastmath": [True]})(
            numba.vectorize(["float64(float64)"], target="parallel")(lambda x: x + 1)
        )
    with pytest.raises(UsageError, match="'parallel' is no parameter"):
        autosched.autotune({"parallel": [True]})(numba.vectorize(lambda x: x + 1))

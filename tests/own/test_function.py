"""Calls, look-ups and the small questions that an autotuned function answers; nothing is tuned here."""

from __future__ import annotations

import linecache
import os
import pickle
import subprocess
import sys
import timeit
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

import autosched
from autosched.env import AUTOSCHED_DB
from autosched.errors import SpaceError, UsageError
from autosched.own.function import AutotunedFunction
from autosched.records import ApplyConfig, make_record, open_store
from autosched.space import Config, ConfigSpace, Knob
from autosched.task import Measurement, Status, Trial
from tests.own import kernels
from tests.spread import spread


@pytest.fixture(autouse=True)
def usual(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("AUTOSCHED_DB", str(tmp_path / "usual.db"))
    for function in vars(kernels).values():
        if isinstance(function, AutotunedFunction):
            function.forget()
    return tmp_path / "usual.db"


def win(function: AutotunedFunction, values: tuple[Any, ...], version: str = "", **knobs: Any) -> None:
    """Store a winner for a call."""
    task = function.task_for(values)
    trial = Trial(Config(function.space.name, knobs), Measurement(Status.OK, (1e-6,), how={"baseline_s": 3e-6}))
    versions = {"template": version or function.version}
    with open_store(AUTOSCHED_DB.get()) as store:
        default = function.space.default_for(function.space_for(values))
        store.add([make_record(task, trial, is_winner=True, versions=versions, default=default)])
    function.forget()


def test_without_a_record_a_call_has_the_default() -> None:
    x = np.arange(10.0)
    assert kernels.scale(x, 2.0) is None and (x == 2 * np.arange(10.0)).all()
    assert kernels.scale.best_config(x, 2.0) == Config("own/tests.own.kernels:scale", {"block": 1})
    found = kernels.scale.explain(x, 2.0)
    assert not found and found.reason == "no record"
    assert kernels.total.best_config(x, 5)["unroll"] == 1, "without a default the first candidate"


def test_a_record_is_used_for_its_shapes_alone() -> None:
    x = np.arange(1000.0)
    win(kernels.scale, (x, 2.0), block=64)
    assert kernels.scale.best_config(x, 2.0)["block"] == 64
    assert kernels.scale.best_config(np.arange(10.0), 2.0)["block"] == 1
    assert kernels.scale.best_config(x.astype(np.float32), 2.0)["block"] == 1
    kernels.scale(x, 3.0)
    assert (x == 3 * np.arange(1000.0)).all()
    assert "min(start + 64, x.size)" in kernels.scale.source(x, 2.0)


def test_a_near_size_gets_its_neighbours_configuration_where_it_gains() -> None:
    win(kernels.scale, (np.arange(1000.0), 2.0), block=64)
    found = kernels.scale.explain(np.arange(1200.0), 2.0)
    assert found.config is not None and found.config["block"] == 64 and found.trust == "near shape"


def test_a_changed_source_is_a_miss_with_the_reason() -> None:
    x = np.arange(1000.0)
    win(kernels.scale, (x, 2.0), version="0123456789ab", block=64)
    found = kernels.scale.explain(x, 2.0)
    assert not found and "recorded with version 0123456789ab" in found.reason and kernels.scale.version in found.reason


def test_a_value_that_is_no_candidate_any_more_is_a_miss_with_the_reason() -> None:
    x = np.arange(1000.0)
    win(kernels.scale, (x, 2.0), block=77)
    assert "block=77 is no candidate" in kernels.scale.explain(x, 2.0).reason


def test_values_fall_into_buckets() -> None:
    x = np.ones(4000)
    win(kernels.total, (x, 1000), unroll=4)
    assert [kernels.total.best_config(x, n)["unroll"] for n in (513, 1024)] == [4, 4]
    assert kernels.total.explain(x, 1024).trust == "verified here"
    assert kernels.total.task_for((x, 513)).workload.shapes == ((1024,),)
    assert kernels.total(x, 600) == 600.0 and kernels.total(x, 1000) == 1000.0


def test_constraints_hold_for_each_call() -> None:
    x = np.ones(4)
    win(kernels.total, (x, 4), unroll=4)
    assert kernels.total.best_config(x, 4)["unroll"] == 4
    assert kernels.total.best_config(x, 3)["unroll"] == 1, "the same bucket, and 4 <= 3 does not hold"
    assert kernels.total(x, 3) == 3.0
    with pytest.raises(SpaceError, match="reads m"):
        autosched.autotune({"block": [1, 2]}, constraints=["block <= m"])(kernels.scale.py_func)(np.ones(2), 1.0)


def test_knobs_may_be_given() -> None:
    x = np.arange(10.0)
    kernels.scale(x, 2.0, 64)
    kernels.scale(x, 2.0, block=7)
    assert (x == 4 * np.arange(10.0)).all()
    assert kernels.total(np.ones(8), n=8, unroll=4) == 8.0


def test_a_block_says_what_is_used() -> None:
    x = np.arange(10.0)
    kernels.scale(x, 1.0)
    with ApplyConfig(Config("own/tests.own.kernels:scale", {"block": 256})):
        assert kernels.scale.best_config(x, 2.0)["block"] == 256
        kernels.scale(x, 2.0)
    assert kernels.scale.best_config(x, 2.0)["block"] == 1
    assert (x == 2 * np.arange(10.0)).all()


def test_an_error_of_the_function_is_raised_once() -> None:
    @autosched.autotune({"block": [1, 2]})
    @numba.njit
    def fails(x, block=1):
        x[0] += 1
        if x[0] > 1:
            raise KeyError("no")

    x = np.zeros(1)
    fails(x)
    with pytest.raises(KeyError):
        fails(x)
    assert x[0] == 2


def test_arguments_of_other_kinds_than_the_first() -> None:
    @autosched.autotune({"block": [1, 2]})
    @numba.njit
    def add(a, b, block=1):
        return a + b

    assert add(1, 2) == 3 and add(1.5, 2) == 3.5
    assert (add(np.ones(2), 1) == 2).all() and (add(np.ones(2), np.ones(2)) == 2).all()
    assert add((1, 2), (3,)) == (1, 2, 3) and add(b=1, a=2) == 3


def test_defaults_and_rest_of_the_arguments() -> None:
    @autosched.autotune({"block": [1, 2]})
    def f(x: Any, a: float = 2.0, block: int = 1) -> Any:
        return x * a + block

    @autosched.autotune({"block": [1, 2]})
    def g(*values: Any, block: int = 1) -> Any:
        return values[0] + len(values) + block

    assert f(1.0) == 3.0 and f(1.0, 3.0) == 4.0 and f(1.0, a=3.0, block=2) == 5.0
    assert g(1, 2) == 4 and g(1, 2, 3, block=2) == 6


def test_a_space_and_options_of_numba_as_knobs() -> None:
    space = ConfigSpace("any", [Knob("fastmath", (False, True)), Knob("threads", (1, 2, 64))], ["threads < 64"])

    @autosched.autotune(space)
    @numba.njit(parallel=True)
    def f(x):
        for i in numba.prange(x.size):
            x[i] += numba.get_num_threads()

    x, before = np.zeros(4), numba.get_num_threads()
    f(x)
    assert f.is_parallel and set(x) == {float(f.threads())} and numba.get_num_threads() == before
    f2 = f.sent_function((x,)).dispatcher(Config(f.space.name, {"fastmath": True, "threads": 1}))
    assert f2.targetoptions["fastmath"] is True and f2.targetoptions["parallel"] is True


def test_it_is_the_function_in_all_small_things() -> None:
    assert kernels.scale.__doc__ == "Multiply in place." and kernels.scale.__name__ == "scale"
    assert "block" in repr(kernels.scale) and kernels.scale.space.default["block"] == 1
    assert pickle.loads(pickle.dumps(kernels.scale)) is kernels.scale
    assert kernels.scale.example_arguments()[1] == 2.0
    with pytest.raises(UsageError, match="no example arguments"):
        kernels.double.example_arguments()


@pytest.mark.parametrize(
    ("space", "text"),
    [({"blocks": [1]}, "no parameter"), ({}, "no knob"), ([1], "space is a list"), ({"block": 5}, "candidates of"),
     ({"x": [1]}, "before argument")],
)  # fmt: skip
def test_a_space_that_does_not_fit_is_refused(space: Any, text: str) -> None:
    with pytest.raises((UsageError, SpaceError), match=text):
        autosched.autotune(space)(kernels.scale.py_func)


def test_what_cannot_be_tuned_is_refused() -> None:
    class CUDADispatcher:
        __module__ = "numba.cuda.dispatcher"

    with pytest.raises(UsageError, match="CUDA"):
        autosched.autotune({"block": [1]})(CUDADispatcher())  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="stencil"):
        autosched.autotune({"block": [1]})(numba.stencil(lambda x: x[0]))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="arguments"):
        autosched.autotune(kernels.scale.py_func)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="in key is no argument"):
        autosched.autotune({"block": [1]}, key=["m"])(kernels.scale.py_func)


@pytest.mark.parametrize(("mode", "n_tuned"), [("lookup", 0), ("tune", 1), ("force", 2)])
def test_the_settings_may_let_a_call_tune(monkeypatch: pytest.MonkeyPatch, mode: str, n_tuned: int) -> None:
    tuned: list[Any] = []

    def tune(function: AutotunedFunction, *values: Any) -> None:
        tuned.append(values)
        win(function, values, block=64)

    monkeypatch.setattr(AutotunedFunction, "tune", tune)
    monkeypatch.setenv("AUTOSCHED_TUNE", mode)
    for _ in range(2):
        kernels.scale(np.ones(50), 2.0)
        kernels.scale(np.ones(50), 2.0)
        assert kernels.scale.best_config(np.ones(50), 2.0)["block"] == (64 if tuned else 1)
        kernels.scale.forget()
    assert len(tuned) == n_tuned


def test_a_worker_that_imports_does_not_tune(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autosched.own.tune.loading", {"script.py:f"})
    with pytest.raises(UsageError, match="while a worker imported script.py:f"):
        kernels.scale.tune(np.ones(3), 2.0)


def test_tuning_can_be_switched_off(monkeypatch: pytest.MonkeyPatch, usual: Path) -> None:
    monkeypatch.setenv("AUTOSCHED_TUNE", "off")
    with pytest.raises(UsageError, match="switched off"):
        kernels.scale.tune(np.ones(3), 2.0)
    x = np.ones(3)
    kernels.scale(x, 2.0)
    assert not usual.exists() and (x == 2).all()


@pytest.mark.alone
def test_a_call_costs_little_more_than_numbas() -> None:
    x = np.arange(1000.0)

    @numba.njit
    def plain(x, a, n):
        return a

    tuned = autosched.autotune({"block": [1, 2]}, key=["n"])(constant)
    plain(x, 1.0, 3), tuned(x, 1.0, 3)
    scope = {"f": plain, "g": tuned, "x": x}
    calls = [f"{name}(x, 1.0, 3)" for name in "fg"]
    times = [[timeit.timeit(call, globals=scope, number=1000) / 1000 for call in calls] for _ in range(200)]
    plain_s, tuned_s = (min(column) for column in zip(*times, strict=True))
    assert tuned_s - plain_s < 2e-6


def constant(x, a, n, block=1):
    return a


@numba.njit
def scaled_twice(x: Any) -> None:
    kernels.scale(x, 2.0)
    kernels.scale(x, 3.0)


def test_jitted_code_calls_a_tuned_function() -> None:
    x = np.ones(1000)
    win(kernels.scale, (x, 2.0), block=256)
    scaled_twice(x)
    assert (x == 6).all()
    called = kernels.scale.jitted(np.ones(1000), 2.0)
    assert "start + 256" in "".join(linecache.getlines(called.py_func.__code__.co_filename))
    assert numba.typeof(kernels.scale).dispatcher is called, "that of the example's arguments"
    assert "start + 1," in "".join(linecache.getlines(kernels.scale.jitted(x[:10], 2.0).py_func.__code__.co_filename))


PROCESS = """
import numpy as np, sys
sys.path.insert(0, sys.argv[1])
import kept
x = np.ones(8)
kept.add(x, 1.0)
assert (x == 1 + kept.STEP).all(), x
call = next(iter(kept.add._dispatchers.values()))
print(sum(call.stats.cache_hits.values()))
"""
KEPT = """
import autosched, numba
STEP = {step}

@numba.njit
def step(value, a):
    return value + a * STEP

@autosched.autotune({{"block": [2, 4]}})
@numba.njit(parallel={parallel})
def add(x, a, block=2):
    for i in numba.prange(x.size):
        x[i] = step(x[i], a)
"""


@spread(2, "parallel", [False, True])
def test_machine_code_is_kept_for_later_processes(tmp_path: Path, parallel: bool) -> None:
    def hits(step: float) -> int:
        (tmp_path / "kept.py").write_text(KEPT.format(step=step, parallel=parallel))
        env = {**os.environ, "AUTOSCHED_CACHE_DIR": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
        words = [sys.executable, "-c", PROCESS, str(tmp_path)]
        return int(subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout)

    assert [hits(1.0), hits(1.0)] == [0, 1]
    assert hits(2.0) == 0, "what a callee reads has changed"


def test_what_cannot_be_tuned_is_refused_when_it_is_decorated() -> None:
    def numbers(n: int, step: int = 1) -> Any:
        yield from range(0, n, step)

    for func in (numbers, numba.njit(numbers)):
        with pytest.raises(UsageError, match="a generator cannot be tuned"):
            autosched.autotune({"step": [1, 2]})(func)
    with pytest.raises(UsageError, match=r"a budget of 0.01 s is too small for one trial"):
        kernels.scale.tune(np.ones(10), 2.0, budget="10ms")


def test_kinds_of_calls_that_alternate_keep_their_configurations() -> None:
    calls = {64: np.arange(1000.0), 256: np.arange(77.0)}
    for block, x in calls.items():
        win(kernels.scale, (x, 2.0), block=block)
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        callable_of = kernels.scale._callable
        patch.setattr(kernels.scale, "_callable", lambda c: lambda *v: (seen.append(c["block"]), callable_of(c)(*v)))
        for _ in range(3):
            for x in calls.values():
                kernels.scale(x, 2.0)
    assert seen == [64, 256] * 3
    kernels.scale.forget()

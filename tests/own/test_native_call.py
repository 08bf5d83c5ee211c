"""Calls that machine code dispatches: it finds what Python finds, and leaves to Python what it does not know."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autosched
from autosched.own import native_call
from autosched.own.function import AutotunedFunction
from autosched.records import ApplyConfig
from autosched.space import Config


def which(x: Any, a: Any, block: int = 1) -> Any:
    return block


def tuned(monkeypatch: pytest.MonkeyPatch, **more: Any) -> tuple[AutotunedFunction, list[Any]]:
    """A function whose configuration is the first extent of its array, and the arguments of its slow calls."""
    made, slow = autosched.autotune({"block": [1, 2, 3]}, **more)(which), list[Any]()
    kind = type(made)
    usual = kind._slow

    def noted(self: AutotunedFunction, values: tuple[Any, ...], knobs: dict[str, Any]) -> object:
        slow.append(values)
        return usual(self, values, knobs)

    def call_of(self: AutotunedFunction, config: Config) -> Callable[..., object]:
        return lambda x, a: (np.shape(x), config["block"], a)

    monkeypatch.setattr(AutotunedFunction, "_slow", noted)
    monkeypatch.setattr(AutotunedFunction, "_callable", call_of)
    monkeypatch.setattr(AutotunedFunction, "_config_for", lambda self, values: config_of(values[0]))
    return made, slow


def config_of(x: Any) -> Config:
    return Config("own/which", {"block": 1 + int(np.size(x)) % 3})


def test_machine_code_takes_calls_of_known_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    function, slow = tuned(monkeypatch)
    sizes = [(1,), (2,), (2, 1), (1, 2), (), (0,), *((n,) for n in range(3, 12))]
    arrays = [np.ones(shape, dtype) for shape in sizes for dtype in ("float32", "float64")]
    for _ in range(3):
        for x in arrays:
            assert function(x, 2.0) == (x.shape, 1 + x.size % 3, 2.0)
            assert function(x.copy(), 2) == (x.shape, 1 + x.size % 3, 2)
    assert type(vars(type(function))["__call__"]).__name__ == "builtin_function_or_method"
    assert len(slow) == 2 * len(arrays)


def test_what_it_does_not_know_goes_to_python(monkeypatch: pytest.MonkeyPatch) -> None:
    function, slow = tuned(monkeypatch)
    x = np.ones(4)
    assert function(x, 2.0) == function(x, a=2.0) == function(a=2.0, x=x) == function(x, 2.0, **{})
    assert len(slow) == 1
    for wrong in ((), (x,), (x, 1.0, 2, 3)):
        with pytest.raises(TypeError):
            function(*wrong)
    with pytest.raises(TypeError, match="b"):
        function(x, 2.0, b=1)
    assert function(x, 2.0, block=3) == ((4,), 3, 2.0)

    class Other(np.ndarray[Any, Any]):
        pass

    assert function(x.view(Other), 2.0) == ((4,), 2, 2.0)
    with ApplyConfig(Config("own/which", {"block": 3})):
        n = len(slow)
        function(x, 2.0)
        assert len(slow) == n + 1
    function(x, 2.0)
    assert len(slow) == n + 1
    function.forget()
    function(x, 2.0)
    assert len(slow) == n + 2


def test_arrays_where_the_first_call_had_a_number_are_told_apart_by_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    function, _ = tuned(monkeypatch)
    assert function(1, 2.0) == ((), 2, 2.0)
    for n in (4, 5, 6, 4):
        assert function(np.ones(n), 2.0) == ((n,), 1 + n % 3, 2.0)


def test_an_interpreter_with_other_objects_calls_by_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_call, "_is_laid_out_as_expected", lambda: False)
    function, slow = tuned(monkeypatch)
    for n in (4, 5, 4):
        assert function(np.ones(n), 2.0) == ((n,), 1 + n % 3, 2.0)
    assert len(slow) == 2 and isinstance(vars(type(function))["__call__"], staticmethod)


def test_a_call_returns_raises_and_frees_what_the_function_does() -> None:
    @autosched.autotune({"block": [1, 2]})
    def f(x: Any, a: Any, block: int = 1) -> Any:
        if a < 0:
            raise KeyError(a)
        return x

    function: Any = f
    x = np.ones(3)
    for _ in range(3):
        assert (function(x, 1) == x).all()
        with pytest.raises(KeyError):
            function(x, -1)
    call, before = vars(type(function))["__call__"], len(gc.get_objects())
    for _ in range(1000):
        function(x, 1)
    assert len(gc.get_objects()) < before + 100
    del function, f
    gc.collect()
    assert (call(x, 1) == x).all(), "the method owns what its code reads"


def test_threads_call_while_others_forget(monkeypatch: pytest.MonkeyPatch) -> None:
    function, _ = tuned(monkeypatch)
    wrong: list[object] = []

    def run(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for n in rng.integers(1, 12, 2000).tolist():
            if (found := function(np.ones(n), 1.0)) != ((n,), 1 + n % 3, 1.0):
                wrong.append(found)
            if n == 11:
                function.forget()

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong

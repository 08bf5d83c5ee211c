"""`space="auto"`: what the source suggests."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest

import autosched
from autosched.errors import UsageError
from autosched.own.propose import propose


def blocked(x: Any, n: int, block: int = 48, unused: int = 3, is_fast: bool = False) -> None:
    for i in range(0, n, block):
        x[i : i + block] = x[i] + (2 if is_fast else 1)


def divides(x: Any, parts: int = 4) -> Any:
    return [x[i * parts : (i + 1) * parts] // 3 for i in range(4)]


def parallel(x: Any) -> None:
    for i in numba.prange(x.size):
        x[i] += 1


def test_sizes_flags_and_rounding() -> None:
    assert propose(blocked, {}, "auto") == {
        "block": (8, 16, 32, 48, 64, 128, 256),
        "is_fast": (False, True),
        "fastmath": (False, True),
    }


def test_what_the_author_has_set_is_left_alone() -> None:
    assert "fastmath" not in propose(blocked, {"fastmath": False}, "auto")


def test_division_and_slices() -> None:
    found = propose(divides, {}, "auto")
    assert found["parts"] == (1, 2, 4, 8, 16, 32) and found["error_model"] == ("python", "numpy")


def test_threads_where_a_loop_is_parallel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autosched.own.propose.choose_threads", lambda: 6)
    assert propose(parallel, {"parallel": True}, "auto")["num_threads"] == (1, 2, 4, 6)
    assert "num_threads" not in propose(parallel, {}, "auto")


def test_nothing_to_propose_and_no_source() -> None:
    with pytest.raises(UsageError, match="finds no knob"):
        propose(lambda_like, {}, "auto")
    scope: dict[str, Any] = {}
    exec("def f(x, block=1):\n    return x", scope)
    with pytest.raises(UsageError, match="there is none"):
        propose(scope["f"], {}, "auto")
    with pytest.raises(UsageError, match="space is 'all'"):
        propose(blocked, {}, "all")


def lambda_like(x: Any) -> Any:
    return x


def test_the_decorator_takes_it() -> None:
    tuned = autosched.autotune("auto")(numba.njit(blocked))
    x = np.zeros(10)
    tuned(x, 10)
    assert x[0] == 1 and tuned.best_config(x, 10)["block"] == 48 and tuned.best_config(x, 10)["fastmath"] is False

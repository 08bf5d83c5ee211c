"""Functions whose sizes are known when they are called."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import autosched
from autosched import te
from autosched.errors import ShapeError
from autosched.runtime import cpu


@pytest.fixture(scope="module")
def add() -> autosched.Module:
    n = te.var("n")
    a, b = te.placeholder((n,), name="A"), te.placeholder((n,), name="B")
    c = te.compute(a.shape, lambda i: a[i] + b[i], name="C")
    s = te.create_schedule(c.op)
    outer, inner = s[c].split(c.op.axis[0], factor=64)
    s[c].parallel(outer)
    s[c].vectorize(inner)
    text = str(autosched.lower(s, [a, b, c], simple_mode=True))
    assert "T.parallel((n + 63) // 64)" in text and "T.vectorized(64)" in text
    return autosched.build(s, [a, b, c], "llvm", name="add")


@pytest.mark.parametrize("n", [128, 100, 1])
def test_every_size_is_right(add: autosched.Module, n: int) -> None:
    x, out = np.arange(n, dtype=np.float32), np.zeros(n, np.float32)
    add(x, x, out)
    np.testing.assert_array_equal(out, 2 * x)


def test_it_is_timed_and_found_like_any_function(add: autosched.Module) -> None:
    x = autosched.nd.array(np.ones(128, np.float32))
    assert len(add.time_evaluator("add", cpu(), number=2, repeat=3)(x, x, x).results) == 3
    assert add.implements_function("add") and "Tensor([n], float32)" in add["add"].signature


def test_sizes_that_do_not_fit_are_refused(add: autosched.Module, tmp_path: Path) -> None:
    x = np.ones(100, np.float32)
    with pytest.raises(ShapeError, match="'C' has extent 3 where n is 100"):
        add(x, x, np.ones(3, np.float32))
    with pytest.raises(ShapeError, match="2 dimensions instead of 1"):
        add(x, x, np.ones((2, 50), np.float32))
    with pytest.raises(TypeError, match="2 arguments instead of 3"):
        add(x, x)
    with pytest.raises(TypeError, match="dtype float64"):
        add(x, x, np.ones(100))
    with pytest.raises(TypeError, match="no array"):
        add(x, x, "out")
    with pytest.raises(ValueError, match="cannot be saved"):
        add.export_library(tmp_path / "add.so")


def test_a_size_may_be_an_argument() -> None:
    n = te.var("n")
    a = te.placeholder((n, 4), name="A")
    b = te.compute((n,), lambda i: a[i, 0] * 2, name="B")
    module = autosched.build(te.create_schedule(b.op), [n, a, b], "llvm")
    out = np.zeros(3, np.float32)
    module(3, np.ones((3, 4), np.float32), out)
    assert out.tolist() == [2, 2, 2]
    with pytest.raises(ShapeError, match="extent 3 where n is 4"):
        module(4, np.ones((3, 4), np.float32), out)

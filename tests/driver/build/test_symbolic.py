"""Functions whose sizes are known when they are called."""

from __future__ import annotations

import gc
import pickle
from pathlib import Path

import numpy as np
import pytest

import autosched
from autosched import te
from autosched.codegen import counters
from autosched.errors import ArtifactError, ShapeError, UsageError
from autosched.runtime import cpu, loader
from autosched.runtime.artifact import save_contents, source_contents
from autosched.script import from_source


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


def test_sizes_that_do_not_fit_are_refused(add: autosched.Module) -> None:
    x = np.ones(100, np.float32)
    with pytest.raises(ShapeError, match=r"'C' has shape \[3\] instead of \[100\]"):
        add(x, x, np.ones(3, np.float32))
    with pytest.raises(ShapeError, match="'n' is 100 for input 'A' and 99 for input 'B'"):
        add(x, x[:99], x)
    with pytest.raises(ShapeError, match=r"input 'A' has shape \[2, 50\] instead of \[n\]"):
        add(np.ones((2, 50), np.float32), x, x)
    with pytest.raises(TypeError, match="2 arguments instead of 3"):
        add(x, x)
    with pytest.raises(TypeError, match="dtype float64"):
        add(x, x, np.ones(100))
    with pytest.raises(TypeError, match="no array"):
        add(x, x, "out")


def test_a_size_may_be_an_argument() -> None:
    n = te.var("n")
    a = te.placeholder((n, 4), name="A")
    b = te.compute((n,), lambda i: a[i, 0] * 2, name="B")
    module = autosched.build(te.create_schedule(b.op), [n, a, b], "llvm")
    out = np.zeros(3, np.float32)
    module(3, np.ones((3, 4), np.float32), out)
    assert out.tolist() == [2, 2, 2]
    with pytest.raises(ShapeError, match="'n' is 3 for the arrays, and is given as 4"):
        module(4, np.ones((3, 4), np.float32), out)
    with pytest.raises(TypeError, match="argument 0 'n' is a float, no integer"):
        module(3.0, np.ones((3, 4), np.float32), out)


SCALED = """
@T.prim_func
def scaled(a: T.handle, factor: T.float32, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    for i in range(n):
        with T.sblock("B"):
            v = T.axis.spatial(n, i)
            B[v] = A[v] * factor
"""


@pytest.fixture
def scaled() -> autosched.Module:
    """A function that takes a number: it is compiled for each size."""
    return autosched.build(from_source(SCALED), "llvm")


def test_all_sizes_are_compiled_at_once(add: autosched.Module) -> None:
    before = counters.COMPILES.value
    for n in (2, 63, 64, 65, 1000, 4097):
        x, out = np.random.default_rng(n).random(n, dtype=np.float32), np.zeros(n, np.float32)
        add(x, x, out)
        np.testing.assert_array_equal(out, 2 * x)
    assert counters.COMPILES.value == before
    with pytest.raises(ShapeError, match="'n' is 0, and the model is built for at least 1"):
        add(*[np.zeros(0, np.float32)] * 3)


@pytest.mark.parametrize("m", [1, 9, 50])
def test_products_of_any_sizes(m: int) -> None:
    n, k, l = (te.var(name) for name in "nkl")  # noqa: E741
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, l), name="B")
    r = te.reduce_axis((0, k), "r")
    c = te.compute((n, l), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    module = autosched.build(te.create_schedule(c.op), [a, b, c], "llvm", name="product")
    before, rng = counters.COMPILES.value, np.random.default_rng(m)
    for rows, inner, columns in ((m, 7, 33), (3, m, 16), (20, 20, m)):
        x, y = (rng.random(shape, dtype=np.float32) for shape in ((rows, inner), (inner, columns)))
        out = np.zeros((rows, columns), np.float32)
        module(x, y, out)
        np.testing.assert_allclose(out, x @ y, rtol=1e-5)
    assert counters.COMPILES.value == before


def test_it_is_saved_with_its_code(add: autosched.Module, tmp_path: Path) -> None:
    add.export_library(tmp_path / "add.so")
    before = counters.COMPILES.value
    loaded = autosched.runtime.load_module(tmp_path / "add.so")
    for n in (100, 7):
        a, b = np.random.default_rng(n).random((2, n), dtype=np.float32)
        out = autosched.nd.empty((n,))
        loaded["add"](autosched.nd.array(a), autosched.nd.array(b), out)
        np.testing.assert_array_equal(out.numpy(), a + b)
    assert counters.COMPILES.value == before
    again = pickle.loads(pickle.dumps(loaded))
    assert again["add"].signature == add["add"].signature


def test_strict_compiles_nothing_in_a_call(scaled: autosched.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    known, new = np.ones(100, np.float32), np.ones(33, np.float32)
    scaled(known, 2, known)
    before = counters.COMPILES.value
    monkeypatch.setenv("AUTOSCHED_STRICT", "1")
    scaled(known, 3, known)
    with pytest.raises(UsageError, match="'scaled' was never called with n=33, and AUTOSCHED_STRICT forbids"):
        scaled(new, 2, new)
    assert counters.COMPILES.value == before
    monkeypatch.delenv("AUTOSCHED_STRICT")
    scaled(new, 2, new)
    assert counters.COMPILES.value == before + 1


@pytest.mark.parametrize(
    ("text", "target"), [("import os", "llvm"), ("", "llvm"), ("x = 1", "llvm"), ("from autosched", "no such kind")]
)
def test_text_that_is_no_module_is_refused(text: str, target: str, tmp_path: Path) -> None:
    save_contents(source_contents(text, target, "module"), tmp_path / "m.asx")
    with pytest.raises(ArtifactError, match="the artifact's text"):
        autosched.load(tmp_path / "m.asx")


def mapped_code() -> int:
    """Bytes of executable memory that no file stands behind."""
    total = 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, rights, _, _, inode, *_ = line.split()
        if "x" in rights and inode == "0":
            start, end = (int(x, 16) for x in place.split("-"))
            total += end - start
    return total


def test_machine_code_of_sizes_that_are_dropped_is_unmapped(
    scaled: autosched.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOSCHED_SYMBOLIC_SIZES", "2")

    def call(size: int) -> None:
        out = np.zeros(size, np.float32)
        scaled(np.ones(size, np.float32), 3, out)
        assert (out == 3).all()

    def used(first: int) -> tuple[int, int]:
        for size in range(first, first + 6):
            call(size)
        gc.collect()
        return len(loader._loaded), mapped_code()

    (kernels, _), (later, code) = used(10), used(20)
    assert later <= kernels
    last, most = used(30)
    assert last <= kernels and most <= code
    call(10)

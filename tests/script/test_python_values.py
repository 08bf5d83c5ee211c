"""Macros, Python values and plain loops in a PrimFunc; mistakes are shown at their line."""

from __future__ import annotations

import math

import numpy as np
import pytest

import autosched
from autosched import relax
from autosched.errors import ScriptError
from autosched.script import from_source
from autosched.script import relax as R
from autosched.script import tir as T
from autosched.tir import PrimFunc, exp

SHAPE, SCALE = (4, 6), 0.5


@T.macro
def scale_into(target, source, i, j):
    target[i, j] = source[i, j] * T.float32(SCALE)


@T.prim_func
def values(A: T.Buffer(SHAPE, "float32"), C: T.Buffer(SHAPE, "float32"), alpha: T.float32, n: T.int32):
    B = T.alloc_buffer(SHAPE)
    for i, j in T.grid(*SHAPE):
        scale_into(B, A, i, j)
    for i, j in T.grid(A.shape[0], 6):
        if 1 <= i < 3:
            C[i, j] = B[i, j] * alpha + T.float32(math.sqrt(4.0))
        else:
            C[i, j] = exp(B[i, j]) + T.cast((i & 1) << 2, "float32") + T.cast(n, "float32")


def test_macros_python_values_and_scalars() -> None:
    a = np.random.default_rng(0).random(SHAPE, np.float32)
    out = autosched.nd.empty(SHAPE)
    autosched.build(values)(autosched.nd.array(a), out, 3.0, 7)
    i = np.arange(4)[:, None]
    want = np.where((i >= 1) & (i < 3), a * 1.5 + 2, np.exp(a / 2) + ((i & 1) << 2) + 7)
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-5)


@T.prim_func
def count(A: T.Buffer((16,), "int32"), C: T.Buffer((1,), "int32")):
    C[0] = 0
    with T.block("w"):
        i = T.alloc_buffer((1,), "int32")
        i[0] = 0
        while i[0] < 16 and A[i[0]] < 12:
            C[0] = C[0] + A[i[0]]
            i[0] = i[0] + 1


def test_while() -> None:
    out = autosched.nd.empty((1,), "int32")
    autosched.build(count)(autosched.nd.array(np.arange(16, dtype="int32")), out)
    assert out.numpy()[0] == sum(range(12))


def test_memory_of_its_own() -> None:
    @T.prim_func
    def func(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
        data = T.allocate([16], "float32", "global")
        B = T.Buffer((16,), data=data)
        for i in range(16):
            B[i] = A[i] + 1.0
        for i in T.vectorized(16):
            C[i] = B[i] * 2.0

    out = autosched.nd.empty((16,))
    autosched.build(func)(autosched.nd.array(np.ones(16, np.float32)), out)
    assert (out.numpy() == 4).all()


def test_scalars_are_checked() -> None:
    module = autosched.build(values)
    a, out = autosched.nd.empty(SHAPE), autosched.nd.empty(SHAPE)
    with pytest.raises(TypeError, match="argument 2 'alpha' is a str"):
        module(a, out, "x", 7)
    with pytest.raises(TypeError, match="argument 3 'n' is a float"):
        module(a, out, 1.0, 7.5)
    with pytest.raises(TypeError, match="2 arguments instead of 4"):
        module(a, out)


BLOCK = "with T.block('B'):\n            vi = T.axis.spatial(8, i)\n            "
HEAD = "@T.prim_func\ndef f(A: T.Buffer((8,), 'float32'), B: T.Buffer((8,), 'float32')):\n    for i in range(8):\n"


@pytest.mark.parametrize(
    ("line", "message", "marked"),
    [
        ("B[i] = A[i] + q", "undefined name 'q'", "q"),
        ("B[i, i] = A[i]", "1 dimensions, got 2", "i, i"),
        ("B[i] = T.nosuch(A[i])", r"unknown function T\.nosuch", "T.nosuch"),
        ("B[i] = helper(A[i])", "undefined function 'helper'", "helper"),
        (f"{BLOCK}B[i] = A[vi]", "loop variable 'i'", "with T.block('B'):"),
        ("B[i] = A.nosuch", "no attribute 'nosuch'", "A.nosuch"),
        ("B[i] = len(5)", "TypeError", "len(5)"),
    ],
)  # fmt: skip
def test_mistakes_are_shown_with_line_and_caret(line: str, message: str, marked: str) -> None:
    with pytest.raises(ScriptError, match=message) as caught:
        from_source(f"{HEAD}        {line}\n")
    shown, carets = str(caught.value).splitlines()[-2:]
    start = carets.index("^")
    assert shown[start : start + carets.count("^")] == marked


def test_a_macro_is_called_with_what_it_takes() -> None:
    with pytest.raises(ScriptError, match="takes target, source, i, j"):

        @T.prim_func
        def func(A: T.Buffer((4,), "float32")):
            for i in range(4):
                scale_into(A, i)

    with pytest.raises(ScriptError, match="T.prim_func only"):
        scale_into(1, 2, 3, 4)


def test_specialize() -> None:
    @T.prim_func
    def func(a: T.handle, b: T.handle):
        n = T.int32()
        A = T.match_buffer(a, (n, 4))
        B = T.match_buffer(b, (n, 4))
        for i, j in T.grid(n, 4):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] + 1.0

    assert isinstance(func, PrimFunc)
    special = func.specialize({func.params[0]: autosched.tir.decl_buffer((3, 4))})
    assert special.buffers[0].const_shape() == special.buffers[1].const_shape() == (3, 4)
    with pytest.raises(ValueError, match="2 dimensions and gets 1"):
        func.specialize({func.params[0]: autosched.tir.decl_buffer((3,))})
    with pytest.raises(ValueError, match="neither a parameter"):
        func.specialize({autosched.tir.Var("m"): 3})


N = 3


@T.prim_func
def squared(A: T.Buffer((N**2,), "float32"), C: T.Buffer((N**2,), "float32")):
    for i in T.serial(N**2):
        C[i] = A[i] * T.float32(2**0.5)


def test_powers_of_python_numbers() -> None:
    out = autosched.nd.empty((9,))
    autosched.build(squared)(autosched.nd.array(np.ones(9, np.float32)), out)
    np.testing.assert_allclose(out.numpy(), np.full(9, 2**0.5), rtol=1e-6)


@pytest.mark.parametrize(
    ("power", "message"), [("i ** 2", "T.pow"), ("2 ** 1000000", "above 64"), ("0 ** -1", "0 cannot|zero")]
)
def test_powers_that_are_none(power: str, message: str) -> None:
    text = f"""
@T.prim_func
def f(C: T.Buffer((4,), "float32")):
    for i in range(4):
        C[i] = T.float32({power})
"""
    with pytest.raises(ScriptError, match=message):
        from_source(text)


def test_names_outside_of_scripts() -> None:
    n = T.int64()
    assert isinstance(n, autosched.tir.Var) and n.dtype == "int64"
    assert T.float32(1.5).value == 1.5
    assert autosched.ir.structural_equal(T.max(n, 3), autosched.tir.max(n, 3))
    x = relax.Var("x", R.Tensor((n, 4), "float32"))
    assert R.permute_dims(x).struct_info.shape.values[1] is n

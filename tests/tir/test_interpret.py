"""The interpreter: values, checks, every statement; before and after lowering."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import te, tir
from autosched.errors import InvalidTypeError, InvalidValueError, ShapeError, VerifyError
from autosched.ir.node import FrozenDict
from autosched.tir import (
    Allocate,
    AssertStmt,
    Buffer,
    BufferLoad,
    BufferStore,
    Call,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    LoopKind,
    PrimFunc,
    Stmt,
    Var,
    While,
    const,
    interpret,
    seq,
)  # fmt: skip
from tests.tir.programs import argmax, conv, dense, layer_norm, pool, run, softmax


def test_against_numpy() -> None:
    a, b, bias, e = run(dense())
    np.testing.assert_allclose(e, np.maximum(a @ b + bias, 0), rtol=1e-5, atol=1e-6)
    a, out = run(softmax())
    np.testing.assert_allclose(out, np.exp(a) / np.exp(a).sum(1, keepdims=True), rtol=1e-5)
    a, g, out = run(layer_norm())
    want = (a - a.mean(1, keepdims=True)) / np.sqrt(a.var(1, keepdims=True) + 1e-5) * g
    np.testing.assert_allclose(out, want, rtol=1e-3, atol=1e-4)
    a, position, value = run(argmax())
    assert position.tolist() == a.argmax(1).tolist() and value.tolist() == a.max(1).tolist()


def test_windows_against_numpy() -> None:
    windows = np.lib.stride_tricks.sliding_window_view
    a, w, out = run(conv(ci=2, hw=5, co=3, stride=2))
    padded = np.pad(a[0], ((0, 0), (1, 1), (1, 1)))
    want = np.einsum("chwij,ocij->ohw", windows(padded, (3, 3), (1, 2))[:, ::2, ::2], w)
    np.testing.assert_allclose(out[0], np.maximum(want, 0), rtol=1e-4, atol=1e-5)
    a, out = run(pool())
    np.testing.assert_allclose(out, windows(a + 1, (3, 3), (1, 2))[:, ::2, ::2].max((3, 4)), rtol=1e-6)


def test_floats_round_as_written() -> None:
    a = te.placeholder((1,), name="A")
    func = te.create_prim_func([a, te.compute((1,), lambda i: a[i] + 1.0 - a[i], name="B")])
    out = np.zeros(1, "float32")
    interpret(func, [np.array([1e8], "float32"), out])
    assert out[0] == 0.0
    half = te.placeholder((1,), "float16", name="H")
    func = te.create_prim_func([half, te.compute((1,), lambda i: half[i] + te.const(1.0, "float16"), name="B")])
    out16 = np.zeros(1, "float16")
    interpret(func, [np.array([2048], "float16"), out16])
    assert out16[0] == 2048


def test_arrays_by_name_and_what_does_not_fit() -> None:
    func = dense()
    a, b, bias, e = run(func)
    again = np.zeros_like(e)
    interpret(func, {"A": a, "B": b, "bias": bias, "E": again})
    np.testing.assert_array_equal(again, e)
    with pytest.raises(InvalidValueError, match="expected arrays"):
        interpret(func, {"A": a})
    with pytest.raises(InvalidValueError, match="expected 4 arrays"):
        interpret(func, [a])
    with pytest.raises(ShapeError, match="'A'"):
        interpret(func, [a.T.copy(), b, bias, e])
    with pytest.raises(InvalidTypeError, match="float32"):
        interpret(func, [a.astype("float64"), b, bias, e])
    with pytest.raises(InvalidTypeError, match="NumPy"):
        interpret(func, [[1], b, bias, e])


B = Buffer("B", (const(4),))
HANDLE = Var("var_B", "handle")


def lowered(body: Stmt) -> PrimFunc:
    return PrimFunc((HANDLE,), FrozenDict({HANDLE: B}), body)


def result(body: Stmt) -> list[float]:
    out = np.full(4, 9, "float32")
    interpret(lowered(body), [out])
    return out.tolist()


def store(i: object, value: object) -> Stmt:
    return BufferStore(B, tir.to_expr(value, "float32"), (tir.to_expr(i),))


def test_statements() -> None:
    i, x = Var("i"), Var("x", "float32")
    counter = Buffer("n", (const(1),), "int32")
    n = BufferLoad(counter, (const(0),))
    assert result(For(i, const(1), const(2), LoopKind.UNROLLED, store(i, i.astype("float32")))) == [9, 1, 2, 9]
    assert result(For(i, const(0), const(4), LoopKind.SERIAL, IfThenElse(i < 2, store(i, 1.0), store(i, 2.0)))) == [
        1,
        1,
        2,
        2,
    ]
    assert result(LetStmt(x, tir.const(3.0), store(0, x + 1.0))) == [4, 9, 9, 9]
    loop = While(n < 3, seq(store(n, 5.0), BufferStore(counter, n + 1, (const(0),))))
    assert result(Allocate(counter, seq(BufferStore(counter, const(0), (const(0),)), loop))) == [5, 5, 5, 9]
    assert result(AssertStmt(const(1) < const(2), "fine", store(1, 0.0))) == [9, 0, 9, 9]
    assert result(seq(Evaluate(const(0)), store(3, 1.0))) == [9, 9, 9, 1]
    with pytest.raises(AssertionError, match="broken"):
        result(AssertStmt(const(False), "broken", store(1, 0.0)))


@pytest.mark.parametrize("at", [-1, 4])
def test_out_of_bounds(at: int) -> None:
    with pytest.raises(IndexError, match=r"B\[.*out of bounds"):
        result(store(at, 1.0))
    with pytest.raises(IndexError, match=r"B\[.*out of bounds"):
        result(store(0, BufferLoad(B, (const(at),))))


def test_a_guard_keeps_the_load_from_running() -> None:
    i = Var("i")
    guarded = tir.if_then_else(i < 3, BufferLoad(B, (i + 1,)), tir.const(0.0))
    assert result(For(i, const(0), const(4), LoopKind.SERIAL, store(i, guarded))) == [9, 9, 9, 0]


def test_what_is_not_defined() -> None:
    with pytest.raises(VerifyError, match="'stray'"):
        result(store(Var("stray"), 1.0))
    with pytest.raises(VerifyError, match="not allocated"):
        result(store(0, BufferLoad(Buffer("gone", (const(2),)), (const(0),))))
    with pytest.raises(InvalidTypeError, match="no function 'mystery'"):
        result(store(0, Call("mystery", (tir.const(1.0),))))


def test_fresh_memory_is_poison() -> None:
    fresh = Buffer("fresh", (const(2),))
    assert np.isnan(result(Allocate(fresh, store(0, BufferLoad(fresh, (const(1),)))))[0])


def test_races_show_backward() -> None:
    i = Var("i")
    shift = For(i, const(0), const(3), LoopKind.PARALLEL, store(i + 1, BufferLoad(B, (i,))))
    out = [np.arange(4, dtype="float32") for _ in range(2)]
    interpret(lowered(shift), [out[0]])
    interpret(lowered(shift), [out[1]], backward=True)
    assert out[0].tolist() != out[1].tolist()


def test_block_variable_outside_of_its_domain() -> None:
    sch = tir.Schedule(dense())
    sch.split(sch.get_loops("E")[0], [None, 4], disable_predication=True)
    with pytest.raises(VerifyError, match="outside"):
        run(sch.func)


@pytest.mark.parametrize("name", ["sigmoid", "tanh", "erf", "exp", "sqrt", "rsqrt", "floor", "fabs"])
def test_functions(name: str) -> None:
    x = te.placeholder((5,), name="X")
    func = te.create_prim_func([x, te.compute((5,), lambda i: tir.call(name, x[i]), name="Y")])
    given, out = np.array([0.1, 0.5, 1.0, 2.5, 80.0], "float32"), np.zeros(5, "float32")
    interpret(func, [given, out])
    import math

    want = {
        "sigmoid": lambda v: 1 / (1 + math.exp(-v)), "rsqrt": lambda v: v**-0.5, "fabs": abs, "erf": math.erf,
        "tanh": math.tanh, "exp": math.exp, "sqrt": math.sqrt, "floor": math.floor,
    }[name]  # fmt: skip
    np.testing.assert_allclose(
        out, [np.float32(want(float(v))) if v < 80 or name != "exp" else np.exp(v) for v in given], rtol=1e-5
    )

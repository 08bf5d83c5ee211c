"""te.extern: statements of the user's, and registered functions between kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autosched as tvm
from autosched import te, tir
from autosched.contrib import cblas
from autosched.errors import CodegenError, InvalidTypeError, InvalidValueError
from autosched.runtime.registry import remove_global_func
from autosched.script import tir as T


def add_one(ins: Any, outs: Any) -> Any:
    ib = tir.ir_builder.create()
    a, b = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
    with ib.for_range(0, ins[0].shape[0], name="i") as i:
        b[i] = a[i] + 1.0
    return ib.get()


def test_a_statement_becomes_a_kernel() -> None:
    a = te.placeholder((8,), name="A")
    b = te.extern(a.shape, [a], add_one, name="B")
    c = te.compute((8,), lambda i: b[i] * 2.0, name="C")
    f = tvm.build(te.create_schedule(c.op), [a, c])
    out = tvm.nd.empty((8,))
    f(tvm.nd.array(np.arange(8, dtype="float32")), out)
    np.testing.assert_array_equal(out.numpy(), 2 * (np.arange(8) + 1))


def test_a_registered_function_is_called_between_kernels() -> None:
    calls = []

    def double(x: Any, y: Any, factor: float) -> None:
        calls.append(factor)
        tvm.nd.array(x.numpy() * np.float32(factor)).copyto(y)

    tvm.register_func("test.te.double", double)
    try:
        a = te.placeholder((8,), name="A")
        b = te.compute((8,), lambda i: a[i] + 1.0, name="B")
        c = te.extern((8,), [b], lambda i, o: tir.call_packed("test.te.double", i[0], o[0], 2.5), name="C")
        bias = te.var("bias", "float32")
        d = te.compute((8,), lambda i: c[i] + bias, name="D")
        f = tvm.build(te.create_schedule(d.op), [a, d, bias])
        x, out = np.arange(8, dtype="float32"), tvm.nd.empty((8,))
        f(tvm.nd.array(x), out, 10.0)
        np.testing.assert_allclose(out.numpy(), (x + 1) * 2.5 + 10)
        assert calls == [2.5]
    finally:
        remove_global_func("test.te.double")


def test_an_unknown_function_is_told_at_the_build() -> None:
    a = te.placeholder((8,), name="A")
    b = te.extern((8,), [a], lambda i, o: tir.call_packed("test.te.nobody", i[0], o[0]))
    with pytest.raises(InvalidValueError, match=r"test\.te\.nobody"):
        tvm.build(te.create_schedule(b.op), [a, b])


def test_c_functions_that_the_compiler_does_not_have_are_refused() -> None:
    a = te.placeholder((8,), name="A")
    b = te.extern((8,), [a], lambda i, o: tir.call_extern("int32", "my_c_code", i[0].access_ptr("r")))
    with pytest.raises(CodegenError, match="my_c_code"):
        tvm.build(te.create_schedule(b.op), [a, b])


def test_cblas() -> None:
    a, b = te.placeholder((4, 5), name="A"), te.placeholder((3, 5), name="B")
    c = cblas.matmul(a, b, transb=True)
    f = tvm.build(te.create_schedule(c.op), [a, b, c])
    rng = np.random.default_rng(0)
    x, y, out = rng.random((4, 5), np.float32), rng.random((3, 5), np.float32), tvm.nd.empty((4, 3))
    f(tvm.nd.array(x), tvm.nd.array(y), out)
    np.testing.assert_allclose(out.numpy(), x @ y.T, rtol=1e-5)
    with pytest.raises(ValueError, match="two matrices"):
        cblas.matmul(te.placeholder((4,)), b)


def test_extern_primfunc() -> None:
    @T.prim_func
    def plus(a: T.Buffer((4, 4), "float32"), b: T.Buffer((4, 4), "float32")):
        for i, j in T.grid(4, 4):
            with T.block("x"):
                vi, vj = T.axis.remap("SS", [i, j])
                b[vi, vj] = a[vi, vj] + 1.0

    a = te.placeholder((4, 4), name="A")
    b = te.extern_primfunc([a], plus)
    c = te.compute((4, 4), lambda i, j: b[i, j] * 2.0, name="C")
    out = tvm.nd.empty((4, 4))
    tvm.build(te.create_prim_func([a, c]))(tvm.nd.array(np.ones((4, 4), "float32")), out)
    assert (out.numpy() == 4).all()


def test_wrong_arguments_are_named() -> None:
    a = te.placeholder((8,), name="A")
    with pytest.raises(InvalidTypeError, match=r"inputs\[0\]"):
        te.extern((8,), [5], add_one)
    with pytest.raises(InvalidTypeError, match="fcompute"):
        te.extern((8,), [a], 5)
    with pytest.raises(InvalidTypeError, match="gave a int"):
        te.extern((8,), [a], lambda i, o: 5)
    with pytest.raises(InvalidValueError, match="dtype is needed"):
        te.extern((8,), [], add_one)

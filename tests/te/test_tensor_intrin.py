"""te.decl_tensor_intrin and stage.tensorize."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autosched as tvm
from autosched import te, tir
from autosched.errors import InvalidTypeError, ScheduleError

N, M, L = 8, 32, 16


def gemv(m: int, n: int, *, parts: bool = False, external: bool = False) -> te.TensorIntrin:
    a, b = te.placeholder((n,), name="a"), te.placeholder((m, n), name="b")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((m,), lambda i: te.sum(a[k] * b[i, k], axis=k), name="c")
    ab = tir.decl_buffer(a.shape, a.dtype, name="A", offset_factor=1, strides=[1])
    bb = tir.decl_buffer(b.shape, b.dtype, name="B", offset_factor=1, strides=[te.var("s1"), 1])
    cb = tir.decl_buffer(c.shape, c.dtype, name="C", offset_factor=1, strides=[1])

    def body(ins: Any, outs: Any, *, reset: bool, update: bool) -> Any:
        ib = tir.ir_builder.create()
        aa, bb = ins
        out = ib.buffer_ptr(outs[0])
        if external:
            ib.emit(tir.call_extern("int32", "gemv", outs[0].access_ptr("w"), aa.access_ptr("r"), bb.strides[0]))
            return ib.get()
        with ib.for_range(0, m, "i") as i:
            if reset:
                out[i] = 0.0
            if update:
                with ib.for_range(0, n, "k") as j:
                    out[i] = out[i] + aa.vload([j]) * bb.vload([i, j])
        return ib.get()

    def intrin(ins: Any, outs: Any) -> Any:
        whole = body(ins, outs, reset=True, update=True)
        if not parts:
            return whole
        return whole, body(ins, outs, reset=True, update=False), body(ins, outs, reset=False, update=True)

    return te.decl_tensor_intrin(c.op, intrin, binds={a: ab, b: bb, c: cb})


def problem() -> tuple[te.Tensor, te.Tensor, te.Tensor, te.Schedule]:
    a, b = te.placeholder((N, L), name="A"), te.placeholder((M, L), name="B")
    k = te.reduce_axis((0, L), name="k")
    c = te.compute((N, M), lambda i, j: te.sum(a[i, k] * b[j, k], axis=k), name="C")
    return a, b, c, te.create_schedule(c.op)


def check(s: te.Schedule, args: list[te.Tensor]) -> None:
    f = tvm.build(s, args)
    rng = np.random.default_rng(0)
    x, y, out = rng.random((N, L), np.float32), rng.random((M, L), np.float32), tvm.nd.empty((N, M))
    f(tvm.nd.array(x), tvm.nd.array(y), out)
    np.testing.assert_allclose(out.numpy(), x @ y.T, rtol=1e-5)


def test_the_whole_reduction_inside() -> None:
    a, b, c, s = problem()
    outer, inner = s[c].split(c.op.axis[1], 8)
    s[c].reorder(c.op.axis[0], outer, inner, c.op.reduce_axis[0])
    s[c].tensorize(inner, gemv(8, L))
    check(s, [a, b, c])


def test_a_part_of_the_reduction_inside() -> None:
    a, b, c, s = problem()
    outer, inner = s[c].split(c.op.axis[1], 8)
    k_outer, k_inner = s[c].split(c.op.reduce_axis[0], 4)
    s[c].reorder(c.op.axis[0], outer, k_outer, inner, k_inner)
    s[c].tensorize(inner, gemv(8, 4, parts=True))
    check(s, [a, b, c])


def test_outside_code_gets_pointers_and_strides() -> None:
    a, b, c, s = problem()
    outer, inner = s[c].split(c.op.axis[1], 8)
    s[c].reorder(c.op.axis[0], outer, inner, c.op.reduce_axis[0])
    s[c].tensorize(inner, gemv(8, L, external=True))
    text = tvm.lower(s, [a, b, c], simple_mode=True).script()
    assert 'T.call_extern("int32", "gemv"' in text
    assert "C.data, i * 32 + j_0 * 8, 8" in text
    assert text.rstrip().endswith("16))")  # the stride of B's rows


def test_another_computation_is_refused() -> None:
    a, b, c, s = problem()
    outer, inner = s[c].split(c.op.axis[1], 4)
    s[c].reorder(c.op.axis[0], outer, inner, c.op.reduce_axis[0])
    s[c].tensorize(inner, gemv(8, L))
    with pytest.raises(ScheduleError, match="extent 4"):
        tvm.lower(s, [a, b, c])
    with pytest.raises(InvalidTypeError, match="decl_tensor_intrin"):
        s[c].tensorize(inner, "gemv")

"""Small functions that the tests of the loop level share, and what runs them."""

from __future__ import annotations

import numpy as np

from autosched import te, tir
from autosched.tir import PrimFunc

ZERO = te.const(0.0, "float32")


def matmul(m: int = 7, n: int = 9, k: int = 5) -> PrimFunc:
    """C = A @ B."""
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    return te.create_prim_func([a, b, c])


def dense(m: int = 7, n: int = 9, k: int = 5) -> PrimFunc:
    """relu(A @ B + bias): blocks C, D, E."""
    a, b, bias = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B"), te.placeholder((n,), name="bias")
    r = te.reduce_axis((0, k), "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    d = te.compute((m, n), lambda i, j: c[i, j] + bias[j], name="D")
    e = te.compute((m, n), lambda i, j: tir.maximum(d[i, j], ZERO), name="E")
    return te.create_prim_func([a, b, bias, e])


def chain(m: int = 5, n: int = 6) -> PrimFunc:
    """A chain of element-wise blocks B, C, D with a broadcast and a transposition."""
    a, v = te.placeholder((m, n), name="A"), te.placeholder((n,), name="V")
    b = te.compute((m, n), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((m, n), lambda i, j: b[i, j] + v[j], name="C")
    d = te.compute((n, m), lambda i, j: te.exp(c[j, i]), name="D")
    return te.create_prim_func([a, v, d])


def conv(ci: int = 2, hw: int = 5, co: int = 3, k: int = 3, stride: int = 1, pad: int = 1) -> PrimFunc:
    """relu(conv2d): blocks pad, conv, relu; one image, NCHW."""
    out = (hw + 2 * pad - k) // stride + 1
    a, w = te.placeholder((1, ci, hw, hw), name="A"), te.placeholder((co, ci, k, k), name="W")
    p = te.compute(
        (1, ci, hw + 2 * pad, hw + 2 * pad),
        lambda n, c, h, x: tir.if_then_else(
            tir.all_of(h >= pad, h < hw + pad, x >= pad, x < hw + pad), a[n, c, h - pad, x - pad], ZERO
        ),
        name="pad",
    )
    rc, rh, rw = te.reduce_axis((0, ci), "rc"), te.reduce_axis((0, k), "rh"), te.reduce_axis((0, k), "rw")
    c = te.compute(
        (1, co, out, out),
        lambda n, o, h, x: te.sum(p[n, rc, h * stride + rh, x * stride + rw] * w[o, rc, rh, rw], axis=[rc, rh, rw]),
        name="conv",
    )
    r = te.compute((1, co, out, out), lambda n, o, h, x: tir.maximum(c[n, o, h, x], ZERO), name="relu")
    return te.create_prim_func([a, w, r])


def conv_nchwc(ci: int = 4, hw: int = 5, co: int = 6, block: int = 2, k: int = 3) -> PrimFunc:
    """relu(conv2d) in NCHWc: blocks pad, conv, relu."""
    pad = k // 2
    a = te.placeholder((1, ci // block, hw, hw, block), name="A")
    w = te.placeholder((co // block, ci // block, k, k, block, block), name="W")
    p = te.compute(
        (1, ci // block, hw + 2 * pad, hw + 2 * pad, block),
        lambda n, c, h, x, b: tir.if_then_else(
            tir.all_of(h >= pad, h < hw + pad, x >= pad, x < hw + pad), a[n, c, h - pad, x - pad, b], ZERO
        ),
        name="pad",
    )
    rc, rh, rw = te.reduce_axis((0, ci), "rc"), te.reduce_axis((0, k), "rh"), te.reduce_axis((0, k), "rw")
    c = te.compute(
        (1, co // block, hw, hw, block),
        lambda n, o, h, x, b: te.sum(
            p[n, rc // block, h + rh, x + rw, rc % block] * w[o, rc // block, rh, rw, rc % block, b], axis=[rc, rh, rw]
        ),
        name="conv",
    )
    r = te.compute((1, co // block, hw, hw, block), lambda *i: tir.maximum(c[i], ZERO), name="relu")
    return te.create_prim_func([a, w, r])


def softmax(m: int = 5, n: int = 7) -> PrimFunc:
    """Softmax of rows: blocks top, e, total, out."""
    a = te.placeholder((m, n), name="A")
    k, k2 = te.reduce_axis((0, n), "k"), te.reduce_axis((0, n), "k2")
    top = te.compute((m,), lambda i: te.max(a[i, k], axis=k), name="top")
    e = te.compute((m, n), lambda i, j: te.exp(a[i, j] - top[i]), name="e")
    total = te.compute((m,), lambda i: te.sum(e[i, k2], axis=k2), name="total")
    out = te.compute((m, n), lambda i, j: e[i, j] / total[i], name="out")
    return te.create_prim_func([a, out])


def layer_norm(m: int = 3, n: int = 10) -> PrimFunc:
    """Blocks mean_sum, square_sum, out."""
    a, g = te.placeholder((m, n), name="A"), te.placeholder((n,), name="G")
    k, k2 = te.reduce_axis((0, n), "k"), te.reduce_axis((0, n), "k2")
    s = te.compute((m,), lambda i: te.sum(a[i, k], axis=k), name="mean_sum")
    q = te.compute((m,), lambda i: te.sum(a[i, k2] * a[i, k2], axis=k2), name="square_sum")
    out = te.compute(
        (m, n),
        lambda i, j: (a[i, j] - s[i] / n) * te.rsqrt(q[i] / n - (s[i] / n) * (s[i] / n) + 1e-5) * g[j],
        name="out",
    )
    return te.create_prim_func([a, g, out])


def pool(c: int = 2, hw: int = 7, k: int = 3, stride: int = 2) -> PrimFunc:
    """max pooling after an addition: blocks plus, pool."""
    out = (hw - k) // stride + 1
    a = te.placeholder((c, hw, hw), name="A")
    p = te.compute((c, hw, hw), lambda n, h, x: a[n, h, x] + 1.0, name="plus")
    rh, rw = te.reduce_axis((0, k), "rh"), te.reduce_axis((0, k), "rw")
    m = te.compute(
        (c, out, out), lambda n, h, x: te.max(p[n, h * stride + rh, x * stride + rw], axis=[rh, rw]), name="pool"
    )
    return te.create_prim_func([a, m])


def argmax(m: int = 4, n: int = 6) -> PrimFunc:
    """Position and value of each row's maximum: one block with two outputs."""
    a = te.placeholder((m, n), name="A")
    k = te.reduce_axis((0, n), "k")

    def combine(x, y):  # type: ignore[no-untyped-def]
        better = tir.logical_or(x[1] > y[1], tir.logical_and(x[1].equal(y[1]), x[0] < y[0]))
        return tir.select(better, x[0], y[0]), tir.select(better, x[1], y[1])

    reducer = te.comm_reducer(combine, lambda i, v: (te.const(-1, i), te.min_value(v)), name="argmax")
    position, value = te.compute((m,), lambda i: reducer((k.var, a[i, k]), axis=k), name="best")
    return te.create_prim_func([a, position, value])


PROGRAMS = {
    f.__name__: f for f in (matmul, dense, chain, conv, conv_nchwc, softmax, layer_norm, pool, argmax)
}  # fmt: skip


def arguments(func: PrimFunc, seed: int = 0) -> list[np.ndarray]:
    """Random arrays for a function's buffers; outputs start as a value that shows."""
    rng = np.random.default_rng(seed)
    written = {w.buffer for b in tir.functor.blocks(func.body) for w in b.writes}
    made = []
    for b in func.buffers:
        x = rng.standard_normal(b.const_shape()).astype(b.dtype)
        made.append(np.full_like(x, 77) if b in written else x)
    return made


def run(func: PrimFunc, seed: int = 0, *, backward: bool = False) -> list[np.ndarray]:
    """All arrays after interpreting a function on random inputs."""
    arrays = arguments(func, seed)
    tir.interpret(func, arrays, backward=backward)
    return arrays


def assert_same_result(before: PrimFunc, after: PrimFunc) -> None:
    """Both compute the same, whichever way parallel loops run."""
    expected = run(before)
    for backward in (False, True):
        for x, y in zip(expected, run(after, backward=backward), strict=True):
            np.testing.assert_allclose(y, x, rtol=2e-4, atol=2e-5)

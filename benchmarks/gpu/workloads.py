"""The functions that are measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autosched import te, topi
from autosched.relax.op.registry import get_op
from autosched.te import create_prim_func
from autosched.templates.tf32 import TF32, with_tf32
from autosched.tir import PrimFunc


def matmul_func(m: int, k: int, n: int, dtype: str = "float32") -> PrimFunc:
    """Of float16, bfloat16, float32, or "tf32": of float32 that may be rounded to it."""
    own = "float32" if dtype == TF32 else dtype
    a, b = te.placeholder((m, k), dtype=own, name="A"), te.placeholder((k, n), dtype=own, name="B")
    func = create_prim_func([a, b, topi.matmul(a, b)])
    return with_tf32(func) if dtype == TF32 else func


def conv_func(batch: int, channels: int, size: int, out: int, kernel: int, stride: int, dtype: str) -> PrimFunc:
    own = "float32" if dtype == TF32 else dtype
    data = te.placeholder((batch, channels, size, size), dtype=own, name="data")
    weight = te.placeholder((out, channels, kernel, kernel), dtype=own, name="weight")
    func = create_prim_func([data, weight, topi.nn.conv2d(data, weight, stride, kernel // 2, 1, "NCHW")])
    return with_tf32(func) if dtype == TF32 else func


def of(shape: Sequence[int], compute: Callable[[Any], Any], dtype: str = "float32") -> PrimFunc:
    x = te.placeholder(tuple(shape), dtype=dtype, name="x")
    return create_prim_func([x, compute(x)])


def take_func(rows: int, width: int, count: int) -> PrimFunc:
    x, at = te.placeholder((rows, width), "float16", name="x"), te.placeholder((count,), "int64", name="at")
    return create_prim_func([x, at, topi.take(x, at, 0, mode="clip")])


def scatter_func(rows: int, width: int, count: int) -> PrimFunc:
    """relu of x with updates added."""
    x, updates = te.placeholder((rows, width), name="x"), te.placeholder((count, width), name="updates")
    at = te.placeholder((count, width), "int64", name="at")
    made = get_op("scatter_elements").compute(x, at, updates, 0, "add", "clip")
    return create_prim_func([x, at, updates, topi.relu(made)])


def depthwise_func(channels: int, size: int, batch: int = 1) -> PrimFunc:
    data = te.placeholder((batch, channels, size, size), name="d")
    weight = te.placeholder((channels, 1, 3, 3), name="w")
    return create_prim_func([data, weight, topi.nn.depthwise_conv2d_nchw(data, weight, 1, 1, 1)])


def max_pool(x: te.Tensor) -> te.Tensor:
    return topi.max_pool2d(x, (3, 3), (2, 2), (0, 0, 0, 0), (1, 1), False)


def attention_func(length: int, width: int, causal: bool, heads: int = 2, queries: int | None = None) -> PrimFunc:
    rows = length if queries is None else queries
    sizes = (("q", rows), ("k", length), ("v", length))
    q, k, v = (te.placeholder((1, heads, n, width), dtype="float16", name=x) for x, n in sizes)
    made = topi.attention(q, k, v, None, width**-0.5, "TopLeft" if causal else None, layouts=("BHSD",) * 4)
    return create_prim_func([q, k, v, made])


def layer_norm_func(rows: int, width: int) -> PrimFunc:
    x, gamma, beta = (
        te.placeholder(shape, name=n) for shape, n in (((rows, width), "x"), ((width,), "g"), ((width,), "b"))
    )
    return create_prim_func([x, gamma, beta, topi.layer_norm(x, gamma, beta, (1,), 1e-5, True, True)])


def rms_norm_func(rows: int, width: int) -> PrimFunc:
    x, weight = te.placeholder((rows, width), name="x"), te.placeholder((width,), name="w")
    return create_prim_func([x, weight, topi.rms_norm(x, weight, (1,), 1e-6)])

"""Several leading symbols as one count: what is merged, and what is refused with a reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autosched import te
from autosched.tir import PrimFunc
from autosched.tir.expr import Var
from autosched.tir.function import shape_vars, specialize
from autosched.tir.interpret import interpret
from autosched.tir.merge_parts import merged_parts
from autosched.tir.separable import NotSeparableError, shares

B, S = Var("b", "int64"), Var("s", "int64")


def func(shape: tuple[Any, ...], out: tuple[Any, ...], body: Any) -> PrimFunc:
    x = te.placeholder(shape, name="x")
    return te.create_prim_func([x, te.compute(out, lambda *i: body(x, *i), name="y")])


def test_tokens_are_parts_whatever_the_batch() -> None:
    k = te.reduce_axis((0, 4), name="k")
    x = te.placeholder((B, S, 4), name="x")
    total = te.compute((B, S), lambda b, s: te.sum(x[b, s, k], axis=k), name="total")
    y = te.compute((B, S, 4), lambda b, s, j: x[b, s, j] - total[b, s], name="y")
    merged = merged_parts(te.create_prim_func([x, y]))
    (parts,) = shape_vars(merged)
    assert all(share is not None and share.per_part == 1 for share in shares(merged).values())
    data, out = np.random.default_rng(0).standard_normal((6, 4)).astype("float32"), np.zeros((6, 4), "float32")
    interpret(specialize(merged, {parts: 6}), [data, out])
    np.testing.assert_allclose(out, data - data.sum(-1, keepdims=True), rtol=1e-5, atol=1e-6)


def test_expressions_may_count_parts() -> None:
    """Frames of sound: samples // 160 - 1 of each sequence."""
    frames = S // 160 - 1
    k = te.reduce_axis((0, 4), name="k")
    x = te.placeholder((B, frames, 4), name="x")
    w = te.placeholder((4, 3), name="w")
    y = te.compute((B, S // 160 - 1, 3), lambda b, s, j: te.sum(x[b, s, k] * w[k, j], axis=k), name="y")
    made = te.create_prim_func([x, w, y])
    with pytest.raises(NotSeparableError, match="no product of symbols"):
        merged_parts(made)
    merged = merged_parts(made, expressions=True)
    (parts,) = shape_vars(merged)
    rng = np.random.default_rng(0)
    data, weight = (rng.standard_normal(shape).astype("float32") for shape in ((6, 4), (4, 3)))
    out = np.zeros((6, 3), "float32")
    interpret(specialize(merged, {parts: 6}), [data, weight, out])
    np.testing.assert_allclose(out, data @ weight, rtol=1e-5, atol=1e-6)


def test_sizes_in_expressions_are_not_computed_with() -> None:
    k = te.reduce_axis((0, 4), name="k")
    x, w = te.placeholder((S // 2, 4), name="x"), te.placeholder((4, 3), name="w")
    y = te.compute((S // 2, 3), lambda s, j: te.sum(x[s, k] * w[k, j], axis=k), name="y")
    z = te.compute((S // 2, 3), lambda s, j: y[s, j] * S.astype("float32"), name="z")
    with pytest.raises(NotSeparableError, match="computes with"):
        merged_parts(te.create_prim_func([x, w, z]), expressions=True)
    other = te.compute((S // 2, 3), lambda s, j: te.sum(x[S // 2 - 1 - s, k] * w[k, j], axis=k), name="other")
    with pytest.raises(NotSeparableError, match="reads other parts"):
        merged_parts(te.create_prim_func([x, w, other]), expressions=True)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda: func((B, S, 4), (S, B, 4), lambda x, s, b, j: x[b, s, j]), "reads other parts of 'x'"),
        (lambda: func((B, S, 4), (B, 4, S), lambda x, b, j, s: x[b, s, j]), "reads other parts of 'x'"),
        (lambda: func((B, S), (B, S, S), lambda x, b, s, t: x[b, t]), "its shapes count"),
        (lambda: func((B, S), (B, S), lambda x, b, s: x[b, s] + s.astype("float32")), "computes with a position"),
        (lambda: func((B, S, 4), (B, S + 1, 4), lambda x, b, s, j: x[b, 0, j]), "no product of symbols"),
        (lambda: func((S, 4), (B, S, 4), lambda x, b, s, j: x[s, j]), "its shapes count"),
    ],
)
def test_what_treats_symbols_apart_is_refused(made: Any, why: str) -> None:
    with pytest.raises(NotSeparableError, match=why):
        merged_parts(made())

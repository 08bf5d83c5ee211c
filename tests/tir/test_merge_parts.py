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

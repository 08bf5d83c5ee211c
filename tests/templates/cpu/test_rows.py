"""Rows that run together, and rows that are larger than the cache, which ask for the next one while they compute."""

from __future__ import annotations

import math

import numpy as np
import pytest

import autosched
from autosched import te, topi
from autosched.ir.node import preorder
from autosched.target import Target
from autosched.templates import apply_config, default_config
from autosched.tir import For, PrimFunc, as_int
from autosched.tir.schedule import Schedule

HASWELL = Target("llvm -mcpu=haswell -l1-bytes=32768 -l2-bytes=524288 -l3-bytes=33554432")


def _scheduled(*shape: int) -> PrimFunc:
    x = te.placeholder(shape, name="x")
    func = te.create_prim_func([x, topi.nn.softmax(x)])
    return apply_config(func, default_config(func, HASWELL), HASWELL).func


def _prefetches(func: PrimFunc) -> list[dict[str, int]]:
    found = [n.annotations.get("prefetch") for n in preorder(func.body) if isinstance(n, For)]
    return [{str(getattr(k, "value", k)): int(v) for k, v in x.items()} for x in found if x]


@pytest.mark.parametrize(
    ("rows", "length", "expected"), [(512, 512, [{"x": 16}]), (8, 512, []), (64, 256, []), (65536, 16, [{"x": 8}])]
)
def test_softmax_asks_for_the_next_row(rows, length, expected) -> None:
    assert _prefetches(_scheduled(rows, length)) == expected


@pytest.mark.parametrize("shape", [(192, 49, 49), (8, 6, 100), (8, 2, 100), (64, 30), (61, 49)])
def test_rows_that_run_together_are_computed_once(shape) -> None:
    """Whole parts of the innermost row axis: a piece that crossed its end would compute all rows on both sides."""
    sch = Schedule(_scheduled(*shape))
    for block in ("T_softmax_exp", "T_softmax_norm"):
        extents = [as_int(sch.get(loop).extent) for loop in sch.get_loops(block)]
        assert math.prod(extents) < 1.5 * math.prod(shape)  # the last vector of a row may be ragged


@pytest.mark.parametrize("shape", [(61, 49), (7, 17), (3, 5, 21), (9, 200), (1, 10)])
def test_rows_that_are_no_whole_groups(shape) -> None:
    x = te.placeholder(shape, name="x")
    built = autosched.build(te.create_prim_func([x, topi.nn.softmax(x)]))
    given = np.random.default_rng(1).standard_normal(shape).astype("float32")
    out = autosched.nd.array(np.full(shape, np.nan, "float32"))
    built(autosched.nd.array(given), out)
    power = np.exp(given.astype("float64") - given.max(-1, keepdims=True))
    np.testing.assert_allclose(out.numpy(), power / power.sum(-1, keepdims=True), rtol=1e-6)

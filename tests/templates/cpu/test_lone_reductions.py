"""Reductions in functions that no other template takes: in lanes, beside the innermost axis, or element by element."""

from __future__ import annotations

import numpy as np
import pytest

import autosched
from autosched import te, topi
from autosched.ir.node import preorder
from autosched.target import Target
from autosched.templates import apply_config, default_config
from autosched.templates.cpu.lone_reductions import reads_along
from autosched.tir import Block, For, LoopKind, PrimFunc


def _vectors(func: PrimFunc) -> int:
    config = default_config(func, Target("cpu"))
    assert config.template == "elementwise"
    nodes = preorder(apply_config(func, config, Target("cpu")).func.body)
    return sum(isinstance(n, For) and n.kind == LoopKind.VECTORIZED for n in nodes)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(9, 70), (40, 5), (3, 3), (70, 130)])
def test_two_results(shape, axis) -> None:
    x = te.placeholder(shape, name="x")
    total = topi.sum(x, axis, True)
    func = te.create_prim_func([x, total, topi.subtract(x, total)])
    assert _vectors(func) >= 1
    values = np.random.default_rng(0).standard_normal(shape).astype("float32")
    expected = values.astype("d").sum(axis, keepdims=True)
    for threads in (1, 2):
        found, rest = np.empty(expected.shape, "float32"), np.empty(shape, "float32")
        autosched.build(func, threads=threads)(values, found, rest)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(rest, values - expected, rtol=1e-5, atol=1e-5)


def test_what_hangs_on_the_whole() -> None:
    x = te.placeholder((33, 50), name="x")
    func = te.create_prim_func([x, topi.divide(x, topi.max(x, (0, 1), True))])
    values, out = np.random.default_rng(0).uniform(1, 2, (33, 50)).astype("float32"), np.empty((33, 50), "float32")
    autosched.build(func, threads=2)(values, out)
    np.testing.assert_allclose(out, values / values.max(), rtol=1e-6)


def test_which_reductions_run_along_their_last_axis() -> None:
    x, top = te.placeholder((100, 7), name="x"), te.placeholder((100,), name="top")
    k = te.reduce_axis((0, 7), "k")
    ranks = te.compute((100, 7), lambda i, j: te.sum((x(i, k) > x(i, j)).astype("int32"), axis=k))
    beyond = te.compute((100,), lambda i: te.sum(te.exp(x(i, k) - top(i)), axis=k))
    below = te.compute((7,), lambda j: te.sum(x(k, j), axis=k))
    for out, arguments, along in ((ranks, [x], True), (beyond, [x, top], False), (below, [x], True)):
        (block,) = [
            n for n in preorder(te.create_prim_func([*arguments, out]).body) if isinstance(n, Block) and n.reads
        ]
        assert reads_along(block) == along

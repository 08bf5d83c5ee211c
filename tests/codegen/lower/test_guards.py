"""Reductions over padded data leave out what is padding."""

import numpy as np
import pytest

from autosched import te, topi
from autosched.codegen.cpu.text import loop_lines
from autosched.codegen.lower import lower_func
from autosched.codegen.lower.guards import guard_reductions
from autosched.codegen.lower.partition import FULL_APART
from autosched.ir.node import FrozenDict
from autosched.tir import Add, For, IfThenElse, Max, Min, Mul, Var, const, if_then_else
from autosched.tir.interpret import interpret
from autosched.tir.schedule import Schedule
from autosched.tir.stmt import BufferStore, LoopKind
from tests.codegen.programs import buffer, loop


def padded_sum(inline: bool = True):
    """y[i] = x[i - 1] * w[0] + x[i] * w[1] + x[i + 1] * w[2], x zero outside."""
    x, w = te.placeholder((7,), name="x"), te.placeholder((3,), name="w")
    p = te.compute((9,), lambda i: te.if_then_else(te.all(i >= 1, i < 8), x[i - 1], te.const(0.0)), name="p")
    k = te.reduce_axis((0, 3), "k")
    y = te.compute((7,), lambda i: te.sum(p[i + k] * w[k], axis=k), name="y")
    s = Schedule(te.create_prim_func([x, w, y]))
    if inline:
        s.compute_inline("p")
    return s


def test_a_padded_term_is_left_out():
    text = "\n".join(loop_lines(lower_func(padded_sum().mod["main"]).body))
    assert "if" in text and "if_then_else" not in text and "select" not in text.lower()


def test_results_stay():
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal(7).astype("f"), rng.standard_normal(3).astype("f")
    lowered, y = lower_func(padded_sum().mod["main"]), np.empty(7, "f")
    interpret(lowered, [x, w, y])
    np.testing.assert_allclose(y, np.correlate(np.pad(x, 1), w, "valid"), rtol=1e-5)


def test_border_tiles_have_code_of_their_own():
    s = padded_sum()
    i, k = s.get_loops("y")
    tile, inside = s.split(i, [None, 3])
    s.reorder(tile, k, inside)
    s.unroll(k)
    s.unroll(inside)
    s.decompose_reduction("y", k)
    text = "\n".join(loop_lines(lower_func(s.mod["main"]).body))
    assert text.count("for k in unroll(3)") >= 2  # the first tile, and those whose data all lie inside


@pytest.mark.parametrize("kind", ["max", "sum of one", "product with a number"])
def test_what_is_guarded(kind):
    s, x = buffer("s", 4), buffer("x", 4)

    def body(i):
        outside = -np.inf if kind == "max" else 1.0 if kind == "sum of one" else 0.0
        term = if_then_else(i < 3, x[i], outside)
        if kind == "max":
            from autosched.tir import maximum

            return BufferStore(s, maximum(s[i], term), (i,))
        return BufferStore(s, s[i] + (term * 2.0 if kind.startswith("product") else term), (i,))

    result = guard_reductions(loop("i", 4, body))
    assert isinstance(result.body, IfThenElse) == (kind != "sum of one")


def test_conditions_that_differ_between_lanes_stay():
    s, x = buffer("s", 4), buffer("x", 4)
    nest = loop("i", 4, lambda i: BufferStore(s, s[i] + if_then_else(i < 3, x[i], 0.0), (i,)), LoopKind.VECTORIZED)
    assert guard_reductions(nest).body is nest.body


def test_a_padded_convolution_agrees():
    x, w = te.placeholder((1, 2, 5, 5), name="x"), te.placeholder((2, 2, 3, 3), name="w")
    y = topi.conv2d(x, w, (2, 2), (1, 1, 1, 1), (1, 1), 1)
    func = te.create_prim_func([x, w, y])
    s = Schedule(func)
    s.compute_inline("pad_temp")
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(b.const_shape()).astype("f") for b in func.buffers]
    plain, guarded = np.empty_like(arrays[2]), np.empty_like(arrays[2])
    interpret(func, [*arrays[:2], plain])
    interpret(lower_func(s.mod["main"]), [*arrays[:2], guarded])
    np.testing.assert_allclose(guarded, plain, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "outside"), [(Add, 0.0), (Mul, 1.0), (Max, -np.inf), (Min, np.inf), (Add, 1.0), (Mul, 0.0), (Min, -np.inf)]
)
def test_lanes_are_guarded_where_a_loop_is_split_for_open_sizes(kind, outside):
    s, x, n = buffer("s", 4), buffer("x", 4), Var("n", "int64")

    def body(i):
        return BufferStore(s, kind(s[i], if_then_else(i < n, x[i], outside)), (i,))

    lanes = loop("i", 4, body, LoopKind.VECTORIZED)
    assert guard_reductions(lanes) is lanes, "conditions of lanes are masks"
    notes = FrozenDict({FULL_APART: 4})
    apart = For(Var("k", "int64"), const(0, "int64"), n, LoopKind.SERIAL, lanes, annotations=notes)
    is_neutral = {Add: 0.0, Mul: 1.0, Max: -np.inf, Min: np.inf}[kind] == outside
    assert isinstance(guard_reductions(apart).body.body, IfThenElse if is_neutral else BufferStore)

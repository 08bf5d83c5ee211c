"""Schedules of tensor expressions: built, they give what NumPy gives, whatever was asked of their stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import autosched
from autosched import te
from autosched.errors import ScheduleError, TVMError

RNG = np.random.default_rng(0)
X, Y = RNG.random((30, 40), dtype=np.float32), RNG.random((40, 24), dtype=np.float32)


def product() -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    a, b = te.placeholder((30, 40), name="A"), te.placeholder((40, 24), name="B")
    k = te.reduce_axis((0, 40), name="k")
    return a, b, te.compute((30, 24), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")


def check_product(s: te.Schedule, args: Sequence[te.Tensor]) -> None:
    out = np.zeros((30, 24), np.float32)
    autosched.build(s, args, "llvm")(X, Y, out)
    np.testing.assert_allclose(out, X @ Y, rtol=1e-4)


def tiled(s: te.Schedule, c: te.Tensor) -> None:
    _, _, xi, yi = s[c].tile(*c.op.axis, 8, 16)
    s[c].unroll(xi)
    s[c].vectorize(yi)


def reordered(s: te.Schedule, c: te.Tensor) -> None:
    xo, yo, xi, yi = s[c].tile(*c.op.axis, 8, 8)
    ko, ki = s[c].split(c.op.reduce_axis[0], factor=4)
    s[c].reorder(xo, yo, ko, ki, xi, yi)
    s[c].vectorize(yi)
    s[c].parallel(s[c].fuse(xo, yo))


def in_parts(s: te.Schedule, c: te.Tensor) -> None:
    outer, inner = s[c].split(c.op.axis[0], nparts=7)  # 30 rows in 7 parts: the last one is ragged
    s[c].parallel(outer)
    s[c].pragma(inner, "auto_unroll_max_step", 16)


def cached_result(s: te.Schedule, c: te.Tensor) -> None:
    cache = s.cache_write(c, "global")
    _, yo, _, _ = s[c].tile(*c.op.axis, 8, 8)
    s[cache].compute_at(s[c], yo)
    (k,) = s[cache].op.reduce_axis
    x, y = cache.op.axis
    s[cache].reorder(k, x, y)
    s[cache].vectorize(y)


def cached_operand(s: te.Schedule, c: te.Tensor) -> None:
    (a, _) = c.op.input_tensors
    copy = s.cache_read(a, "global", [c])
    outer, _ = s[c].split(c.op.axis[0], factor=8)
    s[copy].compute_at(s[c], outer)


def two_steps(s: te.Schedule, c: te.Tensor) -> None:
    _, inner = s[c].split(c.op.reduce_axis[0], factor=16)  # 40 is no multiple: the last part is guarded
    partial = s.rfactor(c, inner)
    assert [iv.dom.extent.value for iv in partial.op.axis] == [16, 30, 24]
    s[partial].parallel(partial.op.axis[0])
    assert s[c].op.reduce_axis[0].dom.extent.value == 16


@pytest.mark.parametrize("ask", [tiled, reordered, in_parts, cached_result, cached_operand, two_steps])
def test_what_is_asked_of_a_product_does_not_change_it(ask: Callable[[te.Schedule, te.Tensor], None]) -> None:
    a, b, c = product()
    s = te.create_schedule(c.op)
    ask(s, c)
    check_product(s, [a, b, c])


def test_placements_of_a_producer() -> None:
    a = te.placeholder((30, 40), name="A")
    b = te.compute(a.shape, lambda i, j: a[i, j] * 2, name="B")
    c = te.compute(a.shape, lambda i, j: b[i, j] + 1, name="C")
    for how in ("root", "inline", "at"):
        s = te.create_schedule(c.op)
        _, yo, _, _ = s[c].tile(*c.op.axis, 8, 8)
        if how == "inline":
            s[b].compute_inline()
        elif how == "at":
            s[b].compute_at(s[c], yo)
        text = str(autosched.lower(s, [a, c], simple_mode=True))
        assert ("B = " in text) == (how != "inline")
        out = np.zeros_like(X)
        autosched.build(s, [a, c], "llvm")(X, out)
        np.testing.assert_allclose(out, X * 2 + 1, rtol=1e-6)


def test_stages_and_outputs() -> None:
    a, b, c = product()
    s = te.create_schedule(c.op)
    assert [stage.op.name for stage in s.stages] == ["A", "B", "C"]
    assert s.outputs == [c.op] and s[c] is s[c.op] and s[c].origin_op is c.op
    assert [iv.var.name for iv in s[c].leaf_iter_vars] == ["i", "j", "k"]
    outer, inner = s[c].split(c.op.axis[0], 8)
    assert (outer.var.name, outer.dom.extent.value, inner.dom.extent.value) == ("i.outer", 4, 8)
    assert len(s[c].all_iter_vars) == 5 and s[c].iter_vars == c.op.axis + c.op.reduce_axis
    cache = te.create_schedule(c.op).cache_write(c, "local")
    assert cache.op.name == "C.local" and isinstance(a.op, te.PlaceholderOp) and b is not None


def test_outputs_may_stand_first() -> None:
    a = te.placeholder((5,), name="A")
    b = te.compute((5,), lambda i: a[i] + 1, name="B")
    x, out = np.ones(5, np.float32), np.zeros(5, np.float32)
    autosched.build(te.create_schedule(b.op), [b, a], "llvm")(out, x)
    assert out.tolist() == [2] * 5


def test_a_group_moves_together() -> None:
    a = te.placeholder((8, 8), name="A")
    b = te.compute(a.shape, lambda i, j: a[i, j] * 2, name="B")
    c = te.compute(a.shape, lambda i, j: b[i, j] + 1, name="C")
    d = te.compute(a.shape, lambda i, j: c[i, j] * 3, name="D")
    s = te.create_schedule(d.op)
    group = s.create_group(outputs=c, inputs=a)
    assert [stage.op.name for stage in group.stages] == ["B", "C"]
    group.compute_at(s[d], d.op.axis[0])
    out = np.zeros((8, 8), np.float32)
    autosched.build(s, [a, d], "llvm")(X[:8, :8].copy(), out)
    np.testing.assert_allclose(out, (X[:8, :8] * 2 + 1) * 3, rtol=1e-6)


def test_wrong_use_names_what_is_wrong() -> None:
    a, b, c = product()
    s = te.create_schedule(c.op)
    i, j = c.op.axis
    with pytest.raises(ValueError, match="indexed by a tensor"):
        s["C"]  # type: ignore[index]
    with pytest.raises(ValueError, match="not in this schedule"):
        s[te.compute((3,), lambda n: 1.0)]
    for wrong in ({}, {"factor": 2, "nparts": 2}, {"factor": 0}):
        with pytest.raises(ValueError, match="split"):
            s[c].split(i, **wrong)
    with pytest.raises(ValueError, match="no neighbours"):
        s[c].fuse(j, i)
    with pytest.raises(TypeError, match="takes an axis"):
        s[c].vectorize("i")  # type: ignore[arg-type]
    for mark in (s[c].vectorize, s[c].parallel):
        with pytest.raises(ScheduleError, match="reduction axis"):
            mark(c.op.reduce_axis[0])
    with pytest.raises(TVMError, match="output is computed whole"):
        s[c].compute_inline()
    with pytest.raises(ValueError, match="input 'B' is not among"):
        autosched.lower(s, [a, c])
    assert "C = T.decl_buffer" in autosched.lower(s, [a, b]).script()  # an output that nobody asks for
    s[c].split(i, 4)
    with pytest.raises(ValueError, match="split or fused already"):
        s[c].split(i, 4)
    with pytest.raises(ValueError, match="before its axes are split"):
        s.cache_write(c, "local")
    with pytest.raises(ValueError, match="no reduction axis"):
        s.rfactor(c, j)
    with pytest.raises(TypeError, match="takes operations"):
        te.create_schedule(3)  # type: ignore[arg-type]


def test_a_thread_axis_needs_a_device() -> None:
    a, b, c = product()
    s = te.create_schedule(c.op)
    s[c].bind(c.op.axis[0], te.thread_axis("blockIdx.x"))
    assert 'T.thread_binding(30, thread="blockIdx.x")' in str(autosched.lower(s, [a, b, c]))
    with pytest.raises(TVMError, match="which a CPU lacks"):
        autosched.build(s, [a, b, c], "llvm")
    with pytest.raises(ValueError, match="needs a tag"):
        te.thread_axis()


def test_an_untouched_schedule_leaves_the_loops_to_the_build() -> None:
    a, b, c = product()
    s = te.create_schedule(c.op)
    assert "tir.is_scheduled" not in te.to_prim_func(s, [a, b, c]).attrs
    s[c].split(c.op.axis[0], 4)
    assert te.to_prim_func(s, [a, b, c]).attrs["tir.is_scheduled"]


def test_the_ragged_rest_has_buffers_of_its_own() -> None:
    """The rest's last loop is a phase by itself here, and what it reads lies in memory that all phases share."""
    a, b, c = product()
    d = te.compute((30, 24), lambda i, j: c[i, j] + 1, name="D")
    s = te.create_schedule(d.op)
    outer, inner = s[d].split(d.op.axis[0], nparts=7)
    s[d].split(inner, factor=3)
    s[d].parallel(d.op.axis[1])
    s[c].compute_at(s[d], outer)
    out = np.zeros((30, 24), np.float32)
    autosched.build(s, [a, b, d], "llvm")(X, Y, out)
    np.testing.assert_allclose(out, X @ Y + 1, rtol=1e-4)


def test_what_was_asked_of_an_axis_goes_with_it() -> None:
    a, b, c = product()
    s = te.create_schedule(c.op)
    s[c].parallel(c.op.axis[0])
    s[c].split(c.op.axis[0], 4)
    assert "parallel" not in str(autosched.lower(s, [a, b, c]))


BLOCKED = (lambda i, j: [i, j // 4, j % 4], lambda x: x.reshape(30, 6, 4))
TURNED = (lambda i, j: [j, i], lambda x: x.T)
FLAT = (lambda i, j: i * 24 + j, lambda x: x.reshape(720))
SEPARATED = (lambda i, j: [i, te.AXIS_SEPARATOR, j], lambda x: x)


@pytest.mark.parametrize(("mapping", "moved"), [BLOCKED, TURNED, FLAT, SEPARATED])
def test_the_layout_of_an_output(mapping: Callable[..., Any], moved: Callable[..., Any]) -> None:
    a, b, c = product()
    s = te.create_schedule(c.op)
    axes = s[c].transform_layout(mapping)
    assert [iv.dom.extent.value for iv in axes] == list(moved(np.zeros((30, 24))).shape)
    assert s[c].leaf_iter_vars == [*axes, *c.op.reduce_axis]
    s[c].reorder(c.op.reduce_axis[0], axes[-1])
    out = np.zeros(moved(np.zeros((30, 24))).shape, np.float32)
    autosched.build(s, [a, b, c], "llvm")(X, Y, out)
    np.testing.assert_allclose(out, moved(X @ Y), rtol=1e-4)


def test_the_layout_of_an_input_and_of_what_lies_between() -> None:
    a = te.placeholder((30, 24), name="A")
    doubled = te.compute((30, 24), lambda i, j: a[i, j] * 2.0, name="doubled")
    out = te.compute((30, 24), lambda i, j: doubled[i, 23 - j] + 1.0, name="out")
    s = te.create_schedule(out.op)
    assert s[a].transform_layout(lambda i, j: [j, i]) == []
    outer, middle, inner = s[doubled].transform_layout(lambda i, j: [j // 4, i, j % 4])
    s[doubled].vectorize(inner)
    s[doubled].compute_at(s[out], out.op.axis[0])
    s[doubled].unroll(outer)
    assert [iv.dom.extent.value for iv in (outer, middle, inner)] == [6, 30, 4]
    found, x = np.zeros((30, 24), np.float32), np.ascontiguousarray(X[:, :24])
    autosched.build(s, [a, out], "llvm")(np.ascontiguousarray(x.T), found)
    np.testing.assert_allclose(found, x[:, ::-1] * 2 + 1, rtol=1e-6)


def test_a_layout_that_is_refused() -> None:
    _, _, c = product()
    s = te.create_schedule(c.op)
    with pytest.raises(ScheduleError, match="transform_layout"):
        s[c].transform_layout(lambda i, j: [i, j // 5, j % 5])  # 24 is no multiple of 5
    with pytest.raises(ScheduleError, match="transform_layout"):
        s[c].transform_layout(lambda i, j: [i // 2, j])
    with pytest.raises(ScheduleError, match="takes 1 indices"):
        s[c].transform_layout(lambda i: [i])
    s[c].transform_layout(lambda i, j: [j, i])
    with pytest.raises(ScheduleError, match="comes before"):
        s[c].transform_layout(lambda i, j: [j, i])
    with pytest.raises(ValueError, match="before its axes are split"):
        s.cache_write(c, "local")
    s = te.create_schedule(c.op)
    s[c].split(c.op.axis[0], 4)
    with pytest.raises(ScheduleError, match="comes before"):
        s[c].transform_layout(lambda i, j: [j, i])

"""Forms of scheduled functions: equal for functions that differ in outer numbers alone, and the function at these."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autosched import te
from autosched.ir.structural import structural_equal, structural_key
from autosched.space import Config
from autosched.target import Target
from autosched.templates import apply_config, default_config
from autosched.tir import PrimFunc
from autosched.tir.expr import const_int
from autosched.tir.function import size_vars, specialize
from autosched.tir.outer_sizes import Form, open_outer_sizes
from autosched.tir.prefetch import PANEL, PREFETCH_NEXT
from autosched.tir.schedule import Schedule
from tests.templates.cases import conv
from tests.tir.random_schedule import take_steps
from tests.tir.random_te import random_program

WIDE = Target("llvm -mcpu=x86-64-v3 -num-cores=2")


def primfunc(tensors: list[te.Tensor]) -> PrimFunc:
    return te.create_prim_func(tensors, "int64")


def scheduled(func: PrimFunc) -> PrimFunc:
    return apply_config(func, default_config(func, WIDE), WIDE).func


def at_its_numbers(form: Form) -> PrimFunc:
    by_name = dict(zip(form.func.attrs["autosched.sizes"], form.numbers, strict=True))
    return specialize(form.func, {v: by_name[v.name] for v in size_vars(form.func)})


def same(form: Form, func: PrimFunc) -> bool:
    """Whether the form at its numbers is the function, without the names of symbols."""
    made = at_its_numbers(form)
    return structural_equal(made.body, func.body, True) and all(
        a.const_shape() == b.const_shape() for a, b in zip(made.buffers, func.buffers, strict=True)
    )


def rows(channels: int, factor: int = 8) -> PrimFunc:
    x = te.placeholder((channels, 14, factor), name="x")
    scale = te.placeholder((channels, 1, factor), name="scale")
    return primfunc([x, scale, te.compute(x.shape, lambda c, y, b: x[c, y, b] * scale[c, 0, b], name="out")])


def test_channels_that_are_read():
    found = [open_outer_sizes(scheduled(conv(1, 16 * blocks, 14, 32, 1, 1, 0))) for blocks in (4, 6, 9)]
    assert all(found) and [form.numbers for form in found] == [(4,), (6,), (9,)]
    assert len({structural_key(form.func) for form in found}) == 1


def test_a_panel_asked_for_ahead_is_as_long_as_the_loop_over_it():
    found = []
    for blocks in (4, 6, 9):
        func = conv(1, 16 * blocks, 14, 64, 1, 1, 0)
        config = default_config(func, WIDE)
        config = Config(config.template, {**config.knobs, "prefetch": True})
        made = apply_config(func, config, WIDE)
        assert "prefetch_next" in str(made.func)
        form = open_outer_sizes(made.func)
        assert form is not None and form.numbers == (blocks,) and same(form, made.func)
        found.append((structural_key(form.func), made.trace))
    assert len(set(found)) == 1


def test_passes_over_a_panel_keep_their_number():
    x = te.placeholder((16, 32, 8), name="x")
    sch = Schedule(primfunc([x, te.compute(x.shape, lambda p, k, j: x[p, k, j] + 1.0, name="out")]))
    passes = sch.get_loops("out")[0]
    sch.parallel(passes)
    assert open_outer_sizes(sch.func).numbers == (16, 32)
    sch.annotate(passes, PREFETCH_NEXT, {"x": PANEL})
    form = open_outer_sizes(sch.func)
    assert form is not None and form.numbers == (32,) and same(form, sch.func)
    sch.annotate(passes, PREFETCH_NEXT, {"x": 32 * 8})
    assert open_outer_sizes(sch.func) is None


def test_axes_of_one_loop():
    found = [open_outer_sizes(scheduled(rows(channels))) for channels in (16, 18, 23)]
    assert all(found) and [form.numbers[0] for form in found] == [16, 18, 23]
    assert len({structural_key(form.func) for form in found}) == 1


def test_a_loop_of_a_part_of_an_axis_goes_with_the_axis():
    x = te.placeholder((48, 8), name="x")
    sch = Schedule(primfunc([x, te.compute(x.shape, lambda i, j: x[i, j] + 1.0, name="out")]))
    outer, _ = sch.split(sch.get_loops("out")[0], [None, 4])
    sch.parallel(outer)
    form = open_outer_sizes(sch.func)
    assert form is not None and form.numbers == (12,) and same(form, sch.func)


@pytest.mark.parametrize("steps", ["vectorize", "unroll"])
def test_loops_that_are_no_loops_in_code_keep_their_numbers(steps):
    x = te.placeholder((32,), name="x")
    sch = Schedule(primfunc([x, te.compute(x.shape, lambda i: x[i] + 1.0, name="out")]))
    getattr(sch, steps)(sch.get_loops("out")[0])
    assert open_outer_sizes(sch.func) is None


@pytest.mark.parametrize(
    "index",
    [lambda i: i + 1, lambda i: 2 * i, lambda i: 34 - i, lambda i: i // 2],
    ids=["next", "even", "back", "half"],
)
def test_places_that_do_not_follow_each_other_keep_their_numbers(index):
    x = te.placeholder((70,), name="x")
    func = primfunc([x, te.compute((32,), lambda i: x[index(i)] + 1.0, name="out")])
    assert open_outer_sizes(func) is None


def test_small_numbers_stay():
    x = te.placeholder((3, 32, 5), name="x")
    sch = Schedule(primfunc([x, te.compute(x.shape, lambda i, j, k: x[i, j, k] + 1.0, name="out")]))
    sch.parallel(sch.get_loops("out")[0])
    sch.parallel(sch.get_loops("out")[1])
    form = open_outer_sizes(sch.func)
    assert form is not None and form.numbers == (32,) and const_int(form.func.buffers[0].shape[0]) == 3


def test_a_guarded_loop_keeps_its_number():
    x = te.placeholder((30,), name="x")
    sch = Schedule(primfunc([x, te.compute(x.shape, lambda i: x[i] + 1.0, name="out")]))
    sch.split(sch.get_loops("out")[0], [None, 8])  # 4 parts, the last one is not whole
    assert open_outer_sizes(sch.func) is None


@settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), max_examples=60)
@given(random=st.randoms(use_true_random=False))
def test_forms_of_random_schedules(random):
    sch = Schedule(random_program(random.randrange).func)
    take_steps(sch, random.randrange(12), random.randrange)
    form = open_outer_sizes(sch.func)
    assert form is None or same(form, sch.func)

"""Random legal primitives on random programs keep the result; illegal ones are refused and change nothing."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autosched.ir import structural_equal
from autosched.tir import PrimFunc, Schedule
from autosched.tir.verify import verify
from tests.tir.programs import PROGRAMS, assert_same_result
from tests.tir.random_schedule import take_steps

SMALL = st.integers(1, 4)
MEDIUM = st.integers(3, 9)

SIZES = {
    "matmul": st.tuples(MEDIUM, MEDIUM, MEDIUM),
    "dense": st.tuples(MEDIUM, MEDIUM, MEDIUM),
    "chain": st.tuples(MEDIUM, MEDIUM),
    "conv": st.tuples(SMALL, st.integers(4, 6), SMALL, st.sampled_from([1, 3]), st.integers(1, 2), st.integers(0, 1)),
    "conv_nchwc": st.tuples(st.just(4), st.integers(3, 5), st.just(4), st.just(2), st.sampled_from([1, 3])),
    "softmax": st.tuples(SMALL, MEDIUM),
    "layer_norm": st.tuples(SMALL, MEDIUM),
    "pool": st.tuples(SMALL, st.integers(5, 8), st.integers(2, 3), st.integers(1, 2)),
    "argmax": st.tuples(SMALL, MEDIUM),
}


@st.composite
def programs(draw: st.DrawFn) -> PrimFunc:
    name = draw(st.sampled_from(sorted(SIZES)))
    return PROGRAMS[name](*draw(SIZES[name]))


def test_every_program_has_sizes() -> None:
    assert set(SIZES) == set(PROGRAMS)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(func=programs(), data=st.data())
def test_random_primitives(func: PrimFunc, data: st.DataObject) -> None:
    sch = Schedule(func)
    random = data.draw(st.randoms(use_true_random=False))
    take_steps(sch, random.randrange(2, 16), random.randrange)
    verify(sch.func)
    assert_same_result(func, sch.func)
    again = Schedule(func)
    sch.trace.apply_json_to_schedule(sch.trace.as_json(), again)
    assert structural_equal(again.func, sch.func)


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    m=st.integers(1, 13), n=st.integers(1, 19), k=st.integers(1, 9),
    tile=st.tuples(st.integers(1, 6), st.integers(1, 12), st.integers(1, 4), st.integers(1, 8)),
)  # fmt: skip
def test_register_tiled_dense(m: int, n: int, k: int, tile: tuple[int, int, int, int]) -> None:
    """The schedule that the matmul template is made of, at sizes that do not divide."""
    rows, columns, unroll, lanes = tile
    func = PROGRAMS["dense"](m, n, k)
    sch = Schedule(func)
    sch.compute_inline("D")
    sch.set_scope("C", 0, "local")
    i, j = sch.get_loops("E")
    i_0, i_1 = sch.split(i, [None, rows])
    j_0, j_1 = sch.split(j, [None, columns])
    sch.reorder(i_0, j_0, i_1, j_1)
    task = sch.fuse(i_0, j_0)
    sch.parallel(task)
    sch.compute_at("C", task, preserve_unit_loops=True)
    *_, ii, jj, kk = sch.get_loops("C")
    k_0, k_1 = sch.split(kk, [None, unroll])
    sch.reorder(k_0, k_1, ii, jj)
    _, lane = sch.split(jj, [None, lanes])
    sch.unroll(ii)
    sch.vectorize(lane)
    sch.decompose_reduction("C", k_0)
    sch.unroll(i_1)
    sch.vectorize(sch.split(j_1, [None, lanes])[1])
    verify(sch.func)
    assert_same_result(func, sch.func)

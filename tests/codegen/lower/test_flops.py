"""Work is counted for the iterations that run it."""

import pytest

from autosched.codegen.lower.flops import count_flops
from autosched.tir import BufferStore, IfThenElse, const
from autosched.tir.stmt import SeqStmt
from tests.codegen.programs import buffer, loop

A = buffer("A", 64)


def _add(i, times=1):
    value = A[i]
    for _ in range(times):
        value = value + const(1.0)
    return BufferStore(A, value, (i,))


def test_full_and_ragged_tiles_are_counted_for_the_tiles_that_run_them():
    def tile(t):
        full = loop("i", 8, lambda i: _add(t * 8 + i), "unrolled")
        rest = loop("i", 5, lambda i: _add(t * 8 + i), "unrolled")
        return IfThenElse(t < 3, full, rest)

    assert count_flops(loop("t", 4, tile, "parallel")) == 3 * 8 + 5


def test_conditions_inside_of_conditions():
    def body(i):
        return loop("j", 6, lambda j: IfThenElse(i < 7, IfThenElse(i * 6 + j < 40, _add(j, 2)), _add(j)))

    inside = sum(i < 7 and i * 6 + j < 40 for i in range(9) for j in range(6))
    assert count_flops(loop("i", 9, body)) == 2 * inside + 2 * 6


def test_conditions_on_data_count_the_longer_case():
    flag = buffer("n", 1, dtype="int32")
    both = IfThenElse(flag[0] > 2, _add(const(0)), _add(const(1), 3))
    assert count_flops(SeqStmt((both, _add(const(2))))) == 4


@pytest.mark.parametrize("extent", [1, 5])
def test_loops_without_conditions(extent):
    assert count_flops(loop("i", extent, lambda i: _add(i))) == extent

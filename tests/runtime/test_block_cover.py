"""Which blocks cover a batch: all of it, each part once unless blocks may overlap."""

from __future__ import annotations

import pytest

from autosched.runtime.block_cover import FAR_PASS, NEAR_BYTES, PASS, cover, cover_cost, pass_cost

SIZES = (64, 32, 16, 12, 8, 6, 4, 2, 1)


@pytest.mark.parametrize("may_overlap", [False, True])
@pytest.mark.parametrize("sizes", [SIZES, (56, 14, 4, 2, 1), (64, 1), (1,)])
def test_every_part_is_computed(sizes: tuple[int, ...], may_overlap: bool) -> None:
    for n in (*range(140), 1000):
        parts: list[int] = []
        for size, first, count in cover(sizes, n, PASS, may_overlap):
            assert first >= 0 and size in sizes and count > 0
            parts += range(first, first + size * count)
        assert set(parts) == set(range(n))
        assert may_overlap or len(parts) == n


def test_the_last_block_overlaps_where_that_saves_a_call() -> None:
    assert cover(SIZES, 45, PASS, True) == ((32, 0, 1), (16, 29, 1))
    assert cover(SIZES, 45, PASS, False) == ((32, 0, 1), (12, 32, 1), (1, 44, 1))
    assert cover(SIZES, 11, PASS, True)[0][0] < 12, "a block of 12 parts would begin before the batch"


def test_costly_weights_are_read_by_fewer_blocks() -> None:
    near, far = (cover((8, 2, 1), 7, cost, False) for cost in (0, 100))
    assert sum(count for *_, count in far) <= sum(count for *_, count in near)
    assert cover_cost(SIZES, 128, 3, True) == 2 * 67
    assert (pass_cost(NEAR_BYTES), pass_cost(NEAR_BYTES + 1)) == (PASS, FAR_PASS)

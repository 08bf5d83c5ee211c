"""Which blocks cover a batch: all of it, each part once unless blocks may overlap."""

from __future__ import annotations

import pytest

from autosched.runtime.block_cover import BLOCK, FAR_PASS, NEAR_BYTES, PASS, cover, cover_cost, pass_cost

SIZES = (64, 8, 6, 4, 2, 1)


@pytest.mark.parametrize("may_overlap", [False, True])
@pytest.mark.parametrize("sizes", [SIZES, (56, 14, 4, 2, 1), (64, 1), (1,)])
def test_every_part_is_computed(sizes: tuple[int, ...], may_overlap: bool) -> None:
    for n in (*range(300), 1000):
        parts: list[int] = []
        for size, first, count in cover(sizes, n, PASS, may_overlap):
            assert first >= 0 and size in sizes and count > 0
            parts += range(first, first + size * count)
        assert set(parts) == set(range(n))
        assert may_overlap or len(parts) == n


def test_the_last_run_overlaps_where_that_saves_a_pass() -> None:
    assert cover(SIZES, 45, PASS, True) == ((8, 0, 5), (6, 39, 1))
    assert len(cover(SIZES, 45, PASS, False)) == 3
    assert cover(SIZES, 7, PASS, True) == ((6, 0, 1), (1, 6, 1)), "a block of 8 parts would begin before the batch"
    assert cover((64, 8, 1), 127, PASS, True) == ((64, 0, 1), (64, 63, 1))


def test_a_run_of_small_blocks_is_one_pass() -> None:
    assert cover(SIZES, 72, PASS, False) == ((8, 0, 9),)
    assert cover_cost(SIZES, 72, PASS, False) == 72 + 9 * BLOCK + PASS
    assert cover_cost(SIZES, 128, PASS, True) == 2 * (64 + 8 * BLOCK + PASS)


def test_costly_weights_are_read_in_fewer_passes() -> None:
    near, far = (cover((8, 2, 1), 7, cost, False) for cost in (0, 100))
    assert len(far) < len(near) and far == ((1, 0, 7),)
    assert (pass_cost(NEAR_BYTES), pass_cost(NEAR_BYTES + 1)) == (PASS, FAR_PASS)

import pytest

from autosched.target import Target
from autosched.templates.cpu.register_tile import choose_tile, cycles_per_step, fits, most_rows, step_cycles

V3, V4 = Target("llvm -mcpu=x86-64-v3"), Target("llvm -mcpu=x86-64-v4")


@pytest.mark.parametrize("target", [V3, V4])
@pytest.mark.parametrize("m", [1, 4, 16, 128, 1024])
def test_tiles_stay_in_registers(m, target):
    tile = choose_tile(m, 3072 // target.lanes("float32"), 768, target)
    assert fits(tile.rows, tile.vectors, target.num_registers)
    assert tile.rows <= m


def test_fewer_loads_win_where_multiply_adds_are_equal():
    tile = choose_tile(1024, 128, 1024, V3)
    assert (tile.rows, tile.vectors) == (4, 3)


def test_rows_may_be_given():
    assert choose_tile(128, 8, 64, V3, rows=6).rows == 6
    assert choose_tile(128, 8, 64, V3, rows=6).vectors == 2


def with_l1(kib: int) -> Target:
    return Target(f"llvm -mcpu=x86-64-v4 -l1-bytes={kib * 1024} -l2-bytes=1048576 -l3-bytes=33554432")


def test_rows_that_share_a_set_are_no_more_than_its_ways():
    assert most_rows(4096, with_l1(32)) == most_rows(3 * 4096, with_l1(32)) == 6
    assert most_rows(4096, with_l1(48)) == 10
    assert most_rows(2048, with_l1(32)) == 12  # two sets
    assert most_rows(4096 + 64, with_l1(32)) >= 16  # a set each
    assert most_rows(4096, V3) == 16  # no tile of 16 registers has many rows but narrow ones
    tile = choose_tile(1024, 64, 1024, with_l1(32), most=most_rows(4096, with_l1(32)))
    assert (tile.rows, tile.vectors) == (6, 4)


@pytest.mark.parametrize("kib", [32, 48])
@pytest.mark.parametrize("m", [6, 16, 64, 128, 197, 512, 1024])
def test_wide_tiles_fill_the_pipelines_and_leave_the_second_cache_time(m, kib):
    target = with_l1(kib)
    for n_vectors, steps in ((32, 512), (48, 768), (192, 768), (64, 1024)):
        tile = choose_tile(m, n_vectors, steps, target, most=most_rows(4 * steps, target))
        fmas = tile.rows * tile.vectors
        assert fmas >= 18
        assert tile.vectors * 64 / (fmas / 2) <= 24  # bytes of the panel a cycle


def test_what_is_not_hidden_counts_with_32_registers_only():
    assert step_cycles(4, 3, 2.0, V3) == cycles_per_step(4, 3, 2.0)
    assert step_cycles(8, 3, 2.0, V4) > cycles_per_step(8, 3, 2.0)
    assert step_cycles(8, 1, 0.0, V4) > cycles_per_step(8, 1) == step_cycles(8, 1, 0.0, V3)

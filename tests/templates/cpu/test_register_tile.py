import pytest

from autosched.target import Target
from autosched.templates.cpu.register_tile import choose_tile, fits

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

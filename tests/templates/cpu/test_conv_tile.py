"""Tiles and prefetches of untuned convolutions."""

import pytest

from autosched.space import Config
from autosched.target import Target
from autosched.templates import templates_for
from autosched.tir import PrimFunc
from tests.templates.cases import conv

pytestmark = pytest.mark.host

AVX2 = Target("llvm -mcpu=x86-64-v3 -num-cores=2 -l1-bytes=32768 -l2-bytes=524288 -l3-bytes=33554432")


def default(func: PrimFunc) -> Config:
    return next(t.default(anchor, AVX2) for t, anchor in templates_for(func, AVX2) if t.name == "conv2d")


def test_tiles_cross_rows_where_they_do_not_divide_them():
    """49 pixels are 9 tiles of 5 and one of 4; four of 7 pixels and three are too few accumulators."""
    config = default(conv(1, 256, 14, 512, 3, 2, 1, block=8))
    assert (config["across_rows"], config["oh_tile"], config["ow_tile"], config["oc_blocks"]) == (True, 1, 5, 2)
    assert config["chunk"] >= 10  # one piece of work for each panel of weights
    assert config["prefetch"]
    assert not default(conv(1, 64, 56, 128, 3, 2, 1, block=8))["across_rows"]


def test_tiles_of_a_plain_image_have_one_row():
    """3 x 3 pixels need a little less by the estimate, in three times as many lines that no cache has."""
    wide, func = Target("llvm -mcpu=x86-64-v4"), conv(1, 3, 224, 48, 4, 4, 0, first=True)
    config = next(t.default(anchor, wide) for t, anchor in templates_for(func, wide) if t.name == "conv2d")
    assert (config["oh_tile"], config["ow_tile"]) == (1, 8)


def test_tiles_stay_in_their_group():
    config = default(conv(1, 1024, 14, 1024, 3, 2, 1, groups=32, block=8))
    assert 4 % config["oc_blocks"] == 0


@pytest.mark.parametrize("size, groups, chunk", [(112, 4, 2), (14, 32, 4)])
def test_the_first_cache_holds_what_a_piece_of_a_group_copies(size, groups, chunk):
    """A row of tiles reads 7 KB of an image, which leaves no room for four, or 2.3."""
    config = default(conv(1, 16 * groups, size, 16 * groups, 3, 1, 1, groups=groups))
    assert (config["padding"], config["chunk"]) == ("task", chunk)


def test_few_pixels_fetch_the_next_panel_even_without_room():
    assert default(conv(1, 512, 14, 512, 3, 2, 1, block=8))["prefetch"]
    assert not default(conv(1, 288, 35, 384, 3, 2, 0, block=8))["prefetch"]


def test_tiles_that_load_more_than_they_multiply_are_not_chosen():
    """13 x 1 divides 13 pixels, at 0.77 of the rate of 5 x 2."""
    config = default(conv(1, 256, 26, 512, 3, 2, 1, block=8))
    assert config["oc_blocks"] == 2


def test_tiles_of_1x1_convolutions_go_over_one_row():
    config = default(conv(1, 512, 7, 512, 1, 1, 0, block=8))
    assert not config["across_rows"]

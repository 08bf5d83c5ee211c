"""The forms of convolution that schedules rely on."""

from __future__ import annotations

import pytest

from autosched import te, topi
from autosched.errors import ShapeError
from autosched.te import create_prim_func
from autosched.tir.functor import blocks


def names(padding: tuple[int, int, int, int], groups: int = 1, block: str = "NCHW", channels: int = 8) -> list[str]:
    shape = (1, channels, 6, 6) if block == "NCHW" else (1, channels // 4, 6, 6, 4)
    x, w = te.placeholder(shape, name="x"), te.placeholder((channels, channels // groups, 3, 3), name="w")
    y = topi.conv2d(x, w, (1, 1), padding, (1, 1), groups, block, block)
    func = create_prim_func([x, w, y], "int64")
    return [b.name for b in blocks(func.body) if b is not func.root]


def test_padding_is_a_block_of_its_own() -> None:
    assert names((1, 1, 1, 1)) == ["pad_temp", "conv2d_nchw"]
    assert names((0, 0, 0, 0)) == ["conv2d_nchw"]


def test_pixels_that_a_stride_picks_are_a_block_of_their_own() -> None:
    x, w = te.placeholder((1, 8, 6, 6), name="x"), te.placeholder((4, 8, 1, 1), name="w")
    func = create_prim_func([x, w, topi.conv2d(x, w, (2, 2), (0, 0, 0, 0), (1, 1), 1)], "int64")
    assert [b.name for b in blocks(func.body) if b is not func.root] == ["stride_temp", "conv2d_nchw"]


def test_kinds() -> None:
    assert names((0, 0, 0, 0), groups=2) == ["group_conv2d_nchw"]
    assert names((0, 0, 0, 0), groups=8) == ["depthwise_conv2d_nchw"]
    assert names((0, 0, 0, 0), block="NCHW4c") == ["conv2d_nchwc"]
    assert names((0, 0, 0, 0), groups=8, block="NCHW4c") == ["depthwise_conv2d_nchwc"]


@pytest.mark.parametrize(
    ("data", "weight", "groups", "layout"),
    [
        ((1, 3, 6, 6), (4, 2, 3, 3), 1, "NCHW"),
        ((1, 3, 2, 2), (4, 3, 3, 3), 1, "NCHW"),
        ((1, 4, 6, 6), (6, 1, 3, 3), 4, "NCHW"),
        ((1, 1, 6, 6, 4), (6, 4, 3, 3), 1, "NCHW4c"),
        ((1, 1, 6, 6, 8), (8, 8, 3, 3), 1, "NCHW4c"),
        ((1, 3, 6, 6, 8), (24, 6, 3, 3), 4, "NCHW8c"),
        ((1, 2, 6, 6, 4), (24, 1, 3, 3), 8, "NCHW4c"),
        ((1, 3, 6, 6), (4, 3, 3, 3), 1, "NHWC"),
    ],
)
def test_sizes_that_do_not_fit(data: tuple[int, ...], weight: tuple[int, ...], groups: int, layout: str) -> None:
    x, w = te.placeholder(data), te.placeholder(weight)
    with pytest.raises(ShapeError):
        topi.conv2d(x, w, (1, 1), (0, 0, 0, 0), (1, 1), groups, layout, layout)

"""Which tile and which pieces of work a depthwise convolution gets without tuning."""

from __future__ import annotations

import pytest

from autosched.codegen.lower import lower_func
from autosched.ir.node import preorder
from autosched.space import Config
from autosched.target import Target
from autosched.templates import apply_config, default_config, templates_for
from autosched.tir.expr import Call
from autosched.tir.outer_sizes import open_outer_sizes

from ..cases import conv
from .test_winograd import LIMIT, error

AVX2, AVX512 = "x86-64-v3", "x86-64-v4"


def default(mcpu: str, channels: int, size: int, kernel: int, stride: int) -> Config:
    target = Target(f"llvm -mcpu={mcpu}")
    func = conv(1, channels, size, channels, kernel, stride, kernel // 2, groups=channels)
    return next(t.default(a, target) for t, a in templates_for(func, target) if t.name == "depthwise")


@pytest.mark.parametrize(
    ("mcpu", "size", "kernel", "stride", "expected"),
    [
        (AVX2, 112, 3, 1, (4, True)),  # the weights come from memory, so the tile is small
        (AVX512, 112, 3, 1, (8, True)),  # they stay in registers
        (AVX2, 112, 3, 2, (8, False)),  # neighbours share no data
        (AVX2, 7, 3, 1, (7, False)),  # a row would be one body
        (AVX2, 28, 5, 1, (6, False)),
    ],
)
def test_windows_are_unrolled_where_neighbours_share_data(
    mcpu: str, size: int, kernel: int, stride: int, expected: tuple[int, bool]
) -> None:
    config = default(mcpu, 64, size, kernel, stride)
    assert (config["pixels"], config["unroll_kh"]) == expected


@pytest.mark.parametrize("size", [56, 96, 100, 112, 113])
def test_chunks_of_rows_are_of_one_size(size: int) -> None:
    chunk = default(AVX2, 32, size, 3, 1)["row_chunk"]
    assert chunk >= size or -size % chunk <= size / 10


@pytest.mark.parametrize(
    ("channels", "size", "stride", "expected"), [(96, 112, 1, True), (96, 28, 1, False), (96, 112, 2, False)]
)
def test_lines_of_large_images_are_asked_for_ahead(channels: int, size: int, stride: int, expected: bool) -> None:
    target = Target(f"llvm -mcpu={AVX512}")
    func = conv(1, channels, size, channels, 3, stride, 1, groups=channels)
    config = default_config(func, target)
    assert config["halves"] == (channels * size * size * 4 * (1 + 1 / stride**2) > target.cache.l2_bytes)
    scheduled = apply_config(func, Config(config.template, {**config.knobs, "halves": False}), target).func
    lowered = lower_func(scheduled)
    assert any(isinstance(x, Call) and x.op == "prefetch" for x in preorder(lowered.body)) == expected
    assert open_outer_sizes(scheduled) is not None  # what is asked for follows from numbers that stay


@pytest.mark.parametrize(
    ("channels", "each", "size", "kernel", "stride"),
    [(32, 2, 9, 3, 1), (16, 2, 14, 7, 2), (16, 4, 5, 3, 1), (32, 16, 6, 3, 2), (48, 2, 30, 5, 1)],
)
def test_several_outputs_of_each_channel(channels: int, each: int, size: int, kernel: int, stride: int) -> None:
    func = conv(1, channels, size, channels * each, kernel, stride, kernel // 2, groups=channels)
    config = default_config(func, Target("cpu"))
    assert config.template == "depthwise"
    assert error(func, config, threads=2) < LIMIT


@pytest.mark.parametrize(("channels", "size", "rows", "chunk", "block"), [(48, 13, 1, 3, 16), (32, 12, 2, 2, 32)])
def test_halves_of_the_rows_are_divided_before_channels(
    channels: int, size: int, rows: int, chunk: int, block: int
) -> None:
    func = conv(1, channels, size, channels, 3, 1, 1, groups=channels, block=block)
    knobs = {"halves": True, "rows": rows, "row_chunk": chunk}
    config = default_config(func, Target("cpu"))
    assert error(func, Config(config.template, {**config.knobs, **knobs}), threads=2) < LIMIT


@pytest.mark.parametrize(("block", "size", "stride"), [(192, 9, 1), (48, 13, 2), (80, 6, 1), (20, 7, 1)])
def test_vectors_of_a_wide_block_take_turns(block: int, size: int, stride: int) -> None:
    func = conv(2, 2 * block, size, 2 * block, 3, stride, 1, groups=2 * block, block=block)
    config = default_config(func, Target("cpu"))
    assert config.template == "depthwise"
    assert error(func, config, threads=2) < LIMIT

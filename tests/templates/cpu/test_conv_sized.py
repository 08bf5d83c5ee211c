"""Direct convolutions of images whose sizes come with the call: which are lines of pixels, and their tiles."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import autosched
from autosched import te, topi
from autosched.ir import structural_equal
from autosched.ir.node import preorder
from autosched.target import Target
from autosched.templates.cpu.conv_sized import choose_tile, schedule_conv
from autosched.tir import PrimFunc
from autosched.tir.expr import Call, Var, as_int
from autosched.tir.prefetch import requested
from autosched.tir.stmt import BufferStore

H, W = Var("h", "int64"), Var("w", "int64")


@pytest.mark.parametrize("part", [1, 2], ids=["in place", "other pixels"])
def test_images_are_lines_where_all_is_in_place(part: int) -> None:
    """1x1, and what is added to it: pixels of the same places, or of places that follow from rows and columns."""
    x = te.placeholder((1, 2, H, W, 16), name="x")
    weight = te.placeholder((32, 32, 1, 1), name="weight")
    other = te.placeholder((1, 2, (H + part - 1) // part, (W + part - 1) // part, 16), name="other")
    i, ky, kx, ci = (te.reduce_axis((0, n), name) for n, name in ((2, "i"), (1, "ky"), (1, "kx"), (16, "ci")))

    def conv(n, o, row, column, lane):  # type: ignore[no-untyped-def]
        data = x[n, i.var, row + ky.var, column + kx.var, ci.var].as_expr()
        return te.sum(data * weight[o * 16 + lane, i.var * 16 + ci.var, ky.var, kx.var].as_expr(), axis=[i, ky, kx, ci])

    y = te.compute((1, 2, H, W, 16), conv, name="y")
    out = te.compute(
        (1, 2, H, W, 16), lambda n, o, r, c, lane: y[n, o, r, c, lane] + other[n, o, r // part, c // part, lane]
    )
    applied = schedule_conv(te.create_prim_func([x, weight, other, out], "int64"), Target("cpu"))
    assert applied is not None
    assert {len(b.shape) for name, b in zip("xwoy", applied.func.buffers) if name in "xoy"} == {4 if part == 1 else 5}


def blocks_of_pixels(inputs: int, outputs: int) -> PrimFunc:
    """A 1x1 convolution of a row of pixels, of so many blocks of 16 channels."""
    x = te.placeholder((1, inputs, 1, W, 16), name="x")
    weight = te.placeholder((16 * outputs, 16 * inputs, 1, 1), name="weight")
    axes = [te.reduce_axis((0, n), name) for n, name in zip((inputs, 1, 1, 16), ("i", "ky", "kx", "ci"))]

    def conv(n, o, row, column, lane):  # type: ignore[no-untyped-def]
        i, ky, kx, ci = (axis.var for axis in axes)
        taps = weight[o * 16 + lane, i * 16 + ci, ky, kx].as_expr()
        return te.sum(x[n, i, row + ky, column + kx, ci].as_expr() * taps, axis=axes)

    return te.create_prim_func([x, weight, te.compute((1, outputs, 1, W, 16), conv, name="y")], "int64")


def windows_of_lanes(blocks: int) -> PrimFunc:
    """A depthwise convolution of so many blocks of 16 channels."""
    x, weight = te.placeholder((1, blocks, H, W, 16), name="x"), te.placeholder((16 * blocks, 1, 3, 3), name="weight")
    padded = topi.pad(x, (0, 0, 1, 1, 0), (0, 0, 1, 1, 0), 0.0)
    axes = [te.reduce_axis((0, 3), name) for name in ("ky", "kx")]

    def conv(n, o, row, column, lane):  # type: ignore[no-untyped-def]
        ky, kx = (axis.var for axis in axes)
        taps = weight[o * 16 + lane, 0, ky, kx].as_expr()
        return te.sum(padded[n, o, row + ky, column + kx, lane].as_expr() * taps, axis=axes)

    return te.create_prim_func([x, weight, te.compute(x.shape, conv, name="y")], "int64")


@pytest.mark.parametrize(
    "made, widths", [(blocks_of_pixels, ((3, 4), (5, 8))), (windows_of_lanes, ((2,), (9,)))], ids=["1x1", "depthwise"]
)
def test_layers_of_several_widths_share_a_kernel(
    made: Callable[..., PrimFunc], widths: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:  # fmt: skip
    first, second = (schedule_conv(made(*blocks), Target("cpu")) for blocks in widths)
    assert first is not None and second is not None
    assert structural_equal(first.func, second.func)


@pytest.mark.parametrize("blocks", [(24, 8), (24, 48), (1, 4), (2, 5)])
def test_every_number_of_pixels(blocks: tuple[int, int]) -> None:
    """None is left out where tiles end; weights that no cache holds are asked for ahead."""
    func = blocks_of_pixels(*blocks)
    applied = schedule_conv(func, Target("cpu"))
    assert applied is not None
    asked = [requested(x) for x in preorder(applied.func) if isinstance(x, Call) and x.op == "prefetch"]
    assert bool(asked) == (blocks[0] == 24), "weights of few channels are read at once"
    assert all(is_far for *_, is_far in asked)
    built, rng = autosched.build(func), np.random.default_rng(0)
    w = rng.standard_normal((16 * blocks[1], 16 * blocks[0], 1, 1), dtype="float32")
    for pixels in (*range(1, 45), 96, 99, 131):
        data = rng.standard_normal((1, blocks[0], 1, pixels, 16), dtype="float32")
        out = np.full((1, blocks[1], 1, pixels, 16), np.nan, "float32")
        built(data, w, out)
        lines = data[0, :, 0].transpose(1, 0, 2).reshape(pixels, -1)
        want = (lines @ w[:, :, 0, 0].T).reshape(pixels, blocks[1], 16).transpose(1, 0, 2)
        np.testing.assert_allclose(out[0, :, 0], want, rtol=1e-4, atol=1e-4, err_msg=f"{pixels} pixels")


def test_tiles_are_of_one_group() -> None:
    target = Target("cpu")
    assert choose_tile(12, 16, 288, 3, False, target).blocks in (1, 3)
    assert choose_tile(12, 16, 288, 1, False, target).blocks == 1


@pytest.mark.parametrize(
    "border, stride, lower, group", [(0.0, 2, 1, 1), (1.5, 1, 2, 1), (0.0, 1, 1, 4), (-0.5, 2, 0, 8)]
)
def test_borders_of_small_groups(border: float, stride: int, lower: int, group: int) -> None:
    """Windows leave out zeros that they do not have, and add other borders; `lower` columns of them are at the end."""
    x, weight = te.placeholder((1, 2, H, W, 16), name="x"), te.placeholder((32, group, 3, 3), name="weight")
    padded = topi.pad(x, (0, 0, 1, 1, 0), (0, 0, 1, lower, 0), border)
    axes = [te.reduce_axis((0, n), name) for n, name in ((group, "c"), (3, "ky"), (3, "kx"))]

    def conv(n, o, row, column, lane):  # type: ignore[no-untyped-def]
        c, ky, kx = (0 if group == 1 and axis is axes[0] else axis.var for axis in axes)
        of_group = lane if group == 1 else lane // group * group + c
        data = padded[n, o, row * stride + ky, column * stride + kx, of_group].as_expr()
        taps = weight[o * 16 + lane, c, ky, kx].as_expr()
        return te.sum(taps * data if stride == 2 else data * taps, axis=axes[group == 1 :])

    y = te.compute((1, 2, (H - 1) // stride + 1, (W + lower - 2) // stride + 1, 16), conv, name="y")
    func = te.create_prim_func([x, weight, y], "int64")
    applied = schedule_conv(func, Target("cpu"))
    assert applied is not None
    stored = {s.buffer.name for s in preorder(applied.func) if isinstance(s, BufferStore)}
    assert {name for name in stored if not name.startswith("sums")} == {"y"}, "no copy with borders"
    built = autosched.build(func)
    rng = np.random.default_rng(0)
    w = rng.standard_normal(tuple(map(as_int, weight.shape)), dtype="float32")
    for height, width in ((2, 2), (5, 9), (4, 38)):
        data = rng.standard_normal((1, 2, height, width, 16), dtype="float32")
        out = np.empty((1, 2, (height - 1) // stride + 1, (width + lower - 2) // stride + 1, 16), "float32")
        built(data, w, out)
        ends = ((0, 0), (0, 0), (1, 1), (1, lower), (0, 0))
        windows = np.lib.stride_tricks.sliding_window_view(np.pad(data, ends, constant_values=border), (3, 3), (2, 3))
        windows = windows[:, :, ::stride, ::stride].reshape(1, 2, *out.shape[2:4], 16 // group, group, 3, 3)
        want = np.einsum("norcgkij,ogmkij->norcgm", windows, w.reshape(2, 16 // group, group, group, 3, 3))
        np.testing.assert_allclose(out, want.reshape(out.shape), rtol=1e-5, atol=1e-5)

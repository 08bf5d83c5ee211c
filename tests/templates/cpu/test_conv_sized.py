"""Direct convolutions of images whose sizes come with the call: which are lines of pixels, and their tiles."""

from __future__ import annotations

import pytest

from autosched import te
from autosched.target import Target
from autosched.templates.cpu.conv_sized import choose_tile, schedule_conv
from autosched.tir.expr import Var

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


def test_tiles_are_of_one_group() -> None:
    target = Target("cpu")
    assert choose_tile(12, 16, 288, 3, False, target).blocks in (1, 3)
    assert choose_tile(12, 16, 288, 1, False, target).blocks == 1

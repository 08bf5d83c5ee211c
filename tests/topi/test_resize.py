"""The nearest pixel, where it is in proportion (i // 2) and where it is not."""

import itertools

import numpy as np
import pytest

from autosched import te
from autosched.relax.op.registry import get_op
from autosched.tir.interpret import interpret
from autosched.topi import image
from autosched.topi.resize import resize2d

MODES = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
ROUNDINGS = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil", "round")


@pytest.mark.parametrize("mode, rounding", [*itertools.product(MODES, ROUNDINGS)])
def test_nearest(mode, rounding):
    definition = get_op("image.resize2d")
    for (old_h, new_h), (old_w, new_w) in [((4, 8), (5, 15)), ((6, 3), (8, 2)), ((3, 7), (7, 3)), ((1, 5), (12, 18))]:
        x = te.placeholder((1, 2, old_h, old_w), name="x")
        made = resize2d(x, (new_h, new_w), "NCHW", "nearest_neighbor", mode, rounding, (None, None))
        given = np.arange(2 * old_h * old_w, dtype="float32").reshape(1, 2, old_h, old_w)
        out = np.zeros((1, 2, new_h, new_w), "float32")
        interpret(te.create_prim_func([x, made]), [given, out])
        attrs = {**definition.attributes, "method": "nearest_neighbor", "coordinate_transformation_mode": mode}
        want = definition.reference(given, (new_h, new_w), **{**attrs, "rounding_method": rounding})
        np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("size", [(8, 12), (4, 6), (2, 3)])
def test_multiples_and_parts_need_no_float32_positions(size):
    x = te.placeholder((1, 2, 4, 6), name="x")
    made = resize2d(x, size, "NCHW", "nearest_neighbor", "asymmetric", "floor", (None, None))
    assert "T.Cast" not in te.create_prim_func([x, made]).script()


def test_bytes_that_become_floats_keep_their_fractions():
    x = te.placeholder((1, 1, 1, 2), "uint8", "x")
    made = image.resize2d(x, None, (1, 4), out_dtype="float32")
    given, out = np.array([0, 1], "uint8").reshape(1, 1, 1, 2), np.zeros((1, 1, 1, 4), "float32")
    interpret(te.create_prim_func([x, made]), [given, out])
    np.testing.assert_array_equal(out.ravel(), [0, 0.25, 0.75, 1])

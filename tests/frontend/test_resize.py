"""Sizes of images and other tensors, and elements at any places, against onnx's reference."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import autosched
from autosched import relax
from autosched.errors import ImportModelError
from autosched.frontend.onnx import from_onnx
from autosched.runtime.dynamic import DynamicExecutable

RNG = np.random.default_rng(0)


def model(op: str, x: np.ndarray, *weights: np.ndarray | None, opset: int = 20, **attrs: Any) -> onnx.ModelProto:
    names = ["" if w is None else f"w{i}" for i, w in enumerate(weights)]
    graph = helper.make_graph(
        [helper.make_node(op, ["x", *names], ["y"], **attrs)],
        "g",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(w, n) for w, n in zip(weights, names) if w is not None],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def check(op: str, x: np.ndarray, *weights: np.ndarray | None, opset: int = 20, **attrs: Any) -> None:
    made = model(op, x, *weights, opset=opset, **attrs)
    (want,) = ReferenceEvaluator(made).run(None, {"x": x})
    got = relax.evaluate(from_onnx(made), {"x": x})
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "how", ["half_pixel", "half_pixel_symmetric", "align_corners", "asymmetric", "pytorch_half_pixel"]
)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_resize_of_two_dimensions(mode: str, how: str) -> None:
    x = RNG.standard_normal((5, 4)).astype("f4")
    for scales, more in itertools.product(([1.6, 0.7], [0.5, 2.0]), ({}, {"antialias": 1}, {"exclude_outside": 1})):
        if mode == "linear" and "exclude_outside" in more:
            continue
        attrs = {"mode": mode, "coordinate_transformation_mode": how, **more}
        check("Resize", x, None, np.array(scales, "f4"), **attrs)
    check("Resize", x, None, None, np.array([7, 3], "i8"), mode=mode, coordinate_transformation_mode=how)


@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_nearest_elements(rounding: str) -> None:
    x = RNG.standard_normal((3, 6)).astype("f4")
    for how in ("half_pixel", "asymmetric", "align_corners"):
        attrs = {"mode": "nearest", "nearest_mode": rounding, "coordinate_transformation_mode": how}
        check("Resize", x, None, np.array([2.0, 0.5], "f4"), **attrs)
        check("Resize", x, None, None, np.array([5, 9], "i8"), **attrs)


@pytest.mark.parametrize("rounding", ["floor", "ceil"])
def test_nearest_elements_as_tensorflow_counts_them(rounding: str) -> None:
    """A mode of opset 11, which onnx's reference does not have and tf2onnx writes in later ones too."""
    x, size = RNG.standard_normal((2, 3, 6, 8)).astype("f4"), (11, 4)
    attrs = {"mode": "nearest", "nearest_mode": rounding, "coordinate_transformation_mode": "tf_half_pixel_for_nn"}
    made = model("Resize", x, None, None, np.array([2, 3, *size]), opset=13, **attrs)
    at = [getattr(np, rounding)((np.arange(n) + 0.5) * old / n) for n, old in zip(size, (6, 8), strict=True)]
    rows, columns = (np.minimum(a, old - 1).astype(int) for a, old in zip(at, (6, 8), strict=True))
    np.testing.assert_array_equal(relax.evaluate(from_onnx(made), {"x": x}), x[:, :, rows][..., columns])


def test_some_axes_and_aspect_ratios() -> None:
    x = RNG.standard_normal((2, 4, 6)).astype("f4")
    check("Resize", x, None, np.array([1.5], "f4"), mode="linear", axes=[1])
    for policy in ("not_larger", "not_smaller"):
        check(
            "Resize", x, None, None, np.array([9, 7], "i8"), mode="linear", axes=[2, 1], keep_aspect_ratio_policy=policy
        )


def test_bytes_beyond_those_of_the_image_are_cut_off() -> None:
    x = np.array([[[[0, 255, 0, 255, 255, 0, 0, 255]]]], "u1")
    found = relax.evaluate(from_onnx(model("Resize", x, None, np.array([1, 1, 1, 3], "f4"), mode="cubic")), {"x": x})
    wide = model("Resize", x.astype("f4"), None, np.array([1, 1, 1, 3], "f4"), mode="cubic")
    (real,) = ReferenceEvaluator(wide).run(None, {"x": x.astype("f4")})
    assert real.min() < -1 and real.max() > 256
    assert np.abs(found - np.clip(real, 0, 255)).max() <= 1


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize(
    ("shape", "scales"), [((2, 4, 5, 3), [1, 1.5, 2, 1]), ((2, 3, 7), [1, 1, 1.6]), ((2, 3, 4, 5), [1, 1, 0.5, 2])]
)
def test_images_of_any_layout_and_lines(mode: str, shape: tuple[int, ...], scales: list[float]) -> None:
    x, given = RNG.standard_normal(shape).astype("f4"), np.array(scales, "f4")
    check("Resize", x, None, given, mode=mode)
    found = from_onnx(model("Resize", x, None, given, mode=mode))
    assert "image.resize2d" in str(found)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(
    ("shape", "scales", "sizes", "result"),
    [
        ((1, 2, 4, 4), [1, 1, 0.1, 2], None, (1, 2, 0, 8)),
        ((1, 2, 0, 4), [1, 1, 2, 2], None, (1, 2, 0, 8)),
        ((1, 0, 4, 4), None, [1, 0, 8, 8], (1, 0, 8, 8)),
        ((1, 2, 0, 4), None, [1, 2, 0, 4], (1, 2, 0, 4)),
    ],
)
def test_nothing_comes_of_no_pixels(mode: str, shape: Any, scales: Any, sizes: Any, result: Any) -> None:
    """As in ONNX Runtime; onnx's reference refuses it."""
    given = [scales and np.array(scales, "f4"), sizes and np.array(sizes, "i8")]
    made = model("Resize", x := np.ones(shape, "f4"), None, *given, mode=mode)
    found = autosched.build(made, target="cpu", records=[])(x).numpy()
    assert found.shape == result and found.dtype == x.dtype


@pytest.mark.parametrize(("shape", "sizes"), [((1, 2, 0, 4), [1, 2, 3, 4]), ((1, 2, 4, 4), [1, 2, 0, 4])])
def test_pixels_come_of_pixels(shape: Any, sizes: Any) -> None:
    with pytest.raises(ImportModelError, match="Resize"):
        autosched.build(model("Resize", np.ones(shape, "f4"), None, None, np.array(sizes, "i8")), target="cpu")


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(("mode", "rank"), [("linear", 2), ("nearest", 2), ("cubic", 2), ("linear", 3), ("nearest", 3)])
def test_grid_sample(mode: str, rank: int, padding: str, corners: int) -> None:
    x = RNG.standard_normal((2, 3, 4, 5, 2)[: rank + 2]).astype("f4")
    low = -0.5 if mode == "cubic" and padding == "border" else -1.4  # onnx's reference clips places; others pixels
    grid = RNG.uniform(low, -low, (2, 3, 2, 4)[: rank + 1] + (rank,)).astype("f4")
    check("GridSample", x, grid, mode=mode, padding_mode=padding, align_corners=corners)


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("size", [(1, 2, 3, 5), (2, 1, 2, 3, 4)])
def test_affine_grid(size: tuple[int, ...], corners: int) -> None:
    theta = RNG.standard_normal((size[0], len(size) - 2, len(size) - 1)).astype("f4")
    check("AffineGrid", theta, np.array(size), align_corners=corners)


@pytest.mark.parametrize(
    ("image", "attrs"),
    [
        ((4, 5), {}),
        (("h", "w"), {}),
        (("h", "w"), {"align_corners": 1, "padding_mode": "border"}),
        (("h", 5), {"mode": "nearest"}),
    ],
)
def test_grid_sample_over_open_sizes_is_one_build(image: Any, attrs: dict[str, Any]) -> None:
    value = helper.make_tensor_value_info
    inputs = [value("x", TensorProto.FLOAT, ["n", 3, *image]), value("grid", TensorProto.FLOAT, ["n", "rows", 6, 2])]
    node = helper.make_node("GridSample", ["x", "grid"], ["y"], **attrs)
    graph = helper.make_graph([node], "g", inputs, [value("y", TensorProto.FLOAT, None)])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=9)
    built = autosched.build(made, threads=1)
    assert isinstance(built, DynamicExecutable)
    for n, rows, height, width in ((2, 3, 4, 5), (1, 7, 1, 9), (4, 1, 13, 2)):
        size = [open_size if isinstance(d, str) else d for d, open_size in zip(image, (height, width))]
        x = RNG.standard_normal((n, 3, *size)).astype("f4")
        grid = RNG.uniform(-1.4, 1.4, (n, rows, 6, 2)).astype("f4")
        (want,) = ReferenceEvaluator(made).run(None, {"x": x, "grid": grid})
        np.testing.assert_allclose(built(x, grid).numpy(), want, atol=1e-5)


def test_scatter_nd() -> None:
    x, at = RNG.standard_normal((4, 5, 3)).astype("f4"), np.array([[1, 2], [3, -1]])
    check("ScatterND", x, at, RNG.standard_normal((2, 3)).astype("f4"))
    check("ScatterND", x, at, RNG.standard_normal((2, 3)).astype("f4"), reduction="add")
    check("ScatterND", x, np.zeros((0, 2), "i8"), np.zeros((0, 3), "f4"))

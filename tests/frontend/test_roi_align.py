"""RoiAlign of ONNX models, by kernels and by NumPy, against its definition."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import autosched
from autosched.driver.build.late import LateModel
from autosched.runtime import Executable
from autosched.runtime.cuda.devices import use_driver
from tests.spread import cover

RNG = np.random.default_rng(0)
SCALE = 0.25


def model(x: np.ndarray, regions: int | str, opset: int, **attrs: Any) -> onnx.ModelProto:
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    node = helper.make_node(
        "RoiAlign", ["x", "regions", "images"], ["y"], output_height=3, output_width=2, spatial_scale=SCALE, **attrs
    )
    inputs = [("x", kind, x.shape), ("regions", kind, (regions, 4)), ("images", TensorProto.INT64, (regions,))]
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info(*i) for i in inputs],
        [helper.make_tensor_value_info("y", kind, None)],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def regions_of(x: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Boxes of all sizes, some that end outside of an image, one without an area, one far away."""
    corners = np.sort(RNG.uniform(-0.2, 1.2, (count, 2, 2)), axis=1) * x.shape[:1:-1] / SCALE
    corners[0, 1] = corners[0, 0]
    corners[-1] += 1000
    return corners.reshape(count, 4).astype(x.dtype), RNG.integers(0, len(x), count)


def expected(x: np.ndarray, regions: np.ndarray, images: np.ndarray, mode: str, samples: int, half: bool) -> np.ndarray:
    """Sample by sample, in float64."""
    out = np.zeros((len(regions), x.shape[1], 3, 2))
    for r, (box, image) in enumerate(zip(regions.astype("f8") * SCALE - (0.5 if half else 0), images)):
        extent = [box[3] - box[1], box[2] - box[0]]
        extent = extent if half else [max(e, 1.0) for e in extent]
        counts = [samples or math.ceil(e / n) for e, n in zip(extent, (3, 2))]
        for i, j in np.ndindex(3, 2):
            terms = []
            for u, v in np.ndindex(*counts):
                at = (
                    box[1] + (i + (u + 0.5) / counts[0]) * extent[0] / 3,
                    box[0] + (j + (v + 0.5) / counts[1]) * extent[1] / 2,
                )
                terms += corners(x[image].astype("f8"), *at)
            if terms:
                out[r, :, i, j] = sum(terms) / math.prod(counts) if mode == "avg" else np.max(terms, axis=0)
    return out


def corners(image: np.ndarray, y: float, x: float) -> list[np.ndarray]:
    """The four weighted pixels of a sample."""
    h, w = image.shape[1:]
    if not (-1 <= y <= h and -1 <= x <= w):
        return [np.zeros(len(image))]
    y, x = min(max(y, 0), h - 1), min(max(x, 0), w - 1)
    top, left = int(y), int(x)
    return [
        image[:, min(top + a, h - 1), min(left + b, w - 1)] * abs(1 - a - (y - top)) * abs(1 - b - (x - left))
        for a, b in np.ndindex(2, 2)
    ]


@cover(
    ("mode, samples", [(mode, samples) for mode in ("avg", "max") for samples in (0, 1, 2, 3)]),
    ("opset, how", [(10, None), (16, None), (16, "output_half_pixel"), (22, "half_pixel")]),
    together=1,
)
def test_regions_are_sampled(mode: str, samples: int, opset: int, how: str | None) -> None:
    x = RNG.standard_normal((2, 5, 13, 17)).astype("f4")
    boxes, images = regions_of(x, 9)
    given = {} if how is None else {"coordinate_transformation_mode": how}
    built = autosched.build(model(x, 9, opset, mode=mode, sampling_ratio=samples, **given), target="cpu", threads=1)
    assert isinstance(built, Executable if samples else LateModel)
    want = expected(x, boxes, images, mode, samples, opset >= 16 and how != "output_half_pixel")
    np.testing.assert_allclose(built(x, boxes, images).numpy(), want, atol=2e-5)


@pytest.mark.parametrize("dtype, tolerance", [("float64", 1e-12), ("float16", 0.02)])
@pytest.mark.parametrize("samples", [0, 2])
def test_other_types(dtype: str, tolerance: float, samples: int) -> None:
    x = RNG.standard_normal((2, 3, 8, 8)).astype(dtype)
    boxes, images = regions_of(x, 5)
    found = autosched.build(model(x, 5, 16, sampling_ratio=samples), target="cpu", threads=1)(x, boxes, images)
    assert found.dtype == dtype
    np.testing.assert_allclose(found.numpy(), expected(x, boxes, images, "avg", samples, True), atol=tolerance)


def test_any_number_of_regions_is_one_build() -> None:
    x = RNG.standard_normal((2, 4, 9, 9)).astype("f4")
    built = autosched.build(model(x, "boxes", 16, sampling_ratio=2), target="cpu", threads=1)
    for count in (3, 40, 1):
        boxes, images = regions_of(x, count)
        want = expected(x, boxes, images, "avg", 2, True)
        np.testing.assert_allclose(built(x, boxes, images).numpy(), want, atol=1e-5)


def test_on_an_emulated_gpu() -> None:
    pytest.importorskip("numba.cuda")
    from autosched.codegen.cuda.emulate import EmulatorDriver

    x = RNG.standard_normal((2, 4, 5, 6)).astype("f4")
    boxes, images = regions_of(x, 3)
    built = autosched.build(model(x, 3, 16, sampling_ratio=1), target="cuda")
    with use_driver(EmulatorDriver):
        found = built(x, boxes, images).numpy()
    np.testing.assert_allclose(found, expected(x, boxes, images, "avg", 1, True), atol=1e-5)


def test_max_roi_pool() -> None:
    """Boxes that leave the image, whose corners lie between pixels, without an area, of an image that is not first."""
    x = RNG.standard_normal((2, 3, 9, 7)).astype("f4")
    boxes = np.array([[0, 0, 0, 6, 8], [1, 3, 5, 9.2, 30], [1, 5, 5, 1, 1], [0, 1, -7, 17, 11]], "f4")
    node = helper.make_node("MaxRoiPool", ["x", "boxes"], ["y"], pooled_shape=[3, 2], spatial_scale=0.5)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info(n, 1, v.shape) for n, v in (("x", x), ("boxes", boxes))],
        [helper.make_tensor_value_info("y", 1, None)],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnxruntime = pytest.importorskip("onnxruntime")
    (wanted,) = onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"x": x, "boxes": boxes})
    np.testing.assert_array_equal(autosched.build(made)(x=x, boxes=boxes).numpy(), wanted)

"""NonMaxSuppression of ONNX models against its definition, box by box."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import autosched

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def expected(boxes: Any, scores: Any, most: int, overlap: float, least: float | None, centre: int) -> np.ndarray:
    """Box by box, in float32."""
    a, b = boxes[..., :2], boxes[..., 2:]
    low, high = (a - b / 2, a + b / 2) if centre else (np.minimum(a, b), np.maximum(a, b))
    found: list[Any] = []
    for image, kind in np.ndindex(scores.shape[:2]):
        kept: list[Any] = []
        for box in np.argsort(-scores[image, kind], kind="stable"):
            if len(kept) == most or (least is not None and not scores[image, kind, box] > np.float32(least)):
                continue
            for other in kept:
                lows, highs = low[image, [box, other]], high[image, [box, other]]
                shared = np.prod(np.maximum(highs.min(0) - lows.max(0), np.float32(0)))
                areas = np.prod(highs - lows, axis=1)
                if shared > 0 and shared / (areas.sum() - shared) > np.float32(overlap):
                    break
            else:
                kept.append(box)
        found += [(image, kind, box) for box in kept]
    return np.array(found, np.int64).reshape(-1, 3)


@pytest.mark.parametrize(
    ("sizes", "numbers", "centre", "is_open"),
    [((2, 3, 45), (20, 0.3, 0.1), 0, False), ((2, 2, 33), (10**9, 0.5, None), 1, False),
     ((1, 2, 17), (4, 0.0, -1.0), 0, True), ((1, 3, 5), (0, 0.5, None), 1, True)],
)  # fmt: skip
def test_the_best_boxes_are_kept(
    sizes: tuple[int, int, int], numbers: tuple[int, float, float | None], centre: int, is_open: bool
) -> None:
    rng, (n, kinds, count), (most, overlap, least) = np.random.default_rng(0), sizes, numbers
    dims = ("N", "C", "B") if is_open else sizes
    inputs: list[Any] = [("boxes", FLOAT, (dims[0], dims[2], 4)), ("scores", FLOAT, dims)]
    limits: dict[str, Any] = {"most": np.array([most]), "overlap": np.array([overlap], "f4")}
    limits |= {} if least is None else {"least": np.array([least], "f4")}
    kinds_of = {"most": INT64, "overlap": FLOAT, "least": FLOAT}
    if is_open:
        inputs += [(name, kinds_of[name], (1,)) for name in limits]
    node = helper.make_node("NonMaxSuppression", ["boxes", "scores", *limits], ["kept"], center_point_box=centre)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info(*i) for i in inputs],
        [helper.make_tensor_value_info("kept", INT64, None)],
        [] if is_open else [onnx.numpy_helper.from_array(a, name) for name, a in limits.items()],
    )  # fmt: skip
    built = autosched.build(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=9))
    for size in (count, count + 19, count + 1) if is_open else (count,):
        corners, sides = rng.uniform(0, 50, (n, size, 2)), rng.uniform(-10, 20, (n, size, 2))
        boxes = np.concatenate([corners, np.abs(sides) if centre else corners + sides], axis=-1).astype("f4")
        scores = np.round(rng.normal(size=(n, kinds, size)), 1).astype("f4")  # many are equal
        feeds = {"boxes": boxes, "scores": scores, **(limits if is_open else {})}
        got = built(**feeds).numpy()
        np.testing.assert_array_equal(got, expected(boxes, scores, most, overlap, least, centre))

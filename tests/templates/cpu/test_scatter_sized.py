"""Scatters over open sizes: each update goes to its target, whatever the sizes are; against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autosched
from autosched.errors import ShapeError
from autosched.runtime.dynamic import DynamicExecutable
from tests.frontend.onnx_models import make, node
from tests.spread import cover

onnx = pytest.importorskip("onnx")
from onnx import TensorProto  # noqa: E402

Shapes = dict[str, tuple[Any, ...]]
STEPS: dict[str, Any] = {
    "none": lambda old, new: new, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
}  # fmt: skip
SIZES = [(1, 1, 1), (2, 3, 2), (17, 5, 3), (40, 33, 20), (5, 64, 2)]  # of n, m, k


def built(kind: str, shapes: Shapes, **attributes: Any) -> DynamicExecutable:
    proto = make([node(kind, "x i u", "y", **attributes)], shapes, ["y"], opset=18)
    proto.graph.input[1].type.tensor_type.elem_type = TensorProto.INT64
    made = autosched.build(proto, threads=1)
    assert isinstance(made, DynamicExecutable)
    return made


def arrays(shapes: Shapes, sizes: tuple[int, int, int]) -> list[np.ndarray]:
    at, rng = dict(zip("nmk", sizes)), np.random.default_rng(sizes)
    return [rng.standard_normal([at.get(str(d), d) for d in shapes[key]]).astype("float32") for key in ("x", "u")]


@cover(
    ("shape, places", [(("n", 6), 1), (("n", "m"), 1), (("n", "m", 3), 2), (("n", 5), 2), (("n",), 1), ((4, "m"), 2)]),
    ("reduction", list(STEPS)),
    together=1,
)
def test_by_vectors_of_positions(shape: tuple[Any, ...], places: int, reduction: str) -> None:
    shapes: Shapes = {"x": shape, "i": ("k", places), "u": ("k", *shape[places:])}
    made = built("ScatterND", shapes, reduction=reduction)
    for sizes in SIZES:
        x, u = arrays(shapes, sizes)
        i = np.stack([np.random.default_rng(len(u)).integers(-n, n, len(u)) for n in x.shape[:places]], -1)
        want = x.copy()
        for at, value in zip(i, u, strict=True):
            want[tuple(at)] = STEPS[reduction](want[tuple(at)], value)
        np.testing.assert_allclose(made(x, i, u).numpy(), want, rtol=1e-4, atol=1e-4, err_msg=str(sizes))


@cover(
    (
        "shape, positions, axis",
        [
            (("n", "m"), ("k", "m"), 0),
            (("n", "m"), ("n", "k"), 1),
            (("n", 6), ("k", 4), 0),
            (("n", 3, "m"), ("n", 3, "k"), -1),
            (("n", "m"), ("n", 20), 1),
        ],
    ),
    ("reduction", list(STEPS)),
    together=1,
)
def test_along_an_axis(shape: tuple[Any, ...], positions: tuple[Any, ...], axis: int, reduction: str) -> None:
    shapes: Shapes = {"x": shape, "i": positions, "u": positions}
    made = built("ScatterElements", shapes, axis=axis, reduction=reduction)
    for sizes in SIZES:
        x, u = arrays(shapes, sizes)
        i = np.random.default_rng(u.size).integers(-x.shape[axis], x.shape[axis], u.shape)
        want = x.copy()
        for place in np.ndindex(*u.shape):
            at = list(place)
            at[axis] = i[place]
            want[tuple(at)] = STEPS[reduction](want[tuple(at)], u[place])
        np.testing.assert_allclose(made(x, i, u).numpy(), want, rtol=1e-4, atol=1e-4, err_msg=str(sizes))


def test_results_are_not_compared_with_all_updates() -> None:
    made = built("ScatterND", {"x": ("n", 64), "i": ("k", 1), "u": ("k", 64)}, reduction="add")
    (kernel,) = (k for k in made.kernels.values() if "update" in k.source)
    assert "for update in range(k)" in kernel.source
    assert "T_joined" not in kernel.source, "updates go into what they are added to"


def test_positions_that_reach_over_the_data_are_refused() -> None:
    made = built("ScatterElements", {"x": ("n", "m"), "i": ("n", "k"), "u": ("n", "k")}, axis=0)
    x, u = np.zeros((4, 3), "float32"), np.zeros((4, 5), "float32")
    with pytest.raises(ShapeError):
        made(x, np.zeros((4, 5), "int64"), u)

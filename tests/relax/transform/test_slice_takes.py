"""Elements at constant positions that are a few runs become slices."""

from __future__ import annotations

import numpy as np
import pytest

import autosched
from autosched import relax
from autosched.relax import op
from autosched.relax.transform import SliceTakes
from tests.relax.transform.graphs import assert_same_results, calls, graph


def _taken(positions: list[int], axis: int = 1, mode: str = "raise") -> autosched.IRModule:
    at = relax.const(np.array(positions, np.int64))
    return graph({"x": (3, 5)}, lambda bb, x: op.take(x, at, axis=axis, mode=mode))


@pytest.mark.parametrize(
    "positions, slices",
    [
        ([2, 1, 0, 1, 2, 3, 4, 3, 2], 3),
        ([0, 0, 0, 1, 2, 3, 4, 4], 4),
        ([4, 3, 2, 1, 0], 1),
        ([1], 1),
        ([-1, -2, 0, 1], 2),
        ([3, 4, 0, 1, 2, 3, 4, 0], 3),
        ([0, 2, 4, 1, 3], 5),
    ],
)
def test_runs(positions: list[int], slices: int) -> None:
    module = _taken(positions)
    result = SliceTakes()(module)
    assert calls(result) == ["strided_slice"] * slices + ["concat"] * (slices > 1)
    assert_same_results(module, result)


def test_another_axis_and_modes() -> None:
    for module in (_taken([1, 0, 1, 2], 0), _taken([-9, 0, 1, 9], 1, "clip"), _taken([4, 5, 6], 1, "wrap")):
        result = SliceTakes()(module)
        assert "take" not in calls(result)
        assert_same_results(module, result)


def test_what_is_no_few_runs_stays() -> None:
    for positions in ([0, 2] * 5, []):
        module = _taken(positions)
        assert calls(SliceTakes()(module)) == ["take"]
    module = graph({"x": (3, 5), "at": (2,)}, lambda bb, x, at: op.take(x, bb.emit(op.astype(at, "int64")), axis=1))
    assert calls(SliceTakes()(module)) == ["astype", "take"]


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int8", "int64", "bool"])
def test_borders_of_an_image(dtype: str) -> None:
    rows, columns = np.array([1, 0, 1, 2, 3, 4, 3]), np.array([0, 0, *range(37), 36])

    def build(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        taken = bb.emit(op.take(bb.emit(op.astype(x, dtype)), relax.const(rows), axis=1))
        return op.take(taken, relax.const(columns), axis=2)

    x = np.random.default_rng(0).integers(0, 2, (3, 5, 37)).astype("f")
    found = autosched.build(graph({"x": x.shape}, build), "cpu", threads=1)(x)
    np.testing.assert_array_equal(np.asarray(found), x.astype(dtype)[:, rows][:, :, columns])

"""Positions that are repeated along other dimensions are read where they stand once."""

from __future__ import annotations

import numpy as np
import pytest

import autosched
from autosched import relax
from autosched.relax import op
from autosched.relax.expr import ShapeExpr
from autosched.relax.transform import SharePositions
from tests.relax.transform.graphs import assert_same_results, calls, graph

RNG = np.random.default_rng(0)


def _gathered(at: tuple[int, ...], shape: tuple[int, ...], axis: int, data: tuple[int, ...] = (5, 4, 37)):
    positions = relax.const(RNG.integers(0, data[axis], at))

    def build(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        wide = bb.emit(op.broadcast_to(positions, ShapeExpr(shape)))
        return op.gather_elements(x, wide, axis=axis, mode="positive")

    return graph({"x": data}, build)


@pytest.mark.parametrize(
    "at, shape, axis",
    [
        ((3, 4, 1), (3, 4, 37), 0),
        ((5, 6, 1), (5, 6, 37), 1),
        ((1, 1, 50), (5, 4, 50), 2),
        ((1, 4, 9), (5, 4, 9), -1),
        ((1, 1, 1), (1, 4, 37), 0),
    ],
)
def test_of_repeated_positions(at: tuple[int, ...], shape: tuple[int, ...], axis: int) -> None:
    module = _gathered(at, shape, axis)
    result = SharePositions()(module)
    assert calls(result)[-1] == "take_along_axis"
    assert_same_results(module, result)


@pytest.mark.parametrize(
    "at, shape, axis",
    [
        ((3, 4, 1), (3, 4, 36), 0),  # not all of the data
        ((1, 4, 1), (3, 4, 37), 0),  # the same position again
        ((4, 1), (3, 4, 37), 0),
    ],
)
def test_others_stay(at: tuple[int, ...], shape: tuple[int, ...], axis: int) -> None:
    assert calls(SharePositions()(_gathered(at, shape, axis)))[-1] == "gather_elements"


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int8", "bool"])
def test_rows_are_copied(dtype: str) -> None:
    data, at = RNG.integers(0, 2, (5, 4, 37)).astype(dtype), RNG.integers(-5, 5, (3, 4, 1))
    module = _module(dtype, (3, 4, 37))
    kernels = autosched.build(module, target="cpu")
    np.testing.assert_array_equal(kernels(data, at).numpy(), np.take_along_axis(data, at, 0))
    assert any("take_along_axis" in name for name in kernels.kernels)
    with pytest.raises(autosched.errors.IndexOutOfRangeError):
        kernels(data, at + 5)


def _module(dtype: str, shape: tuple[int, ...]):
    x = relax.Var("x", relax.TensorStructInfo((5, 4, 37), dtype))
    i = relax.Var("i", relax.TensorStructInfo((3, 4, 1), "int64"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, i]):
        with builder.dataflow():
            wide = builder.emit(op.broadcast_to(i, ShapeExpr(shape)))
            out = builder.emit_output(op.gather_elements(x, wide, axis=0))
        builder.emit_func_output(out)
    return builder.get()

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autosched
from autosched import relax
from autosched.relax.block_builder import BlockBuilder
from autosched.runtime.dynamic import DynamicExecutable
from autosched.runtime.size_expr import size_at
from autosched.tir.expr import Var
from tests.spread import cover

OP = relax.op
Extent = int | str


def built(shape: tuple[Extent, ...], dtype: str, body: Any) -> DynamicExecutable:
    names = {n: Var(n, "int64") for n in shape if isinstance(n, str)}
    info = relax.TensorStructInfo(tuple(names.get(n, n) for n in shape), dtype)  # type: ignore[call-overload]
    builder, x = BlockBuilder(), relax.Var("x", info)
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(body(builder.emit, x))
        builder.emit_func_output(out)
    made = autosched.build(builder.get())
    assert isinstance(made, DynamicExecutable)
    return made


def arrays(shape: tuple[Extent, ...], dtype: str) -> list[np.ndarray]:
    rng, found = np.random.default_rng(0), []
    for sizes in ((1, 1), (2, 65), (7, 3), (64, 130), (301, 129)):
        at = dict(zip(("n", "m"), sizes))
        given = tuple(at[n] if isinstance(n, str) else n for n in shape)
        values = rng.integers(-4, 5, given) if dtype.startswith("int") else rng.uniform(0.9, 1.1, given)
        found.append(values.astype(dtype))
    return found


@cover(
    (
        "shape, axis",
        [
            (("n",), 0), ((5, "n"), 1), (("n", 6), 0), (("n", 200), 0), ((3, "n", 64), 1), (("n", "m"), 0),
            (("n", "m"), 1), ((4, "n"), 0), ((2, 5, "m"), 1), (("n", 3, "m"), 0),
        ],
    ),
    ("dtype", ["float32", "float64", "int64", "float16"]),
    together=1,
)  # fmt: skip
def test_sums_along_and_beside_open_axes(shape: tuple[Extent, ...], axis: int, dtype: str) -> None:
    made = built(shape, dtype, lambda emit, x: OP.cumsum(x, axis))
    for x in arrays(shape, dtype):
        wide = "int64" if dtype == "int64" else "float64"
        want = np.cumsum(x.astype(wide), axis).astype(dtype)
        np.testing.assert_allclose(made(x).numpy(), want, rtol=2e-3 if dtype == "float16" else 1e-6)


def test_sums_without_an_elements_own_value() -> None:
    made = built((3, "n"), "float32", lambda emit, x: OP.cumsum(x, 1, exclusive=True))
    for x in arrays((3, "n"), "float32"):
        want = np.cumsum(x, 1, dtype="float64") - x
        np.testing.assert_allclose(made(x).numpy(), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape, axis", [((3, "n"), 1), (("n", 200), 0), ((3, "n", 64), 1), (("n", "m"), 1)])
def test_sums_from_the_end_on(shape: tuple[Extent, ...], axis: int) -> None:
    """Not all less what is before an element: where that is large the digits are lost, and inf - inf is NaN."""
    made = built(shape, "float32", lambda emit, x: OP.cumsum(x, axis, exclusive=True, reverse=True))
    for x in arrays(shape, "float32"):
        first = [slice(None)] * x.ndim
        first[axis] = slice(0, 1)
        x[tuple(first)] = np.inf
        behind = np.flip(np.cumsum(np.flip(x, axis), axis, dtype="float64"), axis)
        want = np.concatenate([np.delete(behind, 0, axis), np.zeros_like(x[tuple(first)])], axis)
        np.testing.assert_allclose(made(x).numpy(), want, rtol=1e-6)


def test_products_with_what_is_around_them() -> None:
    made = built(
        (3, "n", 4), "float32", lambda emit, x: OP.exp(emit(OP.cumprod(emit(OP.negative(emit(OP.sqrt(x)))), 1)))
    )
    for x in arrays((3, "n", 4), "float32"):
        np.testing.assert_allclose(made(x).numpy(), np.exp(np.cumprod(-np.sqrt(x), 1, dtype="float64")), rtol=1e-4)


def test_a_scan_is_linear() -> None:
    made = built((2, "n"), "float32", lambda emit, x: OP.cumsum(x, 1))
    assert "so_far" in made.source


@pytest.mark.parametrize("axis", [0, 1])
def test_work_grows_with_the_length(axis: int) -> None:
    made = built(("n", "m"), "float32", lambda emit, x: OP.cumsum(x, axis))
    (kernel,) = (k.sized for k in made.kernels.values() if k.sized is not None)
    once, longer = (size_at(kernel.flops, {"n": n, "m": m}) for n, m in ((10, 10), (10, 1000)))
    assert once > 0 and longer == 100 * once

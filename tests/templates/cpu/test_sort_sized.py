from __future__ import annotations

import numpy as np

from autosched import relax
from autosched.codegen import counters
from tests.spread import spread
from tests.templates.cpu.test_scan_sized import Extent, built

OP = relax.op


def given(shape: tuple[Extent, ...], dtype: str, n: int, m: int = 3) -> np.ndarray:
    rng, at = np.random.default_rng(n), {"n": n, "m": m}
    sizes = tuple(at[e] if isinstance(e, str) else e for e in shape)
    if dtype.startswith("float"):
        found = rng.standard_normal(sizes).round(1).astype(dtype)  # with equals
        found[rng.random(sizes) < 0.02] = np.nan
        found[rng.random(sizes) < 0.02] = -np.inf
        return found
    return rng.integers(0 if dtype.startswith("u") else -100, 100, sizes).astype(dtype)


def order(x: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    """Positions in order, equals as they stand, NaN the greatest."""
    wide = x.astype("float64")
    rank = np.argsort(wide, axis=axis, kind="stable")
    if not descending:
        return rank
    flipped = np.flip(wide, axis)
    return np.flip(x.shape[axis] - 1 - np.argsort(flipped, axis=axis, kind="stable"), axis)


SHAPES: list[tuple[tuple[Extent, ...], int]] = [
    ((3, "n"), 1),
    (("n", 5), 0),
    (("n",), 0),
    ((2, "n", 3), 1),
    (("m", "n"), 1),
]
DTYPES = ["float32", "float64", "int32", "uint8", "float16"]


# Every day each shape, each type, and both directions.
@spread(
    4,
    "shape,axis,dtype,descending",
    [(*shape, dtype, descending) for descending in (False, True) for shape in SHAPES for dtype in DTYPES],
)
def test_sorts_along_open_axes(shape: tuple[Extent, ...], axis: int, dtype: str, descending: bool) -> None:
    made = built(shape, dtype, lambda emit, x: OP.argsort(x, axis, descending))
    values = built(shape, dtype, lambda emit, x: OP.sort(x, axis, descending))
    before = counters.COMPILES.value
    for n in (1, 2, 17, 64, 301, 2500):
        x = given(shape, dtype, n)
        want = order(x, axis, descending)
        np.testing.assert_array_equal(made(x).numpy(), want)
        np.testing.assert_array_equal(values(x).numpy(), np.take_along_axis(x, want, axis))
    assert counters.COMPILES.value == before


# Every day each shape, and each number with two of them.
@spread(
    2,
    "shape,axis,k",
    [(*at, k) for at in [((3, "n"), 1), (("n", 5), 0), (("m", 2, "n"), 2), (("m", 40), 1)] for k in (1, 4, 11)],
)
def test_the_largest_along_open_axes(shape: tuple[Extent, ...], axis: int, k: int) -> None:
    made = built(shape, "float32", lambda emit, x: OP.topk(x, k, axis))
    for n in (
        11,
        12,
        16 * 2 * k - 1,
        16 * 2 * k,
        16 * 2 * k + 1,
        64 * 2 * k - 1,
        64 * 2 * k,
        64 * 2 * k + 1,
        1500,
        4097,
    ):
        x = given(shape, "float32", n, m=n % 7 + 1)
        want = np.take(order(x, axis, True), range(k), axis)
        values, places = made(x)
        np.testing.assert_array_equal(places.numpy(), want)
        np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x, want, axis))


def test_what_is_around_a_sort_is_computed_with_it() -> None:
    made = built(("n", 6), "float32", lambda emit, x: OP.negative(emit(OP.sort(emit(OP.multiply(x, x)), 0))))
    for n in (1, 33, 700):
        x = np.random.default_rng(n).standard_normal((n, 6)).astype("float32")
        np.testing.assert_array_equal(made(x).numpy(), -np.sort(x * x, axis=0))

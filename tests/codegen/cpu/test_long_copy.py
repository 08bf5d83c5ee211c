"""Long runs of elements that are only moved are copied by memcpy."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import build, te, topi
from autosched.te import Tensor

RNG = np.random.default_rng(0)


def _run(out: Tensor, inputs: list[Tensor], expected: np.ndarray, arrays: list[np.ndarray], target: str = "cpu") -> str:
    module = build(te.create_prim_func([*inputs, out], "int64"), target=target)
    result = np.zeros(expected.shape, expected.dtype)
    module(*arrays, result)
    np.testing.assert_array_equal(result, expected)
    return "".join(kernel.asm for kernel in module.kernels.values())


def _array(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return RNG.integers(0, 2, shape).astype(dtype) if dtype == "bool" else (RNG.integers(-99, 99, shape)).astype(dtype)


@pytest.mark.parametrize("target", ["cpu", "llvm -mcpu=x86-64-v3"])
@pytest.mark.parametrize("dtype", ["float32", "int8", "float16", "float64", "bool"])
def test_parts_of_a_concatenation(dtype: str, target: str) -> None:
    shapes = (2, 3, 93, 99), (2, 1, 93, 99), (2, 5, 93, 99)
    inputs = [te.placeholder(s, dtype, name=f"x{i}") for i, s in enumerate(shapes)]
    arrays = [_array(s, dtype) for s in shapes]
    asm = _run(topi.concatenate(inputs, 1), inputs, np.concatenate(arrays, 1), arrays, target)
    assert "memcpy" in asm


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("size", [8191, 8192, 3025])
def test_slices(axis: int, size: int) -> None:
    shape = (7, 3, size)
    x, a = te.placeholder(shape, name="x"), _array(shape, "float32")
    begin, end = [0, 0, 0], list(shape)
    begin[axis], end[axis] = 1, shape[axis] - 1
    cut = tuple(slice(b, e) for b, e in zip(begin, end, strict=True))
    assert "memcpy" in _run(topi.strided_slice(x, begin, end), [x], a[cut], [a])


@pytest.mark.parametrize("shape", [(4, 1000), (1, 3000), (64, 64)])
def test_short_rows_and_what_lies_in_the_first_cache_stay_vectors(shape: tuple[int, ...]) -> None:
    x, y = te.placeholder(shape, name="x"), te.placeholder(shape, name="y")
    arrays = [_array(shape, "float32"), _array(shape, "float32")]
    asm = _run(topi.concatenate([x, y], 1), [x, y], np.concatenate(arrays, 1), arrays)
    assert "memcpy" not in asm


@pytest.mark.parametrize(
    "value",
    [
        lambda a, i, j: a[i, 9999 - j],
        lambda a, i, j: a[i, j // 2],
        lambda a, i, j: a[i, j % 64],
        lambda a, i, j: a[i, (j + 1) % 10000],
        lambda a, i, j: a[i, j] + 1,
        lambda a, i, j: te.if_then_else(j < 9000, a[i, j], a[i, 0]),
    ],
)
def test_others_stay_as_they_are(value) -> None:
    a = te.placeholder((4, 10000), name="a")
    out = te.compute((4, 10000), lambda i, j: value(a, i, j), name="out")
    array = _array((4, 10000), "float32")

    class Rows:
        def __getitem__(self, at):
            return array[at]

    expected = np.empty_like(array)
    for i in range(4):
        for j in range(10000):
            if "if_then_else" in value.__code__.co_names:
                expected[i, j] = array[i, j] if j < 9000 else array[i, 0]
            else:
                expected[i, j] = value(Rows(), i, j)
    _run(out, [a], expected, [array])

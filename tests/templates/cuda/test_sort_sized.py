"""Sorting along an axis of open length on GPUs: one kernel, the reference's positions and bits for all lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes  # noqa: F401  (NumPy's bfloat16)
import numpy as np
import pytest

from autosched import te, tir, topi
from autosched.codegen import compile_func
from autosched.errors import ShapeError
from autosched.relax.op.sort import _order
from autosched.runtime.cuda.kernel import CudaKernel
from autosched.target import Target
from autosched.te import Tensor, create_prim_func
from autosched.templates import schedule_sizes
from autosched.tir import PrimFunc
from autosched.topi.sort import argsort, take_along
from tests.spread import spread
from tests.templates.cuda.test_sort import data_of

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda-bindings is not installed")
from autosched.codegen.cuda.build import add_images  # noqa: E402
from autosched.codegen.cuda.emulate.kernel import run_kernel  # noqa: E402

TARGET = Target("cuda -arch=sm_75")
LENGTHS = (1, 2, 37, 1024, 1025, 2049, 5000)  # one part, several, an odd number of parts


def placeholder(shape: Sequence[Any], dtype: str) -> Tensor:
    return te.placeholder([tir.const(s, "int64") if isinstance(s, int) else s for s in shape], dtype=dtype, name="x")


def sizes() -> tuple[tir.Var, tir.Var]:
    n, m = (te.var(name, dtype="int64") for name in "nm")
    return n, m


def compiled(func: PrimFunc) -> CudaKernel:
    made = compile_func(schedule_sizes(func, TARGET).func, TARGET, name="kernel").kernel
    assert isinstance(made, CudaKernel)
    return made


def sort_func(shape: Sequence[Any], axis: int, descending: bool, dtype: str, count: int | None) -> PrimFunc:
    x = placeholder(shape, dtype)
    order = argsort(x, axis, descending, "int64" if axis else "int32", count)
    return create_prim_func([x, order, take_along(x, order, axis)])


def check(kernel: CudaKernel, axis: int, descending: bool, **numbers: int) -> None:
    """The positions and the bits of what is sorted, in both orders of the emulator's threads."""
    assert kernel.sized is not None
    at = kernel.at(tuple(numbers[name] for name in kernel.sized.names))
    shape, dtype = at.inputs[0].shape, at.inputs[0].dtype
    x = np.random.default_rng(1).permutation(data_of(shape, str(dtype)).reshape(-1)).reshape(shape)
    expected = _order(x, axis, descending)
    expected = np.take(expected, np.arange(at.outputs[0].shape[axis]), axis)
    for order in ("late", "ahead"):
        found, values = (np.full(out.shape, 1, out.dtype) for out in at.outputs)
        run_kernel(at, [x, found, values], order=order)
        np.testing.assert_array_equal(found, expected, err_msg=f"{numbers}, {order}")
        assert values.tobytes() == np.take_along_axis(x, expected, axis).tobytes(), f"{numbers}, {order}"


@spread(6, "dtype", ["float32", "float16", "bfloat16", "float64", "int8", "int32", "int64", "bool"])
def test_types_and_lengths(dtype: str) -> None:
    n, _ = sizes()
    kernel = compiled(sort_func((2, n), 1, dtype in ("float32", "bool"), dtype, None))
    for length in LENGTHS:
        check(kernel, 1, dtype in ("float32", "bool"), n=length)


@spread(3, "count", [1, 5, 1000, 1024, 1500])
def test_only_what_is_wanted_is_kept(count: int) -> None:
    n, m = sizes()
    kernel = compiled(sort_func((n, m), 0, True, "float32", count))
    for length in (count, count + 1, 1025, 4097):
        if length >= count:
            check(kernel, 0, True, n=length, m=3)
    assert kernel.sized is not None
    at = kernel.at(tuple({"n": 1 << 16, "m": 1}[name] for name in kernel.sized.names))
    assert at.scratch_bytes == 2 * 8 * (64 * count if count <= 1024 else 1 << 16)


def test_lines_between_other_axes() -> None:
    n, m = sizes()
    kernel = compiled(sort_func((2, n, m), 1, False, "int32", None))
    for length in (1, 300, 1030):
        check(kernel, 1, False, n=length, m=2)


def test_launches_grow_with_the_logarithm_of_the_length() -> None:
    n, _ = sizes()
    kernel = compiled(sort_func((1, n), 1, False, "float32", None))

    def launches(length: int) -> int:
        return len([*kernel.at((length,)).calls])

    assert [launches(n) for n in (1, 1024, 1025, 2048, 2049, 1 << 20)] == [1, 1, 3, 3, 4, 12]
    assert kernel.at((1024,)).scratch_bytes == 0  # a block has all of a line
    with pytest.raises(ShapeError):
        kernel.at((1 << 30,))


def test_what_is_around_is_computed_where_elements_are_read_and_written() -> None:
    n, _ = sizes()
    x = placeholder((3, n), "float32")
    turned = topi.negative(x)
    values = take_along(turned, argsort(turned, 1, False, "int32", 4), 1)
    kernel = compiled(create_prim_func([x, topi.multiply(values, tir.const(2.0, "float32"))]))
    for length in (4, 2100):
        at, given = kernel.at((length,)), np.random.default_rng(0).standard_normal((3, length)).astype("float32")
        out = np.full((3, 4), np.nan, "float32")
        run_kernel(at, [given, out])
        np.testing.assert_array_equal(out, 2 * np.sort(-given, 1)[:, :4])


CASES: dict[str, Callable[[tir.Var], PrimFunc]] = {
    "all": lambda n: sort_func((2, n), 1, False, "float32", None),
    "few of float64": lambda n: sort_func((n, 3), 0, True, "float64", 50),
}


@spread(1, "case", CASES)
def test_it_becomes_machine_code_without_a_stack(case: str) -> None:
    """What needs a stack or spills registers is refused by the assembler."""
    archs = ["sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_120"]
    assert len(add_images(compiled(CASES[case](sizes()[0])), archs).images) == 1 + len(archs)

"""Packed arguments are the same elements at other places, with zeros behind the last."""

from __future__ import annotations

import numpy as np
import pytest

import autosched
from autosched.codegen import compile_func
from autosched.driver.build.schedules import packing_function
from autosched.target import Target
from autosched.templates import default_config
from autosched.templates.cuda.product_form import MatrixPack
from autosched.templates.pack import Pack, Packing
from autosched.templates.winograd_pack import WinogradPack


@pytest.mark.parametrize(
    ("shape", "factors", "order"),
    [
        ((6, 4), (0, 2), (1, 0, 2)),
        ((5, 7), (2, 3), (2, 0, 1, 3)),
        ((4, 3), (0, 0), (0, 1)),
        ((1, 9), (0, 4), (0, 1, 2)),
    ],
)
def test_tails_are_zero(shape: tuple[int, ...], factors: tuple[int, ...], order: tuple[int, ...]) -> None:
    natural = np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)
    pack = Pack(shape, factors, order)
    padded = np.pad(natural, [(0, -s % f if f else 0) for s, f in zip(shape, factors, strict=True)])
    expected = padded.reshape(pack.split_shape).transpose(order)
    np.testing.assert_array_equal(pack.pack(natural), expected)
    assert not np.shares_memory(pack.pack(natural), natural)


@pytest.mark.parametrize(
    "pack",
    [
        Pack((5, 7), (2, 3), (2, 0, 1, 3)),
        WinogradPack((5, 6, 3, 3), 4, 2, 2),
        WinogradPack((5, 6, 3, 3), 2, 4, 1, 2),
        MatrixPack((3, 10), (3, 2, 5), (1, 0, 2), (2, 3, 5), 4, 8),
    ],
)
def test_packed_into_memory_that_is_there(pack: Packing) -> None:
    """Whatever it held before."""
    rng = np.random.default_rng(0)
    is_bytes = getattr(pack, "group", 1) > 1
    natural = rng.integers(-128, 128, pack.shape).astype("int8" if is_bytes else "float32")
    into = np.full(pack.packed_shape, 77, pack.packed_dtype(str(natural.dtype)))
    alone = pack.pack(natural)
    assert pack.pack(natural, into) is into
    assert alone.dtype == into.dtype and alone.shape == into.shape
    np.testing.assert_array_equal(alone, into)


@pytest.mark.parametrize(
    "pack",
    [
        MatrixPack((3, 10), (3, 2, 5), (1, 0, 2), (2, 3, 5), 4, 8),
        MatrixPack((6, 9), (6, 9), (1, 0), (1, 9, 6), 9, 6),
        MatrixPack((6, 9), (6, 9), (1, 0), (1, 9, 6), 12, 8),
        MatrixPack((9, 6), (9, 6), (0, 1), (1, 9, 6), 12, 6),
        MatrixPack((9, 6), (9, 6), (0, 1), (1, 9, 6), 9, 8),
        MatrixPack((70, 36), (70, 36), (1, 0), (1, 36, 70), 36, 70),
        MatrixPack((7, 45, 3, 3), (7, 45, 3, 3), (2, 3, 0, 1), (9, 7, 45), 7, 45),
        MatrixPack((7, 6, 3, 3), (7, 6, 3, 3), (2, 3, 0, 1), (9, 7, 6), 8, 16),
        MatrixPack((5, 4, 3, 1), (5, 4, 3, 1), (2, 3, 0, 1), (3, 5, 4), 8, 4),
    ],
)
def test_packed_at_run_time(pack: MatrixPack) -> None:
    """The function that packs gives the same as the packing of constants."""
    natural = np.random.default_rng(0).standard_normal(pack.shape).astype("f")
    found = np.empty(pack.packed_shape, "f")
    autosched.build(pack.func("float32"), target="llvm", records=[])(natural, found)
    np.testing.assert_array_equal(found, pack.pack(natural))
    pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
    emulate = pytest.importorskip("autosched.codegen.cuda.emulate")
    func = packing_function(pack, "float32", Target("cuda -arch=sm_90a"))
    kernel = compile_func(func, Target("cuda -arch=sm_90a"), use_cache=False).kernel
    on_device = np.empty(pack.packed_shape, "f")
    emulate.run_kernel(kernel, [natural, on_device])
    np.testing.assert_array_equal(on_device, found)


def test_matrices_are_turned_by_whole_rows() -> None:
    """Both sides of the copy then read and write side by side."""
    pack = MatrixPack((96, 70), (96, 70), (1, 0), (1, 70, 96), 70, 96)
    for dtype in ("float32", "int8"):
        assert default_config(pack.func(dtype), Target("cuda -arch=sm_90a")).template == "transpose"


def test_threads_read_all_places_of_a_window() -> None:
    """They lie side by side: a thread that read one of them would leave the rest of its sector to others."""
    emulate = pytest.importorskip("autosched.codegen.cuda.emulate")
    pack = MatrixPack((16, 64, 3, 3), (16, 64, 3, 3), (2, 3, 0, 1), (9, 16, 64), 16, 64)
    func, trace = packing_function(pack, "float32", Target("cuda -arch=sm_90a")), emulate.Trace()
    kernel = compile_func(func, Target("cuda -arch=sm_90a"), use_cache=False).kernel
    assert "g in unroll(9)" in kernel.source
    natural = np.random.default_rng(0).standard_normal(pack.shape).astype("f")
    found = np.empty(pack.packed_shape, "f")
    emulate.run_kernel(kernel, [natural, found], traces=[trace])
    np.testing.assert_array_equal(found, pack.pack(natural))
    stores = [x for x in trace.accesses() if x.space == "global" and x.writes]
    assert stores and all(x.transactions == x.ideal for x in stores)

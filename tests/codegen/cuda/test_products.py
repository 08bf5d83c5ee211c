"""Products on the emulator: numbers, bounds, races and waits of the code that the assembler gets."""

import numpy as np
import pytest

from autosched.codegen import compile_func
from tests.codegen.gpu_programs import tensor_core_product, tiled_product

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
emulate = pytest.importorskip("autosched.codegen.cuda.emulate")
ml_dtypes = pytest.importorskip("ml_dtypes")
STEP = {"float16": 16, "bfloat16": 16, "float32": 8, "int8": 32}
PAD = {"float16": 8, "bfloat16": 8, "float32": 4, "int8": 16}


def run(func, arrays, shape, order, arch="sm_80"):
    kernel = compile_func(func, f"cuda -arch={arch}", use_cache=False).kernel
    out = np.zeros(shape, kernel.outputs[0].dtype)
    emulate.run_kernel(kernel, [*arrays, out], order=order)
    return out


@pytest.mark.parametrize("order", ["late", "ahead"])
@pytest.mark.parametrize("m, n, k", [(64, 64, 16), (65, 67, 9)])
def test_without_tensor_cores(m, n, k, order):
    rng = np.random.default_rng(0)
    a, b, bias = (rng.standard_normal(shape).astype("f") for shape in ((m, k), (k, n), (n,)))
    out = run(tiled_product(m, n, k, per_thread=(4, 4)).func, [a, b, bias], (m, n), order)
    np.testing.assert_allclose(out, np.maximum(a.astype("d") @ b + bias, 0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("order", ["late", "ahead"])
@pytest.mark.parametrize(
    "dtype, transposed, stages",
    [("float16", False, 3), ("bfloat16", True, 2), ("float32", False, 0), ("int8", True, 2)],
)
def test_with_tensor_cores(dtype, transposed, stages, order):
    rng, total = np.random.default_rng(0), "int32" if dtype == "int8" else "float32"
    kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    a, b, bias = (rng.integers(-8, 8, shape) for shape in ((70, 96), (66, 96) if transposed else (96, 66), (66,)))
    s = tensor_core_product(
        70, 66, 96, dtype, (32, 32, 32), step=STEP[dtype], transposed=transposed, pad=PAD[dtype], stages=stages
    )
    out = run(s.func, [a.astype(kind), b.astype(kind), bias.astype(total)], (70, 66), order)
    np.testing.assert_array_equal(out, a @ (b.T if transposed else b) + bias)


def test_a_missing_wait_is_found(monkeypatch):
    import autosched.codegen.cuda.tile as tile

    monkeypatch.setattr(tile, "cp_async_wait", lambda builder, groups: None)
    func = tensor_core_product(32, 32, 96, "float16", (32, 32, 32), stages=2).func
    a, b, bias = np.ones((32, 96), "e"), np.ones((96, 32), "e"), np.zeros(32, "f")
    try:
        out = run(func, [a, b, bias], (32, 32), "late")
    except emulate.EmulationError:
        return
    assert not np.array_equal(out, np.full((32, 32), 96, "f"))


@pytest.mark.parametrize("order", ["late", "ahead"])
def test_a_missing_barrier_is_found(monkeypatch, order):
    import autosched.codegen.lower.device as device

    monkeypatch.setattr(device, "place_barriers", lambda body, *_: body)
    func = tiled_product(64, 64, 16, per_thread=(4, 4)).func
    arrays = [np.ones((64, 16), "f"), np.ones((16, 64), "f"), np.zeros(64, "f")]
    with pytest.raises(emulate.EmulationError):
        run(func, arrays, (64, 64), order)

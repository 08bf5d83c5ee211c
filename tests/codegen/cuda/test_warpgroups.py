"""Products of warpgroups fed by tensor maps, on the emulator: numbers, borders, waits; and their machine code."""

import numpy as np
import pytest

from autosched.codegen import compile_func
from autosched.errors import CodegenError
from tests.codegen.gpu_programs import warpgroup_product

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
emulate = pytest.importorskip("autosched.codegen.cuda.emulate")
ml_dtypes = pytest.importorskip("ml_dtypes")


def run(func, arrays, shape, order):
    kernel = compile_func(func, "cuda -arch=sm_90a", use_cache=False).kernel
    assert "wgmma.mma_async" in kernel.ptx and "cp.async.bulk.tensor" in kernel.ptx
    out = np.zeros(shape, kernel.outputs[0].dtype)
    emulate.run_kernel(kernel, [*arrays, out], order=order)
    return out


def operands(m, n, k, dtype, transposed=False):
    rng, total = np.random.default_rng(0), "int32" if dtype == "int8" else "float32"
    kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    a, b, bias = (rng.integers(-8, 8, shape) for shape in ((m, k), (n, k) if transposed else (k, n), (n,)))
    return [a.astype(kind), b.astype(kind), bias.astype(total)], a @ (b.T if transposed else b) + bias


@pytest.mark.parametrize("order", ["late", "ahead"])
@pytest.mark.parametrize(
    "sizes, dtype, options",
    [
        ((128, 64, 256), "float16", {}),
        ((200, 136, 136), "bfloat16", {"tile": (128, 128, 64), "stages": 3}),
        ((64, 96, 192), "float16", {"tile": (64, 96, 64), "groups": 1, "transposed": True, "stages": 4}),
        ((64, 48, 256), "int8", {"tile": (64, 48, 128), "groups": 1, "transposed": True}),
        ((64, 16, 160), "float32", {"tile": (64, 16, 64), "groups": 1, "transposed": True}),
    ],
)
def test_products(sizes, dtype, options, order):
    arrays, expected = operands(*sizes, dtype, options.get("transposed", False))
    out = run(warpgroup_product(*sizes, dtype, **options).func, arrays, sizes[:2], order)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("missing", [0, 1])
@pytest.mark.parametrize("order", ["late", "ahead"])
def test_a_missing_wait_is_found(monkeypatch, missing, order):
    """The first wait is that of who multiplies, the second of who copies."""
    from autosched.codegen.cuda import instructions

    made, wait = [], instructions.mbarrier_wait

    def skip_one(builder, *args):
        made.append(args)
        if len(made) - 1 != missing:
            wait(builder, *args)

    monkeypatch.setattr(instructions, "mbarrier_wait", skip_one)
    arrays, _ = operands(64, 64, 320, "float16")
    with pytest.raises(emulate.EmulationError):
        run(warpgroup_product(64, 64, 320, tile=(64, 64, 64), groups=1).func, arrays, (64, 64), order)


def test_the_last_wait_comes_before_results_are_used():
    ptx = compile_func(warpgroup_product(128, 64, 256).func, "cuda -arch=sm_90a", use_cache=False).kernel.ptx
    lines = ptx.splitlines()
    last = max(i for i, line in enumerate(lines) if "wgmma.wait_group.sync.aligned 0" in line)
    assert any("wgmma.mma_async" in line for line in lines[:last])
    stores = [i for i, line in enumerate(lines) if "st.global" in line or "\tst.v2" in line]
    assert stores and min(stores) > last


@pytest.mark.parametrize(
    "sizes, options, message",
    [
        ((128, 64, 256), {"tile": (128, 64, 32)}, "no box"),
        ((128, 64, 252), {}, "multiples of 16 bytes"),
        ((128, 64, 256), {"tile": (64, 64, 64), "groups": 2}, "no whole tiles of 64"),
        ((128, 512, 256), {"tile": (128, 512, 64)}, "columns at once"),
        ((128, 64, 256), {"stages": 1}, "one stage"),
    ],
)
def test_what_has_no_code(sizes, options, message):
    with pytest.raises(CodegenError, match=message):
        compile_func(warpgroup_product(*sizes, **options).func, "cuda -arch=sm_90a", use_cache=False)


def test_only_one_architecture_has_the_instructions():
    with pytest.raises(CodegenError, match="sm_90 lacks instructions of the kernel: wgmma"):
        compile_func(warpgroup_product(128, 64, 256).func, "cuda -arch=sm_90", use_cache=False)


def test_sums_that_are_used_too_early_are_refused(monkeypatch):
    """The assembler would let each product wait for the one before."""
    from autosched.codegen.cuda import instructions

    monkeypatch.setattr(instructions, "wgmma_wait", lambda builder, sums: list(sums))
    func = warpgroup_product(4096, 4096, 4096, tile=(128, 256, 64), stages=4).func
    with pytest.raises(CodegenError, match="would wait for each other"):
        compile_func(func, "cuda -arch=sm_90a", use_cache=False)

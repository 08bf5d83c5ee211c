"""Permuted rows of shared memory: the numbers stay, and no two lanes meet in a bank."""

import numpy as np
import pytest

from autosched.codegen import compile_func
from autosched.codegen.cuda.emulate.kernel import run_kernel
from autosched.codegen.cuda.emulate.trace import Trace
from autosched.codegen.lower.device import lower_device
from autosched.errors import CodegenError
from autosched.testing.gpu import run_serially
from tests.codegen.gpu_programs import tensor_core_product, tiled_product
from tests.spread import spread

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")


def conflicts(schedule, m, n, k):
    """Passes over the banks beyond those that the bytes need, and the product's error."""
    rng, trace = np.random.default_rng(0), Trace()
    a, b, bias = rng.integers(-8, 8, (m, k)), rng.integers(-8, 8, (k, n)), rng.integers(-8, 8, n)
    kernel = compile_func(schedule.func, "cuda -arch=sm_80", use_cache=False).kernel
    out = np.zeros((m, n), "f")
    run_kernel(kernel, [a.astype("e"), b.astype("e"), bias.astype("f"), out], traces=[trace])
    found = [x for x in trace.accesses() if x.space == "shared"]
    assert found
    return sum(x.transactions - x.ideal for x in found), np.abs(out - (a @ b + bias)).max()


@spread(2, "tile", [(64, 64, 64), (64, 32, 32), (64, 16, 16), (32, 128, 16)])
def test_tensor_cores_read_without_conflicts(tile):
    s = tensor_core_product(64, 128, 128, tile=tile, stages=2, warps=(2, 1), swizzle=True)
    assert conflicts(s, 64, 128, 128) == (0, 0)
    plain = tensor_core_product(64, 128, 128, tile=tile, stages=2, warps=(2, 1), pad=0)
    assert conflicts(plain, 64, 128, 128)[0] > 0  # the check can fail


def test_threads_agree_on_where_elements_lie():
    s = tiled_product(40, 48, 24)
    copies = [b for b in ("A_shared", "B_shared") if s.get_block(b)]
    for copy in copies:
        s.storage_swizzle(copy, 0)
    rng = np.random.default_rng(0)
    a, b, bias = (rng.standard_normal(shape).astype("f") for shape in ((40, 24), (24, 48), (48,)))
    out = np.zeros((40, 48), "f")
    run_serially(s.func, a, b, bias, out)
    np.testing.assert_allclose(out, np.maximum(a.astype("d") @ b + bias, 0), rtol=1e-4, atol=1e-5)


def test_rows_that_are_no_power_of_two_are_refused():
    s = tiled_product(48, 48, 24, tile=(48, 48, 24), per_thread=(4, 4))
    s.storage_swizzle("B_shared", 0)
    with pytest.raises(CodegenError, match="rows of 192 bytes"):
        lower_device(s.func)
    s = tiled_product(48, 48, 24, scope="shared")
    s.storage_swizzle("C", 0)
    with pytest.raises(CodegenError, match="only shared ones are"):
        lower_device(s.func)

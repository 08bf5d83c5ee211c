"""Products on tensor cores: the template's default and drawn configurations, on the emulator."""

import numpy as np
import pytest

from autosched import te, topi
from autosched.codegen import compile_func
from autosched.space import Config
from autosched.target import Target
from autosched.te import create_prim_func
from autosched.templates import apply_config, default_config, space_for

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
emulate = pytest.importorskip("autosched.codegen.cuda.emulate")
TARGET = Target("cuda -arch=sm_90a")


def product(m, k, n, dtype="float16", batch=()):
    a, b = te.placeholder((*batch, m, k), dtype, name="A"), te.placeholder((*batch, k, n), dtype, name="B")
    return create_prim_func([a, b, topi.relu(topi.matmul(a, b))])


def int_product(m, k, n):
    """Rows of int8 with rows of int8, as quantised layers have them."""
    a, b = te.placeholder((m, k), "int8", name="A"), te.placeholder((n, k), "int8", name="B")
    axis = te.reduce_axis((0, k), "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, axis].astype("int32") * b[j, axis].astype("int32"), axis=axis))
    return create_prim_func([a, b, c])


def run(func, config, inputs, order):
    kernel = compile_func(apply_config(func, config, TARGET).func, TARGET, use_cache=False).kernel
    assert "mma.sync" in kernel.ptx
    out = np.zeros(kernel.outputs[0].shape, kernel.outputs[0].dtype)
    emulate.run_kernel(kernel, [*inputs, out], order=order)
    return out


@pytest.mark.parametrize("sizes", [(70, 64, 50), (33, 48, 64, (3,)), (130, 96, 264)])
def test_float16(sizes):
    m, k, n, *batch = sizes
    func = product(m, k, n, "float16", *batch)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(x.const_shape()).astype("e") for x in func.buffers[:2])
    expected = np.maximum(a.astype("d") @ b.astype("d"), 0)
    configs = [default_config(func, TARGET), *space_for(func, TARGET).sample(1, 2)]
    for config, order in zip([c for c in configs if c.template == "tensor_matmul"], ("late", "ahead"), strict=False):
        np.testing.assert_allclose(run(func, config, [a, b], order), expected, rtol=2e-3, atol=1e-2)


@pytest.mark.parametrize("swizzle", [0, 1])
def test_groups_of_tiles_and_both_ways_around_conflicts(swizzle):
    """Blocks go through four tiles of rows, of which there are three, before the next tile of columns."""
    func, trace = product(70, 64, 104), emulate.Trace()
    a, b = (np.random.default_rng(0).integers(-8, 8, x.const_shape()).astype("e") for x in func.buffers[:2])
    knobs = {"rows": 32, "columns": 32, "warps_m": 2, "warps_n": 1, "step": 32, "stages": 2}
    config = Config("tensor_matmul", {**knobs, "swizzle": swizzle, "group": 4})
    kernel = compile_func(apply_config(func, config, TARGET).func, TARGET, use_cache=False).kernel
    assert kernel.launches[0].grid == (16, 1, 1)
    out = np.zeros((70, 104), "e")
    emulate.run_kernel(kernel, [a, b, out], traces=[trace])
    np.testing.assert_array_equal(out, np.maximum(a.astype("d") @ b, 0))
    reads = [x for x in trace.accesses() if x.space == "shared" and not x.writes]
    assert reads and all(x.transactions == x.ideal for x in reads)  # padded rows may meet where they are written


def test_int8():
    func = int_product(70, 64, 40)
    config = default_config(func, TARGET)
    a, b = (np.random.default_rng(0).integers(-128, 128, shape).astype(np.int8) for shape in ((70, 64), (40, 64)))
    assert config.template == "tensor_matmul"
    np.testing.assert_array_equal(run(func, config, [a, b], "late"), a.astype(np.int32) @ b.T.astype(np.int32))


@pytest.mark.parametrize(
    "func, arch",
    [(product(64, 40, 64), "sm_90a"), (product(64, 64, 64, "float32"), "sm_90a"), (product(64, 64, 64), "sm_75"),
     (product(4, 64, 64), "sm_90a")],
)  # fmt: skip
def test_left_to_the_cores(func, arch):
    assert default_config(func, Target(f"cuda -arch={arch}")).template != "tensor_matmul"

"""Products of warpgroups: the template's default and drawn configurations, on the emulator."""

import numpy as np
import pytest

from autosched import te, topi
from autosched.codegen import compile_func
from autosched.target import Target
from autosched.te import create_prim_func
from autosched.templates import apply_config, default_config, space_for
from autosched.templates.cuda import warpgroup_matmul

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
emulate = pytest.importorskip("autosched.codegen.cuda.emulate")
TARGET = Target("cuda -arch=sm_90a")


def product(m, k, n, batch=(), transposed=False, dtype="float16"):
    """relu(A B + bias), B as it is or [n, k]."""
    a = te.placeholder((*batch, m, k), dtype, name="A")
    b = te.placeholder((*batch, n, k) if transposed else (*batch, k, n), dtype, name="B")
    bias, axis = te.placeholder((n,), dtype, name="bias"), te.reduce_axis((0, k), "k")

    def term(*i):
        *rest, row, column = i
        return te.sum(a[(*rest, row, axis)] * b[(*rest, column, axis) if transposed else (*rest, axis, column)], axis)

    out = te.compute((*batch, m, n), term, name="C")
    return create_prim_func([a, b, bias, topi.relu(topi.add(out, bias))])


@pytest.mark.parametrize(
    "sizes, transposed", [((200, 136, 72), False), ((96, 192, 70), True), ((70, 96, 64, (2,)), True)]
)
def test_float16(sizes, transposed, monkeypatch):
    monkeypatch.setattr(warpgroup_matmul, "LEAST_WORK", 1)
    func = product(*sizes, transposed=transposed)
    rng = np.random.default_rng(0)
    a, b, bias = (rng.standard_normal(x.const_shape()).astype("e") for x in func.buffers[:3])
    right = b.astype("d") if not transposed else np.swapaxes(b.astype("d"), -1, -2)
    expected = np.maximum(a.astype("d") @ right + bias, 0)
    configs = [default_config(func, TARGET), *space_for(func, TARGET).sample(1, 1)]
    assert configs[0].template == "warpgroup_matmul"
    for config, order in zip(configs, ("late", "ahead"), strict=True):
        kernel = compile_func(apply_config(func, config, TARGET).func, TARGET, use_cache=False).kernel
        out = np.zeros(expected.shape, "e")
        emulate.run_kernel(kernel, [a, b, bias, out], order=order)
        np.testing.assert_allclose(out, expected, rtol=4e-3, atol=2e-2, err_msg=str(config))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_large_products_need_few_instructions_for_their_bytes(dtype):
    for func in (product(4096, 4096, 4096, dtype=dtype), plain(4096, 4096, 4096, dtype)):
        check_machine_code(func)


def plain(m, k, n, dtype):
    """relu(A B): its epilogue needs more registers than one that adds a bias first."""
    a, b = te.placeholder((m, k), dtype, name="A"), te.placeholder((k, n), dtype, name="B")
    return create_prim_func([a, b, topi.relu(topi.matmul(a, b))])


def check_machine_code(func):
    config = default_config(func, TARGET)
    kernel = compile_func(apply_config(func, config, TARGET).func, TARGET, use_cache=False).kernel
    (used,) = kernel.resources.launches
    assert used.stack_bytes == used.spill_bytes == 0 and used.registers <= 224
    step = 64  # of K in a stage: each warpgroup's 64 x 192 takes four instructions for the 40 KiB that are copied
    assert kernel.ptx.count("wgmma.mma_async") % (step // 16) == 0
    assert "m64n192k16" in kernel.ptx and "st.local" not in kernel.ptx and "ld.shared" not in kernel.ptx


@pytest.mark.parametrize(
    "func, arch", [(product(256, 256, 256), "sm_90a"), (product(4096, 512, 4096), "sm_90"),
                   (product(4096, 514, 4096), "sm_90a"), (product(4096, 512, 4096, dtype="float32"), "sm_90a")],
)  # fmt: skip
def test_left_to_others(func, arch):
    assert default_config(func, Target(f"cuda -arch={arch}")).template != "warpgroup_matmul"


def test_the_default_tile_is_the_one_by_which_the_busiest_multiprocessor_is_done_first():
    """Of 2048 x 2048 results tiles of 128 x 192 are 176 for 132 multiprocessors, of 192 x 192 they are 121."""
    config = default_config(plain(2048, 2048, 2048, "float16"), Target("nvidia/nvidia-h200"))
    assert (config["rows"], config["columns"], config["groups"]) == (192, 192, 3)

"""Products of warpgroups: the template's default and drawn configurations, on the emulator."""

import numpy as np
import pytest

from autosched import te, topi
from autosched.codegen import compile_func
from autosched.space import Config
from autosched.target import Target
from autosched.te import create_prim_func
from autosched.templates import apply_config, default_config, space_for
from autosched.templates.cuda import warpgroup_matmul
from tests.spread import cover

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


@cover(("cluster", [1, 2]), ("order", ["late", "ahead"]), together=1)
def test_few_blocks_go_through_all_tiles(monkeypatch, cluster, order):
    """Each of two blocks, or clusters, has one tile more than the others, or ends with a turn without one."""
    monkeypatch.setattr(warpgroup_matmul, "LEAST_WORK", 1)
    real = warpgroup_matmul._schedule
    monkeypatch.setattr(warpgroup_matmul, "_schedule", lambda *args: real(*args[:-1], 2))
    func, rng = product(330, 136, 200), np.random.default_rng(0)
    a, b, bias = (rng.integers(-3, 4, x.const_shape()).astype("e") for x in func.buffers[:3])
    knobs = {"rows": 64, "columns": 64, "groups": 1, "lines": 1, "stages": 3, "group": 2, "wave_parts": 1}
    knobs |= {"cluster_rows": cluster, "cluster_columns": 1, "persistent": 1}
    applied = apply_config(func, Config("warpgroup_matmul", knobs), TARGET)
    kernel = compile_func(applied.func, TARGET, use_cache=False).kernel
    assert kernel.launches[0].grid == (2, cluster, 1)
    out = np.zeros((330, 200), "e")
    emulate.run_kernel(kernel, [a, b, bias, out], order=order)
    np.testing.assert_array_equal(out, np.maximum(a.astype("d") @ b.astype("d") + bias, 0).astype("e"))


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
    step = 64  # of K in a stage: each warpgroup's 64 x 256 takes four instructions for the 48 KiB that come
    assert kernel.ptx.count("wgmma.mma_async") % (step // 16) == 0
    assert kernel.launches[0].cluster == (1, 2, 1), "two blocks share a tile of B"
    assert (
        kernel.flops >= 2 * 4096**3
        and "m64n256k16" in kernel.ptx
        and "st.local" not in kernel.ptx
        and "ld.shared" not in kernel.ptx
    )


@pytest.mark.parametrize(
    "func, arch", [(product(256, 256, 256), "sm_90a"), (product(4096, 512, 4096), "sm_90"),
                   (product(4096, 514, 4096), "sm_90a"), (product(4096, 512, 4096, dtype="float32"), "sm_90a")],
)  # fmt: skip
def test_left_to_others(func, arch):
    assert default_config(func, Target(f"cuda -arch={arch}")).template != "warpgroup_matmul"


def test_the_default_tile_is_the_one_by_which_the_busiest_multiprocessor_is_done_first():
    """Of 2048 x 2048 results tiles of 128 x 192 are 176 for 132 multiprocessors, of 128 x 256 they are 128."""
    config = default_config(plain(2048, 2048, 2048, "float16"), Target("nvidia/nvidia-h200"))
    assert (config["rows"], config["columns"], config["groups"]) == (128, 256, 2)
    assert (config["cluster_rows"], config["cluster_columns"]) == (2, 1), "the wider side is read once by two blocks"


@pytest.mark.parametrize(
    "knobs", [{"cluster_rows": 2}, {"cluster_columns": 2}, {"cluster_rows": 2, "cluster_columns": 2}]
)
def test_clusters_with_tiles_beyond_the_end(knobs, monkeypatch):
    monkeypatch.setattr(warpgroup_matmul, "LEAST_WORK", 1)
    func = product(200, 136, 136)
    small = {"rows": 64, "columns": 64, "groups": 1, "lines": 1, "stages": 2, "group": 1, "wave_parts": 1}
    small |= {"cluster_rows": 1, "cluster_columns": 1, "persistent": 0}
    config = Config("warpgroup_matmul", {**small, **knobs})
    assert space_for(func, TARGET).contains(config)
    kernel = compile_func(apply_config(func, config, TARGET).func, TARGET, use_cache=False).kernel
    rng = np.random.default_rng(0)
    a, b, bias = (rng.integers(-4, 5, x.const_shape()).astype("e") for x in func.buffers[:3])
    out = np.zeros((200, 136), "e")
    emulate.run_kernel(kernel, [a, b, bias, out])
    np.testing.assert_array_equal(out, np.maximum(a.astype("d") @ b.astype("d") + bias, 0))


def test_a_division_behind_the_sums_calls_no_function(monkeypatch):
    """The assembler lets products of warpgroups wait for each other beside calls."""
    monkeypatch.setattr(warpgroup_matmul, "LEAST_WORK", 1)
    a, b = te.placeholder((64, 136), "float16", name="A"), te.placeholder((136, 64), "float16", name="B")
    c = topi.matmul(a, b)
    func = create_prim_func([a, b, topi.multiply(c, topi.sigmoid(c))])
    knobs = {"rows": 64, "columns": 64, "groups": 1, "lines": 1, "stages": 2, "group": 1, "wave_parts": 1}
    config = Config("warpgroup_matmul", {**knobs, "cluster_rows": 1, "cluster_columns": 1})
    kernel = compile_func(apply_config(func, config, TARGET).func, TARGET, use_cache=False).kernel
    a, b = (np.random.default_rng(0).standard_normal(x.const_shape()).astype("e") for x in func.buffers[:2])
    out = np.zeros((64, 64), "e")
    emulate.run_kernel(kernel, [a, b, out])
    c = a.astype("d") @ b.astype("d")
    np.testing.assert_allclose(out, c / (1 + np.exp(-c)), rtol=4e-3, atol=2e-2)


def test_wide_tiles_are_for_light_epilogues():
    a, b = te.placeholder((4096, 4096), "float16", name="A"), te.placeholder((4096, 4096), "float16", name="B")
    other, c = te.placeholder((4096, 4096), "float16", name="R"), topi.matmul(a, b)
    silu = topi.multiply(c, topi.sigmoid(c))
    for out, inputs, least in (
        (topi.add(c, other), [a, b, other], 64),
        (topi.gelu(c), [a, b], 64),
        (silu, [a, b], 136),
    ):
        func = create_prim_func([*inputs, out])
        config = default_config(func, TARGET)
        tile = config["rows"], config["columns"], config["groups"]
        assert warpgroup_matmul.registers_left(tile) >= least
    compile_func(apply_config(func, config, TARGET).func, TARGET)  # whose sums would spill in a wider tile

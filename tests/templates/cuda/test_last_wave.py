"""Products whose incomplete last wave of tiles is computed in parts (stream-K), on the emulator, against NumPy."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from autosched import te, topi
from autosched.codegen import compile_func
from autosched.errors import ScheduleError
from autosched.space import Config
from autosched.target import Target
from autosched.te import create_prim_func
from autosched.templates import apply_config, default_config, space_for
from autosched.templates.cuda import last_wave, warpgroup_matmul
from autosched.templates.registry import schedule_sizes
from autosched.templates.tf32 import with_tf32
from autosched.tir import PrimFunc
from tests.spread import spread

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
emulate = pytest.importorskip("autosched.codegen.cuda.emulate")
TEN = Target("nvidia/nvidia-a2")  # ten multiprocessors
CORES = {"rows": 32, "columns": 32, "per_row": 4, "per_column": 4, "step": 8, "stages": 2, "wave_parts": 3}
TENSOR = {
    "rows": 32, "columns": 32, "warps_m": 2, "warps_n": 1, "step": 16, "stages": 3, "swizzle": 1, "group": 1,
    "wave_parts": 3,
}  # fmt: skip
GROUPS = {
    "rows": 64, "columns": 64, "groups": 1, "lines": 1, "stages": 3, "group": 1, "cluster_rows": 1,
    "cluster_columns": 1, "wave_parts": 3,
}  # fmt: skip


def product(m: int, k: int, n: int, dtype: str, batch: tuple[int, ...] = (), behind: str = "bias") -> PrimFunc:
    a, b = te.placeholder((*batch, m, k), dtype, name="A"), te.placeholder((*batch, k, n), dtype, name="B")
    c = topi.matmul(a, b)
    if behind == "bias":
        bias = te.placeholder((n,), dtype, name="bias")
        return create_prim_func([a, b, bias, topi.relu(topi.add(c, bias))])
    return create_prim_func([a, b, c])


def check(func: PrimFunc, config: Config, target: Target) -> object:
    """Run both orders of the emulator: exact, as all sums are of small integers, and the same bits."""
    applied = apply_config(func, config, target)
    kernel = compile_func(applied.func, target, use_cache=False).kernel
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-3, 4, b.const_shape()).astype(b.dtype) for b in func.buffers[:-1]]
    expected = inputs[0].astype("d") @ inputs[1].astype("d")
    if len(inputs) > 2:
        expected = np.maximum(expected + inputs[2].astype("d"), 0)
    for order in ("late", "ahead"):
        out = np.zeros(func.buffers[-1].const_shape(), func.buffers[-1].dtype)
        given = [x if p is None else p.pack(x) for x, p in zip(inputs, applied.packs, strict=False)]
        emulate.run_kernel(kernel, [*given, out], order=order)
        np.testing.assert_array_equal(out, expected.astype(out.dtype), err_msg=str(config))
    return kernel


@pytest.mark.parametrize(
    "func, knobs",
    [
        (partial(product, 100, 96, 102, "float32"), {}),
        (partial(product, 100, 88, 101, "float16", (), "nothing"), {"stages": 1}),  # parts of 3, 4 and 4 steps
        (partial(product, 70, 96, 66, "float32", (2,), "nothing"), {}),
    ],
)
def test_on_cores(func: partial[PrimFunc], knobs: dict[str, int]) -> None:
    kernel = check(func(), Config("matmul", {**CORES, **knobs}), TEN)
    assert len(kernel.launches) == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "func, knobs",
    [
        (partial(product, 100, 208, 104, "float16"), {}),
        (partial(product, 70, 208, 72, "bfloat16", (2,), "nothing"), {"group": 2}),
        (partial(product, 40, 96, 72, "float16"), {"wave_parts": 2}),  # fewer tiles than multiprocessors
    ],
)
def test_on_tensor_cores(func: partial[PrimFunc], knobs: dict[str, int]) -> None:
    check(func(), Config("tensor_matmul", {**TENSOR, **knobs}), TEN)


@spread(
    2,
    "func, knobs",
    [
        (partial(product, 200, 448, 136, "float16"), {}),  # 7 steps in 3 parts
        (partial(product, 200, 448, 200, "float16", (), "nothing"), {"cluster_rows": 2, "group": 2}),
    ],
)
def test_of_warpgroups(func: partial[PrimFunc], knobs: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    real = last_wave.share_last_wave
    monkeypatch.setattr(warpgroup_matmul, "LEAST_WORK", 1)
    monkeypatch.setattr(warpgroup_matmul, "share_last_wave", lambda *args: real(*args[:-1], 5))
    kernel = check(func(), Config("warpgroup_matmul", {**GROUPS, **knobs}), Target("cuda -arch=sm_90a"))
    assert "wgmma" in kernel.ptx  # type: ignore[attr-defined]


def test_parts_of_halves_are_added_up_before_they_are_rounded() -> None:
    """2048 + 1 - 2048 in float16 is 0 where the parts are rounded: 2049 has 12 bits."""
    func = product(32, 48, 32, "float16", (), "nothing")
    config = Config("tensor_matmul", {**TENSOR, "stages": 1})
    kernel = compile_func(apply_config(func, config, TEN).func, TEN, use_cache=False).kernel
    a, b = np.zeros((32, 48), "e"), np.ones((48, 32), "e")
    a[:, 0], a[:, 1], a[:, 20] = 2048, 1, -2048
    out = np.zeros((32, 32), "e")
    emulate.run_kernel(kernel, [a, b, out])
    np.testing.assert_array_equal(out, 1)


def test_the_default_shares_a_wave_that_is_nearly_empty() -> None:
    """Tiles of 128 x 256 of 2304 x 2304 are 162 for 132 multiprocessors, of 2048 x 2048 they are 128."""
    device = Target("nvidia/nvidia-h200")
    config = default_config(product(2304, 2304, 2304, "float16"), device)
    assert config.template == "warpgroup_matmul" and config["wave_parts"] > 1
    assert space_for(product(2304, 2304, 2304, "float16"), device).contains(config)
    assert default_config(product(2048, 2048, 2048, "float16"), device)["wave_parts"] == 1


def test_large_products_in_parts_have_no_stack_and_their_work_is_counted() -> None:
    device, func = Target("nvidia/nvidia-h200"), product(2304, 2304, 2304, "float16")
    kernel = compile_func(apply_config(func, default_config(func, device), device).func, device).kernel
    assert all(x.stack_bytes == x.spill_bytes == 0 for x in kernel.resources.launches)
    assert 2 * 2304**3 <= kernel.flops < 2.01 * 2304**3


def test_no_parts_where_no_tile_is_left() -> None:
    func, config = product(64, 64, 160, "float16"), Config("tensor_matmul", TENSOR)  # ten tiles
    assert not space_for(func, TEN).contains(config)
    with pytest.raises(ScheduleError, match="no tile is left"):
        apply_config(func, config, TEN)


def test_no_parts_where_a_threads_registers_do_not_suffice() -> None:
    """512 threads with 64 sums each, whose copies have no stage of their own: ptxas has put some on the stack."""
    space = space_for(product(1536, 1536, 1536, "float16"), Target("cuda -arch=sm_86"))
    large = {"rows": 128, "columns": 256, "warps_m": 4, "warps_n": 4, "step": 16, "swizzle": 1, "group": 8}
    known = {parts: Config("tensor_matmul", {**large, "stages": 1, "wave_parts": parts}) for parts in (1, 3)}
    assert space.contains(known[1]) and not space.contains(known[3])
    assert space.contains(Config("tensor_matmul", {**large, "stages": 2, "wave_parts": 3}))


def test_no_parts_of_long_steps_of_tf32() -> None:
    """Tiles of 64 x 32 for each warp, for which ptxas has used the stack."""
    space = space_for(with_tf32(product(1000, 512, 777, "float32")), Target("cuda -arch=sm_120"))
    tile = {"rows": 128, "columns": 32, "warps_m": 2, "warps_n": 1, "stages": 2, "swizzle": 1, "group": 4}
    known = {
        (step, parts): Config("tensor_matmul", {**tile, "step": step, "wave_parts": parts})
        for step in (32, 64)
        for parts in (1, 3)
    }
    assert [key for key, config in known.items() if not space.contains(config)] == [(64, 3)]


def test_kernels_for_any_size_have_whole_tiles() -> None:
    n = te.var("n")
    a, b = te.placeholder((n, 512), "float16", name="A"), te.placeholder((512, 512), "float16", name="B")
    made = schedule_sizes(create_prim_func([a, b, topi.matmul(a, b)]), TEN)
    assert "left" not in made.func.script()

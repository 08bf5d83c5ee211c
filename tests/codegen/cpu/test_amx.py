"""Products in tile registers (AMX): equal to NumPy's where this machine has them, and made of few instructions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from autosched import te, topi
from autosched.codegen import compile_func
from autosched.codegen.compiled import CompiledKernel
from autosched.codegen.cpu.amx_nest import REGISTERS, TileSizes
from autosched.codegen.cpu.instructions import COUNTS
from autosched.codegen.native import native_for
from autosched.runtime import Module
from autosched.space import Config
from autosched.target import Target, host_cpu
from autosched.templates import apply_config, default_config, space_for
from autosched.templates.base import Applied
from autosched.tir import PrimFunc
from tests.spread import spread

TARGET = Target("llvm -mcpu=sapphirerapids -num-cores=1")
IS_HERE = {"amx-tile", "amx-int8", "amx-bf16"} <= host_cpu().runnable and TARGET.features <= host_cpu().runnable
needs_tiles = pytest.mark.skipif(not IS_HERE, reason="this machine has no tile registers, or does not let us use them")


def product(m: int, n: int, k: int, dtype: str) -> PrimFunc:
    x = te.placeholder((m, k), "uint8" if dtype == "int8" else dtype, name="x")
    w = te.placeholder((k, n), dtype, name="w")
    return te.create_prim_func(
        [x, w, topi.nn.relu(topi.matmul(x, w, out_dtype="int32" if dtype == "int8" else "float32"))]
    )


def compiled(func: PrimFunc, **knobs: int) -> tuple[Applied, CompiledKernel]:
    config = default_config(func, TARGET)
    applied = apply_config(func, Config(config.template, {**config.knobs, **knobs}), TARGET)
    return applied, compile_func(applied.func, TARGET, name="k")


def arrays(m: int, n: int, k: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(m + n + k)
    if dtype == "int8":
        x, w = rng.integers(0, 256, (m, k)).astype("uint8"), rng.integers(-128, 128, (k, n)).astype("int8")
        x[0], w[:, 0] = 255, -128
        return x, w
    return tuple(rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((m, k), (k, n)))  # type: ignore[return-value]


SIZES = [
    (3, 16, 64), (16, 64, 128), (17, 33, 64), (32, 32, 512), (33, 100, 64), (50, 70, 192), (64, 96, 80),
    (513, 40, 2048), (512, 32, 3072), (100, 130, 256), (31, 250, 1024),
    (5, 17, 32), (129, 48, 96), (2, 64, 64), (40, 16, 60),
]  # fmt: skip


@needs_tiles
@pytest.mark.parametrize("dtype", ["int8", "bfloat16"])
@spread(3, "sizes", SIZES)
def test_products_are_those_of_numpy(sizes: tuple[int, int, int], dtype: str) -> None:
    check(product(*sizes, dtype), sizes, dtype)


def check(func: PrimFunc, sizes: tuple[int, int, int], dtype: str, **knobs: int) -> None:
    applied, kernel = compiled(func, **knobs)
    x, w = arrays(*sizes, dtype)
    out = np.zeros(sizes[:2], "int32" if dtype == "int8" else "float32")
    packed = [p.pack(a) if p is not None else a for p, a in zip(applied.packs, (x, w, out), strict=True)]
    Module({"k": kernel.kernel}, native_for(TARGET), threads=1)(*packed)
    if dtype == "int8":
        np.testing.assert_array_equal(packed[-1], np.maximum(x.astype("int32") @ w.astype("int32"), 0))
    else:
        wanted = np.maximum(x.astype("float64") @ w.astype("float64"), 0)
        np.testing.assert_allclose(packed[-1], wanted, rtol=1e-5, atol=2e-5 * sizes[2] ** 0.5)


TILES = [(16, 1), (16, 4), (13, 3), (32, 1), (32, 2), (48, 1), (1, 4), (5, 6), (16, 5)]


@needs_tiles
@spread(3, "tile", TILES)
@pytest.mark.parametrize("order", ["nm", "mn", "mnm"])
def test_every_shape_of_tiles_is_right(tile: tuple[int, int], order: str) -> None:
    """Tails in rows and columns among them, whose registers have other sizes."""
    sizes = (100, 150, 192)
    knobs = {"rows": tile[0], "vectors": tile[1], "order": order, "chunk": 2, "tiles": True}
    check(product(*sizes, "int8"), sizes, "int8", **knobs)


@pytest.mark.parametrize(("share", "chunk"), [(0.25, 2), (0.5, 1), (2.0, 2)])
def test_tiles_of_rows_that_fill_the_first_level_cache_meet_the_panels_alone(share: float, chunk: int) -> None:
    depth = int(share * TARGET.cache.l1_bytes / 32 / 2) // 64 * 64
    config = default_config(product(512, 512, depth, "bfloat16"), TARGET)
    assert (config["order"], config["chunk"]) == ("mnm", chunk)


@needs_tiles
@spread(2, "rows", [64, 128])
@spread(2, "depth", [1536, 2112])
def test_long_sums_are_made_in_parts(rows: int, depth: int) -> None:
    """Of as many steps each as divide them."""
    sizes = (200, 33, depth)
    check(product(*sizes, "int8"), sizes, "int8", rows=rows, vectors=2, tiles=True)


@pytest.mark.parametrize(("dtype", "name"), [("int8", "tdpbusd"), ("bfloat16", "tdpbf16ps")])
def test_a_step_is_four_products_and_four_loads(dtype: str, name: str) -> None:
    """The sums stay in registers, and these are configured once for all tiles."""
    _, kernel = compiled(product(512, 512, 512, dtype))
    asm = kernel.asm
    assert (asm.count(f"\t{name}\t"), asm.count("\ttileloadd\t"), asm.count("\ttilestored\t")) == (4, 4, 4)
    assert (asm.count("\tldtilecfg\t"), asm.count("\ttilerelease"), asm.count("\ttilezero\t")) == (1, 1, 4)
    assert "tiles_16_16_by_16_16_x16()" in kernel.source and "release_tiles()" in kernel.source


def test_a_step_asks_for_every_line_of_one_ahead_once() -> None:
    applied, kernel = compiled(product(16, 512, 512, "int8"), rows=16, vectors=4, streams=4, ahead=8, prefetch=False)
    assert kernel.asm.count("prefetcht0") == 64 and applied.packs[1].packed_shape == (32, 128, 16, 4)  # type: ignore[union-attr]


@needs_tiles
@pytest.mark.parametrize("ahead", [2, 16])
def test_lines_that_are_asked_for_ahead_change_nothing(ahead: int) -> None:
    sizes = (13, 100, 192)
    check(product(*sizes, "int8"), sizes, "int8", rows=13, vectors=4, streams=4, ahead=ahead)


def test_the_hot_loop_is_that_of_tiles() -> None:
    _, kernel = compiled(product(512, 512, 512, "int8"))
    counts = dict(zip(COUNTS, kernel.instructions(), strict=True))
    assert (counts["hot_fmas"], counts["hot_loads"], counts["hot_stores"], counts["hot_spills"]) == (4, 4, 0, 0)


def test_one_row_takes_no_tiles() -> None:
    """It is read from memory anyway, and in more streams."""
    _, kernel = compiled(product(1, 512, 512, "int8"))
    assert "tdpbusd" not in kernel.asm and "vpdpbusd" in kernel.asm


@pytest.mark.parametrize("sizes", [(1, 1), (2, 2), (1, 4), (1, 6), (3, 1), (6, 1), (2, 1), (1, 2)])
@pytest.mark.parametrize("ends", [(16, 16), (5, 16), (16, 3), (5, 3)])
def test_each_tile_has_a_register_of_its_size(sizes: tuple[int, int], ends: tuple[int, int]) -> None:
    rows, columns = ((16,) * (n - 1) + (end,) for n, end in zip(sizes, ends, strict=True))
    tiles = TileSizes(rows, columns, 16)
    many = len(rows) * len(columns)
    if not tiles.fit:
        assert 6 in sizes and set(ends) != {16}  # one register is left for tiles of two sizes
        return
    sums = {tiles.sum_at(r, c) for r in range(len(rows)) for c in range(len(columns))}
    assert len(sums) == many and max(sums) < REGISTERS
    palette = tiles.palette()
    for r, n in enumerate(rows):
        assert tiles.row_at(r) not in sums and palette[48 + tiles.row_at(r)] == n
    for c, n in enumerate(columns):
        assert tiles.column_at(c) not in sums and palette[16 + 2 * tiles.column_at(c)] == 4 * n
    assert not {tiles.row_at(r) for r in range(len(rows))} & {tiles.column_at(c) for c in range(len(columns))}


def test_other_cpus_keep_their_spaces() -> None:
    func = product(64, 64, 64, "int8")
    znver4 = Target("llvm -mcpu=znver4")
    assert not any(config["tiles"] for config in space_for(func, znver4).sample(0, 200))
    assert default_config(func, TARGET)["tiles"] and not default_config(func, znver4)["tiles"]

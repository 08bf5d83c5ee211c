"""Contractions as matrix products, on the cores of an SM or on tensor cores; long sums of few results in several parts.

for part of k and group in blockIdx.z, m tile in blockIdx.y, n tile in blockIdx.x:
    for k tile:
        rows_shared, columns_shared = the operands' elements    # gathered by all threads of the block
        for k: acc += rows_shared * columns_shared              # or a share of these k for each group of threads
    acc = sum of the shares of the block's threads              # through shared memory, where there are shares
    out[m tile, n tile] = epilogue(acc)                                        # or product[part, …] = acc
out = epilogue(sum of product[parts])                                          # a second launch, where there are parts
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autosched.space import Config, ConfigSpace
from autosched.target import Target
from autosched.target.gpus import GpuFacts
from autosched.templates.base import Anchor, Applied
from autosched.templates.cuda.core_tiles import (
    BANKS,
    GROUP,
    L2_BYTES_PER_CYCLE,
    LAUNCH_S,
    LEAST_TERMS_OF_A_PART,
    SHARES,
    SPLITS,
    Cut,
    SharedCopy,
    bind_results,
    block_threads,
    copies_itself,
    default_cut,
    default_pipeline,
    split_terms,
    stage_operands,
    tile_cycles,
)
from autosched.templates.cuda.product_form import (
    COLUMNS,
    PART,
    PRODUCT,
    RESULT,
    ROWS,
    TOTAL,
    MatrixForm,
    MatrixPack,
    Shape,
    find_matrix_form,
    product_func,
)
from autosched.templates.cuda.spaces import device_space
from autosched.templates.cuda.tensor_matmul import LEAST_CAPABILITY, STEPS, takes
from autosched.templates.cuda.threads import (
    BLOCK_X,
    BLOCK_Y,
    BLOCK_Z,
    MOST_GRID_YZ,
    THREAD_X,
    THREAD_Y,
    THREAD_Z,
    VECTOR_BYTES,
    bind_flat,
    copy_together,
    fused,
    read_index,
)
from autosched.templates.nbits_form import with_narrow_weight
from autosched.tir import PrimFunc, Var
from autosched.tir.dtypes import item_bytes
from autosched.tir.expr import PrimExpr, as_int, const_int
from autosched.tir.functor import free_vars
from autosched.tir.schedule import BlockRV, LoopRV, Schedule

WARP = 32
LEAST_SIDE = 8  # rows, columns and terms of a convolution: fewer leave most of a tile idle
FEW_ROWS = 16  # products of so few rows take as long as reading the columns does
BLOCKS_AT_ONCE = 4  # of an SM, whose waits overlap
MEMORY_LATENCY = 600.0  # cycles
LEAST_STEPS = 4  # of a part of a sum
# Where a number of pixels comes with the call, each thread divides by it before it begins: 27 terms were predicted to
# take 6.5 us for 3.4 on cores, 64 terms 5.8 for 12.
LEAST_OPEN_TERMS = 64
LONG_STEP, LARGEST_STEP = 64, 32 << 10  # terms, and bytes of both operands that so many may be
SUM_THREADS = 256  # of the launch that adds up parts


@dataclass(frozen=True, slots=True)
class _Cut:
    """How a product is cut on tensor cores.

    tile    rows, columns, warps of each
    splits  parts of sums that blocks of their own take, `shares` those that warps of a block take
    """

    tile: tuple[int, int, int, int]
    splits: int = 1
    shares: int = 1

    def step(self, s: Mapping[str, int]) -> int:
        """Terms of a step of a warp: long lines, many of them under way, where there are few rows."""
        if s["K"] <= 16:
            return max(16, s["instruction"])
        return 64 if s["M"] <= FEW_ROWS and s["K"] >= 512 * self.shares else 32

    def can_be_long(self, s: Mapping[str, int]) -> bool:
        """Whether a step takes twice as many terms, where copies are vectors.

        On an H200 it took .82 to .94 of the time where a step is 32 KiB at most; 1.11 to 1.22 of it above, where fewer
        blocks fit into an SM.
        """
        rows, columns, _, _ = self.tile
        parts = self.splits * self.shares
        fits = (rows + columns) * LONG_STEP * s["bytes"] <= LARGEST_STEP and self.shares == 1
        return fits and s["K"] % LONG_STEP == 0 and (parts == 1 or s["K"] >= LEAST_STEPS * parts * LONG_STEP)

    def stages(self, s: Mapping[str, int], gpu: GpuFacts) -> int:
        """Steps in shared memory: more of small tiles, which wait longer than they compute."""
        rows, columns, _, _ = self.tile
        wanted = 4 if s["M"] <= FEW_ROWS else 3 if rows * columns <= 64 * 64 else 2
        if self.shares > 1:  # whose steps are so many times as long
            line = self.step(s) * self.shares
            step_bytes = ((rows + columns) * (line + 16) + (8 + 24 * (s["bytes"] // 4)) * line) * s["bytes"]
            wanted = min(wanted, gpu.max_shared_memory_per_block // step_bytes)
        return min(wanted, max(1, s["K"] // (self.step(s) * self.splits * self.shares)))


def _rate_name(dtype: str) -> str:
    """What tensor cores multiply elements of a type as, among a device's rates."""
    return f"t{dtype}" if dtype == "float32" else dtype


def _default_cut(s: Mapping[str, int], gpu: GpuFacts, rate: str, is_open: bool = False) -> _Cut:
    """The busiest SM is done first; without parts where sizes come with the call."""
    tiles = [(32, 32, 2, 2)] if s["M"] > FEW_ROWS else [(16, 64, 1, 4), (16, 32, 1, 2)]
    for tile in ((32, 64, 2, 2), (64, 64, 2, 2), (64, 128, 2, 2), (128, 128, 2, 2 if s["bytes"] < 4 else 4)):
        if tile[0] < 2 * s["M"] and tile[1] < 2 * s["N"] and s["M"] > FEW_ROWS:
            tiles.append(tile)
    choices = [_Cut(t, parts) for t in tiles for parts in SPLITS]
    if s["M"] <= FEW_ROWS:
        choices += [_Cut((16, n, 1, n // 32), parts, 8 * 32 // n) for n in (32, 64) for parts in SPLITS]

    def fits(cut: _Cut) -> bool:
        enough = s["K"] >= LEAST_STEPS * cut.splits * cut.shares * cut.step(s)
        return cut.splits * cut.shares == 1 or (not is_open and enough and cut.stages(s, gpu) > 1)

    return min(filter(fits, choices), key=lambda cut: _cut_cycles(s, gpu, rate, cut))


def _cut_cycles(s: Mapping[str, int], gpu: GpuFacts, rate: str, cut: _Cut) -> float:
    """Cycles until the busiest SM has multiplied, read and waited.

    It reads (R + C) elements of a tile of R x C for each term from the second cache, and waits for memory in each step
    that is not copied ahead. Parts cost a second launch, and each of their elements is written and read. Of few rows
    products are nothing, and blocks wait for what they read: one alone reached half of the cache's rate on an H200, as
    all of them read the same rows at the same time, four beside each other, of different terms, nearly all of it.
    """
    rows, columns, _, _ = cut.tile
    parts, step = cut.splits, cut.step(s) * cut.shares
    count = s["batch"] * -(-s["M"] // rows) * -(-s["N"] // columns) * parts
    busiest, terms = -(-count // gpu.sm_count), -(-s["K"] // (parts * step)) * step
    multiplies = rows * columns * terms / gpu.rates[rate]
    reads = (min(rows, s["M"]) + columns) * terms * s["bytes"] / L2_BYTES_PER_CYCLE
    if s["M"] <= FEW_ROWS:
        reads *= 1 + 1 / min(busiest, BLOCKS_AT_ONCE)
    ahead = max(1, cut.stages(s, gpu) - 1)
    waits = -(-busiest // BLOCKS_AT_ONCE) * (terms // step / ahead + 1) * MEMORY_LATENCY
    cycles = max(busiest * max(multiplies, reads), waits)
    if parts > 1:
        moved = 8 * parts * s["batch"] * s["M"] * s["N"]
        cycles += LAUNCH_S * gpu.clock_hz + MEMORY_LATENCY + moved / (L2_BYTES_PER_CYCLE * gpu.sm_count)
    return cycles


def expected_cycles(s: Mapping[str, int], gpu: GpuFacts, dtype: str) -> float:
    """Cycles of the default for a product of gathered operands on tensor cores."""
    rate = _rate_name(dtype)
    return _cut_cycles(s, gpu, rate, _default_cut(s, gpu, rate))


def wants_parts(s: Mapping[str, int], rows: int, columns: int, target: Target) -> int:
    """Into how many parts a sum is cut so that every SM has work, where tiles have so many rows and columns."""
    tiles = s["batch"] * -(-s["M"] // rows) * -(-s["N"] // columns)
    parts = 1
    while tiles * parts * 2 <= target.gpu.sm_count and s["K"] >= 2 * parts * LEAST_TERMS_OF_A_PART and parts < 16:
        parts *= 2
    return parts


def _form_for(func: PrimFunc, is_open: bool = False, least: int = LEAST_SIDE) -> MatrixForm | None:
    """The matrix form of what this module schedules: convolutions, and products with fewer tiles than SMs.

    least  rows of what is no plain product
    """
    form = find_matrix_form(func, is_open)
    if form is None or not form.dtype or (form.opened and form.is_matmul):
        return None
    s = form.sizes
    least = 2 if form.is_matmul else least
    if s["batch"] * SPLITS[-1] > MOST_GRID_YZ or s["M"] > MOST_GRID_YZ or min(s["N"], s["K"]) < LEAST_SIDE:
        return None
    return form if s["M"] >= least or _is_single(form) else None


def _is_single(form: MatrixForm) -> bool:
    """Whether the product is one of a row that tensor cores are fed with by vectors along its terms.

    Where results lie side by side a reduction reads the weights faster: 6.7 us for 4096 x 4096 halves, 9.3 on tensor
    cores (H200).
    """
    if form.sizes["M"] > 1 or not form.is_matmul or form.dtype not in STEPS or form.dtype == "float32":
        return False
    return _runs_along(form, form.terms)


class TensorContraction:
    """Convolutions, and long products of few results, of 16-bit floats, 8-bit integers, or float32 rounded to tf32.

    Halves times integers of a few bits too, which are unpacked where they are copied to shared memory.
    """

    name = "tensor_contraction"

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        return self._anchor(func, target, False)

    def of_open_sizes(self, func: PrimFunc, target: Target) -> Anchor | None:
        """The same as `match` for a function whose numbers of columns may come with the call: those of pixels."""
        return self._anchor(func, target, True)

    def _anchor(self, func: PrimFunc, target: Target, is_open: bool) -> Anchor | None:
        if target.gpu.compute_capability < LEAST_CAPABILITY:
            return None
        narrow = with_narrow_weight(func)
        form = _form_for(narrow, is_open, 2 if narrow is not func else LEAST_SIDE)
        if form is not None and form.opened and form.sizes["K"] < LEAST_OPEN_TERMS:
            return None
        if form is None or (
            form.is_matmul and form.sizes["M"] > FEW_ROWS and wants_parts(form.sizes, 32, 64, target) == 1
        ):
            return None
        if not takes(narrow, form.dtype) or (form.whole and form.sizes["M"] < 16):
            return None
        sizes = {**form.sizes, "bytes": item_bytes(form.dtype), "instruction": STEPS[form.dtype]}
        sizes["grouped"] = int(bool(form.whole))
        return Anchor(form.chain.anchor.name_hint, "contraction", sizes, form)

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        return device_space(self, anchor, target)

    def default(self, anchor: Anchor, target: Target) -> Config:
        """The tile and the parts of sums by which the busiest SM is done first; no parts of sums of open sizes."""
        s = anchor.sizes
        cut = _default_cut(s, target.gpu, _rate_name(anchor.details.dtype), is_open=bool(anchor.details.opened))
        rows, columns, warps_m, warps_n = cut.tile
        while s["grouped"] and rows > s["M"]:
            rows, warps_m = rows // 2, max(1, warps_m // 2)
        while warps_m > 1 and rows // warps_m * (warps_m - 1) >= s["M"]:
            warps_m //= 2
        while warps_n > 1 and columns // warps_n * (warps_n - 1) >= s["N"]:
            warps_n //= 2
        knobs = {"rows": rows, "columns": columns, "warps_m": warps_m, "warps_n": warps_n}
        knobs |= {"step": cut.step(s), "stages": cut.stages(s, target.gpu), "splits": cut.splits, SHARES: cut.shares}
        if knobs["step"] < LONG_STEP and not _gathers(anchor.details) and cut.can_be_long(s):
            steps = s["K"] // (LONG_STEP * cut.splits)
            knobs |= {"step": LONG_STEP, "stages": max(2, min(knobs["stages"], steps))}
        return Config(self.name, knobs)

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        func = with_narrow_weight(func)
        form = find_matrix_form(func, True)
        assert form is not None, "apply is called on a function that matched"
        item = item_bytes(form.dtype)
        # a fragment has no ragged edge within a warp
        known = max(form.sizes["N"], config["columns"])
        whole = max(form.sizes["M"], config["rows"]), form.count(form.columns) if form.opened else known
        made, packs, shape = _laid_out(func, form, config, whole, item == 1)
        sch = Schedule(made)
        result = _written(sch, shape)
        _on_tensor_cores(sch, form, shape, result, config, STEPS[form.dtype], item)
        _add_parts(sch, shape)
        return Applied(sch.func, packs, sch.trace.to_json_text())


def _gathers(form: MatrixForm) -> bool:
    """Whether each element has a place of its own: the terms are those of a window."""
    return sum(extent > 1 for _, extent in form.terms) > 1


def _is_cut(s: Mapping[str, int], gpu: GpuFacts) -> bool:
    """Whether sums in parts are expected to be done earlier."""
    cut = default_cut(s, gpu)
    return cut.splits * cut.shares > 1


class Contraction:
    """Convolutions, and long products of few results, of types that tensor cores leave to the cores."""

    name = "contraction"
    version: int = 2

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        form = _form_for(func)
        if form is None or form.sizes["M"] == 1:  # a reduction of vectors
            return None
        sizes = {**form.sizes, "bytes": item_bytes(form.dtype)}
        if form.is_matmul and sizes["M"] > FEW_ROWS and not _is_cut(sizes, target.gpu):
            return None
        return Anchor(form.chain.anchor.name_hint, "contraction", sizes, form)

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        return device_space(self, anchor, target, asynchronous=copies_itself(anchor.sizes, target.gpu))

    def default(self, anchor: Anchor, target: Target) -> Config:
        """The tile by which the busiest SM is done first; sums in parts where tiles leave SMs idle.

        On an H200 a 3x3 convolution of 128 channels of 28 x 28 pixels took 36 us with sums shared within blocks of
        small tiles, 20 with parts in blocks of their own and steps of 16.
        """
        s, form = anchor.sizes, anchor.details
        gathers = _gathers(form)
        cut = default_cut(s, target.gpu, is_shared=not gathers)
        knobs = dict(zip(("rows", "columns", "per_row", "per_column"), cut.tile, strict=True))
        depth = s["K"] // (cut.splits * cut.shares)
        pipeline = default_pipeline(s, cut.tile, target.gpu, depth, cut.shares, gathers=gathers)
        return Config(self.name, {**knobs, "splits": cut.splits, SHARES: cut.shares, **pipeline})

    def estimate(self, anchor: Anchor, config: Config, target: Target) -> float:
        """Cycles that a configuration is expected to take."""
        tile = (config["rows"], config["columns"], config["per_row"], config["per_column"])
        return tile_cycles(anchor.sizes, target.gpu, Cut(tile, config["splits"], config.get(SHARES, 1)))

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        form = find_matrix_form(func)
        assert form is not None, "apply is called on a function that matched"
        made, packs, shape = _laid_out(func, form, config, (form.sizes["M"], form.sizes["N"]), False)
        sch = Schedule(made)
        result = _written(sch, shape)
        _on_cores(sch, form, shape, result, config, item_bytes(form.dtype))
        _add_parts(sch, shape)
        return Applied(sch.func, packs, sch.trace.to_json_text())


def _laid_out(
    func: PrimFunc, form: MatrixForm, config: Config, results: tuple[int, int | PrimExpr], deep: bool
) -> tuple[PrimFunc, tuple[MatrixPack | None, ...], Shape]:
    """(the function as a matrix product, how arguments are packed, its layout)."""
    shares = config.get(SHARES, 1)
    whole = config["step"] * config["splits"] * shares
    depth = -(-form.sizes["K"] // whole) * whole
    pack = form.packing(results[0], depth)
    deep = deep or _runs_along(form, form.terms)
    shape = Shape(*results, depth, config["splits"], pack is not None, deep, shares, config["step"])
    packs = tuple(pack if pack is not None and b is form.row_operand.buffer else None for b in func.buffers)
    return product_func(func, form, shape), packs, shape


def _runs_along(form: MatrixForm, axes: tuple[tuple[Var, int], ...]) -> bool:
    """Whether neighbours along the last of these axes lie side by side in the columns' operand."""
    last = free_vars(form.column_operand.indices[-1])
    return axes[-1][0] in last and form.columns[-1][0] not in last


def _vector(form: MatrixForm, shape: Shape, name: str, item: int) -> int:
    """Elements of an operand that one access takes: those of an argument along its last axes."""
    if name == ROWS and shape.pack:
        return VECTOR_BYTES // item
    load = form.row_operand if name == ROWS else form.column_operand
    axes = form.terms if name == ROWS or shape.deep else form.columns
    wide = VECTOR_BYTES // item
    if load.buffer in form.blocks:
        return 1
    found, together, size = 1, 1, 1  # elements that axes count through, and what lies between neighbours of the next
    sizes = (const_int(n) or 0 for n in load.buffer.shape)  # 0: not known, so that no vector ends there
    places = [x for x in zip(load.indices, sizes, strict=True) if x[1] != 1]
    for (var, extent), (at, have) in zip(reversed(axes), reversed(places), strict=False):
        if at is not var or together != size:
            break
        together, size = together * extent, size * have
        found = max(found, math.gcd(wide, together, size))
    return found


def _written(sch: Schedule, shape: Shape) -> str:
    """The block that writes a tile: the result, or the parts of sums."""
    if shape.splits == 1:
        return RESULT
    copy = sch.get(sch.cache_write(PART if shape.shares > 1 else PRODUCT, 0, "local"))
    return str(copy.name_hint)


def _on_tensor_cores(
    sch: Schedule, form: MatrixForm, shape: Shape, out: str, config: Config, instruction: int, item: int
) -> None:
    warps, threads = _warps(config), (_warps(config)[0] * shape.shares, _warps(config)[1], WARP)
    if shape.shares > 1:
        out = _add_shares(sch, out, config, threads)
    *batch, m, n = sch.get_loops(out)
    if shape.shares > 1:
        m_warp, m_in = sch.split(m, [warps[0], None])
        n_warp, n_in = sch.split(n, [warps[1], None])
        share, group = batch[-2:]
        sch.reorder(share, m_warp, n_warp, group, m_in, n_in)
        m_warp = sch.fuse(share, m_warp)
    else:
        m_tile, m_warp, m_in = sch.split(m, [None, warps[0], config["rows"] // warps[0]])
        n_tile, n_warp, n_in = sch.split(n, [None, warps[1], config["columns"] // warps[1]])
        sch.reorder(*batch, m_tile, n_tile, m_warp, n_warp, m_in, n_in)
        _bind_blocks(sch, out, batch, m_tile, n_tile)
    sch.bind(m_warp, THREAD_Z)
    sch.bind(n_warp, THREAD_Y)
    sch.set_scope(PRODUCT, 0, "wmma.accumulator")
    sch.compute_at(PRODUCT, n_warp, True)
    if shape.shares > 1:
        *_, m_in, n_in, k_tile, k = sch.get_loops(PRODUCT)
        k_step, k_in = sch.split(k, [None, instruction])
    else:
        *_, m_in, n_in, k = sch.get_loops(PRODUCT)
        k_tile, k_step, k_in = sch.split(k, [None, config["step"] // instruction, instruction])
    sch.reorder(k_tile, k_step, m_in, n_in, k_in)
    for name, scope in ((ROWS, "wmma.matrix_a"), (COLUMNS, "wmma.matrix_b")):
        copy = _operand(sch, shape, name, scope, k_step)
        sch.compute_at(copy, k_tile, True)
        vector = VECTOR_BYTES // item
        if name == COLUMNS and item == 4 and not shape.deep:  # its words are loaded one by one
            sch.storage_align(copy, 0, 1, 32, 8)
        else:
            sch.storage_align(copy, 0, 1, 2 * vector, vector)
        if name == COLUMNS and shape.deep and not _runs_along(form, form.terms):  # neighbours read neighbours
            at, term = sch.get_loops(copy)[-2:]
            sch.reorder(term, at)
        copy_together(sch, copy, 2, threads, _vector(form, shape, name, item))
    if config["stages"] > 1:
        sch.annotate(k_tile, "software_pipeline_stage", [0, 0, config["stages"] - 1])
        sch.annotate(k_tile, "software_pipeline_order", [0, 1, 2])
        sch.annotate(k_tile, "software_pipeline_async_stages", [0])


def _warps(config: Config) -> tuple[int, int]:
    return config["warps_m"], config["warps_n"]


def _bind_blocks(sch: Schedule, out: str, batch: Sequence[LoopRV], m_tile: LoopRV, n_tile: LoopRV) -> None:
    sch.bind(fused(sch, batch, out), BLOCK_Z)
    sch.bind(m_tile, BLOCK_Y)
    sch.bind(n_tile, BLOCK_X)


def _add_shares(sch: Schedule, out: str, config: Config, threads: tuple[int, int, int]) -> str:
    """Tiles of the block `out` to blocks, their elements to threads (z, y, x), which add up what warps have left.

    Gives the block by which warps leave their sums of a tile in shared memory.
    """
    rows, columns = config["rows"], config["columns"]
    *batch, m, n = sch.get_loops(out)
    m_tile, m_in = sch.split(m, [None, rows])
    n_tile, n_in = sch.split(n, [None, columns])
    sch.reorder(*batch, m_tile, n_tile, m_in, n_in)
    _bind_blocks(sch, out, batch, m_tile, n_tile)
    vector = math.gcd(GROUP, max(1, rows * columns // math.prod(threads)), columns)
    _, z, y, x, lanes = sch.split(sch.fuse(m_in, n_in), [None, *threads, vector])
    for loop, axis in ((z, THREAD_Z), (y, THREAD_Y), (x, THREAD_X)):
        sch.bind(loop, axis)
    sch.set_scope(PART, 0, "local")
    sch.compute_at(PART, x, True)
    *_, lane, share = sch.get_loops(PART)
    if vector > 1:
        sch.vectorize(lanes)
        sch.reorder(share, lane)
        sch.vectorize(lane)
    copy = sch.cache_write(PRODUCT, 0, "local")
    sch.set_scope(copy, 0, "shared")
    sch.compute_at(copy, n_tile, True)
    sch.storage_align(copy, 0, -2, BANKS, 2 * GROUP)
    return str(sch.get(copy).name_hint)


def _operand(sch: Schedule, shape: Shape, name: str, scope: str, at: LoopRV) -> BlockRV | str:
    """Registers for an operand; the block that fills shared memory with it."""
    if name == ROWS and shape.pack:
        fragment = sch.cache_read(PRODUCT, read_index(sch, PRODUCT, "packed"), scope)
        sch.compute_at(fragment, at, True)
        return sch.cache_read(fragment, 0, "shared")
    fragment = sch.cache_read(PRODUCT, read_index(sch, PRODUCT, name), scope)
    sch.compute_at(fragment, at, True)
    sch.set_scope(name, 0, "shared")
    return name


def _on_cores(sch: Schedule, form: MatrixForm, shape: Shape, out: str, config: Config, item: int) -> None:
    if shape.shares > 1:
        out = _add_shares(sch, out, config, block_threads(config))
    sch.set_scope(PRODUCT, 0, "local")
    sch.compute_at(PRODUCT, bind_results(sch, out, config, shape.shares > 1), True)
    at = split_terms(sch, PRODUCT, config)
    copies = []
    for name, per_thread, turned in ((ROWS, "per_row", True), (COLUMNS, "per_column", shape.deep)):
        if name == ROWS and shape.pack:
            copy: BlockRV | str = sch.cache_read(PRODUCT, read_index(sch, PRODUCT, "packed"), "shared")
        else:
            sch.set_scope(name, 0, "shared")
            copy = name
        vector = 1 if turned else _vector(form, shape, name, item)
        copies.append(SharedCopy(copy, math.gcd(config[per_thread], GROUP), vector, turned))
    stage_operands(sch, PRODUCT, copies, at, config, item)


def _add_parts(sch: Schedule, shape: Shape) -> None:
    """The launch that adds up the parts of sums."""
    if shape.splits == 1:
        return
    vector = math.gcd(GROUP, as_int(shape.columns))
    thread = bind_flat(sch, fused(sch, list(sch.get_loops(RESULT)), RESULT), SUM_THREADS, vector)
    sch.set_scope(TOTAL, 0, "local")
    sch.compute_at(TOTAL, thread, True)
    *_, lanes, part = sch.get_loops(TOTAL)
    if vector > 1:
        sch.reorder(part, lanes)
        sch.vectorize(lanes)

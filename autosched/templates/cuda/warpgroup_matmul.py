"""Large matrix products of sm_90a: out[…, m, n] += a[…, m, k] * b[…, k, n] of 16-bit floats or 8-bit integers,
and of float32 cut off to tf32 where a model allows it. What is no 16-bit float lies along k, or is packed so.

for batch in blockIdx.z, m tile in blockIdx.y, n tile in blockIdx.x (neighbours as clusters, which copy a tile once):
    one warp:      for k tile: a_shared, b_shared = boxes of a and b, `stages` of them ahead
    warpgroups:    for k tile: acc[rows of the warpgroup, :] += a_shared * b_shared
                   out[rows of the warpgroup, n tile] = epilogue(acc)
"""

from __future__ import annotations

import math
from dataclasses import replace

from autosched.codegen.lower.launches import MIN_BLOCKS
from autosched.ir.node import FrozenDict, preorder
from autosched.space import Config, ConfigSpace
from autosched.target import Target
from autosched.target.gpus import GpuFacts
from autosched.templates.base import Anchor, Applied
from autosched.templates.chain import Chain, chain_around, schedule_epilogue
from autosched.templates.classify import find_contraction, reduced, spatial
from autosched.templates.cuda.core_tiles import L2_BYTES_PER_CYCLE
from autosched.templates.cuda.last_wave import KNOB, best_parts, share_last_wave, with_wide_sums
from autosched.templates.cuda.pointwise import find_pointwise
from autosched.templates.cuda.product_form import MatrixPack
from autosched.templates.cuda.spaces import device_space
from autosched.templates.cuda.tensor_matmul import takes
from autosched.templates.cuda.threads import (
    BLOCK_Z,
    CLUSTER_X,
    CLUSTER_Y,
    MOST_GRID_YZ,
    THREAD_Y,
    bind_tiles,
    fused,
    group_of_tiles,
    read_index,
    turn_tiles,
)
from autosched.templates.product import Operands, find_operands
from autosched.tir import PrimFunc, as_int
from autosched.tir import expr as E
from autosched.tir.axis import Range
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.dtypes import item_bytes
from autosched.tir.expr import IntImm, PrimExpr
from autosched.tir.functor import rewrite
from autosched.tir.schedule import Schedule
from autosched.tir.stmt import BufferRegion, BufferStore

ARCH = "sm_90a"
ROW_BYTES = 128  # of a tile along its innermost dimension
BOX_BYTES = 16  # rows of arguments are multiples of this
PERSISTENT = "persistent"
LEAST_TILE = 64
LEAST_WORK = 1 << 27  # products; smaller ones have too few tiles to keep the device busy for long
LEAST_POINTWISE = 1 << 24  # of convolutions, whose operands others gather: an H200 waits .3 µs for each 32 terms
TILES = (
    (128, 256, 2), (192, 192, 3), (128, 192, 2), (192, 128, 3), (128, 128, 2), (128, 64, 2), (64, 128, 1), (64, 64, 1),
)  # fmt: skip
MANY_REGISTERS, DIVISIONS = 64, 136  # of a thread beside its sums, which do for epilogues without and with divisions
_DIVIDES = ("sigmoid", "sqrt", "rsqrt")
_FEW_REGISTERS = (E.Add, E.Sub, E.Mul, E.Max, E.Min, E.Cast, E.Var, E.IntImm, E.FloatImm, BufferLoad)
PAIRS = ((1, 1), (2, 1), (1, 2))  # clusters along rows and columns: of two blocks, all multiprocessors have a place
MEMORY_REACHED = 0.85  # of the data sheet's bandwidth
TENSOR_REACHED = 0.8  # of the data sheet's rate by the best kernels: large products meet the limit of power
MOST_RESIDENT = 4  # blocks of a multiprocessor
SHORT_STEPS = 8  # tiles of k, of which storing the results takes a part of the time that shows
BARRIER_BYTES, GROUP_THREADS = 1024, 128  # of a block; of a warpgroup
FEWEST_REGISTERS = 32  # of a thread beside its sums, where a bias, a bound or nothing follows them
FIRST_COPIES = 2200.0  # cycles of a block until its first products begin
BESIDE_OTHERS = 0.25  # of the time that reading from the second cache takes, what shows beside products and memory
OF_CLUSTERS = 600.0  # cycles by which blocks of a cluster wait for each other, where they begin and where they end


def registers_left(tile: tuple[int, int, int]) -> int:
    """Registers of a thread beside its sums: the warps of a block are shared out among four parts of a multiprocessor.

    Two warpgroups and the warp that copies are nine warps: one part has three of them, each lane 168 of its 512.
    """
    rows, columns, groups = tile
    return min(255, 512 // (groups + 1) // 8 * 8) - rows * columns // (128 * groups)


def registers_of(chain: Chain) -> int:
    """Registers of a thread beside its sums that what follows them may need; the assembler overlaps many elements.

    The widest tiles leave registers for a bias and a bound, and not for what has values of several steps at once.
    """
    nodes = [x for block in chain.after for x in preorder(block.body)]
    if any(isinstance(x, E.Div) or (isinstance(x, E.Call) and x.op in _DIVIDES) for x in nodes):
        return DIVISIONS
    return 0 if is_light(chain) else MANY_REGISTERS


def is_light(chain: Chain) -> bool:
    """Whether what follows the sums is a bias, a factor, a bound, or nothing."""
    values = [block.body.value for block in chain.after if isinstance(block.body, BufferStore)]
    own = {chain.anchor.writes[0].buffer, *(block.writes[0].buffer for block in chain.after)}
    nodes = [x for value in values for x in preorder(value)]
    others = {x.buffer for x in nodes if isinstance(x, BufferLoad) and x.buffer not in own}
    return all(isinstance(x, _FEW_REGISTERS) for x in nodes if isinstance(x, PrimExpr)) and all(
        math.prod(b.const_shape()) == max(b.const_shape()) for b in others
    )


class WarpgroupMatmul:
    """Dense layers and batched products of small types that are worth a block's whole shared memory."""

    name = "warpgroup_matmul"

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        if target.gpu.arch != ARCH:
            return None
        found = self._match(func)
        if found is None and (view := find_pointwise(func)) is not None:
            found = self._match(view.func, LEAST_POINTWISE)
        return found

    def _match(self, func: PrimFunc, least_work: int = 0) -> Anchor | None:
        """The product that a function is, of `least_work` terms or more."""
        c = find_contraction(func)
        if c is None or not (operands := find_operands(func, c)):
            return None
        rows, columns = operands.rows, operands.columns
        dtype, chain = rows.buffer.dtype, chain_around(func, c.block)
        if chain is None or chain.before or not takes(func, dtype) or columns.buffer.dtype != dtype:
            return None
        (k_axis,) = reduced(c.block)
        *batch, m, n = (as_int(iv.dom.extent) for iv in spatial(c.block))
        m_var, n_var = (iv.var for iv in spatial(c.block)[-2:])
        batches, k, item = math.prod(batch), as_int(k_axis.dom.extent), item_bytes(dtype)
        if min(m, n) < LEAST_TILE or k * item < ROW_BYTES or batches * m * n * k < (least_work or LEAST_WORK):
            return None
        if batches > MOST_GRID_YZ or m > MOST_GRID_YZ or rows.buffer is columns.buffer or len(batch) > 3:
            return None
        if rows.indices[-1] is not k_axis.var or rows.indices[-2] is not m_var:
            return None
        if columns.indices[-1] is k_axis.var and columns.indices[-2] is n_var:
            lies_along = "K"
        elif columns.indices[-1] is n_var and columns.indices[-2] is k_axis.var:
            lies_along = "N"
        else:
            return None
        if lies_along == "N" and item != 2:  # which the instruction reads along k alone
            if columns.buffer.ndim != 2:
                return None
            lies_along = "packed"
        if k * item % BOX_BYTES or (lies_along == "N" and n * item % BOX_BYTES):
            return None
        sizes = {"batch": batches, "M": m, "N": n, "K": k, "bytes": item, "along_n": int(lies_along == "N")}
        sizes["out_bytes"] = item_bytes((chain.after or (c.block,))[-1].writes[0].buffer.dtype)
        return Anchor(c.block.name_hint, "matmul", sizes, (operands, chain))

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        return device_space(self, anchor, target)

    def default(self, anchor: Anchor, target: Target) -> Config:
        """The tile, cluster and parts of the last wave by which the busiest SM is done first."""
        batch, m, n, k = (anchor.sizes[s] for s in ("batch", "M", "N", "K"))
        (tile, (below, beside)), parts, _ = _best(anchor, target)
        (rows, columns, groups), gpu, least = tile, target.gpu, registers_of(anchor.details[1])
        tiles, slots = batch * -(-m // (rows * below)) * -(-n // (columns * beside)), gpu.sm_count // (below * beside)
        stages, resident = _resident(tile, -(-k * anchor.sizes["bytes"] // ROW_BYTES), least, -(-tiles // slots), gpu)
        group = group_of_tiles(-(-m // (rows * below)))
        knobs = {"rows": rows, "columns": columns, "groups": groups, "lines": 1, "stages": stages, "group": group}
        knobs |= {"cluster_rows": below, "cluster_columns": beside, KNOB: parts}
        return Config(self.name, {**knobs, PERSISTENT: resident if parts == 1 and tiles > slots * resident else 0})

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        view = None if self._match(func) else find_pointwise(func)
        func = func if view is None else view.func
        anchor = self._match(func, least_work=1)
        assert anchor is not None, "apply is called on a function that matched"
        func = with_wide_sums(func, anchor.details[1].anchor) if config.get(KNOB, 1) > 1 else func
        anchor = self._match(func, least_work=1)
        assert anchor is not None, "sums in float32 match as well"
        operands, chain = anchor.details
        packs: tuple[MatrixPack | None, ...] = (None,) * len(func.params)
        if anchor.sizes["bytes"] != 2 and operands.columns.indices[-1] is not reduced(chain.anchor)[0].var:
            natural = operands.columns.buffer
            packs = tuple(_turning(natural) if b is natural else None for b in func.buffers)
            func = _turned(func, natural)
            anchor = self._match(func, least_work=1)
            assert anchor is not None, "what lies along k matches as well"
            operands, chain = anchor.details
        sch = Schedule(func)
        out = schedule_epilogue(sch, chain)
        sch.set_scope(anchor.block, 0, "wgmma.accumulator")
        slots = target.gpu.sm_count // (config.get("cluster_rows", 1) * config.get("cluster_columns", 1))
        _schedule(sch, anchor, operands, out, config, slots * int(config.get(PERSISTENT, 0)))
        made = share_last_wave(sch.func, func, anchor.block, out, config, slots)
        made = made if view is None else view.restored(made)
        if config.get(PERSISTENT, 0) > 1:
            made = made.with_attr({MIN_BLOCKS: int(config[PERSISTENT])})
        return Applied(made, packs, sch.trace.to_json_text())


def _best(anchor: Anchor, target: Target) -> tuple[tuple[tuple[int, int, int], tuple[int, int]], int, float]:
    """((tile, cluster), parts of the last wave, cycles until the busiest SM is done), of what is done first.

    An SM multiplies a tile of R x C, and reads (R + C) elements of it for each term from the second cache; what
    blocks of a cluster share is read once. Where all rows are one tile, that would be the smaller operand: 64 rows
    times 4096 x 4096 took 10.6 us on an H200 in clusters, 9.4 without.
    """
    batch, m, n, k = (anchor.sizes[s] for s in ("batch", "M", "N", "K"))
    gpu, item = target.gpu, anchor.sizes["bytes"]
    least = registers_of(anchor.details[1])
    tiles = [t for t in TILES if registers_left(t) >= least]
    rate = gpu.rates[anchor.details[0].rows.buffer.dtype.replace("float32", "tfloat32")]

    steps = k * item // ROW_BYTES if k * item % ROW_BYTES == 0 else 0

    least_cycles = _bytes(anchor) / (MEMORY_REACHED * gpu.memory_bandwidth) * gpu.clock_hz

    def shared(choice: tuple[tuple[int, int, int], tuple[int, int]]) -> tuple[int, float]:
        (rows, columns, _), (below, beside) = choice
        clusters = batch * -(-m // (rows * below)) * -(-n // (columns * beside))
        read = (rows / beside + columns / below) * item
        step = max(rows * columns / (rate * TENSOR_REACHED), read / L2_BYTES_PER_CYCLE)
        slots = gpu.sm_count // (below * beside)
        rounds = -(-clusters // slots)
        _, resident = _resident(choice[0], -(-k * item // ROW_BYTES), least, rounds, gpu)
        waiting = FIRST_COPIES * -(-rounds // resident) / rounds  # of each round
        waiting += OF_CLUSTERS if below * beside > 1 else 0.0
        stored = rows * columns * anchor.sizes["out_bytes"] / L2_BYTES_PER_CYCLE
        parts, cycles = best_parts(clusters, slots, k * step, stored + waiting, rows * columns, steps, gpu)
        alone = (rounds - clusters / slots) * (k * step + stored)  # while most of the device waits for the last tiles
        is_short = k * item <= SHORT_STEPS * ROW_BYTES
        shown = BESIDE_OTHERS * rounds * k * read / L2_BYTES_PER_CYCLE if is_short else 0.0
        return parts, max(cycles, least_cycles + alone + rounds * waiting) + shown

    chosen = min(
        (
            (t, c) for t in tiles for c in PAIRS
            if t[0] <= m and t[1] <= n and (c[0] - 1) * t[0] < m and (c[1] - 1) * t[1] < n
            and (c == (1, 1) or t[0] < m or n <= m)
        ),
        key=lambda choice: shared(choice)[1],
    )  # fmt: skip
    return chosen, *shared(chosen)


def _resident(tile: tuple[int, int, int], steps: int, others: int, rounds: int, gpu: GpuFacts) -> tuple[int, int]:
    """(stages, blocks of a multiprocessor) for sums of so many tiles of k: of short ones blocks run side by side.

    While one of them stores its results, the copies and products of the others go on.

    others   registers of a thread that what follows the sums needs beside them
    rounds   tiles that a multiprocessor computes
    """
    rows, columns, groups = tile
    tile_bytes = (rows + columns) * ROW_BYTES
    # blocks that go through tiles copy those of the next one ahead
    stages = min(8, (gpu.max_shared_memory_per_block - BARRIER_BYTES) // tile_bytes, max(2, steps * min(rounds, 2)))
    if steps > SHORT_STEPS:
        return stages, 1
    threads, fewest = GROUP_THREADS * groups + 32, min(steps, 2) * tile_bytes + BARRIER_BYTES
    registers = rows * columns // (GROUP_THREADS * groups) + max(FEWEST_REGISTERS, others)
    fitting = gpu.blocks_per_sm(threads, min(registers, gpu.max_registers_per_thread), fewest)
    resident = max(1, min(fitting, rounds, MOST_RESIDENT))
    share = gpu.shared_per_sm // resident - gpu.reserved_shared - BARRIER_BYTES
    return min(stages, max(2, share // tile_bytes)), resident


def _bytes(anchor: Anchor) -> int:
    """Of both operands and the result."""
    batch, m, n = (anchor.sizes[s] for s in ("batch", "M", "N"))
    operands: Operands = anchor.details[0]
    rows, columns = (math.prod(x.buffer.const_shape()) for x in (operands.rows, operands.columns))
    return (rows + columns) * anchor.sizes["bytes"] + batch * m * n * anchor.sizes["out_bytes"]


def _turning(buffer: Buffer) -> MatrixPack:
    """How a matrix [k, n] becomes one [1, n, k]."""
    k, n = buffer.const_shape()
    return MatrixPack((k, n), (k, n), (1, 0), (1, n, k), n, k)


def _turned(func: PrimFunc, natural: Buffer) -> PrimFunc:
    """The function that reads an argument [k, n] as [1, n, k]."""
    k, n = natural.shape
    packed = Buffer("packed", (IntImm(1, n.dtype), n, k), natural.dtype)

    def step(x: object) -> object:
        if isinstance(x, BufferLoad) and x.buffer is natural:
            return BufferLoad(packed, (IntImm(0, x.indices[0].dtype), x.indices[1], x.indices[0]))
        if isinstance(x, BufferRegion) and x.buffer is natural:
            first = Range(IntImm(0, n.dtype), IntImm(1, n.dtype))
            return BufferRegion(packed, (first, x.region[1], x.region[0]))
        return x

    buffers = {p: packed if b is natural else b for p, b in func.buffer_map.items()}
    return replace(func, buffer_map=FrozenDict(buffers), body=rewrite(func.body, step))


def _schedule(
    sch: Schedule, anchor: Anchor, operands: Operands, out: str, config: Config, blocks: int
) -> None:  # fmt: skip
    """Give tiles to blocks: `blocks` of them, or clusters, go through all; 0: each has one."""
    block = anchor.block
    *batch, m, n = sch.get_loops(out)
    below, beside = config.get("cluster_rows", 1), config.get("cluster_columns", 1)
    m_tile, m_block, warpgroup, m_in = sch.split(m, [None, below, config["groups"], config["rows"] // config["groups"]])
    n_tile, n_block, n_in = sch.split(n, [None, beside, config["columns"]])
    sch.reorder(*batch, m_tile, n_tile, m_block, n_block, warpgroup, m_in, n_in)
    if blocks:
        turn_tiles(sch, m_tile, n_tile, config["group"], blocks, batch)
    else:
        if batch:
            sch.bind(fused(sch, batch, out), BLOCK_Z)
        bind_tiles(sch, m_tile, n_tile, config["group"])
    sch.bind(m_block, CLUSTER_Y)
    sch.bind(n_block, CLUSTER_X)
    sch.bind(warpgroup, THREAD_Y)
    sch.compute_at(block, warpgroup, True)
    *_, m_in, n_in, k = sch.get_loops(block)
    k_tile, k_in = sch.split(k, [None, config["lines"] * ROW_BYTES // anchor.sizes["bytes"]])
    sch.reorder(k_tile, m_in, n_in, k_in)
    for operand in (operands.rows, operands.columns):
        copy = sch.cache_read(block, read_index(sch, block, operand.buffer.name), "shared")
        sch.compute_at(copy, k_tile, True)
    sch.annotate(k_tile, "warp_specialized_stages", config["stages"])

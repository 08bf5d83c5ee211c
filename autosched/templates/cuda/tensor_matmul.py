"""Matrix products on tensor cores: out[…, m, n] += a[…, m, k] * b[…, k, n] of 16-bit floats or 8-bit integers,
and of float32 rounded to tf32 where a model allows it.

for batch in blockIdx.z, m tile in blockIdx.y, n tile in blockIdx.x:
    for k tile:                                                    # copies run `stages` - 1 tiles ahead
        a_shared, b_shared = a[m tile, k tile], b[k tile, n tile]  # asynchronously, by all threads of the block
        for k step: acc += fragment of a_shared * fragment of b_shared            # a part of the tile for each warp
    out[m tile, n tile] = epilogue(acc)
"""

from __future__ import annotations

import math

from autosched.space import Config, ConfigSpace
from autosched.target import Target
from autosched.templates.base import Anchor, Applied
from autosched.templates.chain import chain_around, schedule_epilogue
from autosched.templates.classify import find_contraction, reduced, spatial
from autosched.templates.cuda.core_tiles import L2_BYTES_PER_CYCLE
from autosched.templates.cuda.last_wave import (
    KNOB,
    MEMORY_LATENCY,
    best_parts,
    share_last_wave,
    with_wide_sums,
)
from autosched.templates.cuda.spaces import device_space
from autosched.templates.cuda.threads import (
    BLOCK_Z,
    MOST_GRID_YZ,
    THREAD_X,
    THREAD_Y,
    THREAD_Z,
    VECTOR_BYTES,
    bind_tiles,
    fused,
    group_of_tiles,
    read_index,
)
from autosched.templates.product import Operands, find_operands
from autosched.templates.tf32 import allows_tf32
from autosched.tir import PrimFunc, as_int
from autosched.tir.dtypes import item_bytes
from autosched.tir.schedule import Schedule

STEPS = {"float16": 16, "bfloat16": 16, "int8": 32, "float32": 8}  # k of one instruction
LEAST_CAPABILITY = (8, 0)
LEAST_STEP = 16  # of the space
LEAST_ROWS = 16  # of an instruction: `tensor_contraction` has fewer


class TensorMatmul:
    """Dense layers and batched products of small types."""

    name = "tensor_matmul"

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        c = find_contraction(func)
        if c is None or target.gpu.compute_capability < LEAST_CAPABILITY or not (operands := find_operands(func, c)):
            return None
        rows, columns = operands.rows, operands.columns
        dtype = rows.buffer.dtype
        chain = chain_around(func, c.block)
        if chain is None or chain.before or not takes(func, dtype) or columns.buffer.dtype != dtype:
            return None
        (k_axis,) = reduced(c.block)
        *batch, m, n = (as_int(iv.dom.extent) for iv in spatial(c.block))
        m_var, n_var = (iv.var for iv in spatial(c.block)[-2:])
        batches, k = math.prod(batch), as_int(k_axis.dom.extent)
        if k % max(STEPS[dtype], LEAST_STEP) or m < LEAST_ROWS or n < 8 or batches > MOST_GRID_YZ or m > MOST_GRID_YZ:
            return None
        if rows.indices[-1] is not k_axis.var or rows.indices[-2] is not m_var:
            return None
        last = columns.indices[-2:]
        if not ((last[0] is k_axis.var and last[1] is n_var) or (last[0] is n_var and last[1] is k_axis.var)):
            return None
        sizes = {"batch": batches, "M": m, "N": n, "K": k, "bytes": item_bytes(dtype), "instruction": STEPS[dtype]}
        return Anchor(c.block.name_hint, "matmul", sizes, (operands, chain))

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        return device_space(self, anchor, target)

    def default(self, anchor: Anchor, target: Target) -> Config:
        """The largest tile that still gives every SM work; small products get small tiles.

        What is left for an incomplete last wave is computed in parts where that is expected to be done earlier.
        """
        batch, m, n, k = (anchor.sizes[s] for s in ("batch", "M", "N", "K"))
        best = (32, 32, 2, 2)
        large = ((128, 256, 2, 4), (128, 128, 2, 2)) if anchor.sizes["bytes"] < 4 else ((128, 128, 2, 4),)
        for rows, columns, warps_m, warps_n in (*large, (64, 128, 2, 2), (64, 64, 2, 2), (32, 64, 2, 2)):
            tiles = batch * -(-m // rows) * -(-n // columns)
            if rows < 2 * m and columns < 2 * n and tiles >= target.gpu.sm_count:
                best = (rows, columns, warps_m, warps_n)
                break
        rows, columns, warps_m, warps_n = best
        while warps_m > 1 and rows // warps_m * (warps_m - 1) >= m:
            warps_m //= 2
        while warps_n > 1 and columns // warps_n * (warps_n - 1) >= n:
            warps_n //= 2
        while warps_m == 1 and rows > m and m % 16:
            rows //= 2
        while warps_n == 1 and columns > n and n % 8:
            columns, warps_n = (columns // 2, 1) if columns > 16 else (16, 2)
        step = next(
            s for s in _default_steps(anchor.sizes["bytes"]) if k % s == 0 and s % anchor.sizes["instruction"] == 0
        )
        stages = min(4, max(2, k // step))
        tile_bytes = (rows + columns) * step * anchor.sizes["bytes"]
        while stages > 2 and stages * tile_bytes > target.gpu.max_shared_memory_per_block // 2:
            stages -= 1
        knobs = {"rows": rows, "columns": columns, "warps_m": warps_m, "warps_n": warps_n}
        group = group_of_tiles(-(-m // rows))
        knobs |= {"step": step, "stages": stages, "swizzle": 1, "group": group}
        item, gpu = anchor.sizes["bytes"], target.gpu
        rate = gpu.rates[anchor.details[0].rows.buffer.dtype.replace("float32", "tfloat32")]
        cycles = k * max(rows * columns / rate, (rows + columns) * item / L2_BYTES_PER_CYCLE)
        tiles = batch * -(-m // rows) * -(-n // columns)
        parts, _ = best_parts(tiles, gpu.sm_count, cycles, MEMORY_LATENCY, rows * columns, k // step, gpu)
        return Config(self.name, {**knobs, KNOB: parts})

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        anchor = self.match(func, target)
        assert anchor is not None, "apply is called on a function that matched"
        func = with_wide_sums(func, anchor.details[1].anchor) if config.get(KNOB, 1) > 1 else func
        anchor = self.match(func, target)
        assert anchor is not None, "sums in float32 match as well"
        operands, chain = anchor.details
        sch = Schedule(func)
        out = schedule_epilogue(sch, chain)
        sch.set_scope(anchor.block, 0, "wmma.accumulator")
        _schedule(sch, anchor, operands, out, config)
        made = share_last_wave(sch.func, func, anchor.block, out, config, target.gpu.sm_count)
        return Applied(made, (None,) * len(func.params), sch.trace.to_json_text())


def takes(func: PrimFunc, dtype: str) -> bool:
    """Whether tensor cores multiply elements of a type: float32 only where a model allows it to be rounded."""
    return dtype in STEPS and (dtype != "float32" or allows_tf32(func))


def _default_steps(item: int) -> tuple[int, ...]:
    """Terms of a step: those of 128 bytes, else fewer."""
    return (64, 32, 16) if item < 4 else (32, 16)


def _schedule(sch: Schedule, anchor: Anchor, operands: Operands, out: str, config: Config) -> None:
    block, warps = anchor.block, (config["warps_m"], config["warps_n"])
    *batch, m, n = sch.get_loops(out)
    m_tile, m_warp, m_in = sch.split(m, [None, warps[0], config["rows"] // warps[0]])
    n_tile, n_warp, n_in = sch.split(n, [None, warps[1], config["columns"] // warps[1]])
    sch.reorder(*batch, m_tile, n_tile, m_warp, n_warp, m_in, n_in)
    if batch:
        sch.bind(fused(sch, batch, out), BLOCK_Z)
    bind_tiles(sch, m_tile, n_tile, config["group"])
    sch.bind(m_warp, THREAD_Z)
    sch.bind(n_warp, THREAD_Y)
    sch.compute_at(block, n_warp, True)
    *_, m_in, n_in, k = sch.get_loops(block)
    instruction = anchor.sizes["instruction"]
    k_tile, k_step, k_in = sch.split(k, [None, config["step"] // instruction, instruction])
    sch.reorder(k_tile, k_step, m_in, n_in, k_in)
    item = anchor.sizes["bytes"]
    vector, turned = VECTOR_BYTES // item, operands.columns.indices[-1] is reduced(anchor.details[1].anchor)[0].var
    for operand, scope in ((operands.rows, "wmma.matrix_a"), (operands.columns, "wmma.matrix_b")):
        fragment = sch.cache_read(block, read_index(sch, block, operand.buffer.name), scope)
        sch.compute_at(fragment, k_step, True)
        copy = sch.cache_read(fragment, 0, "shared")
        sch.compute_at(copy, k_tile, True)
        if operand is operands.columns and item == 4 and not turned:  # its words are loaded one by one
            sch.storage_align(copy, 0, operand.buffer.ndim - 2, 32, 8)
        elif config["swizzle"]:
            sch.storage_swizzle(copy, 0)
        else:  # rows an odd number of 16 bytes apart: eight of them lie in different banks
            sch.storage_align(copy, 0, operand.buffer.ndim - 2, 2 * vector, vector)
        flat = sch.fuse(*sch.get_loops(copy)[-2:])
        _, z, y, x, lanes = sch.split(flat, [None, *warps, 32, vector])
        for loop, axis in ((z, THREAD_Z), (y, THREAD_Y), (x, THREAD_X)):
            sch.bind(loop, axis)
        sch.vectorize(lanes)
    if config["stages"] > 1:
        sch.annotate(k_tile, "software_pipeline_stage", [0, 0, config["stages"] - 1])
        sch.annotate(k_tile, "software_pipeline_order", [0, 1, 2])
        sch.annotate(k_tile, "software_pipeline_async_stages", [0])

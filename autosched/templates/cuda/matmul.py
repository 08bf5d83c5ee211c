"""Matrix products on the cores of an SM: out[…, m, n] += a[…, m, k] * b[…, k, n].

for batch in blockIdx.z, m tile in blockIdx.y, n tile in blockIdx.x:
    for k tile: acc += a[m tile, k tile] * b[k tile, n tile]       # through shared memory, see core_tiles.py
    out[m tile, n tile] = epilogue(acc)
"""

from __future__ import annotations

import math

from autosched.space import Config, ConfigSpace
from autosched.target import Target
from autosched.templates.base import Anchor, Applied
from autosched.templates.chain import Chain, chain_around, schedule_epilogue
from autosched.templates.classify import find_contraction, reduced, spatial
from autosched.templates.cuda.core_tiles import (
    GROUP,
    TURN,
    Cut,
    SharedCopy,
    bind_results,
    copies_itself,
    default_pipeline,
    default_tile,
    reads_along,
    split_terms,
    stage_operands,
    tile_cycles,
)
from autosched.templates.cuda.last_wave import KNOB, MEMORY_LATENCY, best_parts, share_last_wave, with_wide_sums
from autosched.templates.cuda.spaces import device_space
from autosched.templates.cuda.threads import MOST_GRID_YZ, VECTOR_BYTES, read_index
from autosched.templates.product import Operands, find_operands
from autosched.tir import PrimFunc, as_int
from autosched.tir.dtypes import item_bytes
from autosched.tir.schedule import Schedule

LEAST_ROWS = 2  # products of one row are reductions of vectors


class Matmul:
    """Dense layers and batched products in tiles of shared memory and registers."""

    name = "matmul"
    version: int = 2

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        c = find_contraction(func)
        if c is None or not (operands := find_operands(func, c)):
            return None
        chain = chain_around(func, c.block)
        if chain is None or chain.before:
            return None
        *batch, m, n = (as_int(iv.dom.extent) for iv in spatial(c.block))
        batches, k = math.prod(batch), as_int(reduced(c.block)[0].dom.extent)
        if m < LEAST_ROWS or batches > MOST_GRID_YZ or m > MOST_GRID_YZ:
            return None
        item = item_bytes(operands.rows.buffer.dtype)
        return Anchor(
            c.block.name_hint, "matmul", {"batch": batches, "M": m, "N": n, "K": k, "bytes": item}, (operands, chain)
        )

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        return device_space(self, anchor, target, asynchronous=copies_itself(anchor.sizes, target.gpu))

    def default(self, anchor: Anchor, target: Target) -> Config:
        s, gpu = anchor.sizes, target.gpu
        tile = default_tile(s, gpu)
        knobs = dict(zip(("rows", "columns", "per_row", "per_column"), tile, strict=True))
        knobs |= {**default_pipeline(s, tile, gpu, s["K"]), TURN: 1, "group": 1}
        count = s["batch"] * -(-s["M"] // tile[0]) * -(-s["N"] // tile[1])
        cycles = tile_cycles(s, gpu, Cut(tile)) / -(-count // gpu.sm_count)
        steps = 0 if s["K"] % knobs["step"] else s["K"] // knobs["step"]
        parts, _ = best_parts(count, gpu.sm_count, cycles, MEMORY_LATENCY, tile[0] * tile[1], steps, gpu)
        return Config(self.name, {**knobs, KNOB: parts})

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        anchor = self.match(func, target)
        assert anchor is not None, "apply is called on a function that matched"
        func = with_wide_sums(func, anchor.details[1].anchor) if config.get(KNOB, 1) > 1 else func
        anchor = self.match(func, target)
        assert anchor is not None, "sums in float32 match as well"
        operands, chain = anchor.details
        sch = Schedule(func)
        out = schedule_tiled(sch, chain, operands, config)
        made = share_last_wave(sch.func, func, anchor.block, out, config, target.gpu.sm_count)
        return Applied(made, (None,) * len(func.params), sch.trace.to_json_text())


def schedule_tiled(sch: Schedule, chain: Chain, operands: Operands, config: Config) -> str:
    """Blocks of threads over tiles of the result, register tiles for threads, both operands through shared memory.

    Gives the block that writes the result.
    """
    k_axis, item = reduced(chain.anchor)[0].var, item_bytes(operands.rows.buffer.dtype)
    is_along = operands.rows.indices[-1] is k_axis and as_int(operands.rows.buffer.shape[-1]) % GROUP == 0
    if not is_along or config["step"] % GROUP:
        config = Config(config.template, {**config.knobs, TURN: 1})
    out, anchor = schedule_epilogue(sch, chain), chain.anchor.name_hint
    sch.compute_at(anchor, bind_results(sch, out, config), True)
    at = split_terms(sch, anchor, config)
    copies = []
    for operand, per_thread in ((operands.rows, "per_row"), (operands.columns, "per_column")):
        copy = sch.cache_read(anchor, read_index(sch, anchor, operand.buffer.name), "shared")
        turned = operand.indices[-1] is k_axis  # threads read along the other axis
        along = operand is operands.rows and reads_along(config)
        row = as_int(operand.buffer.shape[-1])
        vector = 1 if turned and not along else math.gcd(VECTOR_BYTES // item, row)
        copies.append(SharedCopy(copy, math.gcd(config[per_thread], GROUP), vector, turned and not along, along))
    stage_operands(sch, anchor, copies, at, config, item)
    return out

"""Matrix products on the cores of an SM: out[…, m, n] += a[…, m, k] * b[…, k, n].

    for batch in blockIdx.z, m tile in blockIdx.y, n tile in blockIdx.x:
        for k tile:
            a_shared, b_shared = a[m tile, k tile], b[k tile, n tile]      # copied by all threads of the block
            for k: acc[:, :] += a_shared[rows of the thread, k] * b_shared[k, columns of the thread]
        out[m tile, n tile] = epilogue(acc)

A thread's rows and columns are several groups of neighbours that lie `threads` groups apart ("vthread"), so that the
threads of a warp read shared memory side by side.
"""

from __future__ import annotations

import math

from autosched.space import Config, ConfigSpace, load_space
from autosched.target import Target
from autosched.templates.base import Anchor, Applied
from autosched.templates.chain import Chain, chain_around, schedule_epilogue
from autosched.templates.classify import find_contraction, reduced, spatial
from autosched.templates.cuda.threads import (
    BLOCK_X,
    BLOCK_Y,
    BLOCK_Z,
    MOST_GRID_YZ,
    THREAD_X,
    THREAD_Y,
    VECTOR_BYTES,
    VTHREAD_X,
    VTHREAD_Y,
    copy_together,
    fused,
    read_index,
)
from autosched.templates.product import Operands, find_operands
from autosched.tir import PrimFunc, as_int
from autosched.tir.dtypes import item_bytes
from autosched.tir.schedule import Schedule

BANKS = 32  # of shared memory, four bytes wide
GROUP = 4  # neighbours that a thread takes at once
LEAST_ROWS = 2  # products of one row are reductions of vectors


class Matmul:
    """Dense layers and batched products in tiles of shared memory and registers."""

    name = "matmul"

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
        gpu = target.gpu
        values = {**anchor.sizes, "warp": gpu.warp_size, "most_threads": gpu.max_threads_per_block}
        values["shared_bytes"] = gpu.max_shared_memory_per_block
        return load_space("cuda", self.name, values).with_default(self.default(anchor, target))

    def default(self, anchor: Anchor, target: Target) -> Config:
        """The largest tile that still gives every SM work; small products get small tiles."""
        batch, m, n, k = (anchor.sizes[s] for s in ("batch", "M", "N", "K"))
        best = (16, 16, 2, 2)
        for rows, columns, per_row, per_column in (
            (128, 128, 8, 8), (64, 128, 8, 8), (64, 64, 4, 8), (32, 64, 4, 4), (32, 32, 4, 4), (16, 32, 2, 4),
        ):  # fmt: skip
            tiles = batch * -(-m // rows) * -(-n // columns)
            fits = rows < 2 * m and columns < 2 * n
            if fits and tiles >= target.gpu.sm_count:
                best = (rows, columns, per_row, per_column)
                break
        rows, columns, per_row, per_column = best
        step = 16 if k >= 16 else 8
        knobs = {"rows": rows, "columns": columns, "per_row": per_row, "per_column": per_column, "step": step}
        return Config(self.name, knobs)

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        anchor = self.match(func, target)
        assert anchor is not None, "apply is called on a function that matched"
        operands, chain = anchor.details
        sch = Schedule(func)
        schedule_tiled(sch, chain, operands, config)
        return Applied(sch.func, (None,) * len(func.params), sch.trace.to_json_text())


def schedule_tiled(sch: Schedule, chain: Chain, operands: Operands, config: Config) -> None:
    """Blocks of threads over tiles of the result, register tiles for threads, both operands through shared memory."""
    out = schedule_epilogue(sch, chain)
    *batch, m, n = sch.get_loops(out)
    threads_m, threads_n = config["rows"] // config["per_row"], config["columns"] // config["per_column"]
    group_m, group_n = math.gcd(config["per_row"], GROUP), math.gcd(config["per_column"], GROUP)
    m_tile, m_far, m_thread, m_near = sch.split(m, [None, config["per_row"] // group_m, threads_m, group_m])
    n_tile, n_far, n_thread, n_near = sch.split(n, [None, config["per_column"] // group_n, threads_n, group_n])
    sch.reorder(*batch, m_tile, n_tile, m_far, n_far, m_thread, n_thread, m_near, n_near)
    if batch:
        sch.bind(fused(sch, batch, out), BLOCK_Z)
    for loop, axis in (
        (m_tile, BLOCK_Y), (n_tile, BLOCK_X), (m_far, VTHREAD_Y), (n_far, VTHREAD_X), (m_thread, THREAD_Y),
        (n_thread, THREAD_X),
    ):  # fmt: skip
        sch.bind(loop, axis)
    sch.unroll(m_near)
    sch.vectorize(n_near)
    anchor = chain.anchor.name_hint
    sch.compute_at(anchor, n_thread, True)
    *_, m_in, n_in, k = sch.get_loops(anchor)
    k_tile, k_in = sch.split(k, [None, config["step"]])
    sch.reorder(k_tile, k_in, m_in, n_in)
    sch.unroll(m_in)
    sch.unroll(n_in)
    k_axis = reduced(chain.anchor)[0].var
    for operand, width in ((operands.rows, group_m), (operands.columns, group_n)):
        copy = sch.cache_read(anchor, read_index(sch, anchor, operand.buffer.name), "shared")
        if operand.indices[-1] is k_axis:  # threads read along the other axis: it becomes the innermost
            sch.transform_layout(copy, ("write", 0), lambda *i: (*i[:-2], i[-1], i[-2]))
            slowest = len(operand.indices) - 2
            sch.storage_align(copy, 0, slowest, BANKS, VECTOR_BYTES // item_bytes(operand.buffer.dtype))
        tile = sch.get(copy).writes[0].buffer.name
        fragment = sch.cache_read(anchor, read_index(sch, anchor, tile), "local")
        sch.compute_at(fragment, k_in, True)
        if width > 1:
            sch.vectorize(sch.get_loops(fragment)[-1])
        sch.compute_at(copy, k_tile, True)
        copy_together(sch, copy, 2, (1, threads_m, threads_n))

"""Reductions over windows, vectorised along the innermost output axis: depthwise convolution, pooling, LRN.

    for (outer axes) in parallel:
        for tile of the axis before the innermost:
            tile[pixels, lanes] = start                    # stays in registers
            for the window: tile = combine(tile, data[…])
            out = epilogue(tile)

A convolution in plain NCHW is scheduled this way as well where its channels cannot be blocked.
"""

from __future__ import annotations

from dataclasses import dataclass

from autosched.ir.node import preorder
from autosched.space import Config, ConfigSpace, load_space
from autosched.target import Target
from autosched.templates.base import Anchor, Applied
from autosched.templates.chain import Chain, chain_around, schedule_epilogue
from autosched.templates.classify import (
    blocks_of,
    contraction,
    extents,
    is_injective,
    is_parameter,
    is_reduction,
    reduced,
    spatial,
)  # fmt: skip
from autosched.templates.cpu.padding import inline_before, schedule_before
from autosched.templates.cpu.task_order import rows_first
from autosched.templates.pack import Pack, packed_params, repack
from autosched.tir import Block, BufferLoad, BufferStore, Call, PrimFunc
from autosched.tir.functor import free_vars, loads
from autosched.tir.schedule import Schedule

MAX_UNROLLED = 25  # window elements unrolled by default: a 5x5 window


@dataclass(frozen=True)
class Window:
    """The chain around the reduction, and the depthwise weight, natural [C, 1, KH, KW], where there is one."""

    chain: Chain
    weight: BufferLoad | None


def _reads_along(block: Block) -> bool:
    """Whether the innermost output axis runs along the last dimension of something that is read."""
    last = spatial(block)[-1].var
    assert isinstance(block.body, BufferStore)
    own = block.body.buffer
    return any(last in free_vars(x.indices[-1]) for x in loads(block.body.value) if x.buffer is not own)


def _is_windowed(block: Block) -> bool:
    """Whether a contraction is a depthwise or a plain NCHW convolution; others have templates of their own."""
    return len(reduced(block)) >= 2 and (len(spatial(block)) == 4 or len(reduced(block)) == 2)


def _depthwise_weight(func: PrimFunc, block: Block) -> BufferLoad | None:
    c = contraction(block)
    if c is None or len(spatial(block)) != 5:
        return None
    lanes = spatial(block)[4].var
    for load in (c.a, c.b):
        if len(load.indices) == 4 and lanes in free_vars(load.indices[0]) and is_parameter(func, load):
            return load
    return None


def _may_inline(chain: Chain) -> bool:
    """Whether what stands before is copied nowhere, or picks elements by conditions that are the same in all lanes."""
    block, lane = chain.anchor, spatial(chain.anchor)[-1].var
    if not chain.before:
        return True
    if not all(is_injective(b) for b in chain.before) or not isinstance(block.body, BufferStore):
        return False
    made = {id(b.writes[0].buffer) for b in chain.before}
    reads = [x for x in loads(block.body.value) if id(x.buffer) in made]
    if any(x.indices[-1] is not lane or any(lane in free_vars(i) for i in x.indices[:-1]) for x in reads):
        return False
    conditions = (
        (x.args[0], b.iter_vars[-1].var)
        for b in chain.before
        for x in preorder(b.body)
        if isinstance(x, Call) and x.op == "if_then_else"
    )
    return not any(v in free_vars(condition) for condition, v in conditions)


class WindowReduction:
    """Depthwise convolution, pooling and other reductions beside the innermost axis."""

    name = "window"

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        reductions = [b for b in blocks_of(func) if is_reduction(b)]
        if len(reductions) != 1 or not isinstance(reductions[0].body, BufferStore):
            return None
        block = reductions[0]
        if len(spatial(block)) < 2 or not _reads_along(block):
            return None
        chain = chain_around(func, block)
        if chain is None:
            return None
        if contraction(block) is not None and not _is_windowed(block):
            return None
        weight = _depthwise_weight(func, block)
        out, window = extents(spatial(block)), extents(reduced(block))
        size = 1
        for extent in window:
            size *= extent
        sizes = {"inner": out[-1], "row": out[-2], "window": size, "last_window": window[-1]}
        sizes |= {"copied": int(bool(chain.before)), "may_inline": int(_may_inline(chain))}
        op = "depthwise_conv2d" if weight is not None else "conv2d" if contraction(block) else "window"
        return Anchor(block.name_hint, op, sizes, Window(chain, weight))

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        values = {**anchor.sizes, "lanes": target.lanes("float32"), "registers": target.num_registers}
        space = load_space(target.backend, self.name, values)
        return space.with_default(self.default(anchor, target))

    def default(self, anchor: Anchor, target: Target) -> Config:
        s, lanes = anchor.sizes, target.lanes("float32")
        width = min(s["inner"], 2 * lanes)
        vectors = -(-width // lanes)
        pixels = max(1, min(s["row"], 8 // vectors))
        unroll = 2 if s["window"] <= MAX_UNROLLED else 1 if s["last_window"] <= 8 else 0
        if anchor.details.weight is not None and (s["window"] + pixels) * vectors >= target.num_registers:
            unroll = min(unroll, 1)  # the weights of the whole window would push the tile out of the registers
        padding = "inline" if s["may_inline"] else "copy"
        return Config(self.name, {"pixels": pixels, "width": width, "unroll": unroll, "padding": padding})

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        anchor = self.match(func, target)
        assert anchor is not None, "apply is called on a function that matched"
        window: Window = anchor.details
        packs: tuple[Pack | None, ...] = (None,) * len(func.params)
        if window.weight is not None:
            buffer = window.weight.buffer
            block = extents(spatial(window.chain.anchor))[-1]
            pack = Pack(buffer.const_shape(), (block, 0, 0, 0), (0, 2, 3, 4, 1))
            packs, func = packed_params(func, buffer, pack), repack(func, buffer, pack)
        sch = Schedule(func)
        padding = config["padding"]
        if padding == "inline":
            inline_before(sch, window.chain)
        elif padding == "copy":
            schedule_before(sch, window.chain)
        out = schedule_epilogue(sch, window.chain)
        *outer, pixels, inner = rows_first(sch, sch.get_loops(out))
        inner_tile, inner_in = sch.split(inner, [None, config["width"]])
        pixel_tile, pixel_in = sch.split(pixels, [None, config["pixels"]])
        sch.reorder(*outer, pixel_tile, inner_tile, pixel_in, inner_in)
        task = sch.fuse(*outer) if len(outer) > 1 else outer[0] if outer else pixel_tile
        sch.parallel(task)
        sch.unroll(pixel_in)
        sch.vectorize(inner_in)
        name = window.chain.anchor.name_hint
        sch.compute_at(name, inner_tile, True)
        if padding == "task":
            schedule_before(sch, window.chain, task)
        count = len(reduced(window.chain.anchor))
        loops = sch.get_loops(name)
        *_, pixel_in, inner_in = loops[:-count]
        steps = list(loops[-count:])
        for loop in steps[-config["unroll"] :] if config["unroll"] else []:
            sch.unroll(loop)
        sch.reorder(*steps, pixel_in, inner_in)
        sch.unroll(pixel_in)
        sch.vectorize(inner_in)
        sch.decompose_reduction(name, steps[0])
        return Applied(sch.func, packs, sch.trace.to_json_text())

"""Convolutions over symbols in place of their numbers of channels: layers of several widths have one kernel then.

for n, ob, y, x, v in grid(n, 16, h, w, 16): …               16 blocks of output channels
-> for n, ob, y, x, v in grid(n, out_chunks * 2, h, w, 16): …     in chunks of two blocks
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from autosched.ir.node import FrozenDict, Node, children
from autosched.templates.chain import Chain
from autosched.templates.classify import extents, reduced, spatial
from autosched.templates.cpu.conv_blocks import SizedConv
from autosched.tir import Block, Buffer, BufferLoad, BufferStore, PrimExpr, PrimFunc
from autosched.tir import expr as E
from autosched.tir.axis import IterVar, Range
from autosched.tir.expr import SizeVar, Var, const_int
from autosched.tir.functor import free_vars, rewrite
from autosched.tir.simplify import Analyzer

BLOCKED = 4  # axes of sums over blocks of channels: block, row, column, lane
INPUTS, OUTPUTS = SizeVar("in_chunks", "int64"), SizeVar("out_chunks", "int64")


def open_channels(func: PrimFunc, conv: SizedConv, inputs: int, outputs: int) -> tuple[PrimFunc, SizedConv] | None:
    """The function and its convolution over so many chunks of channels; None where their number cannot be left open.

    inputs, outputs   blocks of channels in a chunk; inputs count where all of them are added up
    """
    chain, weight = conv.chain, conv.weight.buffer
    blocks, steps = (*chain.before, chain.anchor, *chain.after), reduced(chain.anchor)
    symbols = channels_of((chain.anchor, *chain.after), OUTPUTS) | channels_of(chain.before, INPUTS)
    if len(steps) == BLOCKED:
        symbols[steps[0].var] = INPUTS
    step = opening(blocks, {weight: chain.anchor}, symbols, inputs, outputs)
    if step is None:
        return None
    made = {old: rewrite(old, step) for old in blocks}
    opened = Chain(tuple(made[b] for b in chain.before), made[chain.anchor], tuple(made[b] for b in chain.after))
    return opened_func(func, step), SizedConv(rewrite(conv.weight, step), rewrite(conv.data, step), opened)


def channels_of(blocks: Iterable[Block], symbol: Var) -> dict[Var, Var]:
    """The axes of blocks that go along channels, whose number a symbol is to tell."""
    return {spatial(block)[1].var: symbol for block in blocks}


def opened_func(func: PrimFunc, step: Callable[[object], object]) -> PrimFunc:
    """A function whose buffers and axes are over symbols."""
    buffer_map = FrozenDict({p: step(b) for p, b in func.buffer_map.items()})
    return replace(func, buffer_map=buffer_map, body=rewrite(func.body, step))


def opening(
    blocks: Sequence[Block], weights: Mapping[Buffer, Block], symbols: Mapping[Var, Var], inputs: int, outputs: int
) -> Callable[[object], object] | None:  # fmt: skip
    """What makes buffers and axes ones over symbols, for `rewrite`; None where a number cannot be left open.

    weights   to be packed, and the convolution that each is of
    symbols   of the axes that go along channels
    Where an argument is read as what is convolved and as what is added, both numbers are one symbol.
    """
    numbers = {iv.var: extents((iv,))[0] for block in blocks for iv in block.iter_vars if iv.var in symbols}
    counted = [c for block in blocks for c in _counted(block, weights, symbols, numbers)]
    if None in counted:
        return None
    known = dict(c for c in counted if c is not None)
    if any(symbols[axis] is not symbols[known[dim][0]] for dim, (axis, _) in (c for c in counted if c is not None)):
        symbols, inputs = dict.fromkeys(symbols, INPUTS), math.lcm(inputs, outputs)
    per_chunk: dict[Var, int] = {INPUTS: inputs, OUTPUTS: outputs}
    if any(len({numbers[v] for v in symbols if symbols[v] is s}) != 1 for s in symbols.values()):
        return None
    if any(n % per_chunk[symbols[v]] for v, n in numbers.items()):
        return None
    sizes: dict[Var, PrimExpr] = {v: E.mul(symbol, per_chunk[symbol]) for v, symbol in symbols.items()}
    shapes = {buffer: list(buffer.shape) for buffer, _ in known}
    for (buffer, d), (axis, scale) in known.items():
        shapes[buffer][d] = E.mul(sizes[axis], scale)
    for weight, anchor in weights.items():
        (_, channels, *_, lane), steps = spatial(anchor), reduced(anchor)
        shapes[weight] = [E.mul(sizes[channels.var], extents((lane,))[0]), *weight.shape[1:]]
        if len(steps) == BLOCKED:
            shapes[weight][1] = E.mul(sizes[steps[0].var], extents(steps)[3])
    buffers = {buffer: replace(buffer, shape=tuple(shape)) for buffer, shape in shapes.items()}

    def step(x: object) -> object:
        if isinstance(x, Buffer):
            return buffers.get(x, x)
        return replace(x, dom=Range(x.dom.min, sizes[x.var])) if isinstance(x, IterVar) and x.var in sizes else x

    return step


def _counted(
    block: Block, weights: Collection[Buffer], axes: Mapping[Var, Var], numbers: Mapping[Var, int]
) -> Iterator[tuple[tuple[Buffer, int], tuple[Var, int]] | None]:
    """The dimensions that count channels: by which axis, and how many elements belong to a step of it.

    None for each use of an axis that is something else; weights are packed, whatever their shape is.
    """
    stack: list[Node] = [block.body, *([] if block.init is None else [block.init])]
    while stack:
        top = stack.pop()
        if isinstance(top, Var) and top in axes:
            yield None
        if not isinstance(top, BufferLoad | BufferStore):
            stack += children(top)
            continue
        if isinstance(top, BufferStore):
            stack.append(top.value)
        for d, index in enumerate(top.indices if top.buffer not in weights else ()):
            for axis in free_vars(index) & axes.keys():
                terms = Analyzer().linear(index).terms.values()
                scale = next((scale for scale, atom in terms if atom is axis and scale > 0), 0)
                is_whole = const_int(top.buffer.shape[d]) == scale * numbers[axis]
                yield ((top.buffer, d), (axis, scale)) if is_whole else None

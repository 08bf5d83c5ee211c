"""Convolutions over symbols in place of their numbers of channels: layers of several widths have one kernel then.

for n, ob, y, x, v in grid(n, 16, h, w, 16): …               16 blocks of output channels
-> for n, ob, y, x, v in grid(n, out_chunks * 2, h, w, 16): …     in chunks of two blocks
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
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
    Where an argument is read as what is convolved and as what is added, both numbers are one symbol.
    """
    chain, weight = conv.chain, conv.weight.buffer
    blocks = (*chain.before, chain.anchor, *chain.after)
    steps = reduced(chain.anchor)
    symbols = {spatial(chain.anchor)[1].var: OUTPUTS, **({steps[0].var: INPUTS} if len(steps) == BLOCKED else {})}
    symbols |= {spatial(block)[1].var: INPUTS for block in chain.before}
    symbols |= {spatial(block)[1].var: OUTPUTS for block in chain.after}
    numbers = {iv.var: extents((iv,))[0] for block in blocks for iv in block.iter_vars if iv.var in symbols}
    counted = [c for block in blocks for c in _counted(block, weight, symbols, numbers)]
    if None in counted:
        return None
    known = dict(c for c in counted if c is not None)
    if any(symbols[axis] is not symbols[known[dim][0]] for dim, (axis, _) in (c for c in counted if c is not None)):
        symbols, inputs = dict.fromkeys(symbols, INPUTS), math.lcm(inputs, outputs)
    per_chunk = {INPUTS: inputs, OUTPUTS: outputs}
    if any(len({numbers[v] for v in symbols if symbols[v] is s}) != 1 for s in symbols.values()):
        return None
    if any(n % per_chunk[symbols[v]] for v, n in numbers.items()):
        return None
    sizes: dict[Var, PrimExpr] = {v: E.mul(symbol, per_chunk[symbol]) for v, symbol in symbols.items()}
    shapes = {buffer: list(buffer.shape) for buffer, _ in known}
    for (buffer, d), (axis, scale) in known.items():
        shapes[buffer][d] = E.mul(sizes[axis], scale)
    lanes, out_size = extents(spatial(chain.anchor)[4:])[0], sizes[spatial(chain.anchor)[1].var]
    shapes[weight] = [E.mul(out_size, lanes), *weight.shape[1:]]
    if len(steps) == BLOCKED:
        shapes[weight][1] = E.mul(sizes[steps[0].var], extents(steps)[3])
    buffers = {buffer: replace(buffer, shape=tuple(shape)) for buffer, shape in shapes.items()}

    def step(x: object) -> object:
        if isinstance(x, Buffer):
            return buffers.get(x, x)
        return replace(x, dom=Range(x.dom.min, sizes[x.var])) if isinstance(x, IterVar) and x.var in sizes else x

    made = {old: rewrite(old, step) for old in blocks}
    opened = Chain(tuple(made[b] for b in chain.before), made[chain.anchor], tuple(made[b] for b in chain.after))
    buffer_map = FrozenDict({p: buffers.get(b, b) for p, b in func.buffer_map.items()})
    over_symbols = replace(func, buffer_map=buffer_map, body=rewrite(func.body, step))
    return over_symbols, SizedConv(rewrite(conv.weight, step), rewrite(conv.data, step), opened)


def _counted(
    block: Block, weight: Buffer, axes: Mapping[Var, Var], numbers: Mapping[Var, int]
) -> Iterator[tuple[tuple[Buffer, int], tuple[Var, int]] | None]:
    """The dimensions that count channels: by which axis, and how many elements belong to a step of it.

    None for each use of an axis that is something else; the weight is packed, whatever its shape is.
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
        for d, index in enumerate(top.indices if top.buffer is not weight else ()):
            for axis in free_vars(index) & axes.keys():
                terms = Analyzer().linear(index).terms.values()
                scale = next((scale for scale, atom in terms if atom is axis and scale > 0), 0)
                is_whole = const_int(top.buffer.shape[d]) == scale * numbers[axis]
                yield ((top.buffer, d), (axis, scale)) if is_whole else None

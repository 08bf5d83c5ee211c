"""How large expressions become when producers are inlined: a value that is read twice is there twice.

`x + x` fourteen times in a row is one expression of 32,767 nodes. Passes that fuse or inline ask here first, and keep
a producer as a stage of its own where its consumers would become too large to compile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from autosched.ir.node import Node, children
from autosched.tir.axis import REDUCE
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import PrimExpr
from autosched.tir.functor import stores
from autosched.tir.stmt import Block

K = TypeVar("K")  # what is read: buffers, or a graph's variables

MAX_INLINED = 512  # nodes of one expression; of indices what they read alone is counted: about a second of compiling


@dataclass(frozen=True)
class ValueSize(Generic[K]):
    """An expression written out as a tree: its own nodes without indices, and how often it reads each buffer, as
    an index too.
    """

    own: int
    reads: Mapping[K, int]

    def total(self, sizes: Mapping[K, int]) -> int:
        """All nodes once each read is replaced by an expression of the size given for its buffer, 1 where none is."""
        return self.own + sum(n * sizes.get(buffer, 1) for buffer, n in self.reads.items())


def value_size(value: PrimExpr) -> ValueSize[Buffer]:
    """Measure an expression in time proportional to its distinct nodes, however often they are shared."""
    weights: Counter[int] = Counter({id(value): 1})
    own, reads = 0, Counter[Buffer]()
    for node in reversed(_children_first(value)):
        weight = weights[id(node)]
        if isinstance(node, BufferLoad):
            reads[node.buffer] += weight
            for index in node.indices:
                for buffer, n in value_size(index).reads.items():  # of positions that are data
                    reads[buffer] += n * weight
            continue
        own += weight
        for child in children(node):
            weights[id(child)] += weight
    return ValueSize(own, reads)


def _children_first(value: PrimExpr) -> list[Node]:
    """The distinct nodes of an expression, loads as leaves, each behind all that it is made of."""
    order: list[Node] = []
    done: set[int] = set()
    stack: list[Node] = [value]
    while stack:
        top = stack[-1]
        missing = [] if isinstance(top, BufferLoad) else [x for x in children(top) if id(x) not in done]
        if missing and id(top) not in done:
            stack += missing
            continue
        stack.pop()
        if id(top) not in done:
            done.add(id(top))
            order.append(top)
    return order


def inlined_size(blocks: Sequence[Block]) -> ValueSize[Buffer]:
    """The last block's value with all blocks before it inlined, in order; reductions are read as they are."""
    known: dict[Buffer, ValueSize[Buffer]] = {}
    last: ValueSize[Buffer] = ValueSize(0, {})
    for block in blocks:
        for store in stores(block.body):
            found = value_size(store.value)
            own, reads = found.own, Counter[Buffer]()
            for buffer, n in found.reads.items():
                inner = known.get(buffer, ValueSize(0, {buffer: 1}))
                own += n * inner.own
                for source, times in inner.reads.items():
                    reads[source] += n * times
            last = ValueSize(own, reads)
            if not _is_reduction(block):
                known[store.buffer] = last
    return last


def too_large_to_inline(blocks: Sequence[Block]) -> frozenset[Block]:
    """Those of `blocks`, in order, that have to stay stages so that no value gets larger than MAX_INLINED."""
    sizes: dict[Buffer, int] = {}
    writer: dict[Buffer, Block] = {}
    kept: set[Block] = set()
    for block in blocks:
        values = {store.buffer: value_size(store.value) for store in stores(block.body)}
        if any(value.total(sizes) > MAX_INLINED for value in values.values()):
            read = {buffer for value in values.values() for buffer in value.reads if buffer in writer}
            kept |= {writer[buffer] for buffer in read}
            sizes |= dict.fromkeys(read, 1)
        for buffer, value in values.items():
            sizes[buffer], writer[buffer] = 1 if _is_reduction(block) else value.total(sizes), block
    return frozenset(kept)


def _is_reduction(block: Block) -> bool:
    return any(iv.kind == REDUCE for iv in block.iter_vars)

"""How large and deep expressions become when producers are inlined: a value that is read twice is there twice.

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
from autosched.tir.expr import IntImm, PrimExpr, Var
from autosched.tir.functor import stores
from autosched.tir.stmt import Block

K = TypeVar("K")  # what is read: buffers, or a graph's variables

MAX_NESTED = 64  # levels of one expression: passes take up to five of Python's thousand frames for each
MAX_INLINED = 512  # nodes of one expression, of indices those that are data: about a second of compiling


@dataclass(frozen=True)
class ValueSize(Generic[K]):
    """An expression written out as a tree: its own nodes, with those of indices that are data alone, how often it
    reads each buffer, as an index too, and its levels.
    """

    own: int
    reads: Mapping[K, int]
    depth: int = 0

    def total(self, sizes: Mapping[K, int]) -> int:
        """All nodes once each read is replaced by an expression of the size given for its buffer, 1 where none is."""
        return self.own + sum(n * sizes.get(buffer, 1) for buffer, n in self.reads.items())

    def levels(self, depths: Mapping[K, int]) -> int:
        """At most so many levels once each read is replaced by an expression of the depth given for its buffer."""
        return self.depth + max((depths.get(buffer, 0) for buffer in self.reads), default=0)


def value_size(value: PrimExpr) -> ValueSize[Buffer]:
    """Measure an expression in time proportional to its distinct nodes, however often they are shared."""
    order = _children_first(value)
    positions = {
        id(x): [value_size(i) for i in x.indices if not isinstance(i, Var | IntImm)]  # those have no levels
        for x, _ in order
        if isinstance(x, BufferLoad)
    }
    depths: dict[int, int] = {}
    for node, below in order:
        at = positions.get(id(node))
        levels = [1 + depths[id(x)] for x in below] if at is None else [index.depth for index in at]
        depths[id(node)] = max(levels, default=0)
    weights = dict.fromkeys(depths, 0)
    weights[id(value)] = 1
    own, reads = 0, dict[Buffer, int]()
    for node, below in reversed(order):
        weight = weights[id(node)]
        if isinstance(node, BufferLoad):
            reads[node.buffer] = reads.get(node.buffer, 0) + weight
            for index in positions[id(node)]:
                if index.reads:  # a position that is data
                    own += index.own * weight
                for buffer, n in index.reads.items():
                    reads[buffer] = reads.get(buffer, 0) + n * weight
            continue
        own += weight
        for child in below:
            weights[id(child)] += weight
    return ValueSize(own, reads, depths[id(value)])


def _children_first(value: PrimExpr) -> list[tuple[Node, list[Node]]]:
    """The distinct nodes of an expression, loads as leaves, each with what it is made of and behind all of that."""
    order: list[tuple[Node, list[Node]]] = []
    below: dict[int, list[Node]] = {}  # of the nodes that were looked at
    done: set[int] = set()
    stack: list[Node] = [value]
    while stack:
        top = stack[-1]
        if id(top) in done:
            stack.pop()
            continue
        if (inner := below.get(id(top))) is None:
            inner = below[id(top)] = [] if isinstance(top, BufferLoad) else children(top)
            if missing := [x for x in inner if id(x) not in done]:
                stack += missing
                continue
        stack.pop()
        done.add(id(top))
        order.append((top, inner))
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
            last = ValueSize(own, reads, found.levels({buffer: size.depth for buffer, size in known.items()}))
            if not _is_reduction(block):
                known[store.buffer] = last
    return last


def is_too_large(value: ValueSize[K], sizes: Mapping[K, int], depths: Mapping[K, int]) -> bool:
    """Whether an expression is too much to compile once each read is replaced by one of that size and depth."""
    return value.total(sizes) > MAX_INLINED or value.levels(depths) > MAX_NESTED


def too_large_to_inline(blocks: Sequence[Block]) -> frozenset[Block]:
    """Those of `blocks`, in order, that have to stay stages so that no value gets too large or too deep."""
    sizes: dict[Buffer, int] = {}
    depths: dict[Buffer, int] = {}
    writer: dict[Buffer, Block] = {}
    kept: set[Block] = set()
    for block in blocks:
        values = {store.buffer: value_size(store.value) for store in stores(block.body)}
        if any(is_too_large(value, sizes, depths) for value in values.values()):
            read = {buffer for value in values.values() for buffer in value.reads if buffer in writer}
            kept |= {writer[buffer] for buffer in read}
            sizes |= dict.fromkeys(read, 1)
            depths |= dict.fromkeys(read, 0)
        for buffer, value in values.items():
            stays = _is_reduction(block)
            sizes[buffer], depths[buffer] = (1, 0) if stays else (value.total(sizes), value.levels(depths))
            writer[buffer] = block
    return frozenset(kept)


def _is_reduction(block: Block) -> bool:
    return any(iv.kind == REDUCE for iv in block.iter_vars)

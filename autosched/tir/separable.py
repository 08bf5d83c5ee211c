"""Functions over a batch that compute each part of it by itself: then one block of the batch can be compiled alone.

for i, j in grid(n, 256): out[i, j] = f(a[i, j], b[j])      separable: row i of `out` needs row i of `a`
for i, j in grid(n, n):   out[i, j] = a[j, i]                not: row i needs all rows
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from autosched.errors import ScheduleError
from autosched.ir.node import Node, children, preorder
from autosched.tir.axis import REDUCE
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import IntImm, PrimExpr, Var, add, const, const_int, mul
from autosched.tir.function import PrimFunc, size_vars
from autosched.tir.functor import free_vars, substitute
from autosched.tir.simplify import Analyzer
from autosched.tir.stmt import Block, BlockRealize, BufferStore, For, SeqStmt, Stmt

# Attribute of a function for one block: how many parts a block has, then the positions of the parameters that hold
# something of each part.
BLOCKS = "autosched.blocks"
# Attribute of such a function: each piece of it, which reads a part of the weights, is done for all blocks in turn.
PIECES_FIRST = "autosched.pieces_first"
TURN, TURNS = (
    Var("block", "int64"),
    Var("n_blocks", "int64"),
)  # in the code of such a function: which block, of how many


@dataclass(frozen=True, slots=True)
class Share:
    """Which dimension of a buffer counts the batch, and how many of its elements belong to one part."""

    axis: int
    per_part: int


class NotSeparableError(ScheduleError):
    """A function whose parts depend on each other, or on how many there are."""


def share_of(shape: tuple[PrimExpr, ...], size: Var) -> Share | None:
    """How a shape grows with `size`; None where it does not.

    Raises NotSeparableError unless one dimension is a multiple of `size`, with nothing but ones before it.
    """
    symbolic = [d for d, extent in enumerate(shape) if const_int(extent) is None]
    if not symbolic:
        return None
    shown = ", ".join(map(str, shape))
    if len(symbolic) > 1 or any(const_int(extent) != 1 for extent in shape[: symbolic[0]]):
        raise NotSeparableError(f"the shape [{shown}] has no one leading dimension that counts '{size.name}'")
    per_part = multiple_of(shape[symbolic[0]], size)
    if per_part is None:
        raise NotSeparableError(f"the dimension {shape[symbolic[0]]} is no multiple of '{size.name}'")
    return Share(symbolic[0], per_part)


def multiple_of(extent: PrimExpr, size: Var) -> int | None:
    """The k > 0 for which an extent is k * size; None where there is none."""
    linear = Analyzer().linear(extent)
    if linear.const or len(linear.terms) != 1:
        return None
    ((scale, atom),) = linear.terms.values()
    return scale if atom is size and scale > 0 else None


def batch_size(func: PrimFunc) -> Var:
    """The one symbol of a function. Raises NotSeparableError for none or several."""
    found = size_vars(func)
    if len(found) != 1:
        raise NotSeparableError(f"its sizes depend on {', '.join(v.name for v in found) or 'nothing'}")
    return found[0]


def shares(func: PrimFunc) -> dict[Buffer, Share | None]:
    """The parts of an unscheduled function's buffers, where each part of the batch is computed by itself.

    Raises NotSeparableError that says why it is not so.
    """
    size = batch_size(func)
    if len(func.buffers) != len(func.params):
        raise NotSeparableError("it has scalar parameters")
    found = {b: share_of(tuple(b.shape), size) for b in (*func.buffers, *func.root.alloc_buffers)}
    for buffer in found:
        if buffer.strides:
            raise NotSeparableError(f"buffer '{buffer.name}' has strides of its own")
    body = func.root.body
    for nest in body.seq if isinstance(body, SeqStmt) else (body,):
        _Nest(found, size, frozenset(func.root.alloc_buffers)).check(nest)
    return found


def part_extent(found: Mapping[Buffer, Share | None]) -> int:
    """How many elements of their batch dimensions all buffers have in common for one part: rows of a product."""
    return math.gcd(*(share.per_part for share in found.values() if share is not None))


class _Nest:
    """One loop nest around one block; own: the buffers between nests."""

    def __init__(self, found: Mapping[Buffer, Share | None], size: Var, own: frozenset[Buffer]):
        self.found, self.size, self.own = found, size, own
        self.analyzer = Analyzer()
        self.part, self.inner = Var("part", "int64"), Var("inner", "int64")
        self.shared: set[Buffer] = set()  # what a block writes that is the same for all parts

    def check_shared(self, block: Block) -> None:
        """See that a block that does not run over the batch computes, element by element, what no part has to do with.

        Each block of parts computes it again: the numbers of a packed weight.
        """
        reads = {x.buffer for x in preorder(block.body) if isinstance(x, BufferLoad)}
        writes = {x.buffer for x in preorder(block.body) if isinstance(x, BufferStore)}
        is_sum = any(own.kind == REDUCE for own in block.iter_vars)
        if is_sum or any(self.found.get(b) is not None for b in reads | writes) or not writes <= self.own:
            raise NotSeparableError(f"block '{block.name_hint}' does not run over the batch")
        self.shared = writes

    def check(self, nest: Stmt) -> None:
        loops: dict[Var, For] = {}
        while isinstance(nest, For):
            if const_int(nest.start) != 0:
                raise NotSeparableError(f"loop '{nest.loop_var.name}' does not start at 0")
            loops[nest.loop_var] = nest
            nest = nest.body
        if not isinstance(nest, BlockRealize) or const_int(nest.predicate) != 1:
            raise NotSeparableError("it is no sequence of loop nests, each around one block")
        counted: dict[Var, PrimExpr] = {}
        for own, value in zip(nest.block.iter_vars, nest.iter_values, strict=True):
            extent = const_int(own.dom.extent)
            loop = loops.get(value) if isinstance(value, Var) else None
            if extent is not None and const_int(own.dom.min) == 0:
                self.analyzer.bind(own.var, (0, extent))
                if free_vars(value) and (loop is None or const_int(loop.extent) != extent):
                    raise NotSeparableError(f"block '{nest.block.name_hint}' does not follow its loops")
                continue
            per_part = multiple_of(own.dom.extent, self.size)
            if own.kind == REDUCE or per_part is None or counted or const_int(own.dom.min) != 0:
                raise NotSeparableError(f"block '{nest.block.name_hint}' reduces over the batch, or runs over it twice")
            if loop is None or multiple_of(loop.extent, self.size) != per_part:
                raise NotSeparableError(f"block '{nest.block.name_hint}' does not follow its loops")
            dtype = own.var.dtype
            self.part, self.inner = Var("part", dtype), Var("inner", dtype)
            self.analyzer.bind(self.inner, (0, per_part))
            counted[own.var] = add(mul(self.part, const(per_part, dtype)), self.inner)
        block = nest.block
        if not counted:
            self.check_shared(block)
        if block.alloc_buffers or block.match_buffers:
            raise NotSeparableError(f"block '{block.name_hint}' has buffers of its own")
        for stmt in (block.body, *([block.init] if block.init is not None else [])):
            if any(isinstance(x, BlockRealize | Block) for x in preorder(stmt)):
                raise NotSeparableError(f"block '{block.name_hint}' holds another one")
            self.visit(substitute(stmt, counted), block.name_hint)

    def visit(self, node: Node, name: str) -> None:
        """See that a batch's part is used for nothing but to address that part of a buffer."""
        if isinstance(node, For):
            extent = const_int(node.extent)
            if const_int(node.start) != 0 or extent is None:
                raise NotSeparableError(f"block '{name}' has a loop of unknown bounds")
            self.analyzer.bind(node.loop_var, (0, extent))
        if isinstance(node, Var) and node in (self.part, self.size):
            raise NotSeparableError(f"block '{name}' computes with the position in the batch, or with its size")
        if isinstance(node, BufferLoad | BufferStore):
            share = self.found.get(node.buffer)
            if isinstance(node, BufferStore):
                if share is None and node.buffer not in self.shared:
                    raise NotSeparableError(f"block '{name}' writes to '{node.buffer.name}', which all parts share")
                self.visit(node.value, name)
            for axis, index in enumerate(node.indices):
                if share is None or axis != share.axis:
                    self.visit(self.analyzer.simplify(index), name)
                else:
                    self.address(node.buffer, share, index, name)
            return
        for child in children(node):
            if not isinstance(child, Buffer):
                self.visit(
                    self.analyzer.simplify(child) if isinstance(child, PrimExpr) and _is_index(child) else child, name
                )

    def address(self, buffer: Buffer, share: Share, index: PrimExpr, name: str) -> None:
        """See that an index of the batch's dimension lies in the part that is being computed."""
        linear = self.analyzer.linear(index)
        own = [key for key, (_, atom) in linear.terms.items() if atom is self.part]
        scale = linear.terms.pop(own[0])[0] if own else 0
        low, high = self.analyzer._linear_bound(linear)
        inside = low is not None and low >= 0 and high is not None and high < share.per_part
        if scale != share.per_part or not inside:
            raise NotSeparableError(f"block '{name}' reads another part of '{buffer.name}' than it computes")
        for _, atom in linear.terms.values():
            self.visit(atom, name)


def _is_index(node: object) -> bool:
    return isinstance(node, PrimExpr) and not isinstance(node, Var | IntImm) and node.dtype in ("int32", "int64")

"""What a block reads and writes, inferred from its body."""

from __future__ import annotations

from collections.abc import Iterable

from autosched.ir.node import Node, children, preorder
from autosched.tir.axis import Range
from autosched.tir.buffer import Buffer, BufferData, BufferLoad
from autosched.tir.expr import Call, IntImm, PrimExpr, Var, add, const_int
from autosched.tir.functor import free_vars, statements
from autosched.tir.ptx import FUNCTIONS
from autosched.tir.simplify import Analyzer, form_key
from autosched.tir.stmt import Block, BlockRealize, BufferRegion, BufferStore, For, LetStmt, Stmt

Indices = tuple[PrimExpr, ...]


def point(buffer: Buffer, indices: Indices) -> BufferRegion:
    """The region of one element."""
    return BufferRegion(buffer, tuple(Range(i, IntImm(1, i.dtype)) for i in indices))


def is_own(e: PrimExpr, store: BufferStore) -> bool:
    """Whether an operand of an update is the element that is stored."""
    if not isinstance(e, BufferLoad) or e.buffer is not store.buffer:
        return False
    return tuple(map(form_key, e.indices)) == tuple(map(form_key, store.indices))


def full_region(buffer: Buffer) -> BufferRegion:
    return BufferRegion(buffer, tuple(Range(IntImm(0, s.dtype), s) for s in buffer.shape))


def union_point_regions(buffer: Buffer, accesses: Iterable[Indices], inner: set[Var]) -> BufferRegion:
    """The smallest box over several accesses that the arithmetic can show; variables of `inner` loops widen to all."""
    each = list(accesses)
    if len(each) == 1 and not inner:
        return point(buffer, each[0])
    distinct = {tuple(form_key(i) for i in indices): indices for indices in each}
    analyzer = Analyzer()
    region = []
    for axis, column in enumerate(zip(*distinct.values(), strict=True)):
        first = column[0]
        offsets = [0, *(const_int(analyzer.simplify(i - first)) for i in column[1:])]
        if any(o is None for o in offsets) or (inner and any(free_vars(i) & inner for i in column)):
            extent = buffer.shape[axis]
            region.append(Range(IntImm(0, extent.dtype), extent))
            continue
        known = [o for o in offsets if o is not None]
        low = analyzer.simplify(add(first, min(known))) if min(known) else first
        region.append(Range(low, IntImm(max(known) - min(known) + 1, first.dtype)))
    return BufferRegion(buffer, tuple(region))


def infer_regions(
    body: Stmt, init: Stmt | None = None, local: Iterable[Buffer] = ()
) -> tuple[tuple[BufferRegion, ...], tuple[BufferRegion, ...]]:
    """(reads, writes) of a block's body in order of first use.

    With an `init`, a read of the element that is being written is the reduction's own and does not count. Regions of
    nested blocks count as they are declared. `local` buffers (the block's own) do not count.
    """
    reads: dict[Buffer, list[Indices]] = {}
    writes: dict[Buffer, list[Indices]] = {}
    nested: list[Block] = []
    own = set(local)
    addressed: dict[Buffer, None] = {}  # any element of them may be read and written
    for node in _nodes_outside_blocks(body, nested):
        if isinstance(node, BufferLoad) and node.buffer not in own:
            reads.setdefault(node.buffer, []).append(node.indices)
        elif isinstance(node, BufferStore) and node.buffer not in own:
            writes.setdefault(node.buffer, []).append(node.indices)
        elif isinstance(node, Call) and node.op in FUNCTIONS:
            addressed |= {x.buffer: None for x in preorder(node) if isinstance(x, BufferData) and x.buffer not in own}
    if init is not None:
        written = {(b, *map(form_key, i)) for b, all_i in writes.items() for i in all_i}
        for buffer in list(reads):
            kept = [i for i in reads[buffer] if (buffer, *map(form_key, i)) not in written]
            if kept:
                reads[buffer] = kept
            else:
                del reads[buffer]
        for node in preorder(init):
            if isinstance(node, BufferLoad) and node.buffer not in own and node.buffer not in writes:
                reads.setdefault(node.buffer, []).append(node.indices)
    below = list(statements(body))
    inner = {n.var for n in below if isinstance(n, LetStmt)}
    below += statements(init) if init is not None else ()
    inner |= {n.loop_var for n in below if isinstance(n, For)}
    read_regions = [union_point_regions(b, i, inner) for b, i in reads.items() if b not in addressed]
    write_regions = [union_point_regions(b, i, inner) for b, i in writes.items() if b not in addressed]
    read_regions += map(full_region, addressed)
    write_regions += map(full_region, addressed)
    for block in nested:
        read_regions += [full_region(r.buffer) for r in block.reads if r.buffer not in own and r.buffer not in reads]
        write_regions += [full_region(w.buffer) for w in block.writes if w.buffer not in own and w.buffer not in writes]
    return tuple(read_regions), tuple(write_regions)


def _nodes_outside_blocks(node: Node, nested: list[Block]) -> Iterable[Node]:
    """The nodes outside of nested blocks, a shared expression once."""
    stack: list[Node] = [node]
    entered: set[int] = set()
    while stack:
        top = stack.pop()
        if isinstance(top, BlockRealize):
            nested.append(top.block)
            continue
        if top.is_scalar:
            if id(top) in entered:
                continue
            entered.add(id(top))
        yield top
        stack.extend(reversed(children(top)))

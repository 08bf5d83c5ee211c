"""Permutes the 16-byte pieces of a shared buffer's rows, so that eight rows one below the other lie in all banks.

The annotation "buffer_swizzle" of a block names the buffer that it writes, as `Schedule.storage_swizzle` leaves it.

Before:  A_shared[row, 8 * piece + e]                                     float16[64, 64]
After:   A_shared[row, 8 * (piece ^ row % 8) + e]
Rows of 32 or 64 bytes share a line of 128 bytes: what is combined there is the number of the line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from autosched.codegen.lower.loops import enter
from autosched.codegen.lower.shared_memory import is_shared
from autosched.errors import CodegenError
from autosched.ir.node import Node, map_children, preorder
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import PrimExpr, const_int
from autosched.tir.functor import rewrite
from autosched.tir.simplify import Analyzer
from autosched.tir.stmt import Block, BufferStore, For, Stmt

SWIZZLE = "buffer_swizzle"  # the annotation: positions among the buffers that a block writes
PIECE_BYTES = 16
LINE_PIECES = 8  # 128 bytes: all banks once


@dataclass(frozen=True, slots=True, eq=False)
class SwizzledBuffer(Buffer):
    """A buffer whose elements are to lie elsewhere in their rows than their indices say."""


def swizzled(buffer: Buffer) -> SwizzledBuffer:
    """The same buffer, marked. Raises CodegenError for one that is not shared."""
    if not is_shared(buffer):
        raise CodegenError(
            f"buffer '{buffer.name}' of scope \"{buffer.scope}\" is to be swizzled", hint="only shared ones are"
        )
    return SwizzledBuffer(**{f.name: getattr(buffer, f.name) for f in fields(buffer)})


def buffers_to_swizzle(body: Node) -> frozenset[Buffer]:
    """What the blocks below ask for."""
    found = set()
    for block in (n for n in preorder(body) if isinstance(n, Block)):
        for position in block.annotations.get(SWIZZLE, ()):
            found.add(block.writes[int(position)].buffer)
    return frozenset(found)


def swizzle(stmt: Stmt, analyzer: Analyzer, item_bytes: Mapping[str, int]) -> Stmt:
    """The statement with accesses of marked buffers where the elements lie.

    Raises CodegenError for rows that are no power of two of 16-byte pieces.
    """
    if isinstance(stmt, For):
        body = swizzle(stmt.body, enter(analyzer, stmt), item_bytes)
        return map_children(stmt, lambda c: body if c is stmt.body else c)

    def step(x: object) -> object:
        if isinstance(x, BufferLoad) and isinstance(x.buffer, SwizzledBuffer):
            return BufferLoad(x.buffer, _place(x.buffer, x.indices, analyzer, item_bytes[x.buffer.dtype]))
        return x

    def child(c: object) -> object:
        if isinstance(c, Stmt):
            return swizzle(c, analyzer, item_bytes)
        return rewrite(c, step) if isinstance(c, PrimExpr) else c

    new = map_children(stmt, child)
    if isinstance(new, BufferStore) and isinstance(new.buffer, SwizzledBuffer):
        place = _place(new.buffer, new.indices, analyzer, item_bytes[new.buffer.dtype])
        return BufferStore(new.buffer, new.value, place)
    return new


def _place(buffer: Buffer, indices: tuple[PrimExpr, ...], a: Analyzer, item: int) -> tuple[PrimExpr, ...]:
    row_elements, per_piece = const_int(buffer.shape[-1]) or 0, PIECE_BYTES // item
    pieces, rest = divmod(row_elements, per_piece)
    if rest or pieces & (pieces - 1) or not pieces or len(indices) < 2 or buffer.strides:
        raise CodegenError(
            f"the swizzled buffer '{buffer.name}' has rows of {row_elements * item} bytes",
            hint="let rows be a power of two of 16-byte pieces, without storage_align",
        )
    if pieces == 1:
        return indices
    row, column = indices[-2], indices[-1]
    if pieces >= LINE_PIECES:
        line = E.floormod(row, LINE_PIECES)
    else:
        line = E.floormod(E.floordiv(row, LINE_PIECES // pieces), pieces)
    piece, inside = a.simplify(E.floordiv(column, per_piece)), a.simplify(E.floormod(column, per_piece))
    moved = E.bitwise("bitwise_xor", piece, E.cast(piece.dtype, a.simplify(line)))
    return (*indices[:-1], E.add(E.mul(moved, per_piece), inside))

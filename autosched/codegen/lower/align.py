"""Strides that a schedule asks for: the annotation "buffer_dim_align" of a block, as `storage_align` leaves it.

A buffer whose rows lie a power of two apart puts them all into a few sets of the caches; strides that are an odd
number of cache lines spread them.
"""

from __future__ import annotations

from collections.abc import Sequence

from autosched.ir.node import Node
from autosched.tir.buffer import Buffer
from autosched.tir.expr import IntImm, PrimExpr, const_int
from autosched.tir.functor import statements
from autosched.tir.stmt import Block

Alignments = Sequence[tuple[int, int, int]]  # (axis, factor, offset): the axis' stride is k * factor + offset


def buffer_alignments(body: Node) -> dict[Buffer, Alignments]:
    """What the blocks below ask for, by the buffer that they write."""
    found: dict[Buffer, list[tuple[int, int, int]]] = {}
    for block in (n for n in statements(body) if isinstance(n, Block)):
        noted = block.annotations.get("buffer_dim_align", ())
        for entry in noted if noted and isinstance(noted[0], Sequence) else [noted] if noted else []:
            position, axis, factor, offset = (int(x) for x in entry)
            found.setdefault(block.writes[position].buffer, []).append((axis, factor, offset))
    return {buffer: tuple(dict.fromkeys(entries)) for buffer, entries in found.items()}


def aligned_strides(shape: Sequence[PrimExpr], alignments: Alignments) -> tuple[PrimExpr, ...]:
    """Row-major strides, each as small as its alignment allows; () where a size is not a constant."""
    sizes = [const_int(s) for s in shape]
    if any(s is None for s in sizes):
        return ()
    wanted = {axis: (factor, offset) for axis, factor, offset in alignments}
    strides: list[PrimExpr] = []
    stride = 1
    for axis in reversed(range(len(sizes))):
        factor, offset = wanted.get(axis, (1, 0))
        stride += (offset - stride) % factor
        strides.insert(0, IntImm(stride, shape[axis].dtype))
        stride *= sizes[axis] or 1
    return tuple(strides)


__all__ = ["Alignments", "aligned_strides", "buffer_alignments"]

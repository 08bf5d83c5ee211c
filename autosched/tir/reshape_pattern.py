"""Functions that only copy: the elements of one tensor in memory's order into another shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autosched.ir.node import preorder
from autosched.tir.arith import Analyzer
from autosched.tir.axis import Range
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import PrimExpr, add, mul
from autosched.tir.function import PrimFunc
from autosched.tir.stmt import BlockRealize, BufferStore, For


def has_reshape_pattern(func: PrimFunc) -> bool:
    """Whether a function copies its only input to its only output, element after element in memory's order."""
    if not isinstance(func, PrimFunc) or len(func.buffers) != 2:
        return False
    source, target = func.buffers
    blocks = [r.block for r in preorder(func.body) if isinstance(r, BlockRealize) and r.block.iter_vars]
    if len(blocks) != 1 or source.dtype != target.dtype:
        return False
    (block,) = blocks
    store = block.body
    if block.init is not None or not isinstance(store, BufferStore) or store.buffer is not target:
        return False
    if not isinstance(store.value, BufferLoad) or store.value.buffer is not source:
        return False
    analyzer = Analyzer()
    for loop in preorder(func.body):
        if isinstance(loop, For):
            analyzer.bind(loop.loop_var, Range(loop.start, loop.extent))
    for iv in block.iter_vars:
        analyzer.bind(iv.var, iv.dom)
    flat = [_flat(b, i) for b, i in ((source, store.value.indices), (target, store.indices))]
    return analyzer.can_prove_equal(_size(source), _size(target)) and analyzer.can_prove_equal(*flat)


def _flat(buffer: Buffer, indices: Sequence[PrimExpr]) -> PrimExpr:
    place: Any = 0
    for index, extent in zip(indices, buffer.shape, strict=True):
        place = add(mul(place, extent), index)
    return place  # type: ignore[no-any-return]


def _size(buffer: Buffer) -> PrimExpr:
    size: Any = 1
    for extent in buffer.shape:
        size = mul(size, extent)
    return size  # type: ignore[no-any-return]

"""Emits what `lower/warpgroup_chain.py` leaves: products of warpgroups that begin and end apart."""

from __future__ import annotations

from llvmlite import ir

from autosched.codegen.cpu.types import I32
from autosched.codegen.cuda import instructions
from autosched.codegen.cuda.warpgroup import DESCRIPTOR, STEP_BYTES, Emitter, count_of, row_address, word_of
from autosched.codegen.lower.warpgroup_chain import NAMED_ARRIVE, NAMED_WAIT, STEP, WGMMA_BEGIN
from autosched.codegen.lower.warpgroups import COLUMNS, ROWS, SLAB_BYTES
from autosched.tir import expr as E
from autosched.tir.buffer import BufferLoad
from autosched.tir.expr import as_int, const_int

_SPAN = SLAB_BYTES // STEP_BYTES  # instructions along a slab


def emit_chain(emitter: Emitter, e: E.Call) -> None:
    """An operation of `CHAIN_OPERATIONS`."""
    if e.op == WGMMA_BEGIN:
        _begin(emitter, e)
        return
    if e.op in (NAMED_ARRIVE, NAMED_WAIT):
        number, threads = e.args
        instructions.named_barrier(emitter.builder, word_of(emitter, number), as_int(threads), waits=e.op == NAMED_WAIT)
        return
    left, *firsts = e.args
    pointers = []
    for first in firsts:
        assert isinstance(first, BufferLoad), "the first register"
        pointers += emitter.registers(first, count_of(first))
    b = emitter.builder
    values = instructions.wgmma_end(b, as_int(left), [b.load(p) for p in pointers])
    for pointer, value in zip(pointers, values, strict=True):
        b.store(value, pointer)


def _begin(emitter: Emitter, e: E.Call) -> None:
    kind, first, a, b, along, fresh = e.args
    assert isinstance(kind, E.StringImm), "the name of the operands' type"
    assert isinstance(first, BufferLoad) and isinstance(a, BufferLoad) and isinstance(b, BufferLoad), "operands"
    builder, along_n = emitter.builder, bool(const_int(along))
    tiles, columns = as_int(first.buffer.shape[0]), as_int(first.buffer.shape[1]) * COLUMNS
    rows_b = as_int(b.buffer.shape[2])
    if a.buffer.scope == "local":
        steps = as_int(a.buffer.shape[1])
        operands = [builder.load(p) for p in emitter.registers(a, count_of(a))]
        from_a = [[(tile * steps + step) * 4 for step in range(steps)] for tile in range(tiles)]
    else:
        _, slabs, rows_a, _ = (as_int(s) for s in a.buffer.shape)
        steps = slabs * _SPAN
        operands = [_lower(emitter, a, 16)]
        from_a = [
            [_distance(step, rows_a) + (tile * ROWS * SLAB_BYTES >> 4) for step in range(steps)]
            for tile in range(tiles)
        ]
    from_b = [step * STEP * SLAB_BYTES >> 4 if along_n else _distance(step, rows_b) for step in range(steps)]
    products = [(tile, from_a[tile][step], from_b[step]) for step in range(steps) for tile in range(tiles)]
    pointers = emitter.registers(first, count_of(first))
    values = instructions.wgmma_begin(
        builder,
        kind.value,
        columns,
        len(pointers) if const_int(fresh) else [builder.load(p) for p in pointers],
        operands,
        _lower(emitter, b, rows_b * SLAB_BYTES if along_n else 16),
        along_n,
        DESCRIPTOR >> 32,
        products,
    )
    for pointer, value in zip(pointers, values, strict=True):
        builder.store(value, pointer)


def _lower(emitter: Emitter, first: BufferLoad, leading_bytes: int) -> ir.Value:
    """The lower half of a descriptor: the address, and how far 64 columns are apart."""
    b, address = emitter.builder, row_address(emitter, first)
    return b.or_(b.lshr(b.and_(address, I32(0x3FFFF)), I32(4)), I32(leading_bytes >> 4 << 16))


def _distance(step: int, rows: int) -> int:
    """How far the terms of a step lie behind the first ones, in units of 16 bytes, where they lie along the rows."""
    return (step // _SPAN * rows * SLAB_BYTES + step % _SPAN * STEP_BYTES) >> 4

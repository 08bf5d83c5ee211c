"""Emits what `lower/warpgroups.py` leaves, copies of boxes of tensors and products of warpgroups, and mbarriers."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Protocol

from llvmlite import ir

from autosched.codegen.cpu.emitter import Place
from autosched.codegen.cpu.types import I32, I64
from autosched.codegen.cuda import instructions
from autosched.codegen.lower.instructions import (
    MBARRIER_ARRIVE,
    MBARRIER_COPIES,
    MBARRIER_EXPECT,
    MBARRIER_FENCE,
    MBARRIER_INIT,
    MBARRIER_INVAL,
    MBARRIER_TEST,
    MBARRIER_WAIT,
)
from autosched.codegen.lower.warpgroups import (
    CLUSTER_ARRIVE,
    CLUSTER_WAIT,
    COLUMNS,
    ROWS,
    SLAB_BYTES,
    TENSOR_AHEAD,
    TENSOR_COPY,
    WGMMA,
    WGMMA_WAIT,
)
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.dtypes import item_bytes
from autosched.tir.expr import as_int, const_int

I16 = ir.IntType(16)
_PATTERN_ROWS = 8  # rows after which the permutation of 16-byte pieces repeats
_PERMUTED = 1 << 62  # of 128-byte rows, in a descriptor
DESCRIPTOR = _PATTERN_ROWS * SLAB_BYTES >> 4 << 32 | _PERMUTED  # its part that all operands have
STEP_BYTES = 32  # of a row along the reduction, for one instruction


class Emitter(Protocol):
    """What is needed of the emitter of a tile."""

    builder: ir.IRBuilder
    scopes: list[dict[Hashable, Any]]
    places: dict[Buffer, Place]

    def value(self, e: E.PrimExpr) -> ir.Value: ...
    def registers(self, first: E.PrimExpr, count: int) -> list[ir.Value]: ...
    def shared_address(self, element: BufferLoad, align: int) -> ir.Value: ...


def emit_warpgroup(emitter: Emitter, e: E.Call) -> None:
    """An operation of `lower.warpgroups.OPERATIONS`."""
    b = emitter.builder
    match e.op:
        case _ if e.op == MBARRIER_FENCE:
            instructions.mbarrier_fence(b)
        case _ if e.op == MBARRIER_INIT:
            instructions.mbarrier_init(b, _barrier(emitter, e.args[0]), as_int(e.args[1]))
        case _ if e.op == MBARRIER_INVAL:
            instructions.mbarrier_inval(b, _barrier(emitter, e.args[0]))
        case _ if e.op == MBARRIER_COPIES:
            instructions.mbarrier_copies(b, _barrier(emitter, e.args[0]))
        case _ if e.op == MBARRIER_EXPECT:
            instructions.mbarrier_expect(b, _barrier(emitter, e.args[0]), as_int(e.args[1]))
        case _ if e.op == MBARRIER_ARRIVE:
            barrier, condition = _barrier(emitter, e.args[0]), b.zext(emitter.value(e.args[1]), I32)
            if len(e.args) > 2:
                instructions.mbarrier_arrive_at(b, barrier, condition, word_of(emitter, e.args[2]))
            else:
                instructions.mbarrier_arrive(b, barrier, condition)
        case _ if e.op == MBARRIER_WAIT:
            instructions.mbarrier_wait(b, _barrier(emitter, e.args[0]), word_of(emitter, e.args[1]))
            emitter.scopes = [{} for _ in emitter.scopes]  # what was loaded before is not what is there now
        case _ if e.op == MBARRIER_TEST:
            instructions.mbarrier_test(b, _barrier(emitter, e.args[0]), word_of(emitter, e.args[1]))
            emitter.scopes = [{} for _ in emitter.scopes]
        case _ if e.op == CLUSTER_ARRIVE:
            instructions.cluster_arrive(b)
        case _ if e.op == CLUSTER_WAIT:
            instructions.cluster_wait(b)
        case _ if e.op == TENSOR_AHEAD:
            instructions.tensor_ahead(b, _map(emitter, e.args[0]))
        case _ if e.op == TENSOR_COPY:
            _copy(emitter, e)
        case _ if e.op == WGMMA:
            _multiply(emitter, e)
        case _:
            assert e.op == WGMMA_WAIT, f"{e.op} is no operation of a warpgroup"
            first = e.args[0]
            assert isinstance(first, BufferLoad), "the first register"
            pointers = emitter.registers(first, count_of(first))
            values = instructions.wgmma_wait(b, [b.load(p) for p in pointers])
            for pointer, value in zip(pointers, values, strict=True):
                b.store(value, pointer)


def count_of(first: BufferLoad) -> int:
    """Registers of an accumulator."""
    count = 1
    for size in first.buffer.shape:
        count *= as_int(size)
    return count


def word_of(emitter: Emitter, e: E.PrimExpr) -> ir.Value:
    """An integer as 32 bits."""
    value = emitter.value(e)
    return value if value.type.width == 32 else emitter.builder.trunc(value, I32)


def _barrier(emitter: Emitter, element: E.PrimExpr) -> ir.Value:
    assert isinstance(element, BufferLoad), "an mbarrier"
    return emitter.shared_address(element, 8)


def row_address(emitter: Emitter, element: E.PrimExpr) -> ir.Value:
    """The address of a row of a shared buffer [stage, slab, row, element], as 32 bits."""
    assert isinstance(element, BufferLoad), "the place of a row"
    return emitter.shared_address(element, 16)


def _map(emitter: Emitter, element: E.PrimExpr) -> ir.Value:
    """The address of a tensor map, as 64 bits."""
    assert isinstance(element, BufferLoad), "a tensor map"
    return emitter.builder.ptrtoint(emitter.places[element.buffer].pointer, I64)


def _copy(emitter: Emitter, e: E.Call) -> None:
    target, source, barrier, mask, first, *at = e.args
    pointer = _map(emitter, source)
    coordinates = [word_of(emitter, i) for i in reversed(at)]
    blocks = None
    if as_int(mask):
        blocks = emitter.builder.trunc(emitter.builder.shl(I32(as_int(mask)), word_of(emitter, first)), I16)
    place = row_address(emitter, target)
    instructions.tensor_copy(emitter.builder, place, pointer, coordinates, _barrier(emitter, barrier), blocks)


def _descriptor(emitter: Emitter, address: ir.Value, leading_bytes: int) -> ir.Value:
    """What tells the instruction where an operand lies: address, distances in units of 16 bytes, permutation."""
    b = emitter.builder
    place = b.zext(b.lshr(b.and_(address, I32(0x3FFFF)), I32(4)), I64)
    fixed = leading_bytes >> 4 << 16 | DESCRIPTOR
    return b.or_(place, I64(fixed))


def _multiply(emitter: Emitter, e: E.Call) -> None:
    kind, first, a, b, along = e.args
    assert isinstance(kind, E.StringImm), "the name of the operands' type"
    assert isinstance(first, BufferLoad) and isinstance(a, BufferLoad) and isinstance(b, BufferLoad), "operands"
    tiles, columns = as_int(first.buffer.shape[0]), as_int(first.buffer.shape[1]) * COLUMNS
    _, slabs, rows_a, span = (as_int(s) for s in a.buffer.shape)
    _, _, rows_b, _ = (as_int(s) for s in b.buffer.shape)
    steps = SLAB_BYTES // STEP_BYTES
    along_n = bool(const_int(along))
    depth = STEP_BYTES // item_bytes(a.buffer.dtype)  # of one instruction
    from_a, from_b = [], []
    for slab in range(slabs):
        for step in range(steps):
            from_a.append(slab * rows_a * SLAB_BYTES + step * STEP_BYTES)
            if along_n:  # rows are steps of the reduction
                from_b.append((slab * span + step * depth) * SLAB_BYTES)
            else:
                from_b.append(slab * rows_b * SLAB_BYTES + step * STEP_BYTES)
    products = [
        (tile, (tile * ROWS * SLAB_BYTES + x) >> 4, y >> 4) for x, y in zip(from_a, from_b, strict=True)
        for tile in range(tiles)
    ]  # fmt: skip
    pointers = emitter.registers(first, count_of(first))
    values = instructions.wgmma(
        emitter.builder,
        kind.value,
        columns,
        [emitter.builder.load(p) for p in pointers],
        _descriptor(emitter, row_address(emitter, a), 16),
        _descriptor(emitter, row_address(emitter, b), rows_b * SLAB_BYTES if along_n else 16),
        along_n,
        products,
    )
    for pointer, value in zip(pointers, values, strict=True):
        emitter.builder.store(value, pointer)

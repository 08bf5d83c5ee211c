"""Turns squares of vectors in registers, where a vectorised loop reads along its variable and writes across it.

    for i in unroll(8): for j in vectorized(8): out[j, i] = f(in[i, j])

becomes 8 vectors of f(in), a transposition by shuffles, and 8 whole stores.
"""

from __future__ import annotations

from llvmlite import ir

from autosched.codegen.cpu.affine import Affine
from autosched.codegen.cpu.checks import emit_guards
from autosched.codegen.cpu.emitter import Emitter
from autosched.codegen.cpu.types import I32, splat
from autosched.tir.dtypes import item_bytes
from autosched.tir.expr import const_int
from autosched.tir.stmt import BufferStore, For, LoopKind

_ITEM_BYTES = 4
_BLOCK = 4  # elements of 128 bits, within which unpacking works


def square_lanes(emitter: Emitter, loop: For) -> int:
    """Lanes of the squares in which an unrolled loop and the vectorised one in it can be turned; 0 where not."""
    inner = loop.body
    if loop.kind is not LoopKind.UNROLLED or emitter.lanes != 1 or not isinstance(inner, For):
        return 0
    if inner.kind is not LoopKind.VECTORIZED or not isinstance(inner.body, BufferStore):
        return 0
    store = inner.body
    lanes = emitter.isa.lanes(store.buffer.dtype)
    counts = (const_int(loop.extent), const_int(inner.extent))
    if item_bytes(store.buffer.dtype) != _ITEM_BYTES or store.buffer.dtype == "bool" or lanes < _BLOCK:
        return 0
    if any(c is None or c % lanes for c in counts) or const_int(loop.start) != 0 or const_int(inner.start) != 0:
        return 0
    place = emitter.places.get(store.buffer)
    if place is None or place.is_local:
        return 0
    across, along = _steps(emitter, loop, inner, lanes)
    return lanes if along == 1 and across not in (None, 0, 1) else 0


def _steps(emitter: Emitter, loop: For, inner: For, lanes: int) -> tuple[int | None, int | None]:
    """How far the store moves per step of the vectorised and of the unrolled loop, where that is constant."""
    assert isinstance(inner.body, BufferStore), "the caller looked"
    place = emitter.places[inner.body.buffer]
    found: list[int | None] = []
    for moving, still in ((inner, loop), (loop, inner)):
        emitter.env[still.loop_var] = Affine()
        emitter.env[moving.loop_var] = Affine(0, (), 1)
        emitter.lanes = lanes
        at = emitter.offset(place, inner.body.indices)
        emitter.lanes = 1
        found.append(at.lane if isinstance(at, Affine) else None)
    return found[0], found[1]


def emit_squares(emitter: Emitter, loop: For, lanes: int) -> None:
    """All squares of the two loops."""
    inner = loop.body
    assert isinstance(inner, For) and isinstance(inner.body, BufferStore), "square_lanes looked"
    rows, columns = const_int(loop.extent), const_int(inner.extent)
    assert rows is not None and columns is not None, "square_lanes looked"
    store = inner.body
    place = emitter.places[store.buffer]
    for i in range(0, rows, lanes):
        for j in range(0, columns, lanes):
            vectors = []
            emitter.lanes = lanes
            for row in range(lanes):
                emitter.env[loop.loop_var] = Affine(i + row)
                emitter.env[inner.loop_var] = Affine(j, (), 1)
                vectors.append(splat(emitter.builder, emitter.value(store.value), lanes))
            turned = transpose(emitter.builder, vectors)
            for column, vector in enumerate(turned):
                emitter.env[loop.loop_var] = Affine(i, (), 1)
                emitter.env[inner.loop_var] = Affine(j + column)
                if id(store.indices) in emitter.guards:
                    emit_guards(emitter, store.indices)
                at = emitter.offset(place, store.indices)
                assert isinstance(at, Affine) and at.lane == 1, "square_lanes looked"
                emitter.store_row(store.buffer, vector, at, _ITEM_BYTES)
            emitter.lanes = 1


def transpose(builder: ir.IRBuilder, rows: list[ir.Value]) -> list[ir.Value]:
    """n vectors of n elements turned: first squares of 4 inside of 128-bit blocks, then the blocks."""
    n = len(rows)

    def shuffle(a: ir.Value, b: ir.Value, picks: list[int]) -> ir.Value:
        return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, n), [I32(p) for p in picks]))

    blocks = range(0, n, _BLOCK)
    out: list[ir.Value] = []
    for g in range(0, n, _BLOCK):
        a, b, c, d = rows[g : g + 4]
        low = [k + x for k in blocks for x in (0, n, 1, n + 1)]
        high = [k + x for k in blocks for x in (2, n + 2, 3, n + 3)]
        ab0, ab1, cd0, cd1 = shuffle(a, b, low), shuffle(a, b, high), shuffle(c, d, low), shuffle(c, d, high)
        left = [k + x for k in blocks for x in (0, 1, n, n + 1)]
        right = [k + x for k in blocks for x in (2, 3, n + 2, n + 3)]
        out += [shuffle(ab0, cd0, left), shuffle(ab0, cd0, right), shuffle(ab1, cd1, left), shuffle(ab1, cd1, right)]
    # out[4 * g + r] holds in block q the elements 4 * q + r of rows 4 * g … 4 * g + 3: turn blocks (g, q) for each r
    step = 1
    while step < n // _BLOCK:
        for g in range(n // _BLOCK):
            if g & step:
                continue
            for r in range(_BLOCK):
                x, y = out[_BLOCK * g + r], out[_BLOCK * (g + step) + r]
                low = [4 * (q if not q & step else q - step) + (n if q & step else 0) + e
                       for q in range(n // 4) for e in range(4)]  # fmt: skip
                high = [4 * (q + step if not q & step else q) + (n if q & step else 0) + e
                        for q in range(n // 4) for e in range(4)]  # fmt: skip
                out[_BLOCK * g + r], out[_BLOCK * (g + step) + r] = shuffle(x, y, low), shuffle(x, y, high)
        step *= 2
    return out

"""Dot products of four bytes a lane: for n: for k in 4: acc[n] += int32(x[k]) * int32(w[n, k]), in vectors over n.

x, unsigned and the same for all n, and w, signed, have the four bytes side by side. x86-64 with VNNI has one
instruction for it (vpdpbusd); other x86-64 CPUs multiply even and odd bytes as pairs of 16 bits (vpmaddwd), which is
exact, as vpmaddubsw is not; others multiply in 32 bits.
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from autosched.codegen.cpu.affine import Affine
from autosched.codegen.cpu.dot import PAIR_SUMS
from autosched.codegen.cpu.emitter import Emitter
from autosched.codegen.cpu.narrow_products import DOT_BYTES, added_product, byte_factors
from autosched.codegen.cpu.types import I8, I32, call_intrinsic, constant, lanes_of, splat, suffix, value_type
from autosched.ir.node import preorder
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import PrimExpr, const_int
from autosched.tir.functor import free_vars
from autosched.tir.stmt import BufferStore, For, LoopKind

GROUP = 4  # bytes in a lane
LEAST_LANES = 4  # of the instructions
LEAST_MASKED = 256  # bits of the vectors of CPUs that load some lanes of them
_I16 = ir.IntType(16)
_BYTE_SUMS = {  # lanes to the instruction that adds the products of two bytes, in 16 bits, for each half
    4: "llvm.x86.ssse3.pmadd.ub.sw.128",
    8: "llvm.x86.avx2.pmadd.ub.sw",
    16: "llvm.x86.avx512.pmaddubs.w.512",
}


@dataclass(frozen=True, slots=True)
class Dot:
    """The parts of the loops: sums, before and after, bytes that all lanes share, bytes of each lane."""

    store: BufferStore
    before: BufferLoad
    shared: BufferLoad
    own: BufferLoad
    inner: For


def dot_product(emitter: Emitter, loop: For) -> Dot | None:
    """The parts where a vectorised loop is such a product; None for any other."""
    inner = loop.body
    if loop.kind != LoopKind.VECTORIZED or emitter.lanes != 1 or not isinstance(inner, For):
        return None
    if (
        inner.kind not in (LoopKind.SERIAL, LoopKind.UNROLLED)
        or const_int(inner.extent) != GROUP
        or const_int(inner.start) != 0
    ):
        return None
    store = inner.body
    found = added_product(store)
    factors = None if found is None else byte_factors(found[1])
    if found is None or factors is None or const_int(loop.extent) is None:
        return None
    assert isinstance(store, BufferStore), "just seen"
    dot = Dot(store, found[0], *factors, inner)
    lane, k = loop.loop_var, inner.loop_var
    if any(k in free_vars(i) for i in store.indices) or any(lane in free_vars(i) for i in dot.shared.indices):
        return None
    steps = (
        _step(emitter, store.buffer, store.indices, lane, k),
        _step(emitter, dot.own.buffer, dot.own.indices, lane, k),
        _step(emitter, dot.own.buffer, dot.own.indices, k, lane),
        _step(emitter, dot.shared.buffer, dot.shared.indices, k, lane),
    )
    return dot if steps == (1, GROUP, 1, 1) else None


def _step(emitter: Emitter, buffer: Buffer, indices: tuple[PrimExpr, ...], along: E.Var, fixed: E.Var) -> int | None:
    """How far apart two elements are whose indices differ by one in a variable; None where that is no constant."""
    if any(isinstance(x, BufferLoad) for i in indices for x in preorder(i)):
        return None
    return emitter.distance(buffer, indices, along, GROUP, (fixed,))


def emit_dot_product(emitter: Emitter, loop: For, dot: Dot) -> None:
    """Whole vectors, then what is left of the lanes: masked, or without masks in the largest vectors that fit."""
    count = const_int(loop.extent)
    assert count is not None, "dot_product looked"
    start = emitter.index(loop.start)
    assert isinstance(start, Affine), "outside of a vectorised loop no value depends on the lane"
    emitter.env[dot.inner.loop_var] = Affine(0)
    emitter.env[loop.loop_var] = start
    shared = _shared(emitter, dot.shared)
    at = 0
    while at < count:
        rest = count - at
        lanes = min(emitter.isa.lanes("int32"), 1 << (rest - 1).bit_length())
        if lanes > rest and emitter.isa.vector_bits < LEAST_MASKED:
            lanes //= 2
        emitter.env[loop.loop_var] = start.plus(Affine(at))
        emitter.lanes, emitter.mask = lanes, rest if rest < lanes else None
        own = _bytes(emitter, dot.own, lanes)
        emitter.env[loop.loop_var] = Affine(start.const + at, start.terms, 1 if lanes > 1 else 0)
        before = emitter.load(dot.before.buffer, dot.before.indices)
        total = _added(emitter, before, splat(emitter.builder, shared, lanes), own, lanes)
        emitter.store(dot.store.buffer, total, dot.store.indices)
        emitter.lanes, emitter.mask = 1, None
        at += lanes


def _shared(emitter: Emitter, load: BufferLoad) -> ir.Value:
    """The four bytes that all lanes share, as one number."""
    return _word(emitter, load, I32, 1)


def _bytes(emitter: Emitter, load: BufferLoad, lanes: int) -> ir.Value:
    """Four bytes for each lane, as numbers of 32 bits."""
    return _word(emitter, load, value_type("int32", lanes), lanes)


def _word(emitter: Emitter, load: BufferLoad, kind: ir.Type, lanes: int) -> ir.Value:
    place = emitter.places[load.buffer]
    at = emitter.offset(place, load.indices)
    assert isinstance(at, Affine), "dot_product looked"
    mask = None if lanes == 1 else emitter.mask_vector()
    key = ("dot", id(place.pointer), at.key, at.const, lanes, emitter.mask_key())
    known = emitter.known(key) if place.read_only else None
    if known is not None:
        return known
    pointer = emitter.builder.bitcast(emitter.address(place, at), kind.as_pointer())
    if mask is None:
        word = emitter.builder.load(pointer, align=1)
    else:
        name = f"llvm.masked.load.{suffix(kind)}.p0"
        word = call_intrinsic(emitter.builder, name, kind, [pointer, I32(1), mask, constant(kind, 0)])
    return emitter.remember(key, word) if place.read_only else word


def emit_dot_bytes(emitter: Emitter, e: E.Call) -> ir.Value:
    """A call of `DOT_BYTES`."""
    values = [emitter.value(a) for a in e.args]
    lanes = max(map(lanes_of, values))
    before, x, own = (splat(emitter.builder, v, lanes) for v in values)
    return _added(emitter, before, x, own, lanes)


def _added(emitter: Emitter, before: ir.Value, x: ir.Value, own: ir.Value, lanes: int) -> ir.Value:
    """The sums of lanes with the products of four bytes each, those of x unsigned."""
    b, isa = emitter.builder, emitter.isa
    vector = value_type("int32", lanes)
    if isa.has_byte_dots and lanes >= LEAST_LANES:
        bits = 32 * lanes
        bytes_ = ir.VectorType(I8, GROUP * lanes)
        name = f"llvm.x86.avx512.vpdpbusd.{bits}"
        return call_intrinsic(b, name, vector, [before, b.bitcast(x, bytes_), b.bitcast(own, bytes_)])
    if isa.pair_bits >= 32 * lanes and lanes >= LEAST_LANES:
        return _by_pairs(emitter, before, x, own, lanes)
    total = before
    for k in range(GROUP):
        moved = b.shl(own, constant(vector, 24 - 8 * k)) if k < GROUP - 1 else own
        factor = b.and_(b.lshr(x, constant(vector, 8 * k)), constant(vector, 255))
        total = b.add(total, b.mul(b.ashr(moved, constant(vector, 24)), factor))
    return total


def _by_pairs(emitter: Emitter, before: ir.Value, x: ir.Value, own: ir.Value, lanes: int) -> ir.Value:
    """Bytes 0 and 2, then 1 and 3 of each lane as pairs of 16 bits, whose products are added in 32.

    A byte times 1 plus its neighbour times 0 is the byte in 16 bits (vpmaddubsw). LLVM would undo a mask and a shift of
    the shared bytes, and bring each of their numbers from a general register, by two instructions for one port.
    """
    b = emitter.builder
    pairs, vector, bytes_ = (ir.VectorType(t, 4 * lanes // n) for t, n in ((_I16, 2), (I32, 4), (I8, 1)))
    added, widened = PAIR_SUMS[lanes], _BYTE_SUMS[lanes]
    unsigned, signed = b.bitcast(x, bytes_), b.bitcast(own, bytes_)
    total = before
    for odd in (0, 1):
        one = ir.Constant(bytes_, [int(k % 2 == odd) for k in range(4 * lanes)])
        left = call_intrinsic(b, widened, pairs, [unsigned, one])
        right = (
            b.ashr(b.bitcast(own, pairs), constant(pairs, 8))
            if odd
            else call_intrinsic(b, widened, pairs, [one, signed])
        )
        total = b.add(total, call_intrinsic(b, added, vector, [left, right]))
    return total


__all__ = ["DOT_BYTES", "GROUP", "Dot", "dot_product", "emit_dot_bytes", "emit_dot_product"]

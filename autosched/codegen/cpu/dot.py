"""Products of pairs of bfloat16 or of int16, which lie side by side in a word, summed in float32 or in int32.

    for k in 2: tile[n] += int32(a[m, 2 * step + k]) * int32(b[step, n, k])

is one `vpmaddwd` and one addition on every x86-64, and elsewhere two multiplications and additions.

    for k in 2: tile[n] += float32(a[m, 2 * step + k]) * float32(b[step, n, k])

is one `vdpbf16ps` where the CPU has it, which takes denormals for 0 and rounds both sums by itself to odd and to even;
elsewhere a shift, a mask and two multiply-adds, exact but for the rounding of each sum.
"""

from __future__ import annotations

from llvmlite import ir

from autosched.codegen.cpu.affine import Affine
from autosched.codegen.cpu.emitter import Emitter
from autosched.codegen.cpu.narrow_products import BITS, added_product, bfloat_factors, short_factors
from autosched.codegen.cpu.types import F32, I32, BFloat, call_intrinsic, constant, splat, suffix
from autosched.tir import expr as E
from autosched.tir.buffer import BufferLoad
from autosched.tir.expr import const, const_int
from autosched.tir.functor import free_vars, substitute
from autosched.tir.simplify import Analyzer
from autosched.tir.stmt import BufferStore, For, LoopKind

PAIR = 2
UPPER = 0xFFFF0000
PAIR_SUMS = {  # lanes to the instruction that adds the products of two int16 for each
    4: "llvm.x86.sse2.pmadd.wd",
    8: "llvm.x86.avx2.pmadd.wd",
    16: "llvm.x86.avx512.pmaddw.d.512",
}
DOTS = {4: 128, 8: 256, 16: 512}  # lanes of the sum to the instruction's bits


def pair_factors(emitter: Emitter, loop: For) -> tuple[BufferLoad, BufferLoad] | None:
    """The factors of a loop that sums up the products of pairs in words; None for any other loop."""
    body = loop.body
    if loop.kind not in (LoopKind.SERIAL, LoopKind.UNROLLED) or emitter.lanes == 1 or const_int(loop.extent) != PAIR:
        return None
    found = added_product(body)
    if found is None or const_int(loop.start) != 0:
        return None
    factors = bfloat_factors(found[1]) or short_factors(found[1])
    if factors is None or any(_word(emitter, loop, x) is None for x in factors):
        return None
    return factors


def emit_pairs(emitter: Emitter, loop: For, factors: tuple[BufferLoad, BufferLoad]) -> None:
    """Two steps of the sum at once."""
    store = loop.body
    assert isinstance(store, BufferStore) and isinstance(store.value, E.Add), "just seen"
    words = [_load(emitter, loop, x) for x in factors]
    total = splat(emitter.builder, emitter.value(store.value.a), emitter.lanes)
    a, b = (splat(emitter.builder, w, emitter.lanes) for w in words)
    if factors[0].dtype == "int16":
        total = _with_shorts(emitter, total, a, b)
    elif emitter.isa.has_bfloat_dot and emitter.lanes in DOTS:
        halves = ir.VectorType(BFloat(), PAIR * emitter.lanes)
        pairs = [emitter.builder.bitcast(x, halves) for x in (a, b)]
        name = f"llvm.x86.avx512bf16.dpbf16ps.{DOTS[emitter.lanes]}"
        total = call_intrinsic(emitter.builder, name, total.type, [total, *pairs])
    else:
        for part in (_lower, _upper):
            total = emitter.fused(part(emitter, a), part(emitter, b), total)
    emitter.store(store.buffer, total, store.indices)


def _with_shorts(emitter: Emitter, total: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
    """Sums of int32 with the products of words of two int16."""
    builder, lanes = emitter.builder, emitter.lanes
    if emitter.isa.pair_bits >= 32 * lanes and lanes in PAIR_SUMS:
        shorts = ir.VectorType(ir.IntType(BITS), PAIR * lanes)
        pairs = [builder.bitcast(x, shorts) for x in (a, b)]
        return builder.add(total, call_intrinsic(builder, PAIR_SUMS[lanes], total.type, pairs))
    bits = constant(a.type, BITS)
    lower = [builder.ashr(builder.shl(x, bits), bits) for x in (a, b)]
    upper = [builder.ashr(x, bits) for x in (a, b)]
    for x, y in (lower, upper):
        total = builder.add(total, builder.mul(x, y))
    return total


def _word(emitter: Emitter, loop: For, x: BufferLoad) -> Affine | None:
    """Where the word with both halves lies: the same for all lanes, or one word a lane. None: they are apart."""
    place, var = emitter.places.get(x.buffer), loop.loop_var
    if place is None or place.strides[-1] != 1 or id(x.indices) in emitter.guards:
        return None
    if any(var in free_vars(i) for i in x.indices[:-1]):
        return None
    ends = [substitute(x.indices[-1], {var: const(k, var.dtype)}) for k in range(PAIR)]
    if const_int(Analyzer().simplify(ends[1] - ends[0])) != 1:
        return None
    with emitter.assigned({var: Affine()}):
        at = emitter.offset(place, x.indices)
    return at if isinstance(at, Affine) and at.lane in (0, PAIR) else None


def _load(emitter: Emitter, loop: For, x: BufferLoad) -> ir.Value:
    at = _word(emitter, loop, x)
    assert at is not None, "just seen"
    b, place = emitter.builder, emitter.places[x.buffer]
    start = emitter.address(place, at.without_lane())
    if not at.lane:
        pointer = b.bitcast(start, I32.as_pointer())
        if emitter.mask is not None and not isinstance(emitter.mask, int):
            pointer = b.select(emitter.any_lane(), pointer, b.bitcast(place.pointer, I32.as_pointer()))
        return b.load(pointer, align=PAIR)
    kind = ir.VectorType(I32, emitter.lanes)
    pointer, mask = b.bitcast(start, kind.as_pointer()), emitter.mask_vector()
    if mask is None:
        return b.load(pointer, align=PAIR)
    name = f"llvm.masked.load.{suffix(kind)}.p0"
    return call_intrinsic(b, name, kind, [pointer, I32(PAIR), mask, constant(kind, 0)])


def _lower(emitter: Emitter, words: ir.Value) -> ir.Value:
    moved = emitter.builder.shl(words, constant(words.type, BITS))
    return emitter.builder.bitcast(moved, ir.VectorType(F32, emitter.lanes))


def _upper(emitter: Emitter, words: ir.Value) -> ir.Value:
    kept = emitter.builder.and_(words, constant(words.type, UPPER))
    return emitter.builder.bitcast(kept, ir.VectorType(F32, emitter.lanes))

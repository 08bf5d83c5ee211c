"""Turns squares of vectors in registers, where a vectorised loop reads along its variable and writes across it.

    for i in unroll(8): for j in vectorized(8): out[j, i] = f(in[i, j])

becomes 8 vectors of f(in), a transposition by shuffles, and 8 whole stores. So do words of two elements of 16 bits that
are only moved: for g in 2: out[j, i, g] = in[i, 2 * j + g]. Of elements of 8 or 16 bits as many rows are turned as fill
128 bits, of vectors of any length: 16 rows of 64 bytes become 64 columns of 16.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from autosched.codegen.cpu.affine import Affine
from autosched.codegen.cpu.checks import emit_guards
from autosched.codegen.cpu.emitter import Emitter
from autosched.codegen.cpu.types import I32, splat
from autosched.codegen.lower.loops import enter
from autosched.tir import expr as E
from autosched.tir.buffer import BufferLoad
from autosched.tir.dtypes import item_bytes
from autosched.tir.expr import PrimExpr, const_int
from autosched.tir.functor import free_vars, loads, substitute
from autosched.tir.simplify import Analyzer
from autosched.tir.stmt import BufferStore, For, LoopKind

_ITEM_BYTES = 4  # of what is turned in squares
PAIR = 2  # elements of 16 bits in a word
INTERLEAVED_ROWS = (2, 3, 4)  # whose elements are stored by turns
_BLOCK = 4  # elements of 128 bits, within which unpacking works
_BLOCK_BYTES = 16


def emit_squares(emitter: Emitter, loop: For) -> bool:
    """Turn an unrolled loop and the vectorised one in it; False: they are none that can be turned."""
    inner = loop.body
    if loop.kind is not LoopKind.UNROLLED or emitter.lanes != 1 or not isinstance(inner, For):
        return False
    if inner.kind is not LoopKind.VECTORIZED:
        return False
    outside = emitter.analyzer
    emitter.analyzer = enter(outside, inner)  # remainders of fused axes cancel where the lanes' range is known
    lanes = _square_lanes(emitter, loop, inner)
    if lanes:
        _emit_squares(emitter, loop, inner, lanes)
    emitter.analyzer = outside
    return lanes > 0


def _square_lanes(emitter: Emitter, loop: For, inner: For) -> int:
    """Lanes of the vectors in which an unrolled loop and the vectorised one in it can be turned; 0 where not."""
    store, pair = _stored(inner)
    rows, columns = const_int(loop.extent), const_int(inner.extent)
    if store is None or rows is None or columns is None or const_int(loop.start) != 0 or const_int(inner.start) != 0:
        return 0
    lanes = _lanes(emitter, item_bytes(store.buffer.dtype), rows, columns, pair)
    place = emitter.places.get(store.buffer)
    if place is None or place.is_local or not lanes or not (pair is None or _moves_words(emitter, loop, inner, pair)):
        return 0
    along, across = (_distance(emitter, store, x, (loop, inner, pair)) for x in (loop, inner))
    if along != _items(pair):
        return 0
    if across is None:
        return lanes if pair is None and _writes_rows(emitter.joined(place, store.indices)[1], loop, inner) else 0
    return lanes if across not in (0, along) else 0


def _writes_rows(indices: Sequence[PrimExpr], loop: For, inner: For) -> bool:
    """Whether the inner loop's iterations write different rows of a buffer, however long these are."""
    *above, last = indices
    across = [i for i in above if inner.loop_var in free_vars(i)]
    if len(across) != 1 or inner.loop_var in free_vars(last) or any(loop.loop_var in free_vars(i) for i in above):
        return False
    following = substitute(across[0], {inner.loop_var: E.add(inner.loop_var, E.const(1, inner.loop_var.dtype))})
    return const_int(Analyzer().simplify(E.sub(following, across[0]))) not in (None, 0)


def _lanes(emitter: Emitter, size_bytes: int, rows: int, columns: int, pair: For | None) -> int:
    """Lanes of the vectors that rows of elements of so many bytes are turned in; 0 where they are of no such size."""
    if size_bytes * _items(pair) == _ITEM_BYTES:
        lanes = emitter.isa.lanes("int32")
        return 0 if lanes < _BLOCK or rows % lanes or columns % lanes else lanes
    block = _BLOCK_BYTES // size_bytes
    if pair is not None or size_bytes > _ITEM_BYTES or rows % block:
        return 0
    widths = (emitter.isa.lanes(f"int{8 * size_bytes}") >> n for n in range(3))
    return next((w for w in widths if w >= block and columns % w == 0), 0)


def _stored(inner: For) -> tuple[BufferStore | None, For | None]:
    """(what a loop does, the loop over the elements of a word around it)."""
    body = inner.body
    pair = body if isinstance(body, For) and const_int(body.extent) == PAIR and const_int(body.start) == 0 else None
    body = body if pair is None else pair.body
    return (body if isinstance(body, BufferStore) else None), pair


def _items(pair: For | None) -> int:
    """Elements of a word."""
    return 1 if pair is None else PAIR


def _moves_words(emitter: Emitter, loop: For, inner: For, pair: For) -> bool:
    """Whether elements that lie side by side come to lie so."""
    store = pair.body
    assert isinstance(store, BufferStore), "the caller looked"
    load = store.value
    if not isinstance(load, BufferLoad) or load.dtype != store.buffer.dtype:
        return False
    if any(id(x.indices) in emitter.guards for x in (store, load)):
        return False
    loops = (loop, inner, pair)
    steps = [_distance(emitter, x, along, loops) for x, along in ((store, pair), (load, pair), (load, inner))]
    return steps == [1, 1, PAIR]


def _distance(emitter: Emitter, x: BufferStore | BufferLoad, along: For, loops: Sequence[For | None]) -> int | None:
    """How far an access moves in an iteration of one of the loops, where that is constant."""
    fixed = [loop.loop_var for loop in loops if loop is not None and loop is not along]
    return emitter.distance(x.buffer, x.indices, along.loop_var, _BLOCK, fixed)


def _emit_squares(emitter: Emitter, loop: For, inner: For, lanes: int) -> None:
    """All squares of the two loops."""
    store, pair = _stored(inner)
    rows, columns = const_int(loop.extent), const_int(inner.extent)
    assert rows is not None and columns is not None and store is not None, "_square_lanes looked"
    if pair is not None:
        emitter.env[pair.loop_var] = Affine()
    if item_bytes(store.buffer.dtype) * _items(pair) < _ITEM_BYTES:
        _emit_blocks(emitter, loop, inner, store, lanes)
        return
    place = emitter.places[store.buffer]
    for i in range(0, rows, lanes):
        for j in range(0, columns, lanes):
            vectors = []
            emitter.lanes = lanes
            for row in range(lanes):
                emitter.env[loop.loop_var] = Affine(i + row)
                emitter.env[inner.loop_var] = Affine(j, (), 1)
                value = emitter.value(store.value) if pair is None else _words(emitter, store.value, lanes)
                vectors.append(splat(emitter.builder, value, lanes))
            turned = transpose(emitter.builder, vectors)
            for column, vector in enumerate(turned):
                emitter.env[loop.loop_var] = Affine(i, (), 1)
                emitter.env[inner.loop_var] = Affine(j + column)
                if id(store.indices) in emitter.guards:
                    emit_guards(emitter, store.indices)
                at = emitter.offset(place, store.indices)
                assert isinstance(at, Affine) and at.lane == _items(pair), "_square_lanes looked"
                if pair is None:
                    emitter.store_row(store.buffer, vector, at, _ITEM_BYTES)
                else:
                    pointer = emitter.address(place, at.without_lane())
                    pointer = emitter.builder.bitcast(pointer, vector.type.as_pointer())
                    emitter.builder.store(vector, pointer, align=_ITEM_BYTES // PAIR)
            emitter.lanes = 1


def _emit_blocks(emitter: Emitter, loop: For, inner: For, store: BufferStore, lanes: int) -> None:
    """Rows of small elements, as many as fill 128 bits: each block of these in a vector becomes a part of a column."""
    b, size_bytes, place = emitter.builder, item_bytes(store.buffer.dtype), emitter.places[store.buffer]
    rows, columns, block = const_int(loop.extent), const_int(inner.extent), _BLOCK_BYTES // size_bytes
    assert rows is not None and columns is not None, "_square_lanes looked"
    kind = ir.VectorType(ir.IntType(8 * size_bytes), lanes)
    for i in range(0, rows, block):
        for j in range(0, columns, lanes):
            vectors = []
            for row in range(block):
                emitter.lanes = lanes
                emitter.env[loop.loop_var] = Affine(i + row)
                emitter.env[inner.loop_var] = Affine(j, (), 1)
                value = splat(b, emitter.value(store.value), lanes)
                is_bool = store.buffer.dtype == "bool"
                vectors.append(b.zext(value, kind) if is_bool else b.bitcast(value, kind))
            emitter.lanes = block
            for column, vector in enumerate(_unpacked(b, vectors)):
                for first in range(0, lanes, block):
                    emitter.env[loop.loop_var] = Affine(i, (), 1)
                    emitter.env[inner.loop_var] = Affine(j + first + column)
                    if id(store.indices) in emitter.guards:
                        emit_guards(emitter, store.indices)
                    at = emitter.offset(place, store.indices)
                    assert isinstance(at, Affine) and at.lane == 1, "_square_lanes looked"
                    part = _picked(b, vector, vector, range(first, first + block))
                    emitter.store_row(store.buffer, part, at, size_bytes)
            emitter.lanes = 1


def _unpacked(builder: ir.IRBuilder, rows: list[ir.Value]) -> list[ir.Value]:
    """n vectors with blocks of n elements, turned block by block: each round takes two halves of the rows by turns."""
    n, lanes = len(rows), rows[0].type.count
    low = [x for k in range(0, lanes, n) for e in range(n // 2) for x in (k + e, lanes + k + e)]
    high = [x + n // 2 for x in low]
    for _ in range(n.bit_length() - 1):
        pairs = zip(rows[: n // 2], rows[n // 2 :], strict=True)
        rows = [_picked(builder, x, y, picks) for x, y in pairs for picks in (low, high)]
    return rows


def _picked(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, picks: Sequence[int]) -> ir.Value:
    """A vector of some elements of two, which are counted on from the first to the second."""
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, len(picks)), [I32(p) for p in picks]))


def _words(emitter: Emitter, load: PrimExpr, lanes: int) -> ir.Value:
    """Pairs of elements, as numbers of 32 bits."""
    assert isinstance(load, BufferLoad), "_square_lanes looked"
    place = emitter.places[load.buffer]
    at = emitter.offset(place, load.indices)
    assert isinstance(at, Affine), "_square_lanes looked"
    pointer = emitter.address(place, at.without_lane())
    pointer = emitter.builder.bitcast(pointer, ir.VectorType(I32, lanes).as_pointer())
    return emitter.builder.load(pointer, align=_ITEM_BYTES // PAIR)


def interleaved_store(emitter: Emitter, loop: For) -> BufferStore | None:
    """The store in a loop over neighbours below a vectorised one, all of whose lanes' elements lie side by side.

    for n in vectorized(16): for g in 2: out[2 * n + g] = in[g, n]
    """
    store, count = loop.body, const_int(loop.extent)
    whole = emitter.mask is None or isinstance(emitter.mask, int)
    if emitter.lanes == 1 or not whole or count not in INTERLEAVED_ROWS or const_int(loop.start) != 0:
        return None
    if loop.kind not in (LoopKind.SERIAL, LoopKind.UNROLLED) or not isinstance(store, BufferStore):
        return None
    place = emitter.places.get(store.buffer)
    if place is None or place.is_local or store.buffer.dtype == "bool" or id(store.indices) in emitter.guards:
        return None
    if any(load.buffer is store.buffer for load in loads(store.value)):
        return None  # the second of two neighbours may be made of the first
    ends = []
    for g in range(count):
        with emitter.assigned({loop.loop_var: Affine(g)}):
            ends.append(emitter.offset(place, store.indices))
    first = ends[0]
    for g, end in enumerate(ends):
        if not isinstance(first, Affine) or not isinstance(end, Affine) or end.lane != count:
            return None
        if end.key != first.key or end.const - first.const != g:
            return None
    return store


def emit_interleaved_store(emitter: Emitter, loop: For, store: BufferStore) -> None:
    """Vectors, whose elements take turns in what is stored."""
    b, lanes, count = emitter.builder, emitter.lanes, const_int(loop.extent)
    assert count is not None, "interleaved_store looked"
    values = []
    for g in range(count):
        emitter.env[loop.loop_var] = Affine(g)
        values.append(splat(b, emitter.value(store.value), lanes))
    emitter.env[loop.loop_var] = Affine()
    at = emitter.offset(emitter.places[store.buffer], store.indices)
    assert isinstance(at, Affine), "interleaved_store looked"
    mask = emitter.mask
    emitter.lanes, emitter.mask = lanes * count, mask * count if isinstance(mask, int) else None
    emitter.store_row(store.buffer, _in_turns(b, values), at, item_bytes(store.buffer.dtype))
    emitter.lanes, emitter.mask = lanes, mask


def _in_turns(builder: ir.IRBuilder, vectors: Sequence[ir.Value]) -> ir.Value:
    """One vector of the first elements of up to four, then the second ones, and so on."""
    if len(vectors) == 1:
        return vectors[0]
    if len(vectors) % 2 == 0:
        even, odd = (_in_turns(builder, vectors[n::2]) for n in range(2))
        lanes = even.type.count
        return _picked(builder, even, odd, [n // 2 + n % 2 * lanes for n in range(2 * lanes)])
    a, b, c = vectors
    lanes = a.type.count
    both, third = (_picked(builder, x, y, range(2 * lanes)) for x, y in ((a, b), (c, c)))
    return _picked(builder, both, third, [n // 3 + n % 3 * lanes for n in range(3 * lanes)])


def transpose(builder: ir.IRBuilder, rows: list[ir.Value]) -> list[ir.Value]:
    """n vectors of n elements turned: first squares of 4 inside of 128-bit blocks, then the blocks."""
    n = len(rows)

    def shuffle(a: ir.Value, b: ir.Value, picks: list[int]) -> ir.Value:
        return _picked(builder, a, b, picks)

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

"""Emits loads, stores and prefetches of one tile."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

from llvmlite import ir

from autosched.codegen.cpu.affine import Affine
from autosched.codegen.cpu.checks import emit_guards
from autosched.codegen.cpu.emitter import Emitter, Place
from autosched.codegen.cpu.index import Index, stride_extents
from autosched.codegen.cpu.types import (
    I8,
    I32,
    VOID,
    call_intrinsic,
    constant,
    lane_addresses,
    lanes_of,
    memory_type,
    splat,
    suffix,
    undefined,
    value_type,
)  # fmt: skip
from autosched.ir.node import preorder
from autosched.tir.buffer import Buffer
from autosched.tir.dtypes import is_int, item_bytes
from autosched.tir.expr import (
    Add,
    Cast,
    FloorDiv,
    FloorMod,
    IntImm,
    Mul,
    PrimExpr,
    Sub,
    Var,
    add,
    cast,
    const,
    const_int,
    mul,
)  # fmt: skip
from autosched.tir.stmt import Allocate

GATHERED, LEAST_GATHERED = (4, 8), 4  # bytes of elements, and lanes, that one instruction is to load
MOST_NARROW = (1 << 31) - 1  # distance that an index of 32 bits holds
# Vectors that go through exp and its like together, operation by operation: one alone is a chain of 60 cycles, and
# three such chains fill a core's schedulers (gelu of 8 floats on Zen 3: 11.0 ns alone, 9.1 in pairs, 7.1 in fours).
INTERLEAVED = 4
ZERO_BYTES = 256  # of the constant that is read in place of padding: more than any vector has


@dataclass(slots=True)
class LaneUse:
    """Which elements of a local buffer lanes use, and which a masked vector leaves out, as ranges of positions."""

    used: set[tuple[int, int]] = field(default_factory=set)
    left_out: set[tuple[int, int]] = field(default_factory=set)
    anywhere: bool = False  # an index is not constant

    @property
    def masks_matter(self) -> bool:
        """Whether an element that one masked vector leaves out is used elsewhere."""
        if self.anywhere:
            return True
        return any(a < d and c < b for a, b in self.left_out for c, d in self.used)


Parts = tuple[tuple[Place, tuple[PrimExpr, ...]], ...]  # of an access: some of its dimensions, the others


class MemoryEmitter(Emitter):
    """Adds memory to the index arithmetic.

    unmasked  local buffers whose vectors may be stored whole, because nobody uses the lanes that a mask leaves out
    """

    entry: ir.IRBuilder  # a builder at the end of the entry block's allocations
    slots: dict[int, tuple[Allocate, Place]]  # by the statement, which is kept so that its id stays its own
    lane_use: dict[Buffer, LaneUse]
    unmasked: frozenset[Buffer]
    flat: dict[Hashable, PrimExpr]
    divided: dict[
        int, tuple[tuple[PrimExpr, ...], list[Var] | None]
    ]  # the variables of indices that are worth flattening
    joins: dict[Hashable, tuple[Place, tuple[PrimExpr, ...]]]
    parts_of: dict[tuple[int, int], tuple[tuple[PrimExpr, ...], Place, Parts]]  # by indices and place, as below
    # By indices and place, which are kept so that their ids stay their own: what `_distance` says.
    sums: dict[tuple[int, int], tuple[tuple[PrimExpr, ...], Place, tuple[int, Coefficients] | None]]

    def note_lanes(self, buffer: Buffer, at: Index) -> None:
        """Keep account of what is used of a local buffer."""
        use = self.lane_use.setdefault(buffer, LaneUse())
        if not isinstance(at, Affine) or at.terms or at.lane not in (0, 1):
            use.anywhere = True
        elif not at.lane:
            use.used.add((at.const, at.const + 1))
        else:
            end = at.const + self.lanes
            middle = at.const + (self.mask if isinstance(self.mask, int) else self.lanes)
            use.used.add((at.const, middle))
            if middle < end:
                use.left_out.add((middle, end))

    def note_anywhere(self, buffer: Buffer) -> None:
        """Keep account of that any element of a local buffer may be used."""
        if self.places[buffer].is_local:
            self.lane_use.setdefault(buffer, LaneUse()).anywhere = True

    # --- places -------------------------------------------------------------------------------------------------

    def declare(self, buffer: Buffer, pointer: ir.Value, read_only: bool) -> None:
        """An argument: `pointer` is an i8*."""
        typed = self.builder.bitcast(
            pointer, memory_type(buffer.dtype).as_pointer(pointer.type.addrspace), name=buffer.name
        )
        extents = [(const_int(x), x) for x in stride_extents(buffer)]
        strides = tuple(self.index(x) if number is None else number for number, x in extents)
        inner = () if buffer.strides else tuple(map(const_int, buffer.shape))
        row = const_int(buffer.shape[-1]) if buffer.shape and strides[-1] == 1 else None
        self.places[buffer] = Place(typed, strides, False, read_only, inner, row or 0)

    def allocate(self, stmt: Allocate) -> None:
        """A local buffer: an array on the stack, which LLVM turns into registers where all indices are constant.

        Rows are padded to whole vectors, so that a masked vector may be loaded and stored whole. Pieces of code that
        each allocate the buffer (full tiles and ragged ones) get arrays of their own: LLVM would mix the lanes that
        they use of one. Unrolled code, which comes to one allocation many times, gets one.
        """
        buffer = stmt.buffer
        found = self.slots.get(id(stmt))
        if found is not None:
            self.places[buffer] = found[1]
            return
        shape = [max(const_int(s) or 1, 1) for s in buffer.shape] or [1]
        pad = min(self.isa.lanes(buffer.dtype), 1 << (shape[-1] - 1).bit_length())
        shape[-1] = -(-shape[-1] // pad) * pad
        strides = [1]
        for size in reversed(shape[1:]):
            strides.insert(0, strides[0] * size)
        beyond = INTERLEAVED * self.isa.lanes("int8") // 2  # that a masked vector, more than half full, may reach
        array = ir.ArrayType(memory_type(buffer.dtype), strides[0] * shape[0] + beyond)
        slot = self.entry.alloca(array, name=buffer.name)
        slot.align = 64
        pointer = self.entry.bitcast(slot, memory_type(buffer.dtype).as_pointer())
        self.places[buffer] = Place(pointer, tuple(strides[: max(len(buffer.shape), 1)]), True, False)
        self.slots[id(stmt)] = (stmt, self.places[buffer])

    def offset(self, place: Place, indices: tuple[PrimExpr, ...]) -> Index:
        """The distance in elements from the buffer's start."""
        flat = self.flattened(place, indices)
        if flat is not None:
            return self.index(flat)
        if parts := self.parted(place, indices):
            return functools.reduce(self.sum, [self.offset(*part) for part in parts])
        place, indices = self.joined(place, indices)
        at = self.combined(place, indices)
        if at is not None:
            return at
        even, uneven = Affine(), list[Index]()  # what lanes differ in by equal steps, and by others
        for e, stride in zip(indices, place.strides, strict=False):
            part = self.product(self.index(e), Affine(stride) if isinstance(stride, int) else stride)
            if isinstance(part, Affine):
                even = even.plus(part)
            else:
                uneven.append(part)
        if not uneven:
            return even
        return self.sum(even, functools.reduce(self.sum, uneven))

    def combined(self, place: Place, indices: tuple[PrimExpr, ...]) -> Affine | None:
        """The distance by the coefficients of the variables, found once for unrolled code; None where it has none."""
        known = self.sums.get((id(indices), id(place)))
        if known is None:
            known = self.sums[id(indices), id(place)] = indices, place, _distance(place, indices)
        if known[2] is None:
            return None
        const, coefficients = known[2]
        lane, terms = 0, dict[int, tuple[int, ir.Value]]()
        for var, c in coefficients:
            value = self.env.get(var)
            if not isinstance(value, Affine):
                return None
            const += c * value.const
            lane += c * value.lane
            for number, k, term in value.terms:
                terms[number] = (terms[number][0] if number in terms else 0) + c * k, term
        found = tuple((number, k, term) for number, (k, term) in sorted(terms.items()) if k)
        return Affine(const, found, lane)

    def flattened(self, place: Place, indices: tuple[PrimExpr, ...]) -> PrimExpr | None:
        """One simplified expression where quotients and remainders may cancel: i // 9 * 9 + i % 9."""
        known = self.divided.get(id(indices))
        if known is None:
            divides = len(indices) > 1 and any(isinstance(x, FloorDiv | FloorMod) for i in indices for x in preorder(i))
            pure = divides and all(self.is_pure(i) for i in indices)
            known = self.divided[id(indices)] = (indices, sorted_vars(indices) if pure else None)
        variables = known[1]
        if variables is None:
            return None
        steps = [(i, s) for i, s in zip(indices, place.strides, strict=False) if const_int(i) != 0]
        known_steps = [(i, s) for i, s in steps if isinstance(s, int)]
        if len(known_steps) < len(steps):
            return None
        strides = tuple(s for _, s in known_steps)
        key = ("flat", id(indices), strides, *(self.analyzer.bounds.get(v) for v in variables))
        if key not in self.flat:
            types = {i.dtype for i, _ in known_steps}
            dtype = types.pop() if len(types) == 1 else "int64"
            flat = self.analyzer.simplify(_flat(known_steps, dtype))
            low, high = self.analyzer.bound(flat)
            if dtype != "int64" and (low is None or high is None or low < 0 or high > MOST_NARROW):
                flat = self.analyzer.simplify(_flat(known_steps, "int64"))
            self.flat[key] = flat
        return self.flat[key]

    def parted(self, place: Place, indices: tuple[PrimExpr, ...]) -> Parts:
        """The dimensions up to one whose place is read from memory, and those behind it, which may become one."""
        key = id(indices), id(place)
        if key not in self.parts_of:
            at = max((n for n, i in enumerate(indices, 1) if not self.is_pure(i)), default=0)
            divides = any(isinstance(x, FloorDiv | FloorMod) for i in indices[at:] for x in preorder(i))
            cut = 0 < at < len(indices) - 1 and divides and len(place.strides) == len(indices)
            head, tail = (replace(place, strides=x, extents=()) for x in (place.strides[:at], place.strides[at:]))
            found = ((head, indices[:at]), (tail, indices[at:])) if cut else ()
            self.parts_of[key] = indices, place, found
        return self.parts_of[key][2]

    def joined(self, place: Place, indices: tuple[PrimExpr, ...]) -> tuple[Place, tuple[PrimExpr, ...]]:
        """Neighbouring dimensions whose quotient and remainder cancel as one, where strides are no numbers.

        x[i // 9, i % 9, j] of [n, 9, m]  ->  x[i, j] of [9 * n, m]
        """
        variables = self.divided[id(indices)][1]
        if variables is None or len(place.extents) != len(indices):
            return place, indices
        key = ("joined", id(indices), id(place), *(self.analyzer.bounds.get(v) for v in variables))
        if key not in self.joins:
            strides, kept, span = [place.strides[-1]], [indices[-1]], place.extents[-1]
            for i, stride, extent in zip(indices[-2::-1], place.strides[-2::-1], place.extents[-2::-1], strict=True):
                one = None if span is None else self.analyzer.simplify(add(mul(i, const(span, i.dtype)), kept[0]))
                if one is not None and not any(isinstance(x, FloorDiv | FloorMod) for x in preorder(one)):
                    kept[0] = one
                    span = None if span is None or extent is None else span * extent
                else:
                    strides, kept, span = [stride, *strides], [i, *kept], extent
            self.joins[key] = replace(place, strides=tuple(strides), extents=()), tuple(kept)
        return self.joins[key]

    def address(self, place: Place, at: Affine) -> ir.Value:
        """A pointer to the element, which does not depend on the lane.

        Addresses in local arrays are not marked `inbounds`: lanes that a condition leaves out may lie outside, and LLVM
        sees the array's size.
        """
        pointer, inbounds = place.pointer, not place.is_local
        if at.terms:
            key = ("address", id(pointer), at.key)
            known = self.known(key)
            if known is None:
                offset = self.scalar(Affine(0, at.terms))
                known = self.remember(key, self.builder.gep(pointer, [offset], inbounds=inbounds))
            pointer = known
        if not at.const:
            return pointer
        at_number = ("address", id(pointer), at.const)
        known = self.known(at_number)
        if known is None:
            known = self.remember(at_number, self.builder.gep(pointer, [self.index_type(at.const)], inbounds=inbounds))
        return known

    def row_address(self, place: Place, at: Affine, vector: ir.Type) -> ir.Value:
        """A pointer to a vector whose elements lie next to each other."""
        pointer = self.address(place, at.without_lane())
        key = ("row", id(pointer), vector.count if isinstance(vector, ir.VectorType) else 1)
        known = self.known(key)
        if known is None:
            kind = vector.as_pointer(place.pointer.type.addrspace)
            known = self.remember(key, self.builder.bitcast(pointer, kind))
        return known

    def accessed(self, buffer: Buffer, indices: tuple[PrimExpr, ...]) -> tuple[Place, Index]:
        """Where a buffer is, and how far from its start an access is that is checked and noted."""
        if id(indices) in self.guards:
            emit_guards(self, indices)
        place = self.places[buffer]
        at = self.offset(place, indices)
        if place.is_local:
            self.note_lanes(buffer, at)
        return place, at

    # --- loads --------------------------------------------------------------------------------------------------

    def load(self, buffer: Buffer, indices: tuple[PrimExpr, ...]) -> ir.Value:
        """The element, or a vector with one per lane; a scalar where it is the same in all lanes."""
        place, at = self.accessed(buffer, indices)
        key = None
        if place.read_only and isinstance(at, Affine):
            key = ("load", id(place.pointer), at.key, at.const, at.lane, self.lanes, self.mask_key())
            known = self.known(key)
            if known is not None:
                return known
        value = self.from_memory(self.raw_load(buffer.dtype, place, at), buffer.dtype)
        return value if key is None else self.remember(key, value)

    def load_or_zero(self, condition: ir.Value, buffer: Buffer, indices: tuple[PrimExpr, ...]) -> ir.Value | None:
        """What lies at a place where a scalar condition holds, else zero, without a branch: the address is chosen.

        None where it takes more than one plain load.
        """
        place = self.places[buffer]
        if self.mask is not None or place.is_local or not place.read_only or buffer.dtype == "bool":
            return None
        if id(indices) in self.guards:
            return None
        at = self.offset(place, indices)
        if not isinstance(at, Affine) or at.lane not in (0, 1):
            return None
        key = ("padded", id(condition), id(place.pointer), at.key, at.const, at.lane, self.lanes)
        known = self.known(key)
        if known is None:
            kind = memory_type(buffer.dtype, self.lanes if at.lane else 1).as_pointer()
            start = self.builder.bitcast(self.address(place, at.without_lane()), kind)
            chosen = self.builder.select(condition, start, self.builder.bitcast(self.zeros(), kind))
            loaded = self.builder.load(chosen, align=item_bytes(buffer.dtype))
            known = self.remember(key, (loaded, condition))  # the condition is kept so that its id stays its own
        return known[0]

    def zeros(self) -> ir.Value:
        """A constant of zero bytes, as long as any vector."""
        module = self.builder.module
        found = module.globals.get("zeros")
        if found is None:
            kind = ir.ArrayType(I8, ZERO_BYTES)
            found = ir.GlobalVariable(module, kind, "zeros")
            found.linkage, found.global_constant, found.align = "internal", True, 64
            found.initializer = ir.Constant(kind, None)
        return found

    def mask_key(self) -> int | None:
        return self.mask if self.mask is None or isinstance(self.mask, int) else id(self.mask)

    def from_memory(self, value: ir.Value, dtype: str) -> ir.Value:
        if dtype != "bool":
            return value
        return self.builder.icmp_unsigned("!=", value, constant(value.type, 0))

    def raw_load(self, dtype: str, place: Place, at: Index) -> ir.Value:
        align = item_bytes(dtype)
        if isinstance(at, Affine) and not at.lane:
            pointer = self.address(place, at)
            if self.mask is not None and not isinstance(self.mask, int) and not place.is_local:
                pointer = self.builder.select(self.any_lane(), pointer, place.pointer)
            return self.builder.load(pointer, align=align)
        if isinstance(at, Affine) and at.lane == 1:
            return self.load_row(dtype, place, at, align)
        near = self.load_near(dtype, place, at, align)
        return self.gather(dtype, place, at, align) if near is None else near

    def any_lane(self) -> ir.Value:
        """Whether a lane takes part: an address may be valid only then."""
        key = ("any", id(self.mask))
        known = self.known(key)
        if known is not None:
            return known
        mask = self.mask_vector()
        assert mask is not None, "without a mask all lanes take part"
        name = f"llvm.vector.reduce.or.{suffix(mask.type)}"
        return self.remember(key, call_intrinsic(self.builder, name, ir.IntType(1), [mask]))

    def load_row(self, dtype: str, place: Place, at: Affine, align: int) -> ir.Value:
        vector = memory_type(dtype, self.lanes)
        pointer = self.row_address(place, at, vector)
        # A local row is padded at its end, so that a tail may be loaded whole; lanes that a condition leaves out may
        # lie before its start as well.
        is_whole = place.is_local and (self.mask is None or isinstance(self.mask, int))
        mask = None if is_whole else self.mask_vector()
        if mask is None:
            return self.builder.load(pointer, align=align)
        name = f"llvm.masked.load.{suffix(vector)}.p0"
        return call_intrinsic(self.builder, name, vector, [pointer, I32(align), mask, constant(vector, 0)])

    def load_near(self, dtype: str, place: Place, at: Index, align: int) -> ir.Value | None:
        """Elements that lie near each other, at known distances: repeated, turned around, every other one.

        They are one or two vectors between the first and the last of them, whose lanes are moved. None where lanes are
        further apart, at distances that are not known, or a mask leaves out others than the last.
        """
        lanes = self.mask if isinstance(self.mask, int) else self.lanes
        if isinstance(self.mask, ir.Value):
            return None
        even, rest = self.parts(at)
        known = self.table(rest)
        if known is None:
            return None
        steps = [n + even.lane * lane for lane, n in enumerate(known[:lanes])]
        first, span = min(steps), max(steps) - min(steps) + 1
        size = min(self.lanes, 1 << (span.bit_length() - 1))
        if size < 2 or span > 2 * size:
            return None
        even = even.without_lane()
        whole = self.whole_vector(place, even, steps) if span > size else None
        if whole is not None:
            first, size, span = whole, self.lanes, self.lanes
        start, short = even.plus(Affine(first)), memory_type(dtype, size)
        low = self.builder.load(self.row_address(place, start, short), align=align)
        high = undefined(short)
        if span > size:
            high = self.builder.load(self.row_address(place, start.plus(Affine(span - size)), short), align=align)
        moved = [n - first if n - first < size else n - first + 2 * size - span for n in steps]
        moved += moved[:1] * (self.lanes - lanes)
        return self.builder.shuffle_vector(
            low, high, ir.Constant(ir.VectorType(I32, self.lanes), list(map(I32, moved)))
        )

    def whole_vector(self, place: Place, at: Affine, steps: list[int]) -> int | None:
        """Where, counted from `at`, a vector starts that holds all these steps and lies in a row; None: nowhere.

        Rows of whole vectors, each at a multiple of the lanes, have one at each such multiple. Lanes are to stay within
        their four, where one instruction moves them: LLVM moves others twice, but those of two halves once.
        """
        strides = [s for s in place.strides[:-1] if isinstance(s, int) and s % self.lanes == 0]
        is_even = place.row and place.row % self.lanes == 0 and len(strides) == len(place.strides) - 1
        if not is_even or any(k % self.lanes for _, k, _ in at.terms):
            return None
        start = (at.const + min(steps)) // self.lanes * self.lanes
        stays = all((at.const + n - start) // 4 == lane // 4 for lane, n in enumerate(steps))
        return start - at.const if stays and at.const + max(steps) < start + self.lanes else None

    def gather(self, dtype: str, place: Place, at: Index, align: int) -> ir.Value:
        vector = memory_type(dtype, self.lanes)
        lanes = self.mask if isinstance(self.mask, int) else self.lanes
        at_once = self.isa.gathers and align in GATHERED and lanes >= LEAST_GATHERED
        is_uneven = not isinstance(at, Affine | ir.Constant)
        if not place.is_local and (isinstance(self.mask, ir.Value) or (at_once and is_uneven)):
            mask = self.mask_vector() or constant(value_type("bool", self.lanes), 1)
            name = f"llvm.masked.gather.{suffix(vector)}.v{self.lanes}p0"
            arguments = [self.lane_pointers(place, at), I32(align), mask, constant(vector, 0)]
            return call_intrinsic(self.builder, name, vector, arguments)
        # Halves go into a register as integers: as floats the first one would wait for what was in it before.
        parts = ir.VectorType(ir.IntType(16), self.lanes) if isinstance(vector.element, ir.HalfType) else vector
        result = undefined(parts) if self.mask is None else constant(parts, 0)
        for lane in range(lanes):
            start = self.lane_address(place, at, lane)
            start = start if parts is vector else self.builder.bitcast(start, parts.element.as_pointer())
            element = self.builder.load(start, align=align)
            result = self.builder.insert_element(result, element, I32(lane))
        return result if parts is vector else self.builder.bitcast(result, vector)

    def lane_address(self, place: Place, at: Index, lane: int) -> ir.Value:
        if isinstance(at, Affine):
            return self.address(place, Affine(at.const + lane * at.lane, at.terms))
        if isinstance(at, ir.Constant):
            return self.address(place, Affine(int(at.constant[lane].constant)))
        return self.builder.gep(place.pointer, [self.builder.extract_element(at, I32(lane))], inbounds=True)

    def lane_pointers(self, place: Place, at: Index) -> ir.Value:
        """A vector of pointers, one for each lane's element.

        What all lanes have in common is in the pointer that they share: 32 bits hold the rest, which CPUs load by twice
        as fast. That pointer alone may lie outside of the buffer.
        """
        if isinstance(at, Affine):
            even, steps = at, self.vector(Affine(lane=at.lane))
        else:
            even, rest = self.parts(at)
            steps = self.vector(self.sum(Affine(lane=even.lane), rest))
        start = self.builder.gep(place.pointer, [self.scalar(even.without_lane())])
        return lane_addresses(self.builder, start, steps)

    # --- stores -------------------------------------------------------------------------------------------------

    def store(self, buffer: Buffer, value: ir.Value, indices: tuple[PrimExpr, ...]) -> None:
        """Store the element, or one per lane."""
        place, at = self.accessed(buffer, indices)
        if buffer.dtype == "bool":
            value = self.builder.zext(value, value_type("uint8", lanes_of(value)))
        align = item_bytes(buffer.dtype)
        if isinstance(at, Affine) and not at.lane:
            if lanes_of(value) > 1:  # every lane stores to one place: the last one stays
                value = self.builder.extract_element(
                    value, I32((self.mask if isinstance(self.mask, int) else self.lanes) - 1)
                )
            self.builder.store(value, self.address(place, at), align=align)
            return
        value = splat(self.builder, value, self.lanes)
        if isinstance(at, Affine) and at.lane == 1:
            self.store_row(buffer, value, at, align)
        else:
            self.scatter(place, value, at, align)

    def store_row(self, buffer: Buffer, value: ir.Value, at: Affine, align: int) -> None:
        place = self.places[buffer]
        pointer = self.row_address(place, at, value.type)
        mask = self.mask_vector()
        if isinstance(self.mask, int) and buffer in self.unmasked:
            mask = None
        if mask is None:
            self.builder.store(value, pointer, align=align)
        elif place.is_local:
            old = self.builder.load(pointer, align=align)
            self.builder.store(self.builder.select(mask, value, old), pointer, align=align)
        else:
            name = f"llvm.masked.store.{suffix(value.type)}.p0"
            call_intrinsic(self.builder, name, VOID, [value, pointer, I32(align), mask])

    def scatter(self, place: Place, value: ir.Value, at: Index, align: int) -> None:
        if self.mask is not None and not isinstance(self.mask, int):
            pointers = self.lane_pointers(place, at)
            name = f"llvm.masked.scatter.{suffix(value.type)}.v{self.lanes}p0"
            call_intrinsic(self.builder, name, VOID, [value, pointers, I32(align), self.mask])
            return
        for lane in range(self.mask if isinstance(self.mask, int) else self.lanes):
            element = self.builder.extract_element(value, I32(lane))
            self.builder.store(element, self.lane_address(place, at, lane), align=align)

    def prefetch(self, place: Place, at: Affine, level: int = 1, writes: bool = False) -> None:
        pointer = self.builder.bitcast(self.address(place, at.without_lane()), I8.as_pointer())
        call_intrinsic(self.builder, "llvm.prefetch.p0", VOID, [pointer, I32(int(writes)), I32(4 - level), I32(1)])

    def own(self, place: Place, at: Affine, size: int) -> None:
        kind = ir.IntType(8 * size)
        pointer = self.builder.bitcast(self.address(place, at.without_lane()), kind.as_pointer())
        there = self.builder.load_atomic(pointer, "monotonic", size, typ=kind)  # what is atomic is not left out
        self.builder.store_atomic(there, pointer, "monotonic", size)


Coefficients = tuple[tuple[Var, int], ...]


def _flat(steps: Sequence[tuple[PrimExpr, int]], dtype: str) -> PrimExpr:
    """The distance from a buffer's start, of indices and their strides, as an expression of a type."""
    return functools.reduce(add, (mul(cast(dtype, i), const(s, dtype)) for i, s in steps))


def _distance(place: Place, indices: tuple[PrimExpr, ...]) -> tuple[int, Coefficients] | None:
    """(constant, coefficients of variables) of the distance from a buffer's start; None where it is no such sum."""
    const, found = 0, dict[Var, int]()
    for e, stride in zip(indices, place.strides, strict=False):
        if not isinstance(stride, int) or (linear := _coefficients(e)) is None:
            return None
        const += linear[0] * stride
        for var, c in linear[1].items():
            found[var] = found.get(var, 0) + c * stride
    return const, tuple((var, c) for var, c in found.items() if c)


def _coefficients(e: PrimExpr) -> tuple[int, dict[Var, int]] | None:
    """(constant, coefficient of each variable) of sums and multiples."""
    match e:
        case IntImm():
            return int(e.value), {}
        case Var() if is_int(e.dtype) and e.dtype != "bool":
            return 0, {e: 1}
        case Cast() if is_int(e.value.dtype) and e.value.dtype != "bool":
            return _coefficients(e.value)
        case Add() | Sub() | Mul():
            a, b = _coefficients(e.a), _coefficients(e.b)
            if a is None or b is None:
                return None
            if not isinstance(e, Mul):
                sign = -1 if isinstance(e, Sub) else 1
                return a[0] + sign * b[0], {v: a[1].get(v, 0) + sign * b[1].get(v, 0) for v in (*a[1], *b[1])}
            if b[1]:
                a, b = b, a
            return None if b[1] else (a[0] * b[0], {v: c * b[0] for v, c in a[1].items()})
    return None


def sorted_vars(indices: tuple[PrimExpr, ...]) -> list[Var]:
    """The variables of expressions in order of first use."""
    return list(dict.fromkeys(x for i in indices for x in preorder(i) if isinstance(x, Var)))

"""Products in the tile registers of AMX: a nest of loops over rows, columns and steps of a sum of products.

    for k in steps:                        any number of loops
        for m in rows: for n in columns:   their innermost ones in tiles of 16
            for j in 16:  # amx
                for g in 4: acc[m, n] += int32(a[m, 64 * k + 4 * j + g]) * int32(b[k, j, n, g])

a holds unsigned bytes and b signed ones, or both pairs of bfloat16, whose products are summed in float32. The sums stay
in tile registers over all steps. Of eight registers (16 rows of 64 bytes) a sum of 32 rows and 32 columns takes four,
and the rows and columns of a step two each: 94 % of the peak (7.4 TOP/s of a 4 GHz core, Granite Rapids).

A loop is marked by the annotation `AMX`; where it does not fit, or the CPU lacks the registers, it stays a loop.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from autosched.codegen.cpu.affine import Affine
from autosched.codegen.cpu.dot import of_bits
from autosched.codegen.cpu.emitter import Emitter, Place
from autosched.codegen.cpu.types import BYTES, I8, I64, VOID, Isa, call_intrinsic
from autosched.ir.node import children, walk
from autosched.tir import expr as E
from autosched.tir.buffer import BufferLoad
from autosched.tir.dtypes import item_bytes
from autosched.tir.expr import PrimExpr, Var, const, const_int
from autosched.tir.functor import free_vars
from autosched.tir.simplify import form_key
from autosched.tir.stmt import BufferStore, Evaluate, For, LoopKind, SeqStmt, Stmt

AMX = "amx"  # the annotation of the loop over the words of 32 bits that lie side by side in a row of a tile
ROWS, WORDS, REGISTERS = 16, 16, 8  # of a tile register: rows, words of 32 bits in a row; registers
WORD_BYTES = 4
MOST_STEPS = 16  # that all groups of tiles take in turn
PALETTE_BYTES = 64  # of the description of all registers: sizes of rows from byte 16, numbers of rows from byte 48


@dataclass(frozen=True, slots=True)
class TileSizes:
    """The tiles of a sum: rows of each tile of rows, columns of each tile of columns, words of a step."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    words: int

    @property
    def fit(self) -> bool:
        """Whether there are registers for the sums and for what a step multiplies."""
        many, few = sorted((len(self.rows), len(self.columns)), reverse=True)
        left = REGISTERS - many * few - few
        streamed = self.rows if len(self.rows) > len(self.columns) else self.columns
        return left >= min(many, len(set(streamed)))

    def sum_at(self, r: int, c: int) -> int:
        """The register of a tile of sums."""
        return r * len(self.columns) + c

    def row_at(self, r: int) -> int:
        """The register of a tile of rows: one each, or, of more rows than columns, what the columns leave in turn."""
        sums, columns = len(self.rows) * len(self.columns), len(self.columns)
        return (
            sums + r if len(self.rows) <= columns else sums + columns + _turn(self.rows, r, REGISTERS - sums - columns)
        )

    def column_at(self, c: int) -> int:
        """The register of a tile of columns, as `row_at`."""
        sums, rows = len(self.rows) * len(self.columns), len(self.rows)
        return sums + c if rows > len(self.columns) else sums + rows + _turn(self.columns, c, REGISTERS - sums - rows)

    def palette(self) -> bytes:
        """The description of all registers that the instruction ldtilecfg reads."""
        sizes: dict[int, tuple[int, int]] = {}
        for (r, rows), (c, columns) in itertools.product(enumerate(self.rows), enumerate(self.columns)):
            sizes[self.sum_at(r, c)] = rows, WORD_BYTES * columns
            sizes[self.row_at(r)] = rows, WORD_BYTES * self.words
            sizes[self.column_at(c)] = self.words, WORD_BYTES * columns
        text = bytearray(PALETTE_BYTES)
        text[0] = 1
        for register, (rows, row_bytes) in sizes.items():
            text[16 + 2 * register] = row_bytes
            text[48 + register] = rows
        return bytes(text)


def _turn(sizes: tuple[int, ...], i: int, registers: int) -> int:
    """Which of so many registers a tile takes: tiles of one size take turns."""
    if len(sizes) <= registers:
        return i
    kinds = list(dict.fromkeys(sizes))
    each = registers // len(kinds)
    return kinds.index(sizes[i]) * each + sizes[:i].count(sizes[i]) % each


Step = tuple[For, tuple["Evaluate", ...]]  # a loop with the prefetches at its beginning
Tiles = tuple[tuple[Mapping[Var, int], int], ...]  # where each begins, how many rows or columns it has


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Tiles of sums that are in registers at once."""

    rows: Tiles
    columns: Tiles
    words: int

    @property
    def sizes(self) -> TileSizes:
        return TileSizes(tuple(n for _, n in self.rows), tuple(n for _, n in self.columns), self.words)


@dataclass(frozen=True, slots=True, eq=False)
class Nest:
    """The loops of a sum of products, outer to inner, by what they run over, and what is multiplied."""

    steps: tuple[Step, ...]
    rows: tuple[For, ...]
    columns: tuple[For, ...]
    words: For
    group: For
    store: BufferStore
    a: BufferLoad
    b: BufferLoad

    @property
    def is_of_bytes(self) -> bool:
        return self.store.buffer.dtype == "int32"

    @property
    def groups(self) -> tuple[Group, ...]:
        """The tiles, so many of the rows in turn as there are registers for; () where not even one fits."""
        words = const_int(self.words.extent)
        assert words is not None, "find_nest looked"
        rows, columns = tuple(tiles_of(self.rows)), tuple(tiles_of(self.columns))
        for most in range(len(rows), 0, -1):
            parts = [rows[i : i + most] for i in range(0, len(rows), most)]
            found = [Group(part, columns, words) for part in parts]
            if all(group.sizes.fit for group in found):
                return tuple(found)
        return ()

    @property
    def count(self) -> int:
        """How many sums there are."""
        return sum(sum(g.sizes.rows) * sum(g.sizes.columns) for g in self.groups)


def tiles_of(loops: tuple[For, ...]) -> Iterator[tuple[Mapping[Var, int], int]]:
    """(where a tile begins, how many rows or columns it has) for each tile; the innermost loop is cut into tiles."""
    extents = [const_int(loop.extent) or 1 for loop in loops]
    starts = [range(n) for n in extents[:-1]] + [range(0, n, ROWS) for n in extents[-1:]]
    for at in itertools.product(*starts):
        begin = {loop.loop_var: i for loop, i in zip(loops, at, strict=True)}
        yield begin, min(ROWS, extents[-1] - at[-1]) if loops else 1


def find_nest(loop: Stmt) -> Nest | None:
    """The nest of loops that begins here, where the loop over words has the annotation and all is as it should be."""
    loops: list[For] = []
    fetches: list[tuple[Evaluate, ...]] = []
    stmt = loop
    while isinstance(stmt, For):
        loops.append(stmt)
        stmt = stmt.body
        first = stmt.seq[:-1] if isinstance(stmt, SeqStmt) else ()
        if first and all(isinstance(s, Evaluate) for s in first):
            assert isinstance(stmt, SeqStmt), "just seen"
            stmt = stmt.seq[-1]
        fetches.append(first)  # type: ignore[arg-type]
    if len(loops) < 2 or not loops[-2].annotations.get(AMX) or not isinstance(stmt, BufferStore):
        return None
    *outer, words, group = loops
    if not isinstance(stmt.value, E.Add) or not isinstance(stmt.value.b, E.Mul):
        return None
    before, product = stmt.value.a, stmt.value.b
    if not isinstance(before, BufferLoad) or before.buffer is not stmt.buffer:
        return None
    if [form_key(i) for i in before.indices] != [form_key(i) for i in stmt.indices]:
        return None
    spatial = [x for x in outer if _varies(stmt.indices, x)]
    factors = _factors(product, stmt.buffer.dtype, spatial)
    if factors is None:
        return None
    a, b = factors
    rows, columns = (tuple(x for x in spatial if _varies(f.indices, x)) for f in factors)
    if len(rows) + len(columns) != len(spatial) or set(rows) & set(columns):
        return None
    counts = [const_int(x.extent) for x in (*spatial, words, group)]
    if None in counts or any(const_int(x.start) != 0 for x in (*spatial, words, group)):
        return None
    count, in_word = counts[-2:]
    if any(x.kind == LoopKind.THREAD_BINDING for x in loops) or in_word != WORD_BYTES // item_bytes(a.buffer.dtype):
        return None
    if not count or count > WORDS or any(isinstance(x, BufferLoad) for f in (a, b) for i in f.indices for x in walk(i)):
        return None
    steps = tuple((x, f) for x, f in zip(loops[:-2], fetches, strict=False) if not any(x is s for s in spatial))
    if sum(map(len, fetches)) != sum(len(f) for _, f in steps):
        return None
    nest = Nest(steps, rows, columns, words, group, stmt, a, b)
    return nest if nest.groups else None


def _varies(indices: tuple[PrimExpr, ...], loop: For) -> bool:
    return any(loop.loop_var in free_vars(i) for i in indices)


def _factors(product: E.Mul, dtype: str, spatial: list[For]) -> tuple[BufferLoad, BufferLoad] | None:
    """(what the rows are read from, what the columns are)."""
    if dtype == "int32":
        bytes_ = [x.value for x in (product.a, product.b) if isinstance(x, E.Cast) and isinstance(x.value, BufferLoad)]
        by_type = {x.buffer.dtype: x for x in bytes_}
        return (by_type["uint8"], by_type["int8"]) if set(by_type) == {"uint8", "int8"} else None
    first, second = of_bits(product.a), of_bits(product.b)
    if dtype != "float32" or first is None or second is None:
        return None
    lane = next((x for x in reversed(spatial) if x.kind == LoopKind.VECTORIZED), None)
    if lane is None:
        return None
    return (second, first) if _varies(first.indices, lane) else (first, second)


def has_tiles(isa: Isa, nest: Nest) -> bool:
    """Whether the CPU has tile registers for what the nest multiplies."""
    return isa.has_byte_tiles if nest.is_of_bytes else isa.has_bfloat_tiles


def nests(stmt: Stmt, isa: Isa) -> Iterator[Nest]:
    """The nests in a statement that the CPU has registers for, each from its outermost loop on."""
    nest = find_nest(stmt)
    if nest is not None:
        if has_tiles(isa, nest):
            yield nest
        return
    for child in children(stmt):
        if isinstance(child, Stmt):
            yield from nests(child, isa)


@dataclass(frozen=True, slots=True)
class _Operand:
    """A buffer that tiles are read from: how many bytes apart the rows of a tile are."""

    place: Place
    access: BufferLoad | BufferStore
    row_bytes: int


def products_in_tiles(emitter: Emitter, loop: Stmt) -> tuple[Nest, tuple[_Operand, ...]] | None:
    """The nest that begins with a loop, and (sums, a, b), where tiles can be read from them; None for other loops."""
    if emitter.lanes != 1 or emitter.mask is not None:
        return None
    nest = find_nest(loop)
    if nest is None or not has_tiles(emitter.isa, nest):
        return None
    row, column = (loops[-1:] for loops in (nest.rows, nest.columns))
    wanted = (
        (nest.store, row, column, ()),
        (nest.a, row, (nest.words,), (nest.group,)),
        (nest.b, (nest.words,), column, (nest.group,)),
    )
    found = []
    for access, down, along, within in wanted:
        place = emitter.places.get(access.buffer)
        if place is None or id(access.indices) in emitter.guards:
            return None
        in_word = WORD_BYTES // item_bytes(access.buffer.dtype)
        if any(_step(emitter, nest, place, access, x) != in_word for x in along):
            return None
        if any(_step(emitter, nest, place, access, x) != 1 for x in within):
            return None
        steps = [_step(emitter, nest, place, access, x) for x in down]
        if None in steps:
            return None
        found.append(_Operand(place, access, sum(s or 0 for s in steps) * item_bytes(access.buffer.dtype)))
    return nest, tuple(found)


def _step(emitter: Emitter, nest: Nest, place: Place, access: BufferLoad | BufferStore, loop: For) -> int | None:
    """How many elements lie between those of two iterations of a loop; None where that is no constant."""
    lanes = const_int(loop.extent) or 1
    with _fixed(emitter, nest, {x.loop_var: 0 for x, _ in nest.steps}):
        emitter.env[loop.loop_var], emitter.lanes = Affine(0, (), 1), lanes
        at = emitter.offset(place, access.indices)
        emitter.lanes = 1
    return at.lane if isinstance(at, Affine) else None


class _fixed:  # noqa: N801
    """The loop variables of a nest as numbers, for as long as a block of code runs."""

    def __init__(self, emitter: Emitter, nest: Nest, at: Mapping[Var, int]) -> None:
        inner = (*nest.rows, *nest.columns, nest.words, nest.group)
        self.env = emitter.env
        self.values = {x.loop_var: Affine(0) for x in inner} | {v: Affine(i) for v, i in at.items()}
        self.old = {v: self.env.get(v) for v in self.values}

    def __enter__(self) -> None:
        self.env.update(self.values)

    def __exit__(self, *raised: object) -> None:
        for v, value in self.old.items():
            if value is None:
                del self.env[v]
            else:
                self.env[v] = value


def zeros_before(first: Stmt, nest: Nest) -> bool:
    """Whether a statement sets the sums of a nest, and nothing else, to zero."""
    count, stmt = 1, first
    while isinstance(stmt, For):
        count, stmt = count * (const_int(stmt.extent) or 0), stmt.body
    if not isinstance(stmt, BufferStore) or stmt.buffer is not nest.store.buffer:
        return False
    value = stmt.value.value if isinstance(stmt.value, E.IntImm | E.FloatImm) else None
    return value == 0 and count == nest.count


def emit_products_in_tiles(emitter: Emitter, nest: Nest, operands: tuple[_Operand, ...], from_zero: bool) -> None:
    """Sums into tile registers, all steps, sums back into memory.

    from_zero  whether the sums are zero at first, whatever is in memory

    The registers are left as they are configured before: for the tiles of the whole phase, or for none.
    """
    now = emitter.configured

    def all_groups(steps: tuple[Step, ...], is_first: bool) -> None:
        nonlocal now
        for group in nest.groups:
            if group.sizes != now:
                configure(emitter.builder, group.sizes, emitter.entry)
                now = group.sizes
            _Products(emitter, nest, operands, group).emit(steps, from_zero and is_first)

    size = block_of_steps(nest)
    if size:
        ((loop, fetches),) = nest.steps
        kind = loop.loop_var.dtype
        all_groups(((dataclasses.replace(loop, extent=const(size, kind)), fetches),), True)
        block = Var(f"{loop.loop_var.name}_block", kind)
        count = (const_int(loop.extent) or 0) // size - 1
        part = dataclasses.replace(loop, start=block * size, extent=const(size, kind))
        outer = For(block, const(1, kind), const(count, kind), LoopKind.SERIAL, loop.body)
        emitter.over(outer, lambda: all_groups(((part, fetches),), False))
    else:
        all_groups(nest.steps, True)
    emitter.note_anywhere(nest.store.buffer)
    if emitter.configured is None:
        release(emitter.builder)
    elif now != emitter.configured:
        configure(emitter.builder, emitter.configured, emitter.entry)


def block_of_steps(nest: Nest) -> int:
    """How many steps all groups take before any takes the next ones, which leaves columns in the first-level cache.

    0: all of them. 16 steps of 32 columns are 32 KB. Where tiles differ in size they would be configured each time.
    """
    if len(nest.groups) < 2 or len(nest.steps) != 1 or len({group.sizes for group in nest.groups}) != 1:
        return 0
    loop = nest.steps[0][0]
    count = const_int(loop.extent)
    if count is None or const_int(loop.start) != 0 or count <= MOST_STEPS:
        return 0
    return next((n for n in range(MOST_STEPS, MOST_STEPS // 2 - 1, -1) if count % n == 0), 0)


class _Products:
    """Emits the products of one group of tiles."""

    def __init__(self, emitter: Emitter, nest: Nest, operands: tuple[_Operand, ...], group: Group):
        self.emitter, self.nest, self.group, self.sizes = emitter, nest, group, group.sizes
        self.sums, self.a, self.b = operands

    def emit(self, steps: tuple[Step, ...], from_zero: bool) -> None:
        rows, columns = enumerate(self.group.rows), enumerate(self.group.columns)
        tiles = [
            (self.sizes.sum_at(r, c), {**row, **column})
            for (r, (row, _)), (c, (column, _)) in itertools.product(rows, columns)
        ]
        for register, at in tiles:
            if from_zero:
                call_intrinsic(self.emitter.builder, "llvm.x86.tilezero", VOID, [I8(register)])
            else:
                self.move("tileloadd64", register, self.sums, at)
        self.steps(steps)
        for register, at in tiles:
            self.move("tilestored64", register, self.sums, at)

    def steps(self, loops: tuple[Step, ...]) -> None:
        """All loops of steps around the products of one."""
        if not loops:
            self.products()
            return
        loop, fetches = loops[0]

        def iteration() -> None:
            for fetch in fetches:
                self.emitter.emit(fetch)
            self.steps(loops[1:])

        self.emitter.over(loop, iteration)

    def products(self) -> None:
        """One step: the tiles of the shorter side are loaded first and stay, those of the longer one pass by."""
        rows, columns = self.group.rows, self.group.columns
        if len(rows) > len(columns):
            for r, c in itertools.product(range(len(rows)), range(len(columns))):
                if c == 0:
                    self.load_row(r)
                if r == 0:
                    self.load_column(c)
                self.multiply(r, c)
        else:
            for c, r in itertools.product(range(len(columns)), range(len(rows))):
                if r == 0:
                    self.load_column(c)
                if c == 0:
                    self.load_row(r)
                self.multiply(r, c)

    def load_row(self, r: int) -> None:
        self.move("tileloadd64", self.sizes.row_at(r), self.a, self.group.rows[r][0])

    def load_column(self, c: int) -> None:
        self.move("tileloadd64", self.sizes.column_at(c), self.b, self.group.columns[c][0])

    def multiply(self, r: int, c: int) -> None:
        name = "tdpbusd" if self.nest.is_of_bytes else "tdpbf16ps"
        registers = self.sizes.sum_at(r, c), self.sizes.row_at(r), self.sizes.column_at(c)
        call_intrinsic(self.emitter.builder, f"llvm.x86.{name}", VOID, [I8(n) for n in registers])

    def move(self, name: str, register: int, operand: _Operand, at: Mapping[Var, int]) -> None:
        """A tile from memory or to it."""
        emitter = self.emitter
        with _fixed(emitter, self.nest, at):
            offset = emitter.offset(operand.place, operand.access.indices)
        assert isinstance(offset, Affine), "products_in_tiles looked"
        pointer = emitter.builder.bitcast(emitter.address(operand.place, offset), BYTES)
        call_intrinsic(emitter.builder, f"llvm.x86.{name}", VOID, [I8(register), pointer, I64(operand.row_bytes)])


def configure(builder: Any, sizes: TileSizes, entry: Any = None) -> None:
    """Set the sizes of all registers, which become zero: 46 ns, as long as 10 products.

    entry  a builder at the function's beginning; None: the function begins here
    """
    palette, kind = sizes.palette(), ir.ArrayType(I64, PALETTE_BYTES // 8)
    slot = (entry or builder).alloca(kind, name="palette")
    slot.align = PALETTE_BYTES
    for n in range(PALETTE_BYTES // 8):
        word = int.from_bytes(palette[8 * n : 8 * n + 8], "little")
        builder.store(I64(word), builder.gep(slot, [I64(0), I64(n)]), align=8)
    call_intrinsic(builder, "llvm.x86.ldtilecfg", VOID, [builder.bitcast(slot, BYTES)])


def release(builder: Any) -> None:
    """Leave the registers empty, which the system then need not save."""
    call_intrinsic(builder, "llvm.x86.tilerelease", VOID, [])


__all__ = [
    "AMX", "ROWS", "WORDS", "Nest", "TileSizes", "configure", "emit_products_in_tiles", "nests", "products_in_tiles",
    "release", "zeros_before",
]  # fmt: skip

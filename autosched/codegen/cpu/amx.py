"""Code for products in the tile registers of AMX (their form: `amx_nest`).

The sums stay in tile registers over all steps. Of eight registers a sum of 32 rows and 32 columns takes four, and the
rows and columns of a step two each: 94 % of the peak (7.4 TOP/s of a 4 GHz core, Granite Rapids). Where a nest does not
fit, or the CPU lacks the registers, it stays loops.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from llvmlite import ir

from autosched.codegen.cpu.affine import Affine
from autosched.codegen.cpu.amx_nest import PALETTE_BYTES, WORD_BYTES, Group, Nest, Step, TileSizes, find_nest
from autosched.codegen.cpu.emitter import Emitter, Place
from autosched.codegen.cpu.types import BYTES, I8, I64, VOID, Isa, call_intrinsic
from autosched.ir.node import children
from autosched.tir import expr as E
from autosched.tir.buffer import BufferLoad
from autosched.tir.dtypes import item_bytes
from autosched.tir.expr import Var, const, const_int
from autosched.tir.stmt import BufferStore, For, LoopKind, Stmt

MOST_STEPS = 16  # that all groups of tiles take in turn


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
    within = () if nest.group is None else (nest.group,)
    wanted = (
        (nest.store, row, column, ()),
        (nest.a, row, (nest.words,), within),
        (nest.b, (nest.words,), column, within),
    )
    found = []
    for access, down, along, inside in wanted:
        place, size = emitter.places.get(access.buffer), item_bytes(access.buffer.dtype)
        if place is None or id(access.indices) in emitter.guards:
            return None
        if any(_distance(emitter, nest, access, x) != WORD_BYTES // size for x in along):
            return None
        if any(_distance(emitter, nest, access, x) != 1 for x in inside):
            return None
        rows = [_distance(emitter, nest, access, x) for x in down]
        if None in rows:
            return None
        found.append(_Operand(place, access, sum(n or 0 for n in rows) * size))
    return nest, tuple(found)


def _distance(emitter: Emitter, nest: Nest, access: BufferLoad | BufferStore, loop: For) -> int | None:
    """How many elements lie between those of two iterations of a loop; None where that is no constant."""
    fixed = [x.loop_var for x in (*(x for x, _ in nest.steps), *_inner(nest))]
    return emitter.distance(access.buffer, access.indices, loop.loop_var, const_int(loop.extent) or 1, fixed)


def _inner(nest: Nest) -> tuple[For, ...]:
    """The loops that tile registers replace."""
    return *nest.rows, *nest.columns, nest.words, *(() if nest.group is None else (nest.group,))


def products_from_zeros(emitter: Emitter, first: Stmt, second: Stmt) -> tuple[Nest, tuple[_Operand, ...]] | None:
    """What `second` sums up in tiles, where `first` sets its sums, and nothing else, to zero."""
    tiles = products_in_tiles(emitter, second)
    count, stmt = 1, first
    while isinstance(stmt, For):
        count, stmt = count * (const_int(stmt.extent) or 0), stmt.body
    if tiles is None or not isinstance(stmt, BufferStore) or stmt.buffer is not tiles[0].store.buffer:
        return None
    value = stmt.value.value if isinstance(stmt.value, E.IntImm | E.FloatImm) else None
    return tiles if value == 0 and count == tiles[0].count else None


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
        """One step: the tiles of the side that stays are loaded for the first tile of the other side."""
        rows, columns = range(len(self.group.rows)), range(len(self.group.columns))
        if self.sizes.rows_stay:
            pairs = [(r, c) for c in columns for r in rows]
        else:
            pairs = [(r, c) for r in rows for c in columns]
        for r, c in pairs:
            row, column = self.sizes.row_at(r), self.sizes.column_at(c)
            loads = [(c == 0, row, self.a, self.group.rows[r][0]), (r == 0, column, self.b, self.group.columns[c][0])]
            for is_new, register, operand, at in reversed(loads) if self.sizes.rows_stay else loads:
                if is_new:
                    self.move("tileloadd64", register, operand, at)
            registers = [I8(n) for n in (self.sizes.sum_at(r, c), row, column)]
            call_intrinsic(self.emitter.builder, f"llvm.x86.{self.nest.product}", VOID, registers)

    def move(self, name: str, register: int, operand: _Operand, at: Mapping[Var, int]) -> None:
        """A tile from memory or to it."""
        emitter = self.emitter
        begin = {x.loop_var: Affine(at.get(x.loop_var, 0)) for x in _inner(self.nest)}
        with emitter.assigned(begin):
            offset = emitter.offset(operand.place, operand.access.indices)
        assert isinstance(offset, Affine), "products_in_tiles looked"
        pointer = emitter.builder.bitcast(emitter.address(operand.place, offset), BYTES)
        call_intrinsic(emitter.builder, f"llvm.x86.{name}", VOID, [I8(register), pointer, I64(operand.row_bytes)])


def configure(builder: ir.IRBuilder, sizes: TileSizes, entry: ir.IRBuilder | None = None) -> None:
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


def release(builder: ir.IRBuilder) -> None:
    """Leave the registers empty, which the system then need not save."""
    call_intrinsic(builder, "llvm.x86.tilerelease", VOID, [])


__all__ = ["configure", "emit_products_in_tiles", "nests", "products_from_zeros", "products_in_tiles", "release"]

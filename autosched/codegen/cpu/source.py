"""Writes the Numba source of a kernel: a function for each phase, whose hot parts are calls of tiles.

# dense, float32 [128, 784] x [784, 256] | llvm x86-64-v3 | default | autosched 0.1
def dense_p0(slots, first, last, worker):  # 22 tasks
    A = slots[0]
    …
    for task in range(first, last):
        # for k in range(784): …
        C_6x16(A, B, C, task)
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from autosched.codegen.cpu.amx import nests
from autosched.codegen.cpu.amx_nest import TileSizes
from autosched.codegen.cpu.checks import Checks
from autosched.codegen.cpu.cut import LEAST_APART, is_tile, outside_buffers, outside_vars, stores_in_code
from autosched.codegen.cpu.open_sizes import open_sizes
from autosched.codegen.cpu.text import loop_lines, show
from autosched.codegen.cpu.tile import Tile
from autosched.codegen.cpu.types import Isa
from autosched.codegen.lower.loops import enter
from autosched.codegen.lower.phases import LoweredPhase, product_of
from autosched.errors import CodegenError
from autosched.ir.node import children, preorder
from autosched.ir.structural import structural_key
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.dtypes import is_int, item_bytes
from autosched.tir.expr import (
    GE,
    LE,
    Call,
    Cast,
    Max,
    Min,
    PrimExpr,
    Select,
    Var,
    add,
    as_int,
    compare,
    const_int,
    floordiv,
    maximum,
    mul,
)  # fmt: skip
from autosched.tir.functor import rewrite, statements
from autosched.tir.separable import TURN, TURNS
from autosched.tir.simplify import Analyzer
from autosched.tir.stmt import (
    Allocate,
    AssertStmt,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    LoopKind,
    SeqStmt,
    Stmt,
    While,
)  # fmt: skip

_INDENT = "    "
Bytes = int | PrimExpr  # an expression of sizes that come with the call
_RESERVED = {"release_tiles", "checks", "slots", "first", "last", "worker", "task", "offset", "range", "min", "max"}
MOST = 1 << 40  # of a size that comes with the call
_BLOCK_NAMES = {"block", "first_part", "n_blocks", "piece", "number"}


def align_bytes(size: Bytes) -> Bytes:
    """The next multiple of a cache line's 64 bytes."""
    return -(-size // 64) * 64 if isinstance(size, int) else mul(floordiv(add(size, 63), 64), 64)


def total(a: Bytes, b: Bytes) -> Bytes:
    """The sum of two sizes, a number where it is one."""
    return a + b if isinstance(a, int) and isinstance(b, int) else add(a, b)


def larger(a: Bytes, b: Bytes) -> Bytes:
    """The larger size, a number where both are."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    return b if const_int(a) == 0 else a if const_int(b) == 0 else maximum(a, b)


def buffer_bytes(buffer: Buffer) -> Bytes:
    """Bytes of a buffer as a multiple of 64; an expression where the shape has symbols."""
    item = item_bytes(buffer.dtype)
    if any(const_int(extent) is None for extent in buffer.shape):
        if buffer.strides:
            raise CodegenError(f"buffer '{buffer.name}' has strides of its own, and sizes that come with the call")
        return align_bytes(product_of((*buffer.shape, item)))
    if buffer.strides:
        ends = (as_int(size) * as_int(stride) for size, stride in zip(buffer.shape, buffer.strides, strict=True))
        return align_bytes(max(ends) * item)
    return align_bytes(int(np.prod([as_int(s) for s in buffer.shape], dtype=np.int64)) * item)


def exact_bytes(buffer: Buffer) -> int:
    """Bytes of a row-major buffer of constant shape."""
    item = item_bytes(buffer.dtype)
    return int(np.prod([as_int(s) for s in buffer.shape], dtype=np.int64)) * item


@dataclass(slots=True)
class Scratch:
    """Offsets of the buffers in the scratch block: shared ones first, then each worker's own."""

    shared: dict[Buffer, Bytes] = field(default_factory=dict)
    shared_bytes: Bytes = 0
    own_bytes: Bytes = 0  # the most that any place needs at once

    def share(self, buffer: Buffer) -> None:
        self.shared[buffer] = self.shared_bytes
        self.shared_bytes = total(self.shared_bytes, buffer_bytes(buffer))


@dataclass(slots=True)
class Writer:
    """Collects the lines and tiles of one kernel."""

    name: str
    slots: Sequence[Buffer]
    scratch: Scratch
    no_alias: bool = True
    in_place: frozenset[tuple[Buffer, Buffer]] = frozenset()  # (input, output) that may be the same memory
    checks: Checks = field(default_factory=Checks)
    blocks: Mapping[Buffer, int] | None = None  # bytes that one part has of arguments; None: a kernel without blocks
    pieces_first: bool = False  # whether all blocks do a piece before any does the next one
    lines: list[str] = field(default_factory=list)
    tiles: dict[str, Tile] = field(default_factory=dict)
    names: dict[object, str] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)  # form of a tile -> its name
    isa: Isa | None = None
    sizes: Sequence[Var] = ()  # symbols that come with the call, as numbers in slots
    empty: frozenset[str] = frozenset()  # names of those that may be 0
    own_used: Bytes = 0
    configured: TileSizes | None = None  # what tile registers are for in the present phase
    palettes: dict[str, TileSizes] = field(default_factory=dict)  # by the names of what configures them
    reserved: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.reserved = _RESERVED if self.blocks is None else _RESERVED | _BLOCK_NAMES
        if self.sizes:
            self.reserved = {*self.reserved, "number"}
        if self.pieces_first:
            self.names |= {TURN: TURN.name, TURNS: TURNS.name}
        for size in self.sizes:
            self.name_of(size)
        for buffer in (*self.slots, *self.scratch.shared):
            self.name_of(buffer)

    # --- names --------------------------------------------------------------------------------------------------

    def name_of(self, thing: Var | Buffer) -> str:
        """A Python name for a variable or buffer, the same at every place."""
        if thing not in self.names:
            base = re.sub(r"\W", "_", thing.name) or "x"
            if base[0].isdigit() or keyword.iskeyword(base):
                base = f"_{base}"
            taken = {*self.names.values(), *self.reserved, *self.tiles}
            name, n = base, 0
            while name in taken:
                n += 1
                name = f"{base}_{n}"
            self.names[thing] = name
        return self.names[thing]

    def show(self, e: PrimExpr | int) -> str:
        if isinstance(e, int):
            return str(e)
        if self.sizes:
            e = rewrite(e, _as_choice)
        names = {n: self.name_of(n) for n in preorder(e) if isinstance(n, Var)}
        return show(e, names)

    def line(self, depth: int, text: str) -> None:
        self.lines.append(_INDENT * depth + text)

    # --- phases -------------------------------------------------------------------------------------------------

    def phase(self, phase: LoweredPhase, symbol: str) -> None:
        """A function that runs tasks [first, last) of a phase."""
        count = "1 task" if phase.pieces == 1 else f"{self.show(phase.pieces)} tasks"
        count += "" if self.blocks is None else " a block"
        self.line(0, f"def {symbol}(slots, first, last, worker):  # {count}")
        self.own_used = 0
        self.configured = self.tile_sizes(phase.body)
        if self.configured is not None:
            self.line(1, f"{self.palette_name(self.configured)}()")
        pointers = len(self.lines)
        self.line(1, "for task in range(first, last):")
        analyzer = Analyzer({size: (size.name not in self.empty, MOST) for size in self.sizes})
        depth = 2
        rest = "task" if self.blocks is None or phase.pieces == 1 else "piece"
        base = rest
        extents = list(phase.extents)
        for i, (var, start) in enumerate(zip(phase.task_vars, phase.starts, strict=True)):
            product = product_of(extents[i + 1 :])
            inner = self.show(product) if isinstance(product, int) else f"({self.show(product)})"
            text = rest if product == 1 else f"{rest} // {inner}"
            if i > 0:
                text = text if " " not in rest else f"({rest}) // {inner}" if product != 1 else rest
            self.line(depth, f"{self.name_of(var)} = {text if start == 0 else f'{text} + {start}'}")
            rest = f"{base} % {inner}"
            extent = extents[i]
            _, most = analyzer.bound(extent)
            analyzer.bind(var, (start, MOST if most is None else most))
        self.stmt(phase.body, depth, analyzer)
        if self.blocks is not None:
            self.lines[pointers + 1 : pointers + 1] = self.block_pointers(phase)
        self.lines[pointers:pointers] = self.pointers(phase.body)
        if self.configured is not None:
            self.line(1, "release_tiles()")
        self.line(0, "")

    def tile_sizes(self, body: Stmt) -> TileSizes | None:
        """What tile registers are for in a phase: the largest sums that it has in them; None: it has none."""
        found = [] if self.isa is None else [g.sizes for nest in nests(body, self.isa) for g in nest.groups]
        return max(found, key=lambda sizes: sum(sizes.rows) * sum(sizes.columns), default=None)

    def palette_name(self, sizes: TileSizes) -> str:
        """The function that configures the registers: tiles_16_16_by_16_16_x16."""
        rows, columns = ("_".join(map(str, n)) for n in (sizes.rows, sizes.columns))
        name = f"tiles_{rows}_by_{columns}_x{sizes.words}"
        self.palettes[name] = sizes
        return name

    def pointers(self, body: Stmt) -> list[str]:
        """The lines that fetch the addresses of the buffers that a phase uses."""
        used = outside_buffers(body)
        found = []
        at_numbers = len(self.slots) + 1
        if self.blocks is not None:
            found += [
                f"{_INDENT}{n} = number(slots[{at_numbers + i}])" for i, n in enumerate(("first_part", "n_blocks"))
            ]
        for i, size in enumerate(self.sizes):
            found.append(f"{_INDENT}{self.name_of(size)} = number(slots[{at_numbers + i}])")
        for i, buffer in enumerate(self.slots):
            if any(b is buffer for b in used) and buffer not in (self.blocks or ()):
                found.append(f"{_INDENT}{self.name_of(buffer)} = slots[{i}]")
        for buffer, at in self.scratch.shared.items():
            if any(b is buffer for b in used) and self.blocks is None:
                found.append(f"{_INDENT}{self.name_of(buffer)} = offset(slots[{len(self.slots)}], {self.show(at)})")
        if self.checks.of(body):
            n_numbers = len(self.sizes) + (0 if self.blocks is None else 2)
            found.append(f"{_INDENT}checks = slots[{at_numbers + n_numbers}]")
        return found

    def block_pointers(self, phase: LoweredPhase) -> list[str]:
        """The lines inside of the loop over tasks that find the block of a task, and its part of each argument."""
        assert self.blocks is not None, "only kernels of blocks have them"
        used, pad = outside_buffers(phase.body), 2 * _INDENT
        found = [f"{pad}block = task"]
        if phase.n_tasks != 1:
            inner, outer = ("block", "piece") if self.pieces_first else ("piece", "block")
            n_inner = "n_blocks" if self.pieces_first else str(phase.n_tasks)
            found = [f"{pad}{outer} = task // {n_inner}", f"{pad}{inner} = task % {n_inner}"]
        for i, buffer in enumerate(self.slots):
            if buffer in self.blocks and any(b is buffer for b in used):
                where = f"first_part * {self.blocks[buffer]} + block * {exact_bytes(buffer)}"
                found.append(f"{pad}{self.name_of(buffer)} = offset(slots[{i}], {where})")
        for buffer, at in self.scratch.shared.items():
            if any(b is buffer for b in used):
                where = f"offset(slots[{len(self.slots)}], block * SHARED + {at})"
                found.append(f"{pad}{self.name_of(buffer)} = {where}")
        return found

    # --- statements ---------------------------------------------------------------------------------------------

    def stmt(self, stmt: Stmt, depth: int, a: Analyzer) -> None:
        if is_tile(stmt):
            while isinstance(stmt, LetStmt) and self.is_outside(stmt):
                self.line(depth, f"{self.name_of(stmt.var)} = {self.show(rewrite(stmt.value, _as_choice))}")
                stmt = stmt.body
            self.tile(stmt, depth, a)
            return
        match stmt:
            case SeqStmt():
                for s in stmt.seq:
                    self.stmt(s, depth, a)
            case For():
                self.loop(stmt, depth, a)
            case IfThenElse():
                self.line(depth, f"if {self.show(stmt.condition)}:")
                self.stmt(stmt.then_case, depth + 1, a)
                if stmt.else_case is not None:
                    self.line(depth, "else:")
                    self.stmt(stmt.else_case, depth + 1, a)
            case Allocate():
                self.allocate(stmt, depth, a)
            case LetStmt():
                self.line(depth, f"{self.name_of(stmt.var)} = {self.show(stmt.value)}")
                self.stmt(stmt.body, depth, a)
            case AssertStmt():
                self.stmt(stmt.body, depth, a)
            case While() | Evaluate():
                self.tile(stmt, depth, a)
            case _:
                raise CodegenError(f"no code for {type(stmt).__name__} outside of a tile")

    def loop(self, loop: For, depth: int, a: Analyzer) -> None:
        start, extent = const_int(loop.start), const_int(loop.extent)
        if start == 0:
            bounds = self.show(loop.extent)
        elif start is not None and extent is not None:
            bounds = f"{start}, {start + extent}"
        else:
            bounds = f"{self.show(loop.start)}, {self.show(loop.start + loop.extent)}"
        self.line(depth, f"for {self.name_of(loop.loop_var)} in range({bounds}):")
        self.stmt(loop.body, depth + 1, enter(a, loop))

    def allocate(self, stmt: Allocate, depth: int, a: Analyzer) -> None:
        """A buffer of the worker's own, for as long as the body runs."""
        size = buffer_bytes(stmt.buffer)
        start = self.own_used
        self.own_used = total(start, size)
        most = self.scratch.own_bytes
        self.scratch.own_bytes = self.own_used if most is start else larger(most, self.own_used)
        shared = "SHARED" if self.blocks is None else "n_blocks * SHARED"
        where = f"offset(slots[{len(self.slots)}], {shared} + worker * OWN + {self.show(start)})"
        self.line(depth, f"{self.name_of(stmt.buffer)} = {where}")
        self.stmt(stmt.body, depth, a)
        self.own_used = start

    def tile(self, stmt: Stmt, depth: int, a: Analyzer) -> None:
        """A call of a tile, below its loop nest as a comment; tiles of one form share their code."""
        shown, buffers = stmt, tuple(outside_buffers(stmt))
        aliased, checks = self.aliased(buffers), self.checks.of(stmt)
        arguments, numbers = [self.name_of(b) for b in buffers], dict[Var, int]()
        is_apart = self.is_apart(stmt, bool(checks))
        if is_apart and self.configured is None:
            opened = open_sizes(stmt, buffers, a)
            arguments = [self.part(n, start) for n, start in zip(arguments, opened.starts, strict=True)]
            stmt, buffers, a = opened.stmt, opened.buffers, a.copy()
            numbers = dict(zip(opened.sizes, opened.values, strict=True))
            for size in numbers:
                a.bind(size, (1, MOST))
        variables = tuple(outside_vars(stmt))
        arguments += [str(numbers[v]) if v in numbers else self.name_of(v) for v in variables]
        form = structural_key((buffers, variables, stmt))
        key = f"{sorted(aliased)} {form}"
        if self.configured is not None:
            key = f"{key} {self.configured}"
        if self.checks.guards:
            accesses = (n for n in preorder(stmt) if isinstance(n, BufferLoad | BufferStore))
            key = f"{key} {[self.checks.guards_of(n) for n in accesses]}"
        name = self.keys.get(key)
        if name is None:
            name = self.keys[key] = self.tile_name(stmt)
            self.tiles[name] = Tile(
                name, stmt, buffers, variables, a.copy(), self.no_alias, aliased, checks=checks,
                guards=self.checks.guards, configured=self.configured, form=form, is_apart=is_apart,
            )  # fmt: skip
        else:
            widen(self.tiles[name], variables, a)
        for text in loop_lines(shown):
            self.line(depth, f"# {text}")
        if self.tiles[name].checks:
            arguments.append("checks")
        self.line(depth, f"{name}({', '.join(arguments)})")

    def part(self, name: str, start: PrimExpr) -> str:
        """The address so many bytes from a buffer's begin."""
        return name if const_int(start) == 0 else f"offset({name}, {self.show(rewrite(start, _as_choice))})"

    def is_outside(self, stmt: LetStmt) -> bool:
        """Whether a tile is given a number that it begins with: one that is compiled apart, and may be shared."""
        reads = any(isinstance(x, BufferLoad | Call) for x in preorder(stmt.value))
        return not reads and self.configured is None and self.is_apart(stmt, bool(self.checks.of(stmt)))

    def is_apart(self, stmt: Stmt, has_checks: bool) -> bool:
        """Whether a tile is compiled apart from its kernel: a large one that reports nothing."""
        if self.isa is None or has_checks or self.checks.guards:
            return False
        return stores_in_code(stmt, self.isa.lanes("float32")) >= LEAST_APART

    def aliased(self, buffers: Sequence[Buffer]) -> frozenset[int]:
        """Which of a tile's buffers may be the same memory as another one of them."""
        together = {b for pair in self.in_place if all(x in buffers for x in pair) for b in pair}
        return frozenset(i for i, b in enumerate(buffers) if b in together)

    def tile_name(self, stmt: Stmt) -> str:
        """What the tile writes, with the extents of its unrolled and vectorised loops: dense_6x16."""
        target, extents = _main_store(stmt)
        base = re.sub(r"\W", "_", f"{target}_{extents or 'loop'}")
        name, n = base, 0
        taken = {*self.tiles, *self.names.values(), *self.reserved}
        while name in taken or keyword.iskeyword(name):
            n += 1
            name = f"{base}_{chr(ord('a') + n)}" if n < 25 else f"{base}_{n}"
        return name


def _as_choice(x: object) -> object:
    """Choices in place of `max`, which Numba compiles to a function that the object would lack; no casts of sizes."""
    if isinstance(x, Min | Max):
        return Select(compare(LE if isinstance(x, Min) else GE, x.a, x.b), x.a, x.b)
    if isinstance(x, Cast) and is_int(x.dtype) and is_int(x.value.dtype) and x.value.dtype != "bool":
        return x.value  # whole numbers are int64 in generated source
    return x


def _main_store(stmt: Stmt) -> tuple[str, str]:
    """(buffer, extents of the unrolled and vectorised loops around it) of the first store to an argument, if any."""
    own = {n.buffer for n in statements(stmt) if isinstance(n, Allocate)}
    own |= {n.buffer for n in statements(stmt) if isinstance(n, BufferStore) and n.buffer.scope.startswith("shared")}
    found = ("tile", "")
    stack: list[tuple[Stmt, tuple[str, ...]]] = [(stmt, ())]
    while stack:  # in program order
        node, sizes = stack.pop()
        if isinstance(node, For) and node.kind in (LoopKind.VECTORIZED, LoopKind.UNROLLED):
            sizes = (*sizes, str(const_int(node.extent)))
        if isinstance(node, BufferStore):
            found = (node.buffer.name, "x".join(sizes))
            if node.buffer not in own:
                break
        stack.extend((c, sizes) for c in reversed([c for c in children(node) if isinstance(c, Stmt)]))
    return found


def widen(tile: Tile, variables: Sequence[Var], a: Analyzer) -> None:
    """Let the tile's variables take the values that they have at another call as well."""
    for own, other in zip(tile.variables, variables, strict=True):
        (low, high), (other_low, other_high) = tile.analyzer.bound(own), a.bound(other)
        tile.analyzer.bounds[own] = (
            None if low is None or other_low is None else min(low, other_low),
            None if high is None or other_high is None else max(high, other_high),
        )

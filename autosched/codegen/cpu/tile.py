"""Emits the statements of one tile: loops, vectors, unrolled code, register buffers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from llvmlite import ir

from autosched.codegen.cpu.affine import Affine
from autosched.codegen.cpu.amx import emit_products_in_tiles, products_from_zeros, products_in_tiles
from autosched.codegen.cpu.amx_nest import TileSizes
from autosched.codegen.cpu.byte_dot import dot_product, emit_dot_product
from autosched.codegen.cpu.checks import emit_assert, hoist_checks
from autosched.codegen.cpu.column_dot import column_sum, emit_column_sum
from autosched.codegen.cpu.cut import stores_in_code, work
from autosched.codegen.cpu.dot import emit_pairs, pair_factors
from autosched.codegen.cpu.emitter import Guards
from autosched.codegen.cpu.horizontal import emit_lane_reduction, lane_reduction
from autosched.codegen.cpu.index import Index
from autosched.codegen.cpu.line_builder import LineBuilder
from autosched.codegen.cpu.long_copy import emit_long_copy, long_copy
from autosched.codegen.cpu.math import FUNCTIONS
from autosched.codegen.cpu.memory import INTERLEAVED
from autosched.codegen.cpu.prefetch import emit_prefetches
from autosched.codegen.cpu.transpose import emit_interleaved_store, emit_squares, interleaved_store
from autosched.codegen.cpu.types import BYTES, I64, VOID, Isa, lanes_of, splat
from autosched.codegen.cpu.values import ValueEmitter
from autosched.codegen.lower.asserts import ASSERT
from autosched.codegen.lower.loops import enter
from autosched.errors import CodegenError
from autosched.ir.node import preorder
from autosched.runtime.kernel import Check
from autosched.tir import expr as E
from autosched.tir.atomic import added
from autosched.tir.buffer import Buffer
from autosched.tir.dtypes import is_float, item_bytes
from autosched.tir.expr import PrimExpr, Var, const_int
from autosched.tir.functor import statements
from autosched.tir.prefetch import TO_OWN, TO_WRITE, requested
from autosched.tir.simplify import Analyzer, split_conditions
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

MOST_UNROLLED = 4096  # stores: an unrolled loop with more of them runs as a loop
MOST_STORES = 512  # in its code: one with more of both
ABI_STACK_BITS = 128  # to which the stack is aligned where a function begins
MOST_VECTORS = 16  # a vectorised loop with more whole vectors runs as a loop over vectors
VECTORS_AT_ONCE = 4  # in an iteration of that loop


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """A piece of a kernel that becomes one LLVM function: (buffers…, variables…) -> nothing."""

    name: str
    stmt: Stmt
    buffers: tuple[Buffer, ...]
    variables: tuple[Var, ...]
    analyzer: Analyzer
    no_alias: bool = True
    aliased: frozenset[int] = frozenset()  # positions of buffers that may be one of the others
    guards: Guards = field(default_factory=dict, kw_only=True)
    checks: Mapping[Check, int] = field(
        default_factory=dict, kw_only=True
    )  # and their numbers; with some, one more argument
    configured: TileSizes | None = field(default=None, kw_only=True)  # the sizes that tile registers have already
    form: str = field(default="", kw_only=True)  # a key of buffers, variables and statement
    is_apart: bool = field(default=False, kw_only=True)  # whether it is compiled apart from its kernel

    def key(self, isa: Isa) -> Hashable:
        """Equal for tiles whose functions have one text, of those that are compiled apart."""
        nodes = (n for root in (*self.buffers, *self.variables, self.stmt) for n in preorder(root))
        names = tuple(dict.fromkeys(n.name for n in nodes if isinstance(n, Var | Buffer)))
        bounds = tuple(self.analyzer.bound(v) for v in self.variables)
        return self.name, self.form, names, bounds, self.no_alias, self.aliased, self.configured, isa


def define_tile(module: ir.Module, tile: Tile, isa: Isa) -> ir.Function:
    """The LLVM function of a tile, with what it uses added to `module` unless it is there."""
    found = module.globals.get(tile.name)
    if found is None:
        found = declare_tile(module, tile)
        found.linkage = "internal"
        _define(found, tile, isa)
    return found


def declare_tile(module: ir.Module, tile: Tile) -> ir.Function:
    """The LLVM function of a tile without its code."""
    if (found := module.globals.get(tile.name)) is not None:
        return found
    status = [BYTES] if tile.checks else []
    function_type = ir.FunctionType(VOID, [BYTES] * len(tile.buffers) + [I64] * len(tile.variables) + status)
    function = ir.Function(module, function_type, tile.name)
    function.attributes.add("nounwind")
    return function


def tile_module(tile: Tile, isa: Isa) -> ir.Module:
    """A module that has the tile's function for others."""
    module = ir.Module(tile.name)
    _define(declare_tile(module, tile), tile, isa)
    return module


def _define(function: ir.Function, tile: Tile, isa: Isa) -> None:
    """Add the code of a tile to its function."""
    function.attributes.add("noinline")
    if isa.vector_bits > ABI_STACK_BITS and _has_chains(tile.stmt):
        # Else vectors that registers do not hold lie across cache lines, as LLVM finds out too late that there are any.
        # It takes a register of addresses: a first layer that needs all of them takes 1.4 times as long (Zen 4).
        function.attributes.alignstack = isa.vector_bits // 8
    status = ["status"] if tile.checks else []
    names = [f"{b.name}.p" for b in tile.buffers] + [v.name for v in tile.variables] + status
    for i, (argument, name) in enumerate(zip(function.args, names, strict=True)):
        argument.name = name
        if (tile.no_alias and i < len(tile.buffers) and i not in tile.aliased) or i == len(names) - len(status):
            argument.add_attribute("noalias")
    _emit_body(function, tile, isa, frozenset())


def _emit_body(function: ir.Function, tile: Tile, isa: Isa, unmasked: frozenset[Buffer]) -> None:
    """The function's code; made a second time where the first shows that masks of local buffers can be left out."""
    function.blocks.clear()
    entry = function.append_basic_block("entry")
    body = function.append_basic_block("body")
    emitter = TileEmitter(LineBuilder(body), isa, tile.analyzer)
    emitter.begin(unmasked)
    emitter.entry = LineBuilder(entry)
    written = {n.buffer for n in statements(tile.stmt) if isinstance(n, BufferStore)}
    arguments = list(function.args)
    emitter.checks, emitter.guards, emitter.configured = tile.checks, tile.guards, tile.configured
    emitter.status = emitter.builder.bitcast(arguments.pop(), I64.as_pointer()) if tile.checks else None
    for var, argument in zip(tile.variables, arguments[len(tile.buffers) :], strict=True):
        emitter.env[var] = emitter.atom(argument)  # of them strides may be made
    for buffer, argument in zip(tile.buffers, arguments, strict=False):
        emitter.declare(buffer, argument, buffer not in written)
    emitter.emit(tile.stmt)
    emitter.builder.ret_void()
    emitter.entry.branch(body)
    free = frozenset(b for b, use in emitter.lane_use.items() if use.left_out and not use.masks_matter)
    if free and not unmasked:
        _emit_body(function, tile, isa, free)


@dataclass(frozen=True, slots=True)
class _LoopFacts:
    loop: For  # kept, so that its id stays its own
    fills_lanes: bool
    dtype: str
    has_chains: bool


ATOMIC_TYPES = ("float32", "float64", "int32", "uint32", "int64", "uint64")


class TileEmitter(ValueEmitter):
    """Adds statements to values."""

    loop_facts: dict[int, _LoopFacts]

    def begin(self, unmasked: frozenset[Buffer]) -> None:
        """Nothing is known yet of buffers, loops and indices."""
        self.unmasked = unmasked
        self.places, self.loop_facts, self.lane_use, self.slots = {}, {}, {}, {}
        self.flat, self.divided, self.sums, self.joins, self.parts_of = {}, {}, {}, {}, {}

    def emit(self, stmt: Stmt) -> None:
        match stmt:
            case SeqStmt():
                self.emit_all(stmt.seq)
            case BufferStore() if (value := added(stmt)) is not None:
                self.add_at_once(stmt, value)
            case BufferStore():
                self.store(stmt.buffer, self.value(stmt.value), stmt.indices)
            case For():
                self.emit_for(stmt)
            case IfThenElse():
                self.emit_if(stmt)
            case Allocate():
                self.allocate(stmt)
                self.emit(stmt.body)
            case LetStmt():
                self.env[stmt.var] = self.bound(stmt.value)
                self.emit(stmt.body)
            case AssertStmt():
                self.emit(stmt.body)
            case Evaluate():
                self.emit_effect(stmt.value)
            case While():
                self.emit_while(stmt)
            case _:
                raise CodegenError(f"no code for {type(stmt).__name__}: lower the function first")

    def emit_all(self, stmts: Sequence[Stmt]) -> None:
        """Statements, one after the other; zeros that tile registers begin with are not stored before."""
        tiles = None  # of a statement that sums products up from the zeros of the one before
        for stmt, after in itertools.zip_longest(stmts, stmts[1:]):
            if tiles is not None:
                emit_products_in_tiles(self, *tiles, from_zero=True)
                tiles = None
            elif (tiles := None if after is None else products_from_zeros(self, stmt, after)) is None:
                self.emit(stmt)

    def add_at_once(self, store: BufferStore, value: PrimExpr) -> None:
        """Add to an element so that nothing is lost of what other workers add meanwhile."""
        if self.lanes > 1:
            raise CodegenError(
                f"'{store.buffer.name}' is added to at once in a vectorised loop", hint="leave it serial"
            )
        if store.buffer.dtype not in ATOMIC_TYPES:
            raise CodegenError(f"no {store.buffer.dtype} is added at once ('{store.buffer.name}')")
        place = self.places[store.buffer]
        at = self.offset(place, store.indices)
        assert isinstance(at, Affine), "outside of vectors an offset is one number"
        operation = "fadd" if is_float(store.buffer.dtype) else "add"
        self.builder.atomic_rmw(operation, self.address(place, at), self.value(value), "monotonic")

    def emit_effect(self, e: PrimExpr) -> None:
        """`prefetch(buffer[…], …)` asks for cache lines; `assert_holds` reports.

        Other expressions have no effect.

        Raises CodegenError for a call of code from outside.
        """
        for call in (x for x in preorder(e) if isinstance(x, E.Call)):
            if call.op in ("call_extern", "tvm_call_packed"):
                name = call.args[0].value if call.args and isinstance(call.args[0], E.StringImm) else call.op
                raise CodegenError(f"a kernel cannot call '{name}': it is no function of this compiler")
        if isinstance(e, E.Call) and e.op == ASSERT:
            emit_assert(self, e)
        if isinstance(e, E.Call) and e.op == "ret":
            raise CodegenError("T.ret in a kernel", hint="only a function that is called by itself returns a number")
        if isinstance(e, E.Call) and e.op == "prefetch":
            first, steps, purpose, is_far = requested(e)
            level = 2 if is_far and self.isa.fetches_into_l2 else 1
            place = self.places[first.buffer]
            at = self.offset(place, first.indices)
            for step in steps if isinstance(at, Affine) else ():
                there: Index = at
                for n, stride in zip(step, place.strides[-len(step) :], strict=True):
                    there = self.sum(there, Affine(stride) if isinstance(stride, int) else stride, n)
                if isinstance(there, Affine) and purpose == TO_OWN:
                    self.own(place, there, item_bytes(first.buffer.dtype))
                elif isinstance(there, Affine):
                    self.prefetch(place, there, level, purpose == TO_WRITE)

    # --- loops --------------------------------------------------------------------------------------------------

    def emit_for(self, loop: For) -> None:
        count = const_int(loop.extent)
        if loop.kind == LoopKind.THREAD_BINDING:
            raise CodegenError(f"the loop '{loop.loop_var.name}' is bound to {loop.thread}, which a CPU lacks")
        outer = self.analyzer
        self.analyzer = enter(outer, loop)
        if self.emit_known(loop):
            pass
        elif loop.kind == LoopKind.UNROLLED and count is not None and self.is_small(loop):
            self.unroll(loop, count)
        elif (
            loop.kind == LoopKind.VECTORIZED and count is not None and self.lanes == 1 and self.facts(loop).fills_lanes
        ):
            self.vectorize(loop, count)
        elif loop.kind == LoopKind.VECTORIZED and count is not None and count <= MOST_VECTORS:
            self.unroll(loop, count)
        else:
            self.serial(loop)
        self.analyzer = outer

    def emit_known(self, loop: For) -> bool:
        """Emit a loop of a form that CPUs have better code for; False: it has none of them."""
        part = lane_reduction(self, loop)
        if (tiles := products_in_tiles(self, loop)) is not None:
            emit_products_in_tiles(self, *tiles, from_zero=False)
        elif (dot := dot_product(self, loop)) is not None:
            emit_dot_product(self, loop, dot)
        elif (column := column_sum(self, loop)) is not None:
            emit_column_sum(self, loop, column)
        elif part is not None:
            emit_lane_reduction(self, loop, part)
        elif (pairs := pair_factors(self, loop)) is not None:
            emit_pairs(self, loop, pairs)
        elif (copy := long_copy(self, loop)) is not None:
            emit_long_copy(self, copy)
        elif (store := interleaved_store(self, loop)) is not None:
            emit_interleaved_store(self, loop, store)
        else:
            return emit_squares(self, loop)
        return True

    def emit_while(self, loop: While) -> None:
        """A loop that runs as long as a condition holds, tested before each iteration."""
        if self.lanes != 1:
            raise CodegenError("a while loop inside of a vectorised loop")
        b, function = self.builder, self.builder.function
        test, body, after = (function.append_basic_block(f"while.{part}") for part in ("test", "body", "end"))
        b.branch(test)
        b.position_at_end(test)
        self.scopes.append({})
        b.cbranch(self.value(loop.condition), body, after)
        b.position_at_end(body)
        self.emit(loop.body)
        self.scopes.pop()
        b.branch(test)
        b.position_at_end(after)

    def facts(self, loop: For) -> _LoopFacts:
        """What is found out once about a loop that unrolled code contains many times."""
        found = self.loop_facts.get(id(loop))
        if found is None:
            found = self.loop_facts[id(loop)] = _LoopFacts(
                loop, _fills_lanes(loop), _vector_dtype(loop.body), _has_chains(loop.body)
            )
        return found

    def is_small(self, loop: For) -> bool:
        """Whether a loop's code is short enough to be written once for each iteration."""
        return work(loop) <= MOST_UNROLLED or stores_in_code(loop, self.isa.lanes("float32")) <= MOST_STORES

    def unroll(self, loop: For, count: int) -> None:
        start = self.index(loop.start)
        for i in range(count):
            self.env[loop.loop_var] = self.sum(start, Affine(i))
            self.emit(loop.body)

    def serial(self, loop: For) -> None:
        hoist_checks(self, loop)
        self.over(loop, lambda: self.emit(loop.body))

    def over(self, loop: For, body: Callable[[], None]) -> ir.Instruction:
        """A loop, one iteration after the other, around code that `body` emits; the branch that goes back."""
        start, extent = self.index(loop.start), self.index(loop.extent)
        first = self.scalar(start)
        end = self.scalar(self.sum(start, extent))

        def iteration(i: ir.Value) -> None:
            at = self.env[loop.loop_var] = self.atom(i)
            emit_prefetches(self, loop, at)
            body()

        return self.repeat(first, end, 1, loop.loop_var.name, iteration, self.has_iterations(loop))

    def has_iterations(self, loop: For) -> bool:
        """Whether a loop whose extent is no constant is known to run at least once.

        Products of warpgroups wait for each other where a loop around them may be left out.
        """
        least, _ = self.analyzer.bound(loop.extent)
        return least is not None and least > 0

    def repeat(
        self, first: ir.Value, end: ir.Value, step: int, name: str, body: Callable[[ir.Value], None],
        runs: bool = False,
    ) -> ir.Instruction:  # fmt: skip
        """An LLVM loop: body(i) for i from `first` below `end`; the branch that goes back.

        runs    it is known that there is a first i
        """
        b, function = self.builder, self.builder.function
        loop_block, after = function.append_basic_block(f"{name}.loop"), function.append_basic_block(f"{name}.end")
        before = b.block
        if runs or (isinstance(first, ir.Constant) and isinstance(end, ir.Constant) and first.constant < end.constant):
            b.branch(loop_block)
        else:
            b.cbranch(b.icmp_signed("<", first, end), loop_block, after)
        b.position_at_end(loop_block)
        i = b.phi(self.index_type, name=name)
        i.add_incoming(first, before)
        self.scopes.append({})
        body(i)
        self.scopes.pop()
        following = b.add(i, self.index_type(step), flags=("nsw", "nuw"))
        i.add_incoming(following, b.block)
        back = b.cbranch(b.icmp_signed("<", following, end), loop_block, after)
        b.position_at_end(after)
        return back

    # --- vectors ------------------------------------------------------------------------------------------------

    def vectorize(self, loop: For, count: int) -> None:
        """Whole vectors, then one that is narrower or masked."""
        hoist_checks(self, loop)
        count, body = self.shortened(loop, count)
        widest = self.isa.lanes(self.facts(loop).dtype)
        if self.facts(loop).has_chains and count >= INTERLEAVED * widest:
            widest *= INTERLEAVED
        full, rest = divmod(count, widest)
        start = self.index(loop.start)
        assert isinstance(start, Affine), "outside of a vectorised loop no value depends on the lane"
        straight = 0
        if full > MOST_VECTORS:
            group = 1 if any(isinstance(n, For) for n in preorder(body)) else VECTORS_AT_ONCE
            straight = full // group * group
            end = self.scalar(start.plus(Affine(straight * widest)))

            def vectors(i: ir.Value) -> None:
                base = self.atom(i)
                for k in range(group):
                    self.vector_body(loop, body, base.plus(Affine(k * widest)), widest, None)

            self.repeat(self.scalar(start), end, group * widest, loop.loop_var.name, vectors)
        for i in range(straight, full):
            self.vector_body(loop, body, start.plus(Affine(i * widest)), widest, None)
        if rest:
            lanes = 1 << (rest - 1).bit_length()
            base = start.plus(Affine(full * widest))
            self.vector_body(loop, body, base, lanes, None if lanes == rest else rest)

    def vector_body(self, loop: For, body: Stmt, base: Affine, lanes: int, mask: int | None) -> None:
        self.lanes, self.mask = lanes, mask
        self.env[loop.loop_var] = Affine(base.const, base.terms, 1 if lanes > 1 else 0)
        self.emit(body)
        self.lanes, self.mask = 1, None

    def shortened(self, loop: For, count: int) -> tuple[int, Stmt]:
        """(extent, body) where a condition around the whole body limits the loop to a constant, in unrolled code."""
        body = loop.body
        if not isinstance(body, IfThenElse) or body.else_case is not None or const_int(loop.start) != 0:
            return count, body
        kept: list[PrimExpr] = []
        for condition in split_conditions(body.condition):
            limit = self.constant_limit(condition, loop.loop_var, count)
            if limit is None:
                kept.append(condition)
            else:
                count = min(count, limit)
        return count, IfThenElse(E.all_of(*kept), body.then_case) if kept else body.then_case

    def constant_limit(self, condition: PrimExpr, var: Var, count: int) -> int | None:
        """The number of first iterations in which a condition holds, where all of it is constant here."""
        if not (isinstance(condition, E.LT | E.LE | E.GT | E.GE) and self.is_pure(condition)):
            return None
        old = self.lanes
        self.lanes, self.env[var] = count, Affine(0, (), 1)
        difference = self.sum(self.index(condition.a), self.index(condition.b), -1)
        numbers = self.table(difference)
        self.lanes = old
        if numbers is None:
            return None
        holds = [bool(E.const_int(E.compare(type(condition), n, 0))) for n in numbers]
        limit = holds.index(False) if False in holds else count
        return None if any(holds[limit:]) else limit

    # --- conditions ---------------------------------------------------------------------------------------------

    def emit_if(self, stmt: IfThenElse) -> None:
        uniform, per_lane = True, None
        scalar = None
        for part in split_conditions(stmt.condition):
            c = self.value(part)
            if lanes_of(c) > 1:
                per_lane = c if per_lane is None else self.builder.and_(per_lane, c)
            elif isinstance(c, ir.Constant):
                uniform = uniform and bool(c.constant)
            else:
                scalar = c if scalar is None else self.builder.and_(scalar, c)
        if not uniform:
            if stmt.else_case is not None:
                self.emit(stmt.else_case)
            return
        if per_lane is not None:
            lanes = lanes_of(per_lane)
            condition = per_lane if scalar is None else self.builder.and_(per_lane, splat(self.builder, scalar, lanes))
            self.emit_masked(condition, stmt)
        elif scalar is not None:
            self.emit_branch(scalar, stmt)
        else:
            self.emit(stmt.then_case)

    def emit_masked(self, condition: ir.Value, stmt: IfThenElse) -> None:
        outer = self.mask
        cases: Sequence[tuple[ir.Value | None, Stmt | None]] = ((condition, stmt.then_case), (None, stmt.else_case))
        for mask, case in cases:
            if case is None:
                continue
            self.mask = outer
            if mask is None and isinstance(condition, ir.Constant):
                flipped = [ir.IntType(1)(1 - int(c.constant)) for c in condition.constant]
                mask = ir.Constant(condition.type, flipped)
            self.mask = self.with_mask(self.builder.not_(condition) if mask is None else mask)
            self.scopes.append({})
            if self.mask != 0 or not isinstance(self.mask, int):
                self.emit(case)
            self.scopes.pop()
        self.mask = outer

    def emit_branch(self, condition: ir.Value, stmt: IfThenElse) -> None:
        b, function = self.builder, self.builder.function
        then, after = function.append_basic_block("then"), None
        other = function.append_basic_block("else") if stmt.else_case is not None else None
        after = function.append_basic_block("endif")
        b.cbranch(condition, then, other or after)
        for block, case in ((then, stmt.then_case), (other, stmt.else_case)):
            if block is None or case is None:
                continue
            b.position_at_end(block)
            self.scopes.append({})
            self.emit(case)
            self.scopes.pop()
            b.branch(after)
        b.position_at_end(after)


def _fills_lanes(loop: For) -> bool:
    """Whether each iteration stores to places of its own: else the iterations must run one after the other."""
    own = {n.loop_var for n in statements(loop.body) if isinstance(n, For)}
    inside = {n.buffer for n in statements(loop.body) if isinstance(n, Allocate)}
    if inside:
        return False
    variable = {loop.loop_var}
    lets = {n.var for n in preorder(loop.body) if isinstance(n, LetStmt | E.Let)}
    for store in (n for n in statements(loop.body) if isinstance(n, BufferStore)):
        used = {x for i in store.indices for x in preorder(i) if isinstance(x, Var)}
        if not used & (variable | lets):
            return False
    return loop.loop_var not in own


def _vector_dtype(body: Stmt) -> str:
    """The widest dtype that the body stores: one vector of it fills a register."""
    dtypes = [n.buffer.dtype for n in statements(body) if isinstance(n, BufferStore)]
    return max(dtypes, key=item_bytes) if dtypes else "float32"


def _has_chains(body: Stmt) -> bool:
    """Whether the body calls functions that are long chains of operations."""
    return any(isinstance(n, E.Call) and n.op in FUNCTIONS and n.dtype == "float32" for n in preorder(body))

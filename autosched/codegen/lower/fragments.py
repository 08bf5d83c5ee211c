"""Matrix products of a warp: buffers of its 32 lanes' registers, and the tensor-core instructions that work on them.

A schedule says it by scopes. The lanes are threadIdx.x, which nothing else in the product is bound to:

    C  cache_write(…, "wmma.accumulator")   float32 (int32 for int8), the warp's tile of the result
    A  cache_read(…, "wmma.matrix_a")       what one step of the reduction reads, from shared memory
    B  cache_read(…, "wmma.matrix_b")

The product is C[i, j] += A[i, k] * B[k, j] (B may be indexed [j, k]), the tile a multiple of 16 x 8, the step one of k.

    dtype               k of one instruction
    float16, bfloat16   16
    float32 as tf32      8        (products of 11 bits)
    int8                32

Every lane has some elements of a tile; element-wise statements on C run for those. Loads become `ldmatrix` where
16 bytes lie side by side, else they are made of single loads. A product may read a part of A or B; A may also be filled
from an accumulator, whose elements a lane has already.

    R  "wmma.rows"                          float32, a value for each row of C: four lanes have the same

`R[i] = max(R[i], C[i, j])` (or a sum, a product, a minimum) combines the elements of a row over its lanes by shuffles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from autosched.codegen.lower.cross_thread import COMBINE
from autosched.codegen.lower.cross_thread import LANES as COMBINED
from autosched.codegen.lower.instructions import LDMATRIX, MMA, TURN_WORDS
from autosched.codegen.lower.launches import LoweredLaunch
from autosched.codegen.lower.loops import ADDRESS_FIRST
from autosched.codegen.lower.shared_memory import constant_strides
from autosched.codegen.lower.tidy import difference
from autosched.errors import CodegenError
from autosched.ir.node import FrozenDict, map_children, preorder
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import Call, IntImm, PrimExpr, StringImm, Var, all_of, const_int
from autosched.tir.functor import free_vars, rewrite, substitute
from autosched.tir.simplify import Analyzer, Linear, form_key, split_conditions
from autosched.tir.stmt import Allocate, BufferStore, Evaluate, For, IfThenElse, LoopKind, Stmt, seq

MATRIX_A, MATRIX_B, ACCUMULATOR = "wmma.matrix_a", "wmma.matrix_b", "wmma.accumulator"
GROUP_ACCUMULATOR = "wgmma.accumulator"  # of a warpgroup, see `warpgroups.py`
GROUP_MATRIX_A = "wgmma.matrix_a"  # the same, see `warpgroup_chain.py`
ROW_VALUES = "wmma.rows"
SCOPES = (MATRIX_A, MATRIX_B, ACCUMULATOR, GROUP_ACCUMULATOR, GROUP_MATRIX_A, ROW_VALUES)
LANES = 32
ROW_LANES = 4  # lanes that have elements of one row
_START = {
    "add": 0.0, "mul": 1.0, "max": -math.inf, "min": math.inf, "lasting max": -math.inf, "lasting min": math.inf,
    "number max": -math.inf,
}  # fmt: skip
ROWS, COLUMNS = 16, 8  # of a tile of the result
TO_TF32 = "to_tf32"
EXP2_APPROX = "exp2_approx"  # 2^x of float32 by one instruction: 2 units in the last place, 0 for tiny results

# by the element's dtype: (elements of a 32-bit word, name of the operands' type)
_KINDS = {"float16": (2, "f16"), "uint16": (2, "bf16"), "float32": (1, "tf32"), "int8": (4, "s8")}


def _bounded(x: object) -> object:
    """A bound of a rounded value as one of the value: rounding keeps order, and to compare halves takes registers.

    max(float16(x), 0) -> float16(max(x, 0)), where the bound is a float16
    """
    if not isinstance(x, E.Max | E.Min) or not isinstance(x.a, E.Cast) or not isinstance(x.b, E.FloatImm):
        return x
    inner = x.a.value
    if x.dtype != "float16" or inner.dtype != "float32" or float(np.float16(x.b.value)) != x.b.value:
        return x
    return E.Cast(type(x)(inner, E.FloatImm(x.b.value, inner.dtype)), x.dtype)


def is_fragment(buffer: Buffer) -> bool:
    """Whether the lanes of a warp, or of a warpgroup, hold the buffer together."""
    return buffer.scope in SCOPES


def lower_fragments(body: Stmt, launch: LoweredLaunch) -> Stmt:
    """The statement with fragments as registers of each lane. Raises CodegenError for what no tensor core does."""
    buffers = {n.buffer for n in preorder(body) if isinstance(n, BufferLoad | BufferStore) and is_fragment(n.buffer)}
    if not buffers:
        return body
    if any(b.scope in (GROUP_ACCUMULATOR, GROUP_MATRIX_A) for b in buffers):
        raise CodegenError(
            "a product of a warpgroup is not in a loop with copies of its own",
            hint='annotate the loop over tiles of the reduction with "warp_specialized_stages"',
        )
    lane = next((a for a in launch.axes if a.tag == "threadIdx.x"), None)
    if lane is None or lane.extent != LANES:
        raise CodegenError(
            "the lanes of a matrix product are threadIdx.x, whose extent is "
            f"{1 if lane is None else lane.extent} instead of {LANES}",
            hint="bind warps to threadIdx.y, and a loop of 32 of the copies to threadIdx.x",
        )
    return Fragments(lane.var, launch.analyzer()).visit(body)


@dataclass(frozen=True, slots=True)
class Place:
    """A fragment's registers in each lane, and the tiles that they make up."""

    registers: Buffer
    tiles: tuple[int, int]
    tile: tuple[int, int]  # elements of a tile in the buffer's two dimensions
    per_word: int = 1
    transposed: bool = False  # B as [j, k]


@dataclass(frozen=True, slots=True)
class Nest:
    """Loops and conditions around one store."""

    loops: tuple[For, ...]
    conditions: tuple[PrimExpr, ...]
    store: BufferStore

    @staticmethod
    def of(stmt: Stmt) -> Nest | None:
        loops: list[For] = []
        conditions: list[PrimExpr] = []
        while True:
            if isinstance(stmt, For):
                loops.append(stmt)
                stmt = stmt.body
            elif isinstance(stmt, IfThenElse) and stmt.else_case is None:
                conditions.extend(split_conditions(stmt.condition))
                stmt = stmt.then_case
            elif isinstance(stmt, BufferStore):
                return Nest(tuple(loops), tuple(conditions), stmt)
            else:
                return None


@dataclass(slots=True)
class Fragments:
    """Turns the fragments of a launch into registers of each lane."""

    lane: Var
    analyzer: Analyzer
    places: dict[Buffer, Place] = field(default_factory=dict)

    accumulator = ACCUMULATOR
    matrix_a = MATRIX_A
    rows = ROWS  # of a tile of the result
    turns = False  # whether lanes of a row exchange elements of 16 bits, so that each stores neighbours

    def first_row(self) -> PrimExpr:
        """The row of a tile that holds a lane's first element; it has another one eight rows below."""
        return E.floordiv(self.lane, 4)

    def visit(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, Allocate) and is_fragment(stmt.buffer):
            place = self.declare(stmt.buffer, stmt.body)
            return Allocate(place.registers, self.visit(stmt.body))
        nest = Nest.of(stmt)
        if nest is not None and any(
            isinstance(n, BufferLoad | BufferStore) and is_fragment(n.buffer) for n in preorder(stmt)
        ):
            return self.lower(nest)
        return map_children(stmt, lambda c: self.visit(c) if isinstance(c, Stmt) else c)

    def declare(self, buffer: Buffer, body: Stmt) -> Place:
        """The registers of a fragment of constant, whole tiles."""
        shape = [const_int(s) or 0 for s in buffer.shape]
        if buffer.scope == ROW_VALUES:
            return self.declare_rows(buffer, shape)
        if len([s for s in shape if s != 1]) > 2 or len(shape) < 2 or any(s != 1 for s in shape[:-2]):
            raise CodegenError(f"the fragment '{buffer.name}' has the shape {shape}, expected a matrix")
        rows, columns = shape[-2:]
        if buffer.scope == ACCUMULATOR:
            tile, words, dtype, per_word, transposed = (ROWS, COLUMNS), 4, buffer.dtype, 1, False
            if dtype not in ("float32", "int32"):
                raise CodegenError(f"the accumulator '{buffer.name}' is {dtype}", hint="sum in float32 or int32")
        else:
            if buffer.dtype not in _KINDS:
                raise CodegenError(f"no tensor core multiplies {buffer.dtype} ('{buffer.name}')")
            per_word, _ = _KINDS[buffer.dtype]
            depth, dtype = 8 * per_word, "uint32"
            if buffer.scope == MATRIX_A:
                tile, words, transposed = (ROWS, depth), 4, False
            else:
                transposed = self.is_transposed(buffer, body)
                tile, words = ((COLUMNS, depth) if transposed else (depth, COLUMNS)), 2
        tiles = rows // tile[0], columns // tile[1]
        if rows % tile[0] or columns % tile[1] or 0 in tiles:
            raise CodegenError(
                f"the fragment '{buffer.name}' is {rows} x {columns}, which is no multiple of {tile[0]} x {tile[1]}",
                hint="choose the tile of a warp and the step of the reduction as multiples; pad the reduction",
            )
        # tiles of B that are neighbours in j lie side by side: one ldmatrix loads two of them
        order = (tiles[1], tiles[0]) if transposed else tiles
        registers = Buffer(buffer.name, (*(IntImm(n) for n in order), IntImm(words)), dtype, scope="local")
        self.places[buffer] = Place(registers, tiles, tile, per_word, transposed)
        return self.places[buffer]

    def declare_rows(self, buffer: Buffer, shape: Sequence[int]) -> Place:
        """The registers of a value for each row: those of two rows of a tile in each lane."""
        if buffer.dtype != "float32" or shape[-1] % self.rows or any(s != 1 for s in shape[:-1]):
            raise CodegenError(
                f"the rows' values '{buffer.name}' are {buffer.dtype} {list(shape)}",
                hint=f"have a float32 for each row of a tile, a multiple of {self.rows} of them",
            )
        count = shape[-1] // self.rows
        registers = Buffer(buffer.name, (IntImm(count), IntImm(2)), buffer.dtype, scope="local")
        self.places[buffer] = Place(registers, (count, 1), (self.rows, 1))
        return self.places[buffer]

    def is_transposed(self, buffer: Buffer, body: Stmt) -> bool:
        """Whether a second operand is indexed [j, k]: j is what the accumulator's last index runs over."""
        for store in (n for n in preorder(body) if isinstance(n, BufferStore) and n.buffer.scope == ACCUMULATOR):
            for load in (x for x in preorder(store.value) if isinstance(x, BufferLoad) and x.buffer is buffer):
                columns = free_vars(store.indices[-1])
                first, last = free_vars(load.indices[-2]), free_vars(load.indices[-1])
                return bool(first & columns) and not last & columns
        raise CodegenError(f"the fragment '{buffer.name}' is multiplied with nothing")

    # --- statements ---------------------------------------------------------------------------------------------

    def lower(self, nest: Nest) -> Stmt:
        target, used = nest.store.buffer, [x for x in preorder(nest.store.value) if isinstance(x, BufferLoad)]
        operands = [x for x in used if x.buffer.scope in (MATRIX_A, MATRIX_B)]
        for loop in nest.loops:
            if const_int(loop.extent) is None or const_int(loop.start) != 0:
                raise CodegenError(f"loop '{loop.loop_var.name}' around a fragment has no constant extent from 0")
        if operands:
            return self.product(nest, operands)
        if target.scope in (self.matrix_a, MATRIX_B):
            return self.load(nest)
        return self.elements(nest)

    def parts(self, index: PrimExpr, loops: Sequence[For]) -> tuple[Mapping[Var, tuple[int, int]], int, Linear]:
        """(factor and extent of each loop in an index, values of the index, the rest); each value is had once."""
        form = self.analyzer.linear(index)
        extents = {x.loop_var: const_int(x.extent) or 1 for x in loops}
        found: dict[Var, tuple[int, int]] = {}
        rest = Linear(form.const)
        for key, (factor, atom) in form.terms.items():
            if isinstance(atom, Var) and atom in extents:
                found[atom] = (factor, extents[atom])
            elif free_vars(atom) & extents.keys():
                raise CodegenError(f"the index {index} of a fragment is no sum of loop variables")
            else:
                rest.terms[key] = (factor, atom)
        count = 1
        for factor, extent in sorted(found.values()):
            if factor != count:
                raise CodegenError(f"the index {index} of a fragment leaves elements out")
            count *= extent
        return found, count, rest

    def inverse(self, index: PrimExpr, loops: Sequence[For]) -> tuple[Mapping[Var, tuple[int, int]], int, int]:
        """The same for an index of these loops alone: the rest is a constant."""
        found, count, rest = self.parts(index, loops)
        if rest.terms:
            raise CodegenError(f"the index {index} of a fragment is no sum of loop variables")
        return found, count, rest.const

    def tiles(self, count: int, size: int, rest: Linear) -> tuple[PrimExpr, int]:
        """(first tile, number of tiles) of `count` elements from `rest` on."""
        if count % size or rest.const % size or any(factor % size for factor, _ in rest.terms.values()):
            raise CodegenError(f"{count} elements from {rest.build(self.lane.dtype)} are no whole tiles of {size}")
        whole = Linear(rest.const // size)
        whole.terms.update({key: (factor // size, atom) for key, (factor, atom) in rest.terms.items()})
        return E.cast(self.lane.dtype, whole.build(self.lane.dtype)), count // size

    def solved(self, form: Mapping[Var, tuple[int, int]], at: PrimExpr) -> dict[Var, PrimExpr]:
        """The values of loop variables where an index is `at` more than its constant."""
        values: dict[Var, PrimExpr] = {}
        for var, (factor, extent) in form.items():
            digit = at if factor == 1 else E.floordiv(at, factor)
            last = factor * extent == max(f * n for f, n in form.values())
            values[var] = E.cast(var.dtype, digit if last else E.floormod(digit, extent))
        return values

    def elements(self, nest: Nest) -> Stmt:
        """A store that reads or writes elements of an accumulator, or values of its rows: each lane does its own."""
        touched = [x for x in (nest.store, *preorder(nest.store.value)) if isinstance(x, BufferLoad | BufferStore)]
        mine = [x for x in touched if x.buffer.scope == self.accumulator]
        of_rows = [x for x in touched if x.buffer.scope == ROW_VALUES]
        first = (mine or of_rows)[0]
        row_index = first.indices[-2] if mine else first.indices[-1]
        if any(tuple(map(form_key, x.indices)) != tuple(map(form_key, first.indices)) for x in mine):
            raise CodegenError(f"a statement uses several elements of the accumulator '{first.buffer.name}'")
        if any(form_key(x.indices[-1]) != form_key(row_index) for x in of_rows):
            raise CodegenError("a statement uses values of several rows of an accumulator")
        rows, n_rows, first_row = self.parts(row_index, nest.loops)
        columns, n_columns, first_column = (
            self.parts(first.indices[-1], nest.loops) if mine else ({}, COLUMNS, Linear())
        )
        others = [x for x in nest.loops if x.loop_var not in rows and x.loop_var not in columns]
        if others:
            raise CodegenError(f"loop '{others[0].loop_var.name}' repeats a statement on an accumulator")
        it, half, jt, pair = (Var(n, self.lane.dtype) for n in ("row_tile", "half", "column_tile", "pair"))
        row = it * self.rows + half * 8 + self.first_row()
        column = jt * COLUMNS + E.floormod(self.lane, ROW_LANES) * 2 + pair
        values = {**self.solved(rows, row), **(self.solved(columns, column) if mine else {})}
        conditions = [substitute(c, values) for c in nest.conditions]
        if not is_fragment(nest.store.buffer):  # the loops may end within a tile: a condition has been built into them
            for at, n, size in ((row, n_rows, self.rows), (column, n_columns, COLUMNS)):
                if n % size:
                    conditions.append(E.compare(E.LT, at, E.const(n, at.dtype)))
            n_rows, n_columns = -(-n_rows // self.rows) * self.rows, -(-n_columns // COLUMNS) * COLUMNS
            if not mine:  # the lanes of a row have the same
                conditions.append(E.compare(E.EQ, E.floormod(self.lane, ROW_LANES), E.const(0, self.lane.dtype)))
        row_tile, row_tiles = self.tiles(n_rows, self.rows, first_row)
        column_tile, column_tiles = self.tiles(n_columns, COLUMNS, first_column)
        element = (it + row_tile, jt + column_tile, half * 2 + pair)
        of_row = (it + row_tile, half)

        def step(x: object) -> object:
            if isinstance(x, BufferLoad) and x.buffer.scope in (self.accumulator, ROW_VALUES):
                return BufferLoad(
                    self.places[x.buffer].registers, element if x.buffer.scope == self.accumulator else of_row
                )
            return x

        def inner(body: Stmt) -> Stmt:
            return _loop(jt, column_tiles, _loop(pair, 2, body, LoopKind.VECTORIZED))

        def outer(body: Stmt) -> Stmt:
            return _loop(it, row_tiles, _loop(half, 2, body))

        store = nest.store
        condition = all_of(*conditions) if conditions else None
        is_outside = mine and not is_fragment(store.buffer)
        is_whole = column_tiles % ROW_LANES == 0 and len(conditions) == len(nest.conditions)
        if self.turns and is_outside and is_whole:
            own = rewrite(rewrite(store.value, step), _bounded)
            own, row_values = substitute(own, values), self.solved(rows, row)
            made = self.turned(nest, own, condition, row_values, columns, (jt, pair), column_tiles)
            if made is not None:
                return outer(made)
        if mine and store.buffer.scope == ROW_VALUES:
            combined = self.row_reduction(store, lambda x: substitute(rewrite(x, step), values), condition, of_row)
            return outer(combined(inner))
        value = rewrite(rewrite(store.value, step), _bounded)
        if store.buffer.scope == self.accumulator:
            store = BufferStore(self.places[store.buffer].registers, value, element)
        elif store.buffer.scope == ROW_VALUES:
            store = BufferStore(self.places[store.buffer].registers, value, of_row)
        else:
            store = BufferStore(store.buffer, value, store.indices)
        body: Stmt = substitute(store, values)
        if condition is not None:
            body = IfThenElse(condition, body)
        return outer(inner(body) if mine else body)

    def turned(
        self, nest: Nest, value: PrimExpr, condition: PrimExpr | None, row: dict[Var, PrimExpr],
        columns: Mapping[Var, tuple[int, int]], of_tile: tuple[Var, Var], column_tiles: int,
    ) -> Stmt | None:  # fmt: skip
        """Stores of 16 bytes: of four tiles side by side, each lane of a row gets the elements of one.

            for part in 4: turned[part, :] = two elements of the tile 4 * group + part
            turn_words(turned)
            if 32 * group + 8 * (lane % 4) < n: out[…, 32 * group + 8 * (lane % 4) + (0 … 7)] = turned

        value       of the element of a column tile, one of a pair (`of_tile`), where the condition holds
        row         the values of the loops over rows
        None        where eight elements are no vector of the buffer, or a condition parts them
        """
        store, (tile, pair) = nest.store, of_tile
        strides = constant_strides(store.buffer)
        if store.buffer.dtype not in ("float16", "uint16") or any(s % COLUMNS for s in strides[:-1]):
            return None
        group, part, lane = (Var(n, self.lane.dtype) for n in ("group", "part", "element"))
        own = E.floormod(self.lane, ROW_LANES)
        values = {**row, **self.solved(columns, group * (ROW_LANES * COLUMNS) + own * COLUMNS + lane)}
        *first, last = (substitute(i, values) for i in store.indices)
        if any(lane in free_vars(i) for i in first) or not self.is_vector(self.analyzer.linear(last), lane, 0):
            return None
        conditions = [substitute(c, values) for c in nest.conditions]
        for c in (c for c in conditions if lane in free_vars(c)):
            form = difference(c, self.analyzer)
            if form is None or not self.is_vector(form, lane, 1):
                return None
        turned = Buffer("turned", (IntImm(ROW_LANES * 2),), store.buffer.dtype, scope="local")
        fill: Stmt = BufferStore(turned, substitute(value, {tile: group * ROW_LANES + part}), (part * 2 + pair,))
        if condition is not None and any(
            isinstance(x, BufferLoad) and x.buffer not in {p.registers for p in self.places.values()}
            for x in preorder(value)
        ):
            fill = IfThenElse(substitute(condition, {tile: group * ROW_LANES + part}), fill)
        write: Stmt = BufferStore(store.buffer, BufferLoad(turned, (lane,)), (*first, last))
        write = _loop(lane, COLUMNS, write, LoopKind.VECTORIZED)
        if conditions:
            zero = {lane: E.const(0, lane.dtype)}
            assert isinstance(write, For), "the loop over a vector"
            write = replace(write, annotations=FrozenDict({ADDRESS_FIRST: True}))
            write = IfThenElse(all_of(*(substitute(c, zero) for c in conditions)), write)
        turn = Call(TURN_WORDS, (BufferLoad(turned, (IntImm(0),)), own), "handle")
        body = seq(_loop(part, ROW_LANES, _loop(pair, 2, fill, LoopKind.VECTORIZED)), Evaluate(turn), write)
        return _loop(group, column_tiles // ROW_LANES, Allocate(turned, body))

    def is_vector(self, form: Linear, lane: Var, const: int) -> bool:
        """Whether a form counts from a multiple of a tile's columns on, or, as one that is 0 at most, parts none."""
        others = [(factor, atom) for factor, atom in form.terms.values() if atom is not lane]
        return (
            form.const % COLUMNS == const
            and [factor for factor, atom in form.terms.values() if atom is lane] == [1]
            and all(factor % COLUMNS == 0 and lane not in free_vars(atom) for factor, atom in others)
        )

    def row_reduction(
        self, store: BufferStore, lowered: Callable[[PrimExpr], PrimExpr], condition: PrimExpr | None,
        of_row: tuple[PrimExpr, ...],
    ) -> Callable[[Callable[[Stmt], Stmt]], Stmt]:  # fmt: skip
        """What combines the elements of a row: each lane its own, then those of a row theirs."""
        value = store.value
        name = next((n for n, kind in COMBINE.items() if isinstance(value, kind)), None)
        if name is None or not isinstance(value, E.BinaryOp):
            raise CodegenError(f"a row's elements are combined into '{store.buffer.name}' by none of {list(COMBINE)}")
        own = [isinstance(x, BufferLoad) and x.buffer is store.buffer for x in (value.a, value.b)]
        term = value.b if own[0] else value.a
        if sum(own) != 1 or any(isinstance(x, BufferLoad) and x.buffer is store.buffer for x in preorder(term)):
            raise CodegenError(f"'{store.buffer.name}' is combined with itself")
        # those of even and of odd columns apart: two chains of operations that wait for each other
        part = Buffer(f"{store.buffer.name}_part", (IntImm(2),), store.buffer.dtype, scope="local")
        which, start = Var("which", self.lane.dtype), E.const(_START[name], store.buffer.dtype)
        kind, (even, odd) = COMBINE[name], (BufferLoad(part, (IntImm(i),)) for i in range(2))
        update: Stmt = BufferStore(part, kind(BufferLoad(part, (which,)), lowered(term)), (which,))
        if condition is not None:
            update = IfThenElse(condition, update)
        result = BufferLoad(self.places[store.buffer].registers, of_row)
        together = Call(COMBINED, (StringImm(name), even, IntImm(ROW_LANES)), part.dtype)

        def around(inner: Callable[[Stmt], Stmt]) -> Stmt:
            # one element after the other: lanes of a vector cannot be added up in one register
            body = inner(update)
            assert isinstance(body, For) and isinstance(body.body, For), "loops over tiles and pairs"
            pairs = replace(body.body, kind=LoopKind.UNROLLED)
            pairs = substitute(pairs, {which: pairs.loop_var})
            return Allocate(part, seq(
                *(BufferStore(part, start, x.indices) for x in (even, odd)), replace(body, body=pairs),
                BufferStore(part, kind(even, odd), even.indices), BufferStore(part, together, even.indices),
                BufferStore(result.buffer, kind(result, even), of_row),
            ))  # fmt: skip

        return around

    def from_accumulator(self, nest: Nest, source: BufferLoad) -> Stmt:
        """The registers of A from those of an accumulator: the lane that needs an element has it."""
        place, values_place = self.places[nest.store.buffer], self.places[source.buffer]
        bits = {"float16": "uint16", "uint16": "uint16"}.get(nest.store.buffer.dtype)
        used = [x for x in preorder(nest.store.value) if isinstance(x, BufferLoad) and is_fragment(x.buffer)]
        same = all(
            form_key(i) == form_key(j)
            for x in used
            for i, j in zip(x.indices[-2:], source.indices[-2:] if x.buffer is source.buffer else source.indices[-2:-1])
        )
        if nest.store.buffer.scope != self.matrix_a or bits is None or nest.conditions or not same:
            raise CodegenError(
                f"the fragment '{nest.store.buffer.name}' is filled from the accumulator '{source.buffer.name}'",
                hint=f'that can be a 16-bit "{self.matrix_a}", with an element for each of the accumulator',
            )
        (rows, n_rows, row_rest), (steps, n_steps, step_rest) = (
            self.parts(i, nest.loops) for i in nest.store.indices[-2:]
        )
        others = [self.parts(i, nest.loops) for i in source.indices[-2:]]
        if [dict(rows), dict(steps)] != [dict(x[0]) for x in others]:
            raise CodegenError(f"'{nest.store.buffer.name}' is filled from the accumulator in another order")
        depth = 8 * place.per_word
        it, kt = Var("row_tile", self.lane.dtype), Var("step", self.lane.dtype)
        (row_tile, count), (step, n) = self.tiles(n_rows, self.rows, row_rest), self.tiles(n_steps, depth, step_rest)
        row_from, _ = self.tiles(n_rows, self.rows, others[0][2])
        column_from, _ = self.tiles(n_steps, COLUMNS, others[1][2])
        statements: list[Stmt] = []
        for w in range(4):
            half, block = w % 2, w // 2
            word: PrimExpr | None = None
            for e in range(place.per_word):
                at = (it + row_from, kt * place.per_word + (column_from + block), IntImm(half * 2 + e))
                of_row = (it + row_from, IntImm(half))

                def step_of(x: object, at: tuple[PrimExpr, ...] = at, of_row: tuple[PrimExpr, ...] = of_row) -> object:
                    if isinstance(x, BufferLoad) and is_fragment(x.buffer):
                        own = self.places[x.buffer].registers
                        return BufferLoad(own, at if x.buffer.scope == self.accumulator else of_row)
                    return x

                row = it * self.rows + half * 8 + self.first_row()
                k = kt * depth + (block * 8 + e + E.floormod(self.lane, ROW_LANES) * 2)
                values = {**self.solved(rows, row), **self.solved(steps, k)}
                value = substitute(rewrite(nest.store.value, step_of), values)
                part = E.cast("uint32", value if value.dtype == bits else Call("reinterpret", (value,), bits))
                part = part if e == 0 else E.bitwise("shift_left", part, E.const(16 * e, "uint32"))
                word = part if word is None else E.bitwise("bitwise_or", word, part)
            assert word is not None, "a word has elements"
            statements.append(BufferStore(place.registers, word, (it + row_tile, kt + step, IntImm(w))))
        assert values_place.tile == (self.rows, COLUMNS), "the source is an accumulator"
        return _loop(it, count, _loop(kt, n, seq(*statements)))

    def load(self, nest: Nest) -> Stmt:
        """Fill the registers of an operand."""
        place = self.places[nest.store.buffer]
        source = stripped(nest.store.value)
        loads = (x for x in preorder(nest.store.value) if isinstance(x, BufferLoad))
        accumulated = [x for x in loads if x.buffer.scope == self.accumulator]
        if accumulated:
            return self.from_accumulator(nest, accumulated[0])
        if nest.conditions or not isinstance(source, BufferLoad):
            raise CodegenError(
                f"the fragment '{nest.store.buffer.name}' is loaded under a condition or from an expression",
                hint="compute into shared memory, and choose tiles that divide the reduction",
            )
        forms = [self.parts(i, nest.loops) for i in nest.store.indices[-2:]]
        if any(
            rest.const or rest.terms or n != t * size
            for (_, n, rest), t, size in zip(forms, place.tiles, place.tile, strict=True)
        ):
            raise CodegenError(f"the fragment '{nest.store.buffer.name}' is filled in parts")
        is_b = nest.store.buffer.scope == MATRIX_B
        # `along` is the dimension that tiles of 8 or 16 rows run over, `deep` that of the reduction
        along, deep = (1, 0) if is_b and not place.transposed else (0, 1)
        at, kt = Var("row_tile", self.lane.dtype), Var("step", self.lane.dtype)

        def element(a: PrimExpr, k: PrimExpr) -> tuple[PrimExpr, ...]:
            values = {**self.solved(forms[along][0], a), **self.solved(forms[deep][0], k)}
            return tuple(substitute(i, values) for i in source.indices)

        depth = 8 * place.per_word
        n_along, n_deep = place.tiles[along], place.tiles[deep]
        pairs = is_b and n_along % 2 == 0
        parts = self.matrices(place, source.buffer, element, is_b, pairs, at, kt)
        if parts is None:
            pairs = False
            parts = self.words(place, source.buffer, element, is_b, at, kt, depth)
        return _loop(at, n_along // 2 if pairs else n_along, _loop(kt, n_deep, parts))

    def matrices(
        self, place: Place, source: Buffer, element: Callable[[PrimExpr, PrimExpr], tuple[PrimExpr, ...]], is_b: bool,
        pairs: bool, at: Var, kt: Var,
    ) -> Stmt | None:  # fmt: skip
        """`ldmatrix` of one tile of A or one or two of B; None where the elements of a row do not lie side by side."""
        if not source.scope.startswith("shared"):
            return None
        per_word, depth = place.per_word, 8 * place.per_word
        lane8, group = E.floormod(self.lane, 8), E.floordiv(self.lane, 8)
        zero, one, two = (IntImm(n, self.lane.dtype) for n in (0, 1, 2))
        side = self.distance(source, element(zero, zero), element(zero, one))
        down = self.distance(source, element(zero, zero), element(one, zero))
        if side == 1:
            transposed, pitch = False, down
        elif down == 1 and per_word == 2:
            transposed, pitch = True, side
        else:
            return None
        if pitch is None or pitch * (4 // per_word) % 16:
            return None
        tile = COLUMNS if is_b and not pairs else 16
        block_a: PrimExpr
        if is_b:  # both halves of k of one j, then of the next j
            block_a, block_k = E.floordiv(group, two) if pairs else zero, E.floormod(group, two)
        else:
            block_a, block_k = E.floormod(group, two), E.floordiv(group, two)
        a, k = at * tile + block_a * 8, kt * depth + block_k * (4 * per_word)
        if transposed:
            k = k + lane8
        else:
            a = a + lane8
        index = element(a, k)
        count = 4 if pairs or not is_b else 2
        where: tuple[PrimExpr, ...] = (kt, at * 2 if pairs else at, zero) if is_b else (at, kt, zero)
        target = BufferLoad(place.registers, where)
        call = Call(
            LDMATRIX,
            (target, IntImm(count), IntImm(int(transposed), "bool"), BufferLoad(source, index)),
            "handle",
        )
        statements: list[Stmt] = [Evaluate(call)]
        if per_word == 1:
            statements += self.rounded(place, where, count)
        return seq(*statements)

    def rounded(self, place: Place, where: tuple[PrimExpr, ...], count: int) -> list[Stmt]:
        """float32 words rounded to tf32, which the instruction would cut off."""
        statements: list[Stmt] = []
        for w in range(count):
            words = const_int(place.registers.shape[-1]) or 1
            index = (*where[:-2], where[-2] + w // words, IntImm(w % words, self.lane.dtype))
            load = BufferLoad(place.registers, index)
            statements.append(BufferStore(place.registers, Call(TO_TF32, (load,), "uint32"), index))
        return statements

    def distance(self, source: Buffer, a: Sequence[PrimExpr], b: Sequence[PrimExpr]) -> int | None:
        """The distance in elements between two places of a buffer; None where it is no constant."""
        total = 0
        for x, y, stride in zip(a, b, constant_strides(source), strict=True):
            step = const_int(self.analyzer.simplify(E.sub(y, x)))
            if step is None:
                return None
            total += step * stride
        return total

    def words(
        self, place: Place, source: Buffer, element: Callable[[PrimExpr, PrimExpr], tuple[PrimExpr, ...]], is_b: bool,
        at: Var, kt: Var, depth: int,
    ) -> Stmt:  # fmt: skip
        """The registers of one tile, made of single elements."""
        per_word = place.per_word
        row, t = E.floordiv(self.lane, 4), E.floormod(self.lane, 4)
        bits = {1: "uint32", 2: "uint16", 4: "uint8"}[per_word]
        statements: list[Stmt] = []
        for w in range(2 if is_b else 4):
            a = at * (COLUMNS if is_b else ROWS) + row + (0 if is_b else w % 2 * 8)
            block = w if is_b else w // 2
            value: PrimExpr | None = None
            for e in range(per_word):
                k = kt * depth + t * per_word + (block * 4 * per_word + e)
                load: PrimExpr = BufferLoad(source, element(a, k))
                part = E.cast("uint32", load if load.dtype == bits else Call("reinterpret", (load,), bits))
                part = part if e == 0 else E.bitwise("shift_left", part, E.const(8 * 4 // per_word * e, "uint32"))
                value = part if value is None else E.bitwise("bitwise_or", value, part)
            assert value is not None, "a word has elements"
            if per_word == 1:
                value = Call(TO_TF32, (value,), "uint32")
            index = (kt, at, IntImm(w)) if is_b else (at, kt, IntImm(w))
            statements.append(BufferStore(place.registers, value, index))
        return seq(*statements)

    def product(self, nest: Nest, operands: list[BufferLoad]) -> Stmt:
        """C += A * B, tile by tile."""
        store = nest.store
        by_scope = {x.buffer.scope: x for x in operands}
        value = store.value
        own = value.a if isinstance(value, E.Add) else None
        is_sum = isinstance(own, BufferLoad) and own.buffer is store.buffer
        factors = value.b if isinstance(value, E.Add) else value
        factors = factors.value if isinstance(factors, E.Cast) else factors
        if (
            store.buffer.scope != ACCUMULATOR or not is_sum or not isinstance(factors, E.Mul) or nest.conditions
            or {stripped(factors.a), stripped(factors.b)} != set(by_scope.values()) or len(by_scope) != 2
        ):  # fmt: skip
            raise CodegenError(
                f"the statement on '{store.buffer.name}' is no product of fragments: C[i, j] += A[i, k] * B[k, j], "
                "without a condition",
                hint="pad the reduction to a multiple of its step",
            )
        a, b = by_scope[MATRIX_A], by_scope[MATRIX_B]
        c_place, a_place, b_place = (self.places[x] for x in (store.buffer, a.buffer, b.buffer))
        j_dim, k_dim = (-2, -1) if b_place.transposed else (-1, -2)
        rows, columns, a_depth, b_depth = (
            self.parts(i, nest.loops) for i in (*store.indices[-2:], a.indices[-1], b.indices[k_dim])
        )
        for x, y in ((store.indices[-2], a.indices[-2]), (store.indices[-1], b.indices[j_dim])):
            if const_int(self.analyzer.simplify(E.sub(x, y))) != 0:
                raise CodegenError(f"the indices {x} and {y} of a product of fragments differ")
        if dict(a_depth[0]) != dict(b_depth[0]):
            raise CodegenError(f"the indices {a.indices[-1]} and {b.indices[k_dim]} of a product of fragments differ")
        k_size = 8 * a_place.per_word
        it, jt, kt = (Var(n, self.lane.dtype) for n in ("row_tile", "column_tile", "step"))
        tiles = (
            self.tiles(rows[1], ROWS, rows[2]),
            self.tiles(columns[1], COLUMNS, columns[2]),
            self.tiles(a_depth[1], k_size, a_depth[2]),
        )
        i, j, k = it + tiles[0][0], jt + tiles[1][0], kt + tiles[2][0]
        b_k = kt + self.tiles(b_depth[1], k_size, b_depth[2])[0]
        kind = _KINDS[a.buffer.dtype][1]
        zero = IntImm(0)
        call = Call(
            MMA,
            (
                StringImm(kind),
                BufferLoad(c_place.registers, (i, j, zero)),
                BufferLoad(a_place.registers, (i, k, zero)),
                BufferLoad(b_place.registers, (b_k, j, zero)),
            ),
            "handle",
        )
        body: Stmt = Evaluate(call)
        for var, n in ((jt, tiles[1][1]), (it, tiles[0][1]), (kt, tiles[2][1])):
            body = _loop(var, n, body)
        return body


def whole_tiles(count: int, size: int, first: int) -> tuple[int, int]:
    """(first tile, number of tiles) of `count` elements from `first`."""
    if count % size or first % size:
        raise CodegenError(f"{count} elements from {first} are no whole tiles of {size}")
    return first // size, count // size


def without_instructions(body: Stmt) -> Stmt:
    """The statement with functions that every machine has for those that are one instruction of a GPU."""

    def step(x: object) -> object:
        return Call("exp2", x.args, x.dtype) if isinstance(x, Call) and x.op == EXP2_APPROX else x

    return rewrite(body, step)


def stripped(e: PrimExpr) -> PrimExpr:
    """The element that is multiplied, without conversions."""
    while True:
        if isinstance(e, E.Cast):
            e = e.value
        elif isinstance(e, Call) and e.op in ("reinterpret", "shift_left", "round_bfloat16"):
            e = e.args[0]
        else:
            return e


def _loop(var: Var, extent: int, body: Stmt, kind: LoopKind = LoopKind.UNROLLED) -> Stmt:
    return For(var, E.const(0, var.dtype), E.const(extent, var.dtype), kind, body)

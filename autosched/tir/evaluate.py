"""The fast reference: evaluates an unscheduled PrimFunc block by block in float64, with NumPy over whole domains.

Loads at affine indices are strided views, others are gathered; sums of products become matrix products, other
reductions NumPy's own. Large domains are cut along a spatial axis, so memory stays bounded. The result serves as the
truth that candidates are compared with; `interpret` is the slow reference that this one is tested against.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from autosched.errors import InvalidValueError, ShapeError
from autosched.ir.node import preorder
from autosched.tir import expr as E
from autosched.tir.axis import REDUCE
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.checked_index import evaluate_check
from autosched.tir.dtypes import is_float, is_int
from autosched.tir.expr import PrimExpr, Var
from autosched.tir.function import PrimFunc
from autosched.tir.intrinsics import NUMPY, Array
from autosched.tir.share import bind_shared_values
from autosched.tir.simplify import Analyzer, Linear, form_key
from autosched.tir.start_values import infinite_start
from autosched.tir.stmt import Block, BlockRealize, BufferStore, For, LetStmt, SeqStmt, Stmt

LEAST_PLACES = 4  # along the axis that a sample is drawn from
CHUNK_ELEMENTS = 1 << 22  # largest operand that is built at once: 32 MiB of float64


@dataclass(frozen=True, slots=True)
class Sample:
    """What is left out of a large function: of a reduction with more than `most_steps`, only some results, drawn by
    `seed`, are evaluated. The others are NaN, and so is what is computed from them."""

    most_steps: int
    seed: int = 0


def evaluate(func: PrimFunc, inputs: Sequence[Array], sample: Sample | None = None) -> list[Array]:
    """The outputs of an unscheduled function, floats as float64.

    inputs   one array per interface buffer that no block writes, in parameter order
    returns  one array per interface buffer that a block writes, in parameter order
    Raises   InvalidValueError for a scheduled function, ShapeError for inputs that do not fit, IndexError for an
             access out of bounds that no if_then_else guards.
    """
    blocks = list(_blocks(func.root.body))
    written = {w.buffer for b in blocks for w in b.writes}
    read_only = [b for b in func.buffers if b not in written]
    if len(inputs) != len(read_only):
        raise InvalidValueError(
            f"expected {len(read_only)} inputs ({', '.join(b.name for b in read_only)}), got {len(inputs)}"
        )
    blocks = [replace(b, body=bind_shared_values(b.body)) for b in blocks]
    arrays: dict[Buffer, Array] = {}
    for b, x in zip(read_only, inputs):
        if tuple(x.shape) != b.const_shape():
            raise ShapeError(f"'{b.name}' must have shape {b.const_shape()}, got {tuple(x.shape)}")
        arrays[b] = np.ascontiguousarray(x, dtype=_wide(b.dtype))
    last_use = _last_uses(blocks)
    with np.errstate(all="ignore"):
        for n, block in enumerate(blocks):
            for w in block.writes:
                if w.buffer not in arrays:
                    arrays[w.buffer] = np.zeros(w.buffer.const_shape(), _wide(w.buffer.dtype))
            _BlockEvaluator(block, arrays).run(sample)
            for b in [b for b in arrays if last_use.get(b, -1) == n and b not in func.buffers]:
                del arrays[b]
    outputs = [b for b in func.buffers if b in written]
    return [arrays[b] if is_float(b.dtype) else arrays[b].astype(b.dtype) for b in outputs]


def _wide(dtype: str) -> type[np.generic]:
    return np.float64 if is_float(dtype) else np.bool_ if dtype == "bool" else np.int64


def _last_uses(blocks: Sequence[Block]) -> dict[Buffer, int]:
    return {r.buffer: n for n, b in enumerate(blocks) for r in (*b.reads, *b.writes)}


def _blocks(stmt: Stmt) -> Iterator[Block]:
    """The blocks of a function whose nests hold one block each and run over all of its domain."""
    for part in stmt.seq if isinstance(stmt, SeqStmt) else (stmt,):
        loops = []
        while isinstance(part, For):
            loops.append(part.loop_var)
            part = part.body
        if not isinstance(part, BlockRealize) or not isinstance(part.predicate, E.IntImm):
            raise InvalidValueError("evaluate takes functions that have not been scheduled")
        yield part.block


@dataclass(frozen=True, slots=True)
class Grid:
    """The points to evaluate: for each iteration variable a range.

    picked  of a sample: its variable and, in order, the values that it takes instead of all; the variable's range then
            counts them
    """

    start: Mapping[Var, int]
    stop: Mapping[Var, int]
    picked: tuple[Var, Array] | None = None

    def extent(self, v: Var) -> int:
        return self.stop[v] - self.start[v]

    def narrowed(self, v: Var, start: int, stop: int) -> Grid:
        return Grid({**self.start, v: start}, {**self.stop, v: stop}, self.picked)

    def picks(self, v: Var, places: Array) -> Grid:
        """The grid at some values of a variable."""
        return Grid({**self.start, v: 0}, {**self.stop, v: len(places)}, (v, places))

    def places(self, v: Var) -> Array | None:
        """The values of a variable that takes some of its range; None where it takes all."""
        if self.picked is None or self.picked[0] is not v:
            return None
        return self.picked[1][self.start[v] : self.stop[v]]

    def ends(self, v: Var) -> tuple[int, int]:
        """The least and the largest value of a variable."""
        places = self.places(v)
        return (self.start[v], self.stop[v] - 1) if places is None else (int(places[0]), int(places[-1]))


class _BlockEvaluator:
    def __init__(self, block: Block, arrays: dict[Buffer, Array]):
        self.block, self.arrays = block, arrays
        self.vars = [iv.var for iv in block.iter_vars]
        self.axis = {v: n for n, v in enumerate(self.vars)}
        self.spatial = [iv.var for iv in block.iter_vars if iv.kind != REDUCE]
        self.reduce = [iv.var for iv in block.iter_vars if iv.kind == REDUCE]
        self.lets: dict[Var, Array] = {}

    def run(self, sample: Sample | None = None) -> None:
        start = {iv.var: E.as_int(iv.dom.min) for iv in self.block.iter_vars}
        stop = {iv.var: start[iv.var] + E.as_int(iv.dom.extent) for iv in self.block.iter_vars}
        if any(stop[v] <= start[v] for v in self.vars):
            return
        for grid in self.chunks(self.sampled(Grid(start, stop), sample)):
            self.run_grid(grid)

    def sampled(self, grid: Grid, sample: Sample | None) -> Grid:
        """The whole grid, or of a large reduction of floats some places along its longest spatial axis."""
        steps = prod(grid.extent(v) for v in self.vars)
        written = [w.buffer for w in self.block.writes]
        if sample is None or steps <= sample.most_steps or not (self.reduce and self.spatial):
            return grid
        if not all(is_float(buffer.dtype) for buffer in written):
            return grid
        for buffer in written:
            self.arrays[buffer].fill(np.nan)
        axis = max(self.spatial, key=grid.extent)
        number = min(grid.extent(axis), max(LEAST_PLACES, grid.extent(axis) * sample.most_steps // steps))
        places = np.random.default_rng(sample.seed).choice(grid.extent(axis), number, replace=False)
        return grid.picks(axis, grid.start[axis] + np.sort(places))

    def chunks(self, grid: Grid) -> Iterator[Grid]:
        """Cut along spatial axes until no operand is larger than the limit."""
        largest = max((self.operand_vars()), key=lambda vs: prod(grid.extent(v) for v in vs), default=())
        if prod(grid.extent(v) for v in largest) <= CHUNK_ELEMENTS:
            yield grid
            return
        axis = max((v for v in self.spatial if v in largest), key=grid.extent, default=None)
        if axis is None or grid.extent(axis) == 1:
            yield grid
            return
        middle = (grid.start[axis] + grid.stop[axis]) // 2
        yield from self.chunks(grid.narrowed(axis, grid.start[axis], middle))
        yield from self.chunks(grid.narrowed(axis, middle, grid.stop[axis]))

    def operand_vars(self) -> list[tuple[Var, ...]]:
        """The axes of each array that evaluation builds."""
        factors = self.product_factors()
        if factors is not None:
            return [self.used(f) for f in factors] + [tuple(self.spatial)]
        return [tuple(self.vars)] if self.fold_of_body() is not None else [tuple(self.spatial)]

    def used(self, x: PrimExpr) -> tuple[Var, ...]:
        found = {n for n in preorder(x) if isinstance(n, Var)}
        return tuple(v for v in self.vars if v in found)

    # --- forms of a block -------------------------------------------------------------------------------------------

    def fold_of_body(self) -> tuple[type[E.BinaryOp], PrimExpr, BufferStore] | None:
        """(operation, combined value, store) of an update `C[i] = C[i] op value`."""
        store = self.block.body
        if not self.reduce or not isinstance(store, BufferStore) or not isinstance(self.block.init, BufferStore):
            return None
        value = store.value
        if not isinstance(value, E.Add | E.Mul | E.Max | E.Min):
            return None
        key = form_key(BufferLoad(store.buffer, store.indices))
        for own, other in ((value.a, value.b), (value.b, value.a)):
            reads_own = any(isinstance(x, BufferLoad) and x.buffer is store.buffer for x in preorder(other))
            if form_key(own) == key and not reads_own:
                return type(value), other, store
        return None

    def product_factors(self) -> list[PrimExpr] | None:
        """The factors of a sum of products of floats (a sum of one value has one factor)."""
        fold = self.fold_of_body()
        if fold is None or fold[0] is not E.Add or not is_float(fold[1].dtype):
            return None
        factors: list[PrimExpr] = []
        stack = [fold[1]]
        while stack:
            x = stack.pop()
            if isinstance(x, E.Cast) and is_float(x.dtype) and is_float(x.value.dtype):
                stack.append(x.value)
            elif isinstance(x, E.Mul):
                stack += [x.b, x.a]
            else:
                factors.append(x)
        return factors

    def run_grid(self, grid: Grid) -> None:
        fold, factors = self.fold_of_body(), self.product_factors()
        if fold is None:
            self.run_in_order(grid)
            return
        kind, value, store = fold
        assert isinstance(self.block.init, BufferStore)
        start = self.value(infinite_start(store.value, self.block.init.value), grid)
        if factors is not None:
            result = start + self.sum_of_products(factors, grid)
        else:
            result = self.reduced(kind, value, grid, start)
        self.store(store.buffer, store.indices, result, grid)

    def reduced(self, kind: type[E.BinaryOp], value: PrimExpr, grid: Grid, start: Array) -> Array:
        ufunc = {E.Add: np.add, E.Mul: np.multiply, E.Max: np.maximum, E.Min: np.minimum}[kind]
        axes = tuple(self.axis[v] for v in self.reduce)
        full = self.value(value, grid)
        shape = [grid.extent(v) if v in self.reduce else full.shape[self.axis[v]] for v in self.vars]
        return ufunc(start, ufunc.reduce(np.broadcast_to(full, shape), axis=axes, keepdims=True))

    def run_in_order(self, grid: Grid) -> None:
        """One reduction point after the other, the spatial axes at once."""
        if self.reduce and self.block.init is not None:
            self.statement(self.block.init, self._at(grid, [grid.start[v] for v in self.reduce]))
        for point in itertools.product(*(range(grid.start[v], grid.stop[v]) for v in self.reduce)):
            self.statement(self.block.body, self._at(grid, point))

    def _at(self, grid: Grid, point: Sequence[int]) -> Grid:
        for v, n in zip(self.reduce, point):
            grid = grid.narrowed(v, n, n + 1)
        return grid

    def statement(self, stmt: Stmt, grid: Grid) -> None:
        match stmt:
            case SeqStmt():
                for s in stmt.seq:
                    self.statement(s, grid)
            case BufferStore():
                self.store(stmt.buffer, stmt.indices, self.value(stmt.value, grid), grid)
            case LetStmt():
                self.lets[stmt.var] = self.value(stmt.value, grid)
                self.statement(stmt.body, grid)
            case _:
                raise InvalidValueError(f"evaluate has no rule for {type(stmt).__name__} inside of a block")

    # --- sums of products -------------------------------------------------------------------------------------------

    def sum_of_products(self, factors: Sequence[PrimExpr], grid: Grid) -> Array:
        """Sum over the reduction axes of the product of the factors; axes of size 1 where nothing depends on them."""
        arrays = [np.asarray(self.value(f, grid), dtype=np.float64) for f in factors]
        total = self._sum_alone(arrays[0], arrays[1:], grid)
        for n, right in enumerate(arrays[1:], start=1):
            right = self._sum_alone(right, [total, *arrays[n + 1 :]], grid, only_here=True)
            total = self._contract(total, right, arrays[n + 1 :])
        missing = prod(grid.extent(v) for v in self.reduce if all(a.shape[self.axis[v]] == 1 for a in arrays))
        return total * missing if missing != 1 else total

    def _sum_alone(self, x: Array, others: Sequence[Array], grid: Grid, only_here: bool = True) -> Array:
        """Sum reduction axes that only this factor has."""
        del grid, only_here
        axes = tuple(
            a for a in (self.axis[v] for v in self.reduce) if x.shape[a] > 1 and all(o.shape[a] == 1 for o in others)
        )
        return x.sum(axis=axes, keepdims=True) if axes else x

    def _contract(self, a: Array, b: Array, later: Sequence[Array]) -> Array:
        """a * b, summed over the reduction axes that no later factor has: as one (batched) matrix product."""
        ndim = len(self.vars)
        reducible = {self.axis[v] for v in self.reduce}
        both = [n for n in range(ndim) if a.shape[n] > 1 and b.shape[n] > 1]
        summed = [n for n in both if n in reducible and all(x.shape[n] == 1 for x in later)]
        batch = [n for n in both if n not in summed]
        left = [n for n in range(ndim) if a.shape[n] > 1 and b.shape[n] == 1]
        right = [n for n in range(ndim) if b.shape[n] > 1 and a.shape[n] == 1]
        rest = [n for n in range(ndim) if a.shape[n] == 1 and b.shape[n] == 1]
        size = {n: max(a.shape[n], b.shape[n]) for n in range(ndim)}

        def sizes(axes: Sequence[int]) -> int:
            return prod(size[n] for n in axes)

        x = a.transpose(batch + left + summed + right + rest).reshape(sizes(batch), sizes(left), sizes(summed))
        y = b.transpose(batch + summed + right + left + rest).reshape(sizes(batch), sizes(summed), sizes(right))
        order = batch + left + right + summed + rest
        shape = [size[n] for n in batch + left + right] + [1] * (len(summed) + len(rest))
        return np.matmul(x, y).reshape(shape).transpose(np.argsort(order))

    # --- values ---------------------------------------------------------------------------------------------------

    def value(self, x: PrimExpr, grid: Grid, guarded: bool = False) -> Array:
        """An expression over the grid: one axis per iteration variable, of size 1 where it does not depend on it."""
        match x:
            case E.IntImm() | E.FloatImm():
                return np.asarray(x.value, dtype=_wide(x.dtype)).reshape((1,) * len(self.vars))
            case Var() if x in self.lets:
                return self.lets[x]
            case Var():
                return self.arange(x, grid)
            case BufferLoad():
                return self.load(x, grid, guarded)
            case E.Cast():
                return _cast(self.value(x.value, grid, guarded), x.value.dtype, x.dtype)
            case E.Not():
                return np.logical_not(self.value(x.a, grid, guarded))
            case E.Select():
                parts = [self.value(p, grid, True) for p in (x.condition, x.true_value, x.false_value)]
                return np.where(parts[0], parts[1], parts[2])
            case E.Call(op="if_then_else"):
                parts = [self.value(p, grid, guarded or n > 0) for n, p in enumerate(x.args)]
                return np.where(parts[0], parts[1], parts[2])
            case E.Call(op="check_index"):
                return evaluate_check(self.value(x.args[0], grid, guarded), x, guarded)
            case E.Call():
                if x.op not in NUMPY:
                    raise InvalidValueError(f"evaluate has no function '{x.op}'")
                return np.asarray(NUMPY[x.op](*(self.value(a, grid, guarded) for a in x.args)))
            case E.Let():
                self.lets[x.var] = self.value(x.value, grid, guarded)
                return self.value(x.body, grid, guarded)
            case E.BinaryOp():
                return _binary(x, self.value(x.a, grid, guarded), self.value(x.b, grid, guarded))
            case _:
                raise InvalidValueError(f"evaluate has no rule for {type(x).__name__}")

    def arange(self, v: Var, grid: Grid) -> Array:
        shape = [1] * len(self.vars)
        shape[self.axis[v]] = -1
        places = grid.places(v)
        return (np.arange(grid.start[v], grid.stop[v]) if places is None else places).reshape(shape)

    def load(self, x: BufferLoad, grid: Grid, guarded: bool) -> Array:
        source = self.arrays[x.buffer]
        view = self.strided_view(source, x.indices, grid)
        if view is not None:
            return view
        at = [self.value(i, grid, guarded) for i in x.indices]
        for n, (i, size) in enumerate(zip(at, source.shape)):
            if int(i.min()) < 0 or int(i.max()) >= size:
                if not guarded:
                    raise IndexError(f"index {n} of {x.buffer.name} leaves [0, {size}): [{i.min()}, {i.max()}]")
                at[n] = np.clip(i, 0, size - 1)
        return source[tuple(at)]

    def strided_view(self, source: Array, indices: Sequence[PrimExpr], grid: Grid) -> Array | None:
        """The loaded elements, of whole ranges without a copy, if all indices are affine and in bounds; else None."""
        strides, offset = dict.fromkeys(self.vars, 0), 0
        for index, size, stride in zip(indices, source.shape, source.strides):
            linear = _affine(index)
            if linear is None or any(not isinstance(v, Var) or v not in self.axis for _, v in linear.terms.values()):
                return None
            low = high = linear.const
            for c, v in linear.terms.values():
                assert isinstance(v, Var)
                first, last = grid.ends(v)
                ends = c * first, c * last
                low, high = low + min(ends), high + max(ends)
                strides[v] += c * stride
                offset += ends[0] * stride
            offset += linear.const * stride
            if low < 0 or high >= size:
                return None
        sizes = {v: 1 + grid.ends(v)[1] - grid.ends(v)[0] for v in self.vars}
        shape = [sizes[v] if strides[v] else 1 for v in self.vars]
        flat = np.ndarray((), source.dtype, source.data, offset) if source.size else source
        view = np.lib.stride_tricks.as_strided(flat, shape, [strides[v] for v in self.vars])
        view.flags.writeable = False
        for v in self.vars:
            if strides[v] and (places := grid.places(v)) is not None:
                view = view.take(places - places[0], self.axis[v])
        return view

    def store(self, buffer: Buffer, indices: Sequence[PrimExpr], value: Array, grid: Grid) -> None:
        target = self.arrays[buffer]
        plain = [i for i in indices if isinstance(i, Var) and i in self.axis]
        shape = [grid.extent(v) if v in self.spatial else 1 for v in self.vars]
        value = np.broadcast_to(value, shape)
        if len(plain) == len(indices) and len({id(v) for v in plain}) == len(plain):
            box = tuple(slice(grid.start[v], grid.stop[v]) if (p := grid.places(v)) is None else p for v in plain)
            order = [self.axis[v] for v in plain]
            rest = [n for n in range(len(self.vars)) if n not in order]
            target[box] = value.transpose(order + rest)[(..., *([0] * len(rest)))]
            return
        at = np.broadcast_arrays(*[self.value(i, grid) for i in indices], np.empty(shape))[:-1]
        target[tuple(at)] = value


def _affine(x: PrimExpr) -> Linear | None:
    return Analyzer().linear(x) if is_int(x.dtype) else None


def _cast(value: Array, source: str, target: str) -> Array:
    if target == "bool":
        return value != 0
    if is_int(target):
        kind = np.int64 if is_float(source) or source != target else value.dtype
        wide = np.trunc(value).astype(kind) if is_float(source) else value.astype(kind)
        return wide.astype(target).astype(np.int64)
    return value.astype(np.float64)


def _truncdiv(a: Array, b: Array) -> Array:
    return np.where((a >= 0) == (b >= 0), np.abs(a) // np.abs(b), -(np.abs(a) // np.abs(b)))


_BINARY: dict[type, np.ufunc] = {
    E.Add: np.add, E.Sub: np.subtract, E.Mul: np.multiply, E.FloorDiv: np.floor_divide, E.FloorMod: np.mod,
    E.Min: np.minimum, E.Max: np.maximum, E.EQ: np.equal, E.NE: np.not_equal, E.LT: np.less, E.LE: np.less_equal,
    E.GT: np.greater, E.GE: np.greater_equal, E.And: np.logical_and, E.Or: np.logical_or,
}  # fmt: skip


def _binary(x: E.BinaryOp, a: Array, b: Array) -> Array:
    if isinstance(x, E.Div):
        return _truncdiv(a, b) if is_int(x.dtype) else np.divide(a, b)
    if isinstance(x, E.Mod):
        return np.fmod(a, b)
    return np.asarray(_BINARY[type(x)](a, b))

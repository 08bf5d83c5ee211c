"""Contractions of any axes as one matrix product: out[g, m, n] += rows[g, m, k] * columns[g, k, n].

A convolution is one: its pixels are columns, its output channels rows, input channels and places of the window k. The
matrix of columns is never stored: its elements are gathered where they are copied to shared memory. So are grouped,
transposed and dilated convolutions over any number of dimensions, and sums over products of tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from autosched import te
from autosched.ir.node import FrozenDict, preorder
from autosched.templates.chain import Chain, chain_around
from autosched.templates.classify import find_contraction, is_injective, reduced, spatial
from autosched.templates.nests import INDEX, index, value_at
from autosched.tir import PrimFunc
from autosched.tir import expr as E
from autosched.tir.access import point
from autosched.tir.axis import REDUCE, SPATIAL, IterVar, Range
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.dtypes import is_float
from autosched.tir.expr import Call, IntImm, PrimExpr, Var, as_int, const_int
from autosched.tir.function import make_root
from autosched.tir.functor import free_vars, loads, rewrite, substitute
from autosched.tir.simplify import Analyzer
from autosched.tir.stmt import Block, BlockRealize, BufferStore, For, LoopKind, Stmt, seq

HALVES = ("float16", "bfloat16")
ROWS, COLUMNS, PRODUCT, PART, TOTAL, RESULT = "rows", "columns", "product", "part", "total", "result"  # blocks
Axes = tuple[tuple[Var, int], ...]  # variables with their extents, the fastest last
# What one to four extents that come with the call are scheduled as: usual images, which no tile or vector divides.
STAND_INS = ((1031,), (53, 53), (3, 31, 31), (3, 13, 13, 13))


@dataclass(frozen=True)
class MatrixForm:
    """The axes of a contraction by their roles, and its operands in terms of them.

    whole   what an axis of the contraction is, in terms of these axes: channels are split into groups
    opened  extents that come with the call, of columns alone; a prime of `STAND_INS` is in their place elsewhere
    """

    chain: Chain
    groups: Axes
    rows: Axes
    columns: Axes
    terms: Axes
    row_operand: BufferLoad
    column_operand: BufferLoad
    whole: Mapping[Var, PrimExpr]
    blocks: Mapping[Buffer, Block]
    opened: Mapping[Var, PrimExpr] = field(default_factory=FrozenDict)

    def extents(self, axes: Axes) -> list[PrimExpr]:
        """How many values each axis has."""
        return [self.opened.get(v, index(n)) for v, n in axes]

    def count(self, axes: Axes) -> PrimExpr:
        """How many values axes have together."""
        found: PrimExpr = index(1)
        for n in self.extents(axes):
            found = E.mul(found, n)
        return found

    def decoded(self, axes: Axes, flat: PrimExpr) -> dict[Var, PrimExpr]:
        """The axes' values where they have been counted through together."""
        digits = _decoded(flat, self.extents(axes))
        return {v: E.cast(v.dtype, d) for (v, _), d in zip(axes, digits, strict=True)}

    @property
    def sizes(self) -> dict[str, int]:
        """Numbers of groups, rows, columns and terms."""
        axes = {"batch": self.groups, "M": self.rows, "N": self.columns, "K": self.terms}
        return {name: math.prod(n for _, n in found) for name, found in axes.items()}

    @property
    def dtype(self) -> str:
        """Of the operands' elements; "" where they differ."""
        types = {self.element(x).dtype for x in (self.row_operand, self.column_operand)}
        return types.pop() if len(types) == 1 else ""

    def element(self, load: BufferLoad, values: Mapping[Var, PrimExpr] | None = None) -> PrimExpr:
        """What an operand is, for given values of the axes."""
        return _narrowed(value_at(self.blocks, load.buffer, [substitute(i, values or {}) for i in load.indices], {}))

    @property
    def is_matmul(self) -> bool:
        """Whether both operands are arguments, read by plain axes: what templates of matrix products take as well."""
        operands = (self.row_operand, self.column_operand)
        plain = all(
            x.buffer not in self.blocks and all(isinstance(i, Var | IntImm) for i in x.indices) for x in operands
        )
        return plain and len(reduced(self.chain.anchor)) == 1

    def packing(self, rows: int, depth: int) -> MatrixPack | None:
        """How a weight becomes the rows' matrix: where it is an argument with plain axes, several of them terms."""
        load = self.row_operand
        if load.buffer in self.blocks or len(self.terms) < 2:
            return None
        order: list[int] = []
        shape: list[int] = []
        known = {v: n for v, n in (*self.groups, *self.rows, *self.terms)}
        places: dict[Var, int] = {}
        for i, size in zip(load.indices, load.buffer.const_shape(), strict=True):
            parts = _digits(i, known)
            if parts is None or math.prod(known[v] for v in parts) != size:
                return None
            for v in parts:
                places[v] = len(shape)
                shape.append(known[v])
        axes = [v for v, _ in (*self.groups, *self.rows, *self.terms)]
        if any(v not in places for v in axes) or len(places) != len(axes):
            return None
        order = [places[v] for v in axes]
        sizes = self.sizes
        matrix = (sizes["batch"], sizes["M"], sizes["K"])
        return MatrixPack(load.buffer.const_shape(), tuple(shape), tuple(order), matrix, rows, depth)


@dataclass(frozen=True)
class MatrixPack:
    """A weight as matrices [groups, rows, depth], 0 behind the last row and term.

    shape    of the natural array; `split` the same elements with groups as a dimension of their own
    order    of the split dimensions; `matrix` the sizes they fold into
    """

    shape: tuple[int, ...]
    split: tuple[int, ...]
    order: tuple[int, ...]
    matrix: tuple[int, int, int]
    rows: int
    depth: int

    @property
    def packed_shape(self) -> tuple[int, ...]:
        return (self.matrix[0], self.rows, self.depth)

    def packed_dtype(self, dtype: str) -> str:
        return dtype

    def pack(self, array: np.ndarray, into: np.ndarray | None = None) -> np.ndarray:
        """The packed copy of a natural array."""
        packed = np.empty(self.packed_shape, array.dtype) if into is None else into
        _, rows, depth = self.matrix
        packed[:, :rows, :depth] = array.reshape(self.split).transpose(self.order).reshape(self.matrix)
        packed[:, rows:] = 0
        packed[:, :, depth:] = 0
        return packed

    def func(self, dtype: str) -> PrimFunc:
        """A PrimFunc that packs at run time: for weights that are not known at build."""
        natural = te.placeholder(self.shape, dtype, name="natural")
        ordered = [self.split[d] for d in self.order]
        strides = [math.prod(self.split[d + 1 :]) for d in range(len(self.split))]

        def element(g: PrimExpr, m: PrimExpr, k: PrimExpr) -> PrimExpr:
            analyzer = Analyzer()
            for axis, extent in zip((g, m, k), self.packed_shape, strict=True):
                assert isinstance(axis, Var), "an axis of the packed tensor"
                analyzer.bind(axis, (0, extent))
            flat: PrimExpr = E.add(E.mul(E.add(E.mul(g, self.matrix[1]), m), self.matrix[2]), k)
            at: PrimExpr = IntImm(0, flat.dtype)
            for d, digit in zip(self.order, _decoded(flat, ordered), strict=True):
                at = E.add(at, E.mul(digit, strides[d]))
            value = natural(*map(analyzer.simplify, _decoded(at, self.shape)))  # a transposition is seen to be one
            ends = ((m, self.matrix[1], self.rows), (k, self.matrix[2], self.depth))
            inside = [x < n for x, n, have in ends if n < have]
            return te.if_then_else(te.all(*inside), value, te.const(0, dtype)) if inside else value

        return te.create_prim_func([natural, te.compute(self.packed_shape, element, name="packed")])


def _digits(e: PrimExpr, known: Mapping[Var, int]) -> tuple[Var, ...] | None:
    """The axes that an index counts through, slowest first: one, or a group and what is in it."""
    if isinstance(e, Var):
        return (e,) if e in known else None
    if isinstance(e, IntImm) and e.value == 0:
        return ()
    if isinstance(e, E.Add) and isinstance(e.a, E.Mul) and isinstance(e.a.a, Var) and isinstance(e.b, Var):
        if isinstance(e.a.b, IntImm) and known.get(e.b) == e.a.b.value and e.a.a in known:
            return (e.a.a, e.b)
    return None


def _decoded(flat: PrimExpr, extents: Sequence[PrimExpr | int]) -> list[PrimExpr]:
    """The digits of a number whose places count so many values each, slowest first."""
    found: list[PrimExpr] = []
    rest = flat
    for n in reversed(extents[1:]):
        found.insert(0, E.floormod(rest, n) if const_int(n) != 1 else IntImm(0, flat.dtype))
        rest = E.floordiv(rest, n)
    return [rest, *found] if extents else []


def find_matrix_form(func: PrimFunc, is_open: bool = False) -> MatrixForm | None:
    """A contraction as a matrix product; None where it has no rows or no columns, or is none.

    is_open  whether numbers of columns may come with the call; if not, all sizes are known
    """
    c = find_contraction(func)
    chain = None if c is None else chain_around(func, c.block)
    if c is None or chain is None or not all(is_injective(b) for b in chain.before):
        return None
    a, b = c.a, c.b
    whole: dict[Var, PrimExpr] = {}
    axes: list[tuple[Var, int]] = []
    opened = {iv.var: E.cast(INDEX, iv.dom.extent) for iv in spatial(c.block) if const_int(iv.dom.extent) is None}
    if opened and (not is_open or len(opened) > len(STAND_INS)):
        return None
    primes = dict(zip(opened, STAND_INS[len(opened) - 1] if opened else ()))
    for iv in spatial(c.block):
        extent, inner = primes.get(iv.var) or as_int(iv.dom.extent), None
        if _uses(a, iv.var) and _uses(b, iv.var):
            inner = _group_size((*a.indices, *b.indices), iv.var)
        if inner is None or extent % inner:
            axes.append((iv.var, extent))
            continue
        group, own = Var(f"{iv.var.name}_group", iv.var.dtype), Var(f"{iv.var.name}_in", iv.var.dtype)
        whole[iv.var] = E.add(E.mul(group, inner), own)
        a, b = (_with_groups(x, iv.var, inner, group, own, whole[iv.var]) for x in (a, b))
        axes += [(group, extent // inner), (own, inner)]
    blocks = {x.writes[0].buffer: x for x in (*chain.before, *chain.after)}
    a, b = _unconverted(a, blocks), _unconverted(b, blocks)
    single = [x for x in axes if x[1] == 1]
    axes = [x for x in axes if x[1] > 1]
    shared = tuple(x for x in axes if _uses(a, x[0]) and _uses(b, x[0]))
    of_a = tuple(x for x in axes if _uses(a, x[0]) and x not in shared)
    of_b = tuple(x for x in axes if _uses(b, x[0]) and x not in shared)
    if not axes or len(shared) + len(of_a) + len(of_b) != len(axes):
        return None
    of_a, of_b = (
        own or tuple(x for x in single if not _uses(other, x[0]))[-1:] for own, other in ((of_a, b), (of_b, a))
    )
    if not of_a or not of_b:
        return None
    if axes[-1] in of_a:
        a, b, of_a, of_b = b, a, of_b, of_a
    elif axes[-1] not in of_b:
        return None
    if not opened.keys() <= {v for v, _ in of_b} or any(const_int(iv.dom.extent) is None for iv in reduced(c.block)):
        return None
    terms = tuple((iv.var, as_int(iv.dom.extent)) for iv in reduced(c.block) if as_int(iv.dom.extent) > 1)
    fixed = {iv.var: iv.dom.min for iv in c.block.iter_vars if const_int(iv.dom.extent) == 1}
    if not terms or any(as_int(iv.dom.min) for iv in c.block.iter_vars):
        return None
    a, b = substitute(a, fixed), substitute(b, fixed)
    form = MatrixForm(chain, shared, of_a, of_b, terms, a, b, whole, blocks, FrozenDict(opened))
    ordered = replace(form, terms=_places_first(b, terms, shared))
    return ordered if ordered.packing(1, 1) else form


def _places_first(load: BufferLoad, terms: Axes, groups: Axes) -> Axes:
    """The axes of a sum, those of a window before those that are a dimension of the operand, as channels are.

    Neighbouring terms are then of one place of the window: its edge is checked once for all of them.
    """
    known, plain = dict((*groups, *terms)), set[Var]()
    for i in load.indices:
        found = _digits(i, known)  # a channel, or one of a group
        plain.update(found[-1:] if found else ())
    return tuple(sorted(terms, key=lambda axis: axis[0] in plain))


def _unconverted(load: BufferLoad, blocks: Mapping[Buffer, Block]) -> BufferLoad:
    """What is loaded before a block converts it from a narrower integer type."""
    block = blocks.get(load.buffer)
    value = block.body.value if block is not None and isinstance(block.body, BufferStore) else None
    if block is None or not isinstance(value, E.Cast) or not isinstance(value.value, BufferLoad):
        return load
    if _narrowed(value) is value:
        return load
    values = {iv.var: i for iv, i in zip(block.iter_vars, load.indices, strict=True)}
    return _unconverted(substitute(value.value, values), blocks)


def _narrowed(e: PrimExpr) -> PrimExpr:
    """An int8 that has been converted to int32, or 0 in its place, as the int8 it was; other values as they are."""
    if isinstance(e, E.Cast) and e.dtype == "int32" and e.value.dtype == "int8":
        return e.value
    if isinstance(e, Call) and e.op == "if_then_else" and isinstance(e.args[2], IntImm) and not e.args[2].value:
        inner = _narrowed(e.args[1])
        if inner is not e.args[1]:
            return Call(e.op, (e.args[0], inner, IntImm(0, inner.dtype)), inner.dtype)
    return e


def _uses(load: BufferLoad, v: Var) -> bool:
    return any(v in free_vars(i) for i in load.indices)


def _group_size(indices: Sequence[PrimExpr], v: Var) -> int | None:
    """How many values of a variable are in one group, where an index asks for the group."""
    for i in indices:
        for x in preorder(i):
            if isinstance(x, E.FloorDiv) and x.a is v and isinstance(x.b, IntImm):
                return x.b.value
    return None


def _with_groups(load: BufferLoad, v: Var, inner: int, group: Var, own: Var, both: PrimExpr) -> BufferLoad:
    def step(x: object) -> object:
        if isinstance(x, E.FloorDiv | E.FloorMod) and x.a is both and isinstance(x.b, IntImm) and x.b.value == inner:
            return group if isinstance(x, E.FloorDiv) else own
        return x

    found: BufferLoad = rewrite(substitute(load, {v: both}), step)
    return found


# --- the function ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """How the product is laid out for a configuration.

    rows, columns, depth  their numbers and that of terms, 0 beyond those that there are
    splits   parts of the terms that are summed up by blocks of their own
    shares   parts of those that warps of one block sum up, `step` terms each in turn
    pack     whether the rows are an argument that has been packed
    deep     whether terms lie side by side in the columns' matrix
    """

    rows: int
    columns: int | PrimExpr
    depth: int
    splits: int = 1
    pack: bool = False
    deep: bool = False
    shares: int = 1
    step: int = 1


def product_func(func: PrimFunc, form: MatrixForm, shape: Shape) -> PrimFunc:
    """The function as blocks rows, columns, product, (part, total,) result; without rows where they are packed.

    product[split, share, …]   sums of those terms that a warp of a block takes
    part[split, …]             sums of its shares
    total[…]                   sums of the parts
    """
    dtype = form.chain.anchor.writes[0].buffer.dtype
    wide = "float32" if dtype in HALVES else dtype
    g, m, n, depth = form.sizes["batch"], shape.rows, shape.columns, shape.depth
    part = depth // shape.splits
    packed = _buffer("packed", (g, m, depth), form.dtype)
    rows = packed if shape.pack else _buffer(ROWS, (g, m, depth), form.dtype)
    columns = _buffer(COLUMNS, (g, n, depth) if shape.deep else (g, depth, n), form.dtype)
    cut = ((shape.splits,) if shape.splits > 1 else ()) + ((shape.shares,) if shape.shares > 1 else ())
    product = _buffer(PRODUCT, (*cut, g, m, n), wide)
    made = [b for b in (rows, columns, product) if b is not packed]
    nests: list[Stmt] = []
    if not shape.pack:
        nests.append(_nest(ROWS, rows, lambda v: _element(form, form.row_operand, form.rows, v[0], v[1], v[2])))

    def column(v: Sequence[Var]) -> PrimExpr:
        at, to = (v[1], v[2]) if shape.deep else (v[2], v[1])
        return _element(form, form.column_operand, form.columns, v[0], at, to)

    nests.append(_nest(COLUMNS, columns, column))
    nests.append(_sum_of_products(product, rows, columns, shape, part, wide))
    for name, count in ((PART, shape.shares), (TOTAL, shape.splits)):
        if count > 1:
            cut = cut[:-1]
            total = _buffer(name, (*cut, g, m, n), wide)
            made.append(total)
            nests.append(_total(name, total, product, count))
            product = total
    nests.append(_result(form, product))
    buffers = {p: packed if shape.pack and b is form.row_operand.buffer else b for p, b in func.buffer_map.items()}
    return replace(func, buffer_map=FrozenDict(buffers), body=make_root(seq(*nests), tuple(made)))


def _buffer(name: str, shape: Sequence[int | PrimExpr], dtype: str) -> Buffer:
    return Buffer(name, tuple(index(n) if isinstance(n, int) else n for n in shape), dtype)


def _element(form: MatrixForm, load: BufferLoad, axes: Axes, group: PrimExpr, at: Var, term: Var) -> PrimExpr:
    values = {**form.decoded(form.groups, group), **form.decoded(axes, at), **form.decoded(form.terms, term)}
    value = form.element(load, values)
    inside = [E.compare(E.LT, x, form.count(found)) for x, found in ((at, axes), (term, form.terms))]
    zero = E.const(0.0 if is_float(value.dtype) else 0, value.dtype)
    return Call("if_then_else", (E.all_of(*inside), value, zero), value.dtype)


def block_nest(
    name: str, axes: Sequence[IterVar], body: BufferStore, init: BufferStore | None = None,
    condition: PrimExpr | None = None,
) -> Stmt:  # fmt: skip
    """A block below a loop for each of its axes."""
    reads = {x.buffer: point(x.buffer, x.indices) for x in loads(body.value) if x.buffer is not body.buffer}
    found = Block(tuple(axes), (), tuple(reads.values()), (point(body.buffer, body.indices),), name, body, init)
    variables = [Var(f"{iv.var.name}_{name}", INDEX) for iv in axes]
    values: dict[Var, PrimExpr] = {iv.var: v for iv, v in zip(axes, variables, strict=True)}
    predicate = IntImm(1, "bool") if condition is None else substitute(condition, values)
    stmt: Stmt = BlockRealize(tuple(variables), predicate, found)
    for v, iv in zip(reversed(variables), reversed(axes), strict=True):
        stmt = For(v, index(0), iv.dom.extent, LoopKind.SERIAL, stmt)
    return stmt


def block_axes(names: str, extents: Sequence[PrimExpr], kind: str = SPATIAL) -> list[IterVar]:
    return [IterVar(Range(index(0), n), Var(name, INDEX), kind) for name, n in zip(names.split(), extents, strict=True)]


def _nest(name: str, buffer: Buffer, value: Callable[[Sequence[Var]], PrimExpr]) -> Stmt:
    axes = block_axes("g i j", buffer.shape)
    variables = tuple(iv.var for iv in axes)
    return block_nest(name, axes, BufferStore(buffer, value(variables), variables))


def _sum_of_products(
    product: Buffer, rows: Buffer, columns: Buffer, shape: Shape, part: int, wide: str
) -> Stmt:  # fmt: skip
    names = ("split " if shape.splits > 1 else "") + ("share " if shape.shares > 1 else "") + "g m n"
    axes = block_axes(names, product.shape)
    out = tuple(iv.var for iv in axes)
    g, m, n = out[-3:]
    if shape.shares > 1:
        turns, term = block_axes("t k", [index(part // (shape.shares * shape.step)), index(shape.step)], REDUCE)
        turn = E.add(E.mul(turns.var, shape.shares), out[-4])
        terms, k = [turns, term], E.add(E.mul(turn, shape.step), term.var)
    else:
        (term,) = terms = block_axes("k", [index(part)], REDUCE)
        k = term.var
    k = E.add(E.mul(out[0], part), k) if shape.splits > 1 else k
    a = BufferLoad(rows, (g, m, k))
    b = BufferLoad(columns, (g, n, k) if shape.deep else (g, k, n))
    own = BufferLoad(product, out)
    body = BufferStore(product, E.Add(own, E.Mul(E.cast(wide, a), E.cast(wide, b))), out)
    zero = E.const(0.0 if is_float(wide) else 0, wide)
    return block_nest(PRODUCT, [*axes, *terms], body, BufferStore(product, zero, out))


def _total(name: str, total: Buffer, product: Buffer, count: int) -> Stmt:
    """Sums of so many parts, which are the dimension before the last three."""
    names = "split g m n" if total.ndim > 3 else "g m n"
    axes, (part,) = block_axes(names, total.shape), block_axes("s", [index(count)], REDUCE)
    out = tuple(iv.var for iv in axes)
    own = BufferLoad(total, out)
    body = BufferStore(total, E.Add(own, BufferLoad(product, (*out[:-3], part.var, *out[-3:]))), out)
    zero = E.const(0.0 if is_float(total.dtype) else 0, total.dtype)
    return block_nest(name, [*axes, part], body, BufferStore(total, zero, out))


def result_of(
    form: MatrixForm, values: Mapping[Var, PrimExpr], product: BufferLoad
) -> tuple[PrimExpr, Buffer, tuple[PrimExpr, ...]]:
    """(an element of the result, its buffer, its indices there), of a sum and the values of the form's axes."""
    last = form.chain.after[-1] if form.chain.after else form.chain.anchor
    sums, out = form.chain.anchor.writes[0].buffer, last.writes[0].buffer
    natural: list[PrimExpr] = []
    for iv in spatial(form.chain.anchor):
        at = values.get(iv.var, IntImm(0, iv.var.dtype))
        natural.append(substitute(form.whole[iv.var], values) if iv.var in form.whole else at)
    value = value_at(form.blocks, out, natural, {sums: lambda _: E.cast(sums.dtype, product)})
    return value, out, tuple(natural)


def _result(form: MatrixForm, product: Buffer) -> Stmt:
    axes = block_axes("g m n", product.shape)
    g, m, n = (iv.var for iv in axes)
    values = {**form.decoded(form.groups, g), **form.decoded(form.rows, m), **form.decoded(form.columns, n)}
    value, out, at = result_of(form, values, BufferLoad(product, (g, m, n)))
    sizes = ((m, form.sizes["M"], axes[1]), (n, form.sizes["N"], axes[2]))
    known = ((v, size, const_int(iv.dom.extent)) for v, size, iv in sizes)
    inside = [E.compare(E.LT, v, size) for v, size, extent in known if extent is not None and size < extent]
    return block_nest(RESULT, axes, BufferStore(out, value, at), condition=E.all_of(*inside) if inside else None)

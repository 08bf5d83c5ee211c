"""Index arithmetic of 64 bits as one of 32: a GPU has no registers to give away, and sums of mixed widths hide forms.

Before:  for i in int64(128): A[i * int64(4) + int64(j)]       After:  for i in 128: A[i * 4 + j]
Values keep their types: what is stored of an int64 loop variable is an int64.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping

from autosched.codegen.lower.software_pipeline import STAGE
from autosched.ir.node import Node, map_children, preorder
from autosched.runtime.cuda.kernel import MOST_ELEMENTS
from autosched.runtime.size_expr import shape_at
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferData, BufferLoad
from autosched.tir.expr import IntImm, PrimExpr, Var, const_int
from autosched.tir.functor import free_vars, replace_buffers
from autosched.tir.size_expr import to_shape
from autosched.tir.stmt import BufferStore, For, Stmt

# Of a buffer, MOST_ELEMENTS: tiles that reach beyond it still have indices of 32 bits.
INDEX = "int32"
# Of a size that is no dimension of an argument, such as the tokens before these. Nothing else bounds it; times
# MOST_SCALE it has 32 bits.
MOST_OWN, MOST_SCALE = 1 << 20, 1 << 10
_ARITHMETIC = (E.Add, E.Sub, E.Mul, E.FloorDiv, E.FloorMod, E.Min, E.Max, E.Div, E.Mod)


def narrow_indices(
    body: Stmt, buffers: Iterable[Buffer], sizes: Mapping[Var, Var] | None = None, own: frozenset[Var] = frozenset()
) -> tuple[Stmt, dict[Buffer, Buffer]]:
    """(the statement with loop variables and indices of 32 bits, buffers with shapes of such numbers).

    sizes   variables of 32 bits for the symbols of shapes, which are small enough that they suffice
    own     those of them that are no dimension of an argument, of up to MOST_OWN
    """
    sizes = sizes or {}
    used = dict.fromkeys(buffers)
    nodes = list(preorder(body))
    loops = {n.loop_var: Var(n.loop_var.name, INDEX) for n in nodes if isinstance(n, For)}
    to_narrow = _Narrow({**loops, **sizes}, own)
    # The digits of a number that is converted as a whole are joined again where vectors are looked for: indices with
    # conversions are rewritten for copies that run ahead alone.
    has_copies = any(isinstance(n, For) and STAGE in n.annotations for n in nodes)
    is_wide = bool(sizes) or any(to_narrow.is_wide(n, has_copies) for n in nodes)
    is_known = all(to_narrow.is_index(s) for b in used for s in (*b.shape, *b.strides))
    if not is_wide or not is_known or any(_elements(b) >= MOST_ELEMENTS for b in used):
        return body, {}
    extents = [const_int(x) for n in nodes if isinstance(n, For) for x in (n.start, n.extent)]
    if any(x is not None and abs(x) >= MOST_ELEMENTS for x in extents):
        return body, {}
    new = {
        b: to_narrow.buffer(b) for b in used if any(free_vars(s) or s.dtype != INDEX for s in (*b.shape, *b.strides))
    }
    return replace_buffers(to_narrow.statement(body), new), new


def largest_sizes(buffers: Iterable[Buffer]) -> dict[Var, int]:
    """For each symbol in shapes, the most that it may be with indices of 32 bits, all others being 1."""
    symbolic = [b for b in buffers if any(const_int(s) is None for s in b.shape)]
    shapes = [to_shape(b.shape) for b in symbolic]
    variables = {v for b in symbolic for s in b.shape for v in free_vars(s)}
    ones = {v.name: 1 for v in variables}
    found = {}
    for var in variables:
        low, high = 1, MOST_ELEMENTS
        while low < high:
            n = (low + high + 1) // 2
            if all(math.prod(shape_at(s, {**ones, var.name: n})) < MOST_ELEMENTS for s in shapes):
                low = n
            else:
                high = n - 1
        found[var] = low
    return found


def _elements(buffer: Buffer) -> int:
    total = 1
    for size in buffer.shape:
        total *= const_int(size) or 1
    return total


@dataclasses.dataclass(slots=True)
class _Narrow:
    loops: Mapping[Var, Var]  # and symbols
    own: frozenset[Var]

    def buffer(self, buffer: Buffer) -> Buffer:
        shape, strides = (tuple(map(self.narrow, sizes)) for sizes in (buffer.shape, buffer.strides))
        return dataclasses.replace(buffer, shape=shape, strides=strides)

    def statement(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, For):
            return dataclasses.replace(
                stmt, loop_var=self.loops[stmt.loop_var], start=self.index(stmt.start), extent=self.index(stmt.extent),
                body=self.statement(stmt.body),
            )  # fmt: skip
        if isinstance(stmt, BufferStore):
            return BufferStore(stmt.buffer, self.value(stmt.value), tuple(map(self.index, stmt.indices)))
        return map_children(stmt, self.child)

    def child(self, x: object) -> object:
        if isinstance(x, Stmt):
            return self.statement(x)
        return self.value(x) if isinstance(x, PrimExpr) and not isinstance(x, BufferData) else x

    def is_wide(self, n: Node, has_copies: bool) -> bool:
        """Whether a loop variable has 64 bits; with `has_copies`, or an index."""
        if has_copies and isinstance(n, BufferLoad | BufferStore):
            return any(isinstance(x, E.Cast) and x.dtype == "int64" for i in n.indices for x in preorder(i))
        return isinstance(n, For) and n.loop_var.dtype == "int64"

    def is_index(self, e: PrimExpr) -> bool:
        """Whether an expression is made of loop variables and small numbers alone."""
        match e:
            case Var():
                return e in self.loops
            case IntImm():
                return e.dtype in ("int32", "int64") and abs(e.value) < MOST_ELEMENTS
            case E.Cast():
                return e.dtype in ("int32", "int64") and self.is_index(e.value)
            case E.BinaryOp() if isinstance(e, _ARITHMETIC):
                return self.is_index(e.a) and self.is_index(e.b) and self.scale(e) <= MOST_SCALE
        return False

    def scale(self, e: PrimExpr) -> float:
        """How often an expression of loop variables and numbers has a size of its own, at most."""
        if not self.own or not free_vars(e) & self.own:
            return 0
        match e:
            case E.Cast():
                return self.scale(e.value)
            case E.Mul():
                factor, other = (e.a, e.b) if const_int(e.a) is not None else (e.b, e.a)
                known = const_int(factor)
                return self.scale(other) * abs(known) if known is not None else math.inf
            case E.BinaryOp():
                return self.scale(e.a) + self.scale(e.b)
        return 1

    def index(self, e: PrimExpr) -> PrimExpr:
        """An index: of 32 bits where it is made of loop variables alone."""
        return self.narrow(e) if self.is_index(e) else self.value(e)

    def narrow(self, e: PrimExpr) -> PrimExpr:
        match e:
            case Var():
                return self.loops[e]
            case IntImm():
                return IntImm(e.value, INDEX)
            case E.Cast():
                return self.narrow(e.value)
        assert isinstance(e, E.BinaryOp), "is_index looked"
        return type(e)(self.narrow(e.a), self.narrow(e.b))

    def value(self, e: PrimExpr) -> PrimExpr:
        """A value keeps its type; comparisons of indices are comparisons of 32 bits."""
        match e:
            case Var():
                return E.cast(e.dtype, self.loops[e]) if e in self.loops else e
            case E.CmpOp() if self.is_index(e.a) and self.is_index(e.b):
                return type(e)(self.narrow(e.a), self.narrow(e.b))
            case BufferLoad():
                return BufferLoad(e.buffer, tuple(map(self.index, e.indices)))
        return map_children(e, self.child)

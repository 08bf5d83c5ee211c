"""Shapes that a model computes from the open sizes of its inputs: `Shape`, and arithmetic on what it gives.

They are known at import as expressions of the sizes, so `Reshape` and `Expand` by them need no tensor at run time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autosched.frontend.onnx.node import Held, Node
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, ShapeExpr
from autosched.relax.struct_info import Dim
from autosched.tir.expr import IntImm, Mul, PrimExpr
from autosched.tir.simplify import Analyzer, form_key


@dataclass(frozen=True, eq=False)
class Sizes(Held):
    """A vector of sizes, or one of them as a scalar, some of which are expressions of open sizes."""

    dims: tuple[Dim, ...] = ()
    is_scalar: bool = False


def sizes(dims: Sequence[Dim], is_scalar: bool = False) -> Sizes | Constant:
    """Sizes, or the constant that they are where none is open."""
    known = tuple(plain(d) for d in dims)
    if all(isinstance(d, int) for d in known):
        return Constant(np.asarray(known[0] if is_scalar else known, np.int64))
    return Sizes(None, False, known, is_scalar)


def dims_of(x: object) -> tuple[tuple[Dim, ...], bool] | None:
    """(sizes, whether they are a scalar) of a vector that is known at import as far as sizes are; None for others."""
    if isinstance(x, Sizes):
        return x.dims, x.is_scalar
    if isinstance(x, Constant) and x.data.ndim < 2 and x.data.dtype.kind in "iu":
        return tuple(int(v) for v in x.data.reshape(-1)), x.data.ndim == 0
    return None


def product_of(dims: Sequence[Dim]) -> Dim:
    """How many elements a shape has."""
    return _Factors.of(dims).product()


def of_sizes(node: Node) -> Expr | Held | None:
    """What a node gives that has sizes among its inputs; None for an operator that has no rule for them."""
    rule = _RULES.get(node.op_type)
    return None if rule is None else rule(node)


def plain(d: Dim) -> Dim:
    """A size as simple as it is seen to be."""
    d = d if isinstance(d, int) else Analyzer().simplify(d)
    return d.value if isinstance(d, IntImm) else d


def _same(node: Node) -> Held | None:
    x = node.inputs[0]
    return x if isinstance(x, Sizes) and node.attr("to", 7) == 7 else None  # int64, as sizes are


def _gather(node: Node) -> Expr | Held | None:
    found, at = dims_of(node.inputs[0]), dims_of(node.inputs[1])
    if found is None or at is None or found[1] or node.attr("axis", 0) != 0:
        return None
    dims, (positions, is_scalar) = found[0], at
    if any(not isinstance(p, int) or not -len(dims) <= p < len(dims) for p in positions):
        raise node.fail(f"positions {list(positions)} of {len(dims)} sizes")
    return sizes([dims[p] for p in positions if isinstance(p, int)], is_scalar)


def _slice(node: Node) -> Expr | Held | None:
    found = dims_of(node.inputs[0])
    if found is None or found[1] or node.opset < 10 or (node.has(3) and node.integers(3) not in ((0,), (-1,))):
        return None
    (begin,), (end,), (step,) = node.integers(1), node.integers(2), node.integers(4) if node.has(4) else (1,)
    if step < 1:
        return None
    return sizes(found[0][begin:end:step])


def _concat(node: Node) -> Expr | Held | None:
    parts = [dims_of(x) for x in node.inputs]
    if node.attr("axis", 0) not in (0, -1) or any(p is None or p[1] for p in parts):
        return None
    return sizes([d for p in parts if p is not None for d in p[0]])


def _turned(is_scalar: bool) -> Callable[[Node], Expr | Held | None]:
    """Unsqueeze of a scalar, Squeeze of a vector with one size."""

    def convert(node: Node) -> Expr | Held | None:
        found = dims_of(node.inputs[0])
        if found is None or found[1] == is_scalar or len(found[0]) != 1:  # it is that already, or a matrix comes of it
            return None
        return sizes(found[0], is_scalar)

    return convert


def _arithmetic(compute: Callable[[Dim, Dim], Dim | None]) -> Callable[[Node], Expr | Held | None]:
    def convert(node: Node) -> Expr | Held | None:
        a, b = dims_of(node.inputs[0]), dims_of(node.inputs[1])
        if a is None or b is None:
            return None
        count = max(len(a[0]), len(b[0]))
        if any(len(x[0]) not in (1, count) for x in (a, b)):
            return None
        pairs = zip(*(x[0] * count if len(x[0]) == 1 else x[0] for x in (a, b)), strict=True)
        made = [compute(x, y) for x, y in pairs]
        return None if any(m is None for m in made) else sizes([m for m in made if m is not None], a[1] and b[1])

    return convert


def _quotient(a: Dim, b: Dim) -> Dim | None:
    """Rounded down, which is towards zero as ONNX has it: sizes are not negative."""
    return a // b if isinstance(b, int) and b > 0 and not (isinstance(a, int) and a < 0) else None


def _reshape(node: Node) -> Expr | Held | None:
    target = dims_of(node.inputs[1])
    if isinstance(x := node.inputs[0], Sizes):  # of a vector of sizes
        if target is None or target[0] not in ((), (-1,), (len(x.dims),)) or (not target[0] and len(x.dims) != 1):
            return None
        return sizes(x.dims, not target[0])
    if target is None:
        return None
    return reshaped(node, target[0])


def reshaped(node: Node, target: Sequence[Dim]) -> Expr | None:
    """The first input in a new shape; None where the elements are not seen to be as many.

    A size of 0 is the old one at that place, unless `allowzero`.
    """
    old = node.info(0).dims
    if not node.attr("allowzero", 0):
        target = [old[i] if isinstance(d, int) and d == 0 and i < len(old) else d for i, d in enumerate(target)]
    places = [i for i, d in enumerate(target) if isinstance(d, int) and d == -1]
    if len(places) > 1 or any(isinstance(d, int) and d < -1 for d in target):
        return None
    total, known = _Factors.of(old), _Factors.of([d for i, d in enumerate(target) if i not in places])
    rest = total.without(known)
    if rest is None or (not places and rest.product() != 1):
        return None
    new = [rest.product() if i in places else d for i, d in enumerate(target)]
    return op.reshape(node.input(0), ShapeExpr(tuple(new)))


@dataclass(frozen=True)
class _Factors:
    """A product of sizes: its number, how often each open one is in it, and these by their keys."""

    number: int
    open: Counter[Hashable]
    exprs: Mapping[Hashable, PrimExpr]

    @staticmethod
    def of(dims: Sequence[Dim]) -> _Factors:
        number, count, exprs = 1, Counter[Hashable](), {}
        todo = list(dims)
        while todo:
            d = todo.pop()
            if isinstance(d, int | IntImm):
                number *= int(d if isinstance(d, int) else d.value)
            elif isinstance(d, Mul):
                todo += [d.a, d.b]
            else:
                key = form_key(d)
                count[key] += 1
                exprs[key] = d
        return _Factors(number, count, exprs)

    def without(self, other: _Factors) -> _Factors | None:
        """What is left of a product that the other one is a part of; None where that is not seen."""
        if 0 in (self.number, other.number) or self.number % other.number or not other.open <= self.open:
            return None
        return _Factors(self.number // other.number, self.open - other.open, self.exprs)

    def product(self) -> Dim:
        result: Dim = self.number
        for key in self.open.elements():
            result = result * self.exprs[key]
        return plain(result)


def _expand(node: Node) -> Expr | None:
    target = dims_of(node.inputs[1])
    return None if target is None or isinstance(node.inputs[0], Sizes) else expanded(node, target[0])


def expanded(node: Node, target: Sequence[Dim]) -> Expr | None:
    """The first input broadcast to a shape; None where it is not seen what the result's is."""
    old = node.info(0).dims
    rank = max(len(old), len(target))
    made = []
    for a, b in zip((*(1,) * (rank - len(old)), *old), (*(1,) * (rank - len(target)), *target), strict=True):
        if isinstance(b, int) and b == 1 or is_same(a, b):
            made.append(a)
        elif isinstance(a, int) and a == 1:
            made.append(b)
        else:
            return None
    return op.broadcast_to(node.input(0), ShapeExpr(tuple(made)))


def is_same(a: Dim, b: Dim) -> bool:
    """Whether two sizes are seen to be equal."""
    if isinstance(a, int) or isinstance(b, int):
        return isinstance(a, int) and isinstance(b, int) and a == b
    return form_key(Analyzer().simplify(a)) == form_key(Analyzer().simplify(b))


_RULES: dict[str, Callable[[Node], Expr | Held | None]] = {
    "Identity": _same,
    "Cast": _same,
    "Gather": _gather,
    "Slice": _slice,
    "Concat": _concat,
    "Unsqueeze": _turned(is_scalar=False),
    "Squeeze": _turned(is_scalar=True),
    "Add": _arithmetic(lambda a, b: a + b),
    "Mul": _arithmetic(lambda a, b: a * b),
    "Div": _arithmetic(_quotient),
    "Reshape": _reshape,
    "Expand": _expand,
}

"""Shapes that a model computes from the open sizes of its inputs: `Shape`, and arithmetic on what it gives.

They are known at import as expressions of the sizes, so `Reshape` and `Expand` by them need no tensor at run time.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from autosched.frontend.onnx.contents import array_of
from autosched.frontend.onnx.node import Held, Node, info_of
from autosched.frontend.size_arithmetic import (
    agreeing,
    common_size,
    exact_quotient,
    is_at_least,
    is_natural,
    is_same,
    larger,
    new_shape,
    plain,
    smaller,
    with_sizes,
)
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, ShapeExpr
from autosched.relax.struct_info import Dim
from autosched.tir.expr import Add

if TYPE_CHECKING:
    import onnx

# Operators whose inputs broadcast to one shape.
BROADCASTS = frozenset((
    "Add", "Sub", "Mul", "Div", "Mod", "Pow", "Max", "Min", "Sum", "Mean", "PRelu", "Where", "And", "Or", "Xor",
    "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift",
))  # fmt: skip


MOST_PARTS, MOST_NUMBER = 4096, 1 << 24  # that a size is divided in, that it is multiplied by


@dataclass(frozen=True, eq=False)
class Sizes(Held):
    """A vector of sizes, or one of them as a scalar, some of which are expressions of open sizes.

    width  of the rows, where it is a matrix
    per    what real numbers are still divided by
    """

    dims: tuple[Dim, ...] = ()
    is_scalar: bool = False
    dtype: str = "int64"
    width: int = 0
    per: int = 1

    def known_sizes(self) -> tuple[Dim, ...]:
        return self.dims if self.per == 1 and not self.width else ()

    def as_tensor(self) -> Expr:
        """A tensor of the sizes of each call, for operators that compute with it."""
        found = op.size_values(ShapeExpr(self.dims), is_scalar=self.is_scalar, dtype=self.dtype)
        found = found if self.per == 1 else op.divide(found, Constant(np.asarray(self.per, self.dtype)))
        return found if not self.width else op.reshape(found, ShapeExpr((len(self.dims) // self.width, self.width)))

    def rows(self) -> list[tuple[Dim, ...]]:
        """Of a matrix."""
        return [self.dims[i : i + self.width] for i in range(0, len(self.dims), self.width)]


def sizes(dims: Sequence[Dim], is_scalar: bool = False, dtype: str = "int64") -> Sizes | Constant:
    """Sizes, or the constant that they are where none is open."""
    known = tuple(plain(d) for d in dims)
    if all(isinstance(d, int) for d in known):
        return Constant(np.asarray(known[0] if is_scalar else known, dtype))
    return Sizes(None, False, known, is_scalar, dtype)


def dims_of(x: object) -> tuple[tuple[Dim, ...], bool] | None:
    """(sizes, whether they are a scalar) of a vector that is known at import as far as sizes are; None for others."""
    if isinstance(x, Sizes):
        return None if x.width or x.per > 1 else (x.dims, x.is_scalar)
    if isinstance(x, Constant) and x.data.ndim < 2 and x.data.dtype.kind in "iu":
        return tuple(int(v) for v in x.data.reshape(-1)), x.data.ndim == 0
    return None


def of_sizes(node: Node) -> Expr | Held | None:
    """What a node gives that has sizes among its inputs; None for an operator that has no rule for them."""
    is_real = node.op_type != "Range" and any(_is_real(x) for x in node.inputs)
    rule = (_REAL_RULES if is_real else _RULES).get(node.op_type)
    return None if rule is None else rule(node)


def _is_real(x: object) -> bool:
    """Whether sizes were cast to real numbers."""
    return isinstance(x, Sizes) and x.dtype.startswith("float")


def _dtype_of(x: object) -> str:
    return str(x.data.dtype) if isinstance(x, Constant) else getattr(x, "dtype", "int64")


def _same(node: Node) -> Held | None:
    x = node.inputs[0]
    return x if isinstance(x, Sizes) else None


def _negative(node: Node) -> Held | None:
    x = node.inputs[0]
    if not isinstance(x, Sizes):
        return None
    return dataclasses.replace(x, dims=tuple(plain(0 - d) for d in x.dims))


def _cast(node: Node) -> Expr | Held | None:
    x, dtype = node.inputs[0], {1: "float32", 6: "int32", 7: "int64", 11: "float64"}.get(node.attr("to", 7))
    return dataclasses.replace(x, dtype=dtype) if isinstance(x, Sizes) and dtype else None


# --- real numbers: sizes over one number ---------------------------------------------------------------------------


def _fraction(node: Node, index: int) -> Fraction | None:
    """An input that is a constant with few places behind the point, of no more dimensions; None for others."""
    x, other = node.inputs[index], node.inputs[1 - index]
    if not isinstance(x, Constant) or not isinstance(other, Sizes) or x.data.size != 1 or other.width:
        return None
    if x.data.ndim > 1 - other.is_scalar or not np.isfinite(x.data).all():
        return None
    found = Fraction(x.data.reshape(-1)[0].item())
    return found if found.denominator <= MOST_PARTS and abs(found) < MOST_NUMBER else None


def _scaled(x: object, factor: Fraction | None) -> Held | None:
    """Real sizes times a positive number."""
    if not isinstance(x, Sizes) or factor is None or factor <= 0 or x.per * factor.denominator > MOST_PARTS:
        return None
    shared = math.gcd(factor.numerator, x.per)
    dims = tuple(plain(d * (factor.numerator // shared)) for d in x.dims)
    return dataclasses.replace(x, dims=dims, per=x.per // shared * factor.denominator)


def _real_product(node: Node) -> Held | None:
    at = int(isinstance(node.inputs[1], Sizes))
    return _scaled(node.inputs[at], _fraction(node, 1 - at))


def _real_quotient(node: Node) -> Held | None:
    divisor = _fraction(node, 1)
    return _scaled(node.inputs[0], 1 / divisor if divisor else None)


def _real_sum(sign: int) -> Callable[[Node], Held | None]:
    """A real size and a whole number, which is the second one of a difference."""

    def convert(node: Node) -> Held | None:
        at = int(isinstance(node.inputs[1], Sizes))
        x, number = node.inputs[at], _fraction(node, 1 - at)
        if not isinstance(x, Sizes) or number is None or number.denominator != 1 or (sign < 0 and at):
            return None
        return dataclasses.replace(x, dims=tuple(plain(d + sign * int(number) * x.per) for d in x.dims))

    return convert


def _rounded(is_up: bool, is_cast: bool = False) -> Callable[[Node], Expr | Held | None]:
    """Real sizes that are not negative as whole ones."""

    def convert(node: Node) -> Expr | Held | None:
        x = node.inputs[0]
        if not isinstance(x, Sizes) or (x.per > 1 and not all(map(is_natural, x.dims))):
            return None
        dtype = {1: "float32", 6: "int32", 7: "int64", 11: "float64"}.get(node.attr("to", 7)) if is_cast else x.dtype
        if dtype is None or (is_cast and dtype.startswith("float")):
            return None if dtype is None else dataclasses.replace(x, dtype=dtype)
        more = x.per - 1 if is_up else 0
        whole = x.dims if x.per == 1 else tuple(plain((d + more) // x.per) for d in x.dims)
        return dataclasses.replace(x, dims=whole, dtype=dtype, per=1) if x.width else sizes(whole, x.is_scalar, dtype)

    return convert


def _gather(node: Node) -> Expr | Held | None:
    found, at = dims_of(node.inputs[0]), dims_of(node.inputs[1])
    if found is None or at is None or found[1] or node.attr("axis", 0) != 0:
        return None
    dims, (positions, is_scalar) = found[0], at
    if any(not isinstance(p, int) or not -len(dims) <= p < len(dims) for p in positions):
        raise node.fail(f"positions {list(positions)} of {len(dims)} sizes")
    return sizes([dims[p] for p in positions if isinstance(p, int)], is_scalar, _dtype_of(node.inputs[0]))


def _slice(node: Node) -> Expr | Held | None:
    x = node.inputs[0]
    if isinstance(x, Sizes) and x.width and node.opset >= 10 and node.has(3) and node.integers(3) in ((0,), (-2,)):
        (begin,), (end,), (step,) = (node.integers(i) if node.has(i) else (1,) for i in (1, 2, 4))
        return _matrix(x, x.rows()[begin:end:step]) if step else None
    found = dims_of(x)
    if found is None or found[1] or node.opset < 10 or (node.has(3) and node.integers(3) not in ((0,), (-1,))):
        return None
    if any(isinstance(x, Sizes) for x in node.inputs[1:]):
        return None
    (begin,), (end,), (step,) = node.integers(1), node.integers(2), node.integers(4) if node.has(4) else (1,)
    if step < 1:
        return None
    return sizes(found[0][begin:end:step], dtype=_dtype_of(node.inputs[0]))


def _matrix(x: Sizes, rows: Sequence[Sequence[Dim]]) -> Held | None:
    """The matrix with other rows; None where it has no elements."""
    flat = tuple(d for row in rows for d in row)
    return dataclasses.replace(x, dims=flat, width=len(rows[0])) if flat else None


def _transposed(node: Node) -> Held | None:
    x = node.inputs[0]
    if not isinstance(x, Sizes) or not x.width or list(node.attr("perm", (1, 0))) != [1, 0]:
        return None
    return _matrix(x, list(zip(*x.rows(), strict=True)))


def _concat(node: Node) -> Expr | Held | None:
    parts = [dims_of(x) for x in node.inputs]
    if node.attr("axis", 0) not in (0, -1) or any(p is None or p[1] for p in parts):
        return None
    return sizes([d for p in parts if p is not None for d in p[0]], dtype=_dtype_of(node.inputs[0]))


def _turned(is_scalar: bool) -> Callable[[Node], Expr | Held | None]:
    """Unsqueeze of a scalar, Squeeze of a vector with one size."""

    def convert(node: Node) -> Expr | Held | None:
        found = dims_of(node.inputs[0])
        if found is None or found[1] == is_scalar or len(found[0]) != 1:  # it is that already, or a matrix comes of it
            return None
        return sizes(found[0], is_scalar, _dtype_of(node.inputs[0]))

    return convert


Pairs = tuple[list[tuple[Dim, ...]], bool]


def _broadcast(inputs: Sequence[object]) -> Pairs | None:
    """(the sizes of all inputs one after the other, whether they are scalars); None where they are not known."""
    found = [dims_of(x) for x in inputs]
    known = [x for x in found if x is not None]
    count = max((len(dims) for dims, _ in known), default=0)
    if len(known) < len(found) or any(len(dims) not in (1, count) for dims, _ in known):
        return None
    rows = [dims * count if len(dims) == 1 else dims for dims, _ in known]
    return list(zip(*rows, strict=True)), all(is_scalar for _, is_scalar in known)


def _arithmetic(compute: Callable[[Dim, Dim], Dim | None]) -> Callable[[Node], Expr | Held | None]:
    def convert(node: Node) -> Expr | Held | None:
        if (found := _broadcast(node.inputs)) is None:
            return None
        made: list[Dim] = []
        for first, *others in found[0]:
            total: Dim | None = first
            for other in others:
                total = None if total is None else compute(total, other)
            if total is None:
                return None
            made.append(total)
        return sizes(made, found[1], _dtype_of(node.inputs[0]))

    return convert


def _clip(node: Node) -> Expr | Held | None:
    found = dims_of(node.inputs[0])
    if found is None:
        return None
    made = found[0]
    for index, choose in ((1, larger), (2, smaller)):
        if not node.has(index):
            continue
        limit = dims_of(node.inputs[index])
        if limit is None or len(limit[0]) != 1:
            return None
        made = tuple(choose(d, limit[0][0]) for d in made)
    return sizes(made, found[1], _dtype_of(node.inputs[0]))


def _difference(a: Dim, b: Dim) -> Dim:
    """Without what is seen to be in both: h * w + 1 less w * h is 1."""
    if is_same(a, b):
        return 0
    return plain(a.b) if isinstance(a, Add) and is_same(a.a, b) else a - b


def _quotient(a: Dim, b: Dim) -> Dim | None:
    """Rounded towards zero, as ONNX has it."""
    if not isinstance(b, int) or b < 1:
        return exact_quotient(a, b)
    positive = larger(a, 0) // b
    return positive if is_at_least(a, 1 - b) else positive - larger(0 - a, 0) // b


def _modulo(node: Node) -> Expr | Held | None:
    """With the sign of the divisor, or with `fmod` that of the dividend, where neither is negative."""

    def remainder(a: Dim, b: Dim) -> Dim | None:
        return a % b if isinstance(b, int) and b > 0 and (not node.attr("fmod", 0) or is_natural(a)) else None

    return _arithmetic(remainder)(node)


def _comparison(yes: Callable[[Dim, Dim], bool], no: Callable[[Dim, Dim], bool]) -> Callable[[Node], Expr | None]:
    """A constant, where what is known of sizes decides it."""

    def convert(node: Node) -> Expr | None:
        if (found := _broadcast(node.inputs)) is None:
            return None
        seen = [True if yes(a, b) else False if no(a, b) else None for a, b in found[0]]
        if None in seen:
            return None
        return Constant(np.asarray(seen[0] if found[1] else seen, np.bool_))

    return convert


def _differ(a: Dim, b: Dim) -> bool:
    return is_at_least(a - 1, b) or is_at_least(b - 1, a)


def _less(a: Dim, b: Dim) -> bool:
    return is_at_least(b - 1, a)


def _where(node: Node) -> Expr | Held | None:
    choice, found = node.inputs[0], _broadcast(node.inputs[1:])
    if not isinstance(choice, Constant) or choice.data.ndim > 1 or found is None:
        return None
    count = max(choice.data.size, len(found[0]))
    if any(n not in (1, count) for n in (choice.data.size, len(found[0]))):
        return None
    pairs = found[0] * count if len(found[0]) == 1 else found[0]
    chosen = [a if yes else b for yes, (a, b) in zip(np.broadcast_to(choice.data.reshape(-1), count), pairs)]
    return sizes(chosen, found[1] and not choice.data.ndim, _dtype_of(node.inputs[1]))


def _total(combine: Callable[[Dim, Dim], Dim]) -> Callable[[Node], Expr | Held | None]:
    """The product or sum of a vector of sizes."""

    def convert(node: Node) -> Expr | Held | None:
        found = dims_of(node.inputs[0])
        axes = node.attr("axes") or (tuple(node.integers(1)) if node.has(1) else None)
        if found is None or found[1] or not found[0] or axes not in (None, (0,), (-1,), [0], [-1]):
            return None
        return sizes([reduce(combine, found[0])], not node.attr("keepdims", 1), _dtype_of(node.inputs[0]))

    return convert


def _range(node: Node) -> Expr | None:
    """Numbers up to a size, real ones too: there is one at least."""
    start = node.inputs[0]
    if isinstance(start, Constant) and _whole(start) is start and start.data.dtype.kind == "f":
        return _range_from_between(node, start)
    begin, end, step = (dims_of(_whole(x)) for x in node.inputs)
    if begin is None or end is None or step is None or not isinstance(step[0][0], int) or not step[0][0]:
        return None
    (first,), (last,), (by,) = begin[0], end[0], step[0]
    assert isinstance(by, int), "looked at above"
    distance = last - first if by > 0 else first - last
    count = distance if abs(by) == 1 else (distance + (abs(by) - 1)) // abs(by)
    dtype = _dtype_of(next(x for x in node.inputs if isinstance(x, Sizes)))
    return op.size_range(ShapeExpr((plain(first), plain(count))), step=by, dtype=dtype)


def _range_from_between(node: Node, start: Constant) -> Expr | None:
    """start, start + 1 and so on, where start has a fraction: as many as there are integers between."""
    end, step = (dims_of(_whole(x)) for x in node.inputs[1:])
    if end is None or step is None or not is_same(step[0][0], 1) or not np.isfinite(start.data):
        return None
    count = ShapeExpr((0, plain(end[0][0] - math.floor(start.data))))
    steps = node.emit(op.size_range(count, dtype=str(start.data.dtype)))
    return op.add(steps, start)


def _whole(x: object) -> object:
    """Real numbers without fractions as integers."""
    if isinstance(x, Constant) and x.data.dtype.kind == "f" and np.all(x.data == np.rint(x.data)):
        return Constant(x.data.astype(np.int64))
    return x


def _constant_of_shape(node: Node) -> Expr | None:
    found, value = dims_of(node.inputs[0]), np.zeros(1, np.float32)
    if "value" in node.attrs:
        value = array_of(node.attrs["value"], f"the value of node '{node.name}'")
    if found is None or value.size != 1:
        return None
    return op.broadcast_to(Constant(value.reshape(())), ShapeExpr(found[0]))


def _reshape(node: Node) -> Expr | Held | None:
    target = dims_of(node.inputs[1])
    if isinstance(x := node.inputs[0], Sizes):  # of a vector of sizes
        known = [d for d in target[0] if isinstance(d, int)] if target is not None else [0]
        if len(known) == 2 and not _is_no_matrix(known, len(x.dims)):
            return dataclasses.replace(x, is_scalar=False, width=known[1] if known[1] > 0 else len(x.dims) // known[0])
        if target is None or target[0] not in ((), (-1,), (len(x.dims),)) or (not target[0] and len(x.dims) != 1):
            return None
        return sizes(x.dims, not target[0], x.dtype)
    if target is None:
        return None
    return reshaped(node, target[0])


def _is_no_matrix(shape: Sequence[int], count: int) -> bool:
    """Whether so many elements make no matrix of that shape, in which -1 stands for what is left."""
    known = math.prod(n for n in shape if n != -1)
    return known < 1 or list(shape).count(-1) > 1 or count % known != 0 or (-1 not in shape and known != count)


def reshaped(node: Node, target: Sequence[Dim]) -> Expr | None:
    """The first input in a new shape; None where the elements cannot be seen to be as many, nor asked to be.

    A size of 0 is the old one at that place, unless `allowzero`.
    """
    old = node.info(0).dims
    if not node.attr("allowzero", 0):
        target = [old[i] if isinstance(d, int) and d == 0 and i < len(old) else d for i, d in enumerate(target)]
    new = new_shape(old, target)
    return None if new is None else op.reshape(node.input(0), ShapeExpr(new))


def _expand(node: Node) -> Expr | None:
    target = dims_of(node.inputs[1])
    return None if target is None or isinstance(node.inputs[0], Sizes) else expanded(node, target[0])


def expanded(node: Node, target: Sequence[Dim]) -> Expr | None:
    """The first input broadcast to a shape; None where it is not seen what the result's is."""
    x, old = node.input(0), node.info(0).dims
    rank = max(len(old), len(target))
    made: list[Dim] = []
    for a, b in zip((*(1,) * (rank - len(old)), *old), (*(1,) * (rank - len(target)), *target), strict=True):
        one = common_size(b, a, may_be_one=True)
        if one is None or not (is_same(b, 1) or is_same(one, b)):  # nothing would ask for the new size
            return None
        made.append(one)
    x = with_sizes(x, made, node.emit, may_be_one=True)
    return op.broadcast_to(x, ShapeExpr(tuple(made)))


def alike(node: Node) -> list[Expr] | None:
    """The inputs of a node that broadcasts them, their open sizes equal; None where none are open."""
    shapes = [info_of(x).dims for x in node.inputs if isinstance(x, Expr) and not isinstance(x, Constant)]
    if all(isinstance(d, int) for dims in shapes for d in dims):
        return None
    return agreeing([node.input(i) for i in range(len(node.inputs))], node.emit, may_be_one=True)


_RULES: dict[str, Callable[[Node], Expr | Held | None]] = {
    "Identity": _same,
    "Cast": _cast,
    "Neg": _negative,
    "Gather": _gather,
    "Slice": _slice,
    "Concat": _concat,
    "Unsqueeze": _turned(is_scalar=False),
    "Squeeze": _turned(is_scalar=True),
    "Add": _arithmetic(lambda a, b: a + b),
    "Sub": _arithmetic(_difference),
    "Mul": _arithmetic(lambda a, b: a * b),
    "Div": _arithmetic(_quotient),
    "Mod": _modulo,
    "Min": _arithmetic(smaller),
    "Max": _arithmetic(larger),
    "Clip": _clip,
    "ReduceProd": _total(lambda a, b: a * b),
    "ReduceSum": _total(lambda a, b: a + b),
    "Equal": _comparison(is_same, _differ),
    "Less": _comparison(_less, is_at_least),
    "LessOrEqual": _comparison(lambda a, b: is_at_least(b, a), lambda a, b: _less(b, a)),
    "Greater": _comparison(lambda a, b: _less(b, a), lambda a, b: is_at_least(b, a)),
    "GreaterOrEqual": _comparison(is_at_least, _less),
    "Where": _where,
    "Range": _range,
    "ConstantOfShape": _constant_of_shape,
    "Reshape": _reshape,
    "Expand": _expand,
    "Transpose": _transposed,
}
_REAL_RULES: dict[str, Callable[[Node], Expr | Held | None]] = {
    "Identity": _same,
    "Cast": _rounded(is_up=False, is_cast=True),
    "Add": _real_sum(1),
    "Sub": _real_sum(-1),
    "Mul": _real_product,
    "Div": _real_quotient,
    "Ceil": _rounded(is_up=True),
    "Floor": _rounded(is_up=False),
}


# Inputs that others are joined to, with the dimension along which: (operator, position) -> axis.
_PASTS = {
    **{("GroupQueryAttention", i): 2 for i in (3, 4)}, **{("MultiHeadAttention", i): 2 for i in (6, 7)},
    **{("Attention", i): 2 for i in (4, 5)}, **{("DecoderMaskedMultiHeadAttention", i): 2 for i in (5, 6)},
    ("com.microsoft.Attention", 4): 3,
}  # fmt: skip
_AS_IT_IS = ("Cast", "Identity")


def growing_sizes(graph: onnx.GraphProto) -> set[str]:
    """Names of open dimensions of inputs along which something is joined to these: they may be 0 in a first call."""
    open_dims = {v.name: [d.dim_param for d in v.type.tensor_type.shape.dim] for v in graph.input}
    found = set()
    for node in graph.node:
        if node.op_type in _AS_IT_IS and node.input[0] in open_dims:
            open_dims[node.output[0]] = open_dims[node.input[0]]
        for index, name in enumerate(node.input):
            dims = open_dims.get(name, [])
            axis = _PASTS.get((f"{node.domain}.{node.op_type}", index), _PASTS.get((node.op_type, index)))
            if node.op_type == "Concat":
                axis = next((a.i for a in node.attribute if a.name == "axis"), None)
            if axis is not None and -len(dims) <= axis < len(dims) and dims[axis]:
                found.add(dims[axis])
    return found

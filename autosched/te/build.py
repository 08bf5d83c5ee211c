"""Writing tensor expressions: `placeholder`, `compute`, `reduce_axis`, reductions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol, overload

import numpy as np

from autosched.errors import InvalidTypeError, InvalidValueError, refuse_too_deep
from autosched.ir.node import Attrs, FrozenDict, children, preorder
from autosched.te.tensor import ComputeOp, ExprOperators, PlaceholderOp, Tensor
from autosched.tir import expr as E
from autosched.tir.axis import REDUCE, SPATIAL, CommReducer, IterVar, Range, Reduce
from autosched.tir.buffer import extents
from autosched.tir.dtypes import check_dtype, is_float, largest_finite
from autosched.tir.expr import ExprLike, PrimExpr, SizeVar, Var, to_expr

Shape = Sequence[ExprLike] | ExprLike


def _name(what: str, name: object) -> str:
    if not isinstance(name, str):
        raise InvalidTypeError(f"{what}: argument 'name' is a {type(name).__name__}, expected a string")
    return name


def var(name: str = "tindex", dtype: str = "int32") -> Var:
    """A scalar variable."""
    return Var(_name("var", name), check_dtype(dtype, "var", "handle"))


def size_var(name: str = "size", dtype: str = "int32") -> SizeVar:
    """A variable that is never negative: a symbolic extent."""
    return SizeVar(_name("size_var", name), check_dtype(dtype, "size_var"))


def placeholder(shape: Shape, dtype: str | None = None, name: str = "placeholder") -> Tensor:
    """An input tensor; dtype float32 unless given."""
    what = f"placeholder '{_name('placeholder', name)}'"
    kind = "float32" if dtype is None else check_dtype(dtype, what)
    return PlaceholderOp(name, extents(shape, what), kind).output(0)


def reduce_axis(dom: Sequence[object] | Range, name: str = "rv") -> IterVar:
    """An axis to reduce over: (start, end), the end exclusive."""
    if isinstance(dom, Range):
        return IterVar(dom, Var(name, dom.extent.dtype), REDUCE)
    if not isinstance(dom, Sequence) or isinstance(dom, str):
        raise InvalidTypeError(f"reduce_axis '{name}': argument 'dom' is a {type(dom).__name__}, expected (start, end)")
    if len(dom) != 2:
        raise InvalidValueError(f"reduce_axis '{name}' needs (start, end), got {dom!r}")
    start, end = to_expr(dom[0]), to_expr(dom[1])
    return IterVar(Range(start, E.sub(end, start)), Var(name, end.dtype), REDUCE)


def _axis_names(fcompute: Callable[..., object], ndim: int, varargs_names: Sequence[str] | None) -> list[str]:
    spec = inspect.signature(fcompute).parameters.values()
    names = [p.name for p in spec if p.kind is not p.VAR_POSITIONAL]
    if any(p.kind is p.VAR_POSITIONAL for p in spec):
        rest = ndim - len(names)
        names += list(varargs_names) if varargs_names else [f"i{i + len(names)}" for i in range(rest)]
    if len(names) != ndim:
        raise InvalidValueError(f"compute: fcompute takes {len(names)} arguments, the shape has {ndim} dimensions")
    return names


def _body(value: object, what: str) -> PrimExpr:
    if isinstance(value, ExprOperators):
        return value.as_expr()
    try:
        return to_expr(value)
    except InvalidTypeError as error:
        raise InvalidTypeError(f"{what}: {error.message}") from None


@overload
def compute(
    shape: Shape, fcompute: Callable[..., ExprLike], name: str = "compute", tag: str = "", attrs: Attrs | None = None,
    varargs_names: Sequence[str] | None = None,
) -> Tensor: ...  # fmt: skip
@overload
def compute(
    shape: Shape, fcompute: Callable[..., list[PrimExpr] | tuple[ExprLike, ...]], name: str = "compute", tag: str = "",
    attrs: Attrs | None = None, varargs_names: Sequence[str] | None = None,
) -> tuple[Tensor, ...]: ...  # fmt: skip
def compute(
    shape: Shape,
    fcompute: Callable[..., object],
    name: str = "compute",
    tag: str = "",
    attrs: Attrs | None = None,
    varargs_names: Sequence[str] | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """A tensor whose element at (i, j, …) is `fcompute(i, j, …)`; a list of expressions makes several tensors.

    C = te.compute((m, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    """
    sizes = extents(shape, f"compute '{_name('compute', name)}'")
    if not callable(fcompute):
        raise InvalidTypeError(
            f"compute '{name}': fcompute is a {type(fcompute).__name__}, expected a function of indices"
        )
    names = _axis_names(fcompute, len(sizes), varargs_names)
    axis = tuple(
        IterVar(Range(E.const(0, s.dtype), s), Var(n, s.dtype), SPATIAL) for n, s in zip(names, sizes, strict=True)
    )
    with refuse_too_deep(f"compute '{name}'"):
        value = fcompute(*(iv.var for iv in axis))
    several = isinstance(value, list | tuple)
    if value is None:
        raise InvalidTypeError(f"compute '{name}': fcompute gave nothing, expected an expression")
    bodies = tuple(_body(v, f"compute '{name}'") for v in (value if isinstance(value, list | tuple) else (value,)))
    if any(_has_nested_reduce(b) for b in bodies):
        raise InvalidValueError(
            f"compute '{name}': a reduction must be the whole expression", hint="give it a compute of its own"
        )
    op = ComputeOp(name, axis, bodies, tag or TagScope.current(), FrozenDict(attrs or {}))
    outputs = tuple(op.output(i) for i in range(op.num_outputs))
    return outputs if several and len(outputs) > 1 else outputs[0]


class TagScope:
    """Gives a tag to the computes made in its `with` block."""

    _stack: ClassVar[list[str]] = []

    def __init__(self, tag: str):
        self.tag = tag

    def __enter__(self) -> TagScope:
        TagScope._stack.append(self.tag)
        return self

    def __exit__(self, *_: object) -> None:
        TagScope._stack.pop()

    @staticmethod
    def current() -> str:
        """The tag of the innermost block, "" outside."""
        return TagScope._stack[-1] if TagScope._stack else ""


tag_scope = TagScope


def _has_nested_reduce(body: PrimExpr) -> bool:
    return any(isinstance(x, Reduce) for child in children(body) for x in preorder(child))


class Reducer(Protocol):
    """A reduction of expressions over axes; of several together it gives several."""

    @overload
    def __call__(
        self, expr: ExprLike, axis: IterVar | Sequence[IterVar], where: ExprLike | None = None, init: object = None
    ) -> PrimExpr: ...
    @overload
    def __call__(
        self, expr: Sequence[ExprLike], axis: IterVar | Sequence[IterVar], where: ExprLike | None = None,
        init: object = None,
    ) -> tuple[PrimExpr, ...]: ...  # fmt: skip
    @overload
    def __call__(self, expr: ExprLike, *values: ExprLike) -> PrimExpr: ...


def comm_reducer(fcombine: Callable[..., Any], fidentity: Callable[..., object], name: str = "reduce") -> Reducer:
    """A reduction `reducer(expr, axis, where=None, init=None)` from a combination and its identity (by dtype).

    Several values reduce together where `fcombine` takes and returns tuples (an argmax). `reducer(x, y, …)`, without
    an axis, combines the values themselves.
    """
    for argument, given in (("fcombine", fcombine), ("fidentity", fidentity)):
        if not callable(given):
            raise InvalidTypeError(f"comm_reducer '{name}': {argument} is a {type(given).__name__}, not a function")

    def reducer(
        expr: object, *values: object, axis: object = None, where: object = None, init: object = None
    ) -> Any:  # as Reducer's overloads say
        if values and not isinstance(values[0], IterVar | list | tuple) and axis is where is init is None:
            return functools.reduce(fcombine, (_body(v, name) for v in (expr, *values)))
        if len(values) > 3:
            raise InvalidTypeError(f"{name} takes an expression, axis, where and init")
        if values:
            axis, where, init = (*values, *(where, init)[len(values) - 1 :])
        axes = tuple(axis) if isinstance(axis, Sequence) else (axis,)
        if not axes or not all(isinstance(a, IterVar) and a.kind == REDUCE for a in axes):
            raise InvalidTypeError(f"{name}: axis must be a reduce_axis or a list of them")
        source = tuple(_body(e, name) for e in (expr if isinstance(expr, list | tuple) else (expr,)))
        dtypes = [s.dtype for s in source]
        lhs = tuple(Var(f"x{i}" if len(source) > 1 else "x", d) for i, d in enumerate(dtypes))
        rhs = tuple(Var(f"y{i}" if len(source) > 1 else "y", d) for i, d in enumerate(dtypes))
        single = len(source) == 1
        result = fcombine(lhs[0], rhs[0]) if single else fcombine(lhs, rhs)
        identity = fidentity(dtypes[0]) if single else fidentity(*dtypes)
        combiner = CommReducer(lhs, rhs, _tuple(result), _tuple(identity))
        condition = to_expr(True if where is None else where, "bool")
        start = () if init is None else _tuple(init)
        outputs = tuple(Reduce(combiner, source, axes, condition, i, start) for i in range(len(source)))
        return outputs[0] if single else outputs

    reducer.__name__ = name
    return reducer


def _tuple(x: object) -> tuple[PrimExpr, ...]:
    return tuple(_body(v, "reduce") for v in (x if isinstance(x, list | tuple) else (x,)))


def min_value(dtype: str) -> PrimExpr:
    """The smallest value of a dtype: for floats the largest negative finite one."""
    return E.const(-largest_finite(dtype) if is_float(dtype) else int(np.iinfo(dtype).min), dtype)


def max_value(dtype: str) -> PrimExpr:
    return E.const(largest_finite(dtype) if is_float(dtype) else int(np.iinfo(dtype).max), dtype)


sum = comm_reducer(lambda x, y: x + y, lambda t: E.const(0, t), name="sum")
prod = comm_reducer(lambda x, y: x * y, lambda t: E.const(1, t), name="prod")
max = comm_reducer(E.maximum, min_value, name="max")
min = comm_reducer(E.minimum, max_value, name="min")

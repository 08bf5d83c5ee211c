"""Operators, each defined in one place: type rule, compute, NumPy reference, samples for the shared test."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from autosched.errors import InvalidTypeError, InvalidValueError
from autosched.ir.node import Attrs, FrozenDict
from autosched.relax import op_table
from autosched.relax.expr import Call, Constant, Op, PrimValue, Tuple, TupleGetItem, Var, as_expr, const, shape_expr
from autosched.relax.op.open_types import infer_open, is_open
from autosched.relax.struct_info import (
    Dim,
    Expr,
    ObjectStructInfo,
    ShapeExpr,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    placed,
    to_dim,
    vdevice_of,
)  # fmt: skip
from autosched.tir.expr import PrimExpr
from autosched.tir.functor import free_vars
from autosched.tir.simplify import Analyzer

Canonical: TypeAlias = Callable[[dict[str, Any]], Attrs]  # attributes as given -> in their one form
Validate = Callable[[Sequence[Expr], Attrs], None]
Limit = tuple[PrimExpr, int, int | None]  # a size with the least and the most that it may be
Limits = Callable[..., Sequence[Limit]]
MOST = 1 << 40  # that a size is taken to be


def some_elements(extent: Dim) -> Sequence[Limit]:
    """That a dimension is no number below 0, and 0 only where one of its symbols is."""
    size = to_dim(extent)
    for fewest in (0, 1):
        least = Analyzer({v: (fewest, MOST) for v in free_vars(size)}).bound(size)[0]
        if least is None or least < fewest:
            return [(size, 1, None)]
    return ()


@dataclass(frozen=True)
class Sample:
    """Argument types and attributes that the shared operator test runs; values drawn from [low, high)."""

    types: tuple[StructInfo, ...]
    attrs: Attrs = field(default_factory=FrozenDict)
    low: float = -2.0
    high: float = 2.0


def sample(*types: object, low: float = -2.0, high: float = 2.0, **attrs: object) -> Sample:
    """A sample from shapes (float32), (shape, dtype) pairs, lists of them (a tuple argument) or annotations."""
    return Sample(tuple(map(_sample_type, types)), FrozenDict(attrs), low, high)


def _fields(x: Expr) -> Expr:
    """A variable that holds a tuple as the tuple of its fields, which passes look at; anything else as it is."""
    if isinstance(x, Var) and isinstance(x.struct_info, TupleStructInfo):
        return Tuple(tuple(TupleGetItem(x, i) for i in range(len(x.struct_info.fields))))
    return x


def _sample_type(t: Any) -> StructInfo:
    if isinstance(t, StructInfo):
        return t
    if isinstance(t, list):
        return TupleStructInfo(tuple(map(_sample_type, t)))
    if len(t) == 2 and isinstance(t[1], str):
        return TensorStructInfo(t[0], t[1])
    return TensorStructInfo(t, "float32")


@dataclass(frozen=True, eq=False)
class OpDef:
    """An operator. Calling it makes a Call whose type is inferred at once.

    inputs       names of the arguments; one called "shape" takes a sequence of dimensions
    attributes   names and defaults, accepted by position after the inputs or by keyword
    infer_type   (*types, **attrs) -> type. Raises ShapeError or TypeError
    compute      (*te tensors, **attrs) -> tensor or tuple; a tuple argument arrives as a list, a shape as integers
    reference    the same in NumPy: the truth
    canonical    attrs -> attrs: bring attributes into their one form (an int stride into a pair)
    legal_name   what the PrimFunc is called
    is_view      the result is the argument's memory under another shape
    validate     (args, attrs) -> None: refuse constant arguments that are impossible
    limits       (*types, **attrs) -> what must hold of sizes that are symbols, where the type rule cannot tell
    is_anchor    element-wise calls alone join its PrimFunc, as behind a convolution, although it reduces nothing
    """

    op: Op
    inputs: tuple[str, ...]
    attributes: Attrs
    infer_type: Callable[..., StructInfo]
    compute: Callable[..., object] | None
    reference: Callable[..., object] | None
    samples: tuple[Sample, ...] = ()
    canonical: Canonical | None = None
    legal_name: str = ""
    is_view: bool = False
    validate: Validate | None = None
    limits: Limits | None = None
    is_anchor: bool = False

    @property
    def name(self) -> str:
        """The short name: "nn.conv2d"."""
        return self.op.name.removeprefix("relax.")

    @property
    def __signature__(self) -> inspect.Signature:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature(
            [inspect.Parameter(n, kind) for n in self.inputs]
            + [inspect.Parameter(n, kind, default=d) for n, d in self.attributes.items()]
        )

    def __call__(self, *args: object, **kwargs: object) -> Call:
        try:
            bound = self.__signature__.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidTypeError(f"{self.name}: {error}", hint=f"it takes {self.__signature__}") from None
        bound.apply_defaults()
        exprs = self._exprs([bound.arguments[n] for n in self.inputs])
        return self.make(exprs, {n: bound.arguments[n] for n in self.attributes})

    def _exprs(self, values: Sequence[object]) -> tuple[Expr, ...]:
        tensors = [v for v in values if isinstance(v, Expr) and isinstance(v.struct_info, TensorStructInfo)]
        dtype = tensors[0].struct_info.dtype if tensors else None  # type: ignore[union-attr]
        out = []
        for name, value in zip(self.inputs, values, strict=True):
            try:
                if name in ("shape", "size"):
                    out.append(shape_expr(value))
                elif isinstance(value, bool | int | float):
                    out.append(const(value, dtype))
                else:
                    out.append(_fields(as_expr(value)))
            except InvalidTypeError as error:
                raise InvalidTypeError(f"{self.name}: argument '{name}': {error.message}") from None
        return tuple(out)

    def make(self, args: Sequence[Expr], attrs: Attrs) -> Call:
        """A call with inferred type. Raises ShapeError or TypeError naming the operator."""
        unknown = set(attrs) - set(self.attributes)
        if unknown:
            raise InvalidTypeError(
                f"{self.name} has no attribute {sorted(unknown)}", hint=f"it has {list(self.attributes)}"
            )
        merged: Attrs = {**self.attributes, **attrs}
        if self.canonical is not None:
            try:
                merged = self.canonical({**merged})
            except (InvalidTypeError, InvalidValueError) as error:
                raise type(error)(f"{self.name}: {error.message}", hint=error.hint) from None
        frozen = FrozenDict({k: _freeze(v) for k, v in merged.items()})
        info = self.infer(tuple(a.struct_info for a in args), frozen)
        if self.validate is not None:
            self.validate(args, frozen)
        return Call(self.op, tuple(args), frozen, (), info)

    def infer(self, types: Sequence[StructInfo | None], attrs: Attrs) -> StructInfo:
        """The result's type; unknown arguments give an unknown result."""
        if any(t is None or isinstance(t, ObjectStructInfo) for t in types):
            return ObjectStructInfo()
        try:
            if any(map(is_open, types)):
                result = infer_open(self.infer_type, types, attrs)  # type: ignore[arg-type]
            else:
                result = self.infer_type(*types, **attrs)
            return _carry_device(result, types)
        except (InvalidTypeError, InvalidValueError) as error:
            raise type(error)(f"{self.name}: {error.message}", where=error.where, hint=error.hint) from None

    def run_reference(self, args: Sequence[object], attrs: Attrs) -> np.ndarray | tuple[np.ndarray, ...]:
        """NumPy arrays in, array or tuple of arrays out."""
        assert self.reference is not None, f"operator {self.name} has no reference"
        result = self.reference(*args, **attrs)
        return tuple(map(np.asarray, result)) if isinstance(result, tuple | list) else np.asarray(result)


def _carry_device(result: StructInfo, types: Sequence[StructInfo | None]) -> StructInfo:
    """A result lies where the arguments lie. Raises InvalidTypeError where they lie on several devices."""
    devices = [found for t in types if (found := vdevice_of(t)) is not None]
    if not devices or vdevice_of(result) is not None:
        return result
    if not all(devices[0].is_same(d) for d in devices):
        raise InvalidTypeError("its arguments lie on different devices", hint="to_vdevice moves values")
    return placed(result, devices[0])


def _freeze(value: object) -> object:
    if isinstance(value, list | tuple):
        return tuple(_freeze(v) for v in value)
    return value.item() if isinstance(value, np.generic) else value


OPERATORS: dict[str, OpDef] = op_table.OPERATORS


def define_op(
    name: str,
    *,
    infer_type: Callable[..., StructInfo],
    compute: Callable[..., object] | None = None,
    reference: Callable[..., object] | None = None,
    samples: Sequence[object] = (),
    inputs: Sequence[str] = ("x",),
    attributes: Attrs | None = None,
    canonical: Canonical | None = None,
    legal_name: str = "",
    is_view: bool = False,
    validate: Validate | None = None,
    limits: Limits | None = None,
    is_anchor: bool = False,
) -> OpDef:
    """Define an operator and enter it into the table of all operators; fields as in OpDef.

    A sample may be the type of the only argument, or made by `sample(...)`.
    """
    if name in OPERATORS:
        raise InvalidValueError(f"operator '{name}' is defined twice")
    normal = tuple(s if isinstance(s, Sample) else sample(s) for s in samples)
    definition = OpDef(
        Op(f"relax.{name}"), tuple(inputs), FrozenDict(attributes or {}), infer_type, compute, reference, normal,
        canonical, legal_name or name.rpartition(".")[2], is_view, validate, limits, is_anchor,
    )  # fmt: skip
    OPERATORS[name] = definition
    return definition


def get_op(name: str) -> OpDef:
    """The operator called "add" or "relax.add". Raises ValueError for an unknown name."""
    found: OpDef = op_table.get_op(name)
    return found


def definition_of(call: object) -> OpDef | None:
    """The definition of a call's operator, or None for calls of functions and special operators."""
    if not isinstance(call, Call) or not isinstance(call.op, Op):
        return None
    return OPERATORS.get(call.op.name.removeprefix("relax."))


def remake(call: Call, args: Sequence[Expr] | None = None, attrs: Attrs | None = None) -> Call:
    """The call with other arguments or attributes, its type inferred again."""
    definition = definition_of(call)
    assert definition is not None, f"{call.op} is no ordinary operator"
    return definition.make(call.args if args is None else args, {**call.attrs, **(attrs or {})})


def python_argument(arg: Expr, value: Callable[[Any], object]) -> object:
    """An argument as compute and reference take it: tuples as lists, shapes as tuples of integers."""
    if isinstance(arg, Tuple):
        return [python_argument(f, value) for f in arg.fields]
    if isinstance(arg, ShapeExpr):
        return TensorStructInfo(arg).static_shape
    if isinstance(arg, PrimValue):
        return arg.value
    if isinstance(arg.struct_info, ShapeStructInfo):
        return value(arg)
    return value(arg)


def is_constant(arg: object) -> bool:
    """Whether an argument is known at build."""
    if isinstance(arg, Tuple):
        return all(map(is_constant, arg.fields))
    return isinstance(arg, Constant | PrimValue) or (isinstance(arg, ShapeExpr) and TensorStructInfo(arg).is_static)

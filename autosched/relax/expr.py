"""Graph expressions: values bound to variables, block by block, inside a function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from autosched.errors import IndexOutOfRangeError, InvalidTypeError
from autosched.ir.function import BaseFunc
from autosched.ir.module import GlobalVar
from autosched.ir.node import DEFINES, IGNORED, Attrs, FrozenDict, Node, Span
from autosched.lazy_names import hook
from autosched.relax.op_table import OPERATORS, get_op
from autosched.relax.struct_info import (
    Expr,
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeExpr,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    shape_of,
)  # fmt: skip
from autosched.tir.dtypes import DTYPES, check_dtype
from autosched.tir.expr import PrimExpr, to_expr
from autosched.tir.expr import Var as TirVar


@dataclass(frozen=True, slots=True, eq=False)
class Var(Expr):
    """A name for a value. Variables compare by identity."""

    is_variable: ClassVar[bool] = True
    name: str
    struct_info: StructInfo | None = None
    span: Span | None = field(default=None, metadata=IGNORED)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise InvalidTypeError(f"Var: the name is a text, not {type(self.name).__name__}")
        if self.struct_info is not None and not isinstance(self.struct_info, StructInfo):
            raise InvalidTypeError(
                f"Var '{self.name}': expected an annotation, got {type(self.struct_info).__name__}",
                hint="such as TensorStructInfo((2, 3), 'float32')",
            )

    @property
    def name_hint(self) -> str:
        return self.name

    @property
    def type_annotation(self) -> StructInfo | None:
        """Relay's name of `struct_info`."""
        return self.struct_info

    def __getitem__(self, index: int) -> Expr:
        return TupleGetItem(self, index)

    def __repr__(self) -> str:
        return f"Var({self.name}: {self.struct_info!r})"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DataflowVar(Var):
    """A variable that is seen inside its dataflow block only."""


class ConstantArray(np.ndarray):
    """A constant's NumPy array, which also answers to the methods of TVM's arrays."""

    def numpy(self) -> np.ndarray:
        """A copy as a plain NumPy array."""
        return np.array(self, subok=False)

    asnumpy = numpy


@dataclass(frozen=True, slots=True, eq=False)
class Constant(Expr):
    """An array known at build. The array is kept by reference and must not be changed; a NumPy scalar becomes one."""

    data: np.ndarray
    span: Span | None = field(default=None, metadata=IGNORED)
    struct_info: TensorStructInfo = field(init=False, metadata=IGNORED)

    def __post_init__(self) -> None:
        if not isinstance(self.data, ConstantArray):
            plain = self.data.numpy() if hasattr(self.data, "numpy") else self.data
            object.__setattr__(self, "data", np.asarray(plain).view(ConstantArray))
        object.__setattr__(self, "struct_info", TensorStructInfo(self.data.shape, str(self.data.dtype)))

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal for constants that hold the same memory in the same way."""
        return (self.data.ctypes.data, self.data.shape, self.data.strides, str(self.data.dtype))

    @property
    def value(self) -> np.ndarray:
        """TVM's newer spelling of `data`."""
        return self.data

    def __repr__(self) -> str:
        return f"Constant({self.struct_info!r})"


def const(value: object, dtype: str | None = None) -> Constant:
    """A constant from an array, list or number; Python floats are float32 and integers int32 unless `dtype` says."""
    value = value.numpy() if hasattr(value, "numpy") else value
    if dtype is None and not isinstance(value, np.ndarray | np.generic):
        guess = np.asarray(value)
        dtype = {"float64": "float32", "int64": "int32"}.get(str(guess.dtype), str(guess.dtype))
    if np.asarray(value).dtype.kind in "OUS":
        raise InvalidTypeError(f"const: expected a number or an array, got {type(value).__name__}")
    if dtype is not None and dtype not in DTYPES:
        dtype = check_dtype(dtype, "const")
    made = np.asarray(value, dtype=dtype)
    return Constant(made)


@dataclass(frozen=True, slots=True, eq=False)
class PrimValue(Expr):
    """A scalar as a value."""

    value: PrimExpr

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", to_expr(self.value, "int64" if isinstance(self.value, int) else None))

    @property
    def struct_info(self) -> PrimStructInfo:  # type: ignore[override]
        return PrimStructInfo(self.value.dtype, self.value)


@dataclass(frozen=True, slots=True, eq=False)
class StringImm(Expr):
    """A string as a value."""

    value: str

    @property
    def struct_info(self) -> ObjectStructInfo:  # type: ignore[override]
        return ObjectStructInfo()


@dataclass(frozen=True, slots=True, eq=False)
class Tuple(Expr):
    """Several values together."""

    fields: tuple[Expr, ...]
    span: Span | None = field(default=None, metadata=IGNORED)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", tuple(self.fields))

    @property
    def struct_info(self) -> TupleStructInfo:  # type: ignore[override]
        return TupleStructInfo(tuple(f.struct_info or ObjectStructInfo() for f in self.fields))

    def __getitem__(self, index: int) -> Expr:
        if not isinstance(index, slice) and not -len(self.fields) <= index < len(self.fields):
            raise IndexOutOfRangeError(f"item {index} of a tuple of {len(self.fields)}")
        return self.fields[index]

    def __len__(self) -> int:
        return len(self.fields)

    def __iter__(self) -> Iterator[Expr]:
        return iter(self.fields)


@dataclass(frozen=True, slots=True, eq=False)
class TupleGetItem(Expr):
    """One value of a tuple."""

    tuple_value: Expr
    index: int

    def __post_init__(self) -> None:
        info = self.tuple_value.struct_info
        if isinstance(info, TupleStructInfo) and not 0 <= self.index < len(info.fields):
            raise IndexOutOfRangeError(f"item {self.index} of a tuple of {len(info.fields)}")

    @property
    def struct_info(self) -> StructInfo | None:  # type: ignore[override]
        info = self.tuple_value.struct_info
        if not isinstance(info, TupleStructInfo):
            raise InvalidTypeError(f"item {self.index} of something that is no tuple: {info!r}")
        return info.fields[self.index]


@dataclass(frozen=True, slots=True, eq=False)
class Op(Node):
    """An operator by name ("relax.add"); there is one object per operator, see `relax.op.registry`."""

    name: str

    @staticmethod
    def get(op_name: str) -> Op:
        """The operator's one object by its full name, "relax.add". Raises ValueError for an unknown name."""
        op: Op = get_op(op_name).op
        return op

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Op({self.name})"


@dataclass(frozen=True, slots=True, eq=False)
class ExternFunc(Expr):
    """A function that is found by name at run time."""

    global_symbol: str
    struct_info: StructInfo | None = field(default=None, metadata=IGNORED)


@dataclass(frozen=True, slots=True, eq=False)
class Call(Expr):
    """An operator, or a function of the module, applied to arguments.

    attrs       the operator's attributes: numbers, strings, tuples of them
    sinfo_args  what the result is, for `call_tir` and external calls
    """

    op: Any  # Op, GlobalVar, ExternFunc, Var or Function
    args: tuple[Any, ...]
    attrs: Attrs = field(default_factory=FrozenDict)
    sinfo_args: tuple[StructInfo, ...] = ()
    struct_info: StructInfo | None = field(default=None, metadata=IGNORED)
    span: Span | None = field(default=None, metadata=IGNORED)

    def __post_init__(self) -> None:
        if type(self.args) is not tuple or self.attrs is None or self.sinfo_args is None:  # made by hand, TVM's way
            object.__setattr__(self, "args", tuple(self.args or ()))
            object.__setattr__(self, "attrs", self.attrs if self.attrs is not None else FrozenDict())
            object.__setattr__(self, "sinfo_args", tuple(self.sinfo_args or ()))
        if self.struct_info is None and isinstance(self.op, Op):
            object.__setattr__(self, "struct_info", _inferred(self))

    def __getitem__(self, index: int) -> Expr:
        return TupleGetItem(self, index)

    @property
    def ty_args(self) -> tuple[StructInfo, ...]:
        """TVM's newer spelling of `sinfo_args`."""
        return self.sinfo_args

    @property
    def op_name(self) -> str:
        """The operator's name; "" when a function is called."""
        return self.op.name if isinstance(self.op, Op) else ""


def _inferred(call: Call) -> StructInfo | None:
    """The type that an ordinary operator gives; None for the special ones."""
    definition = OPERATORS.get(call.op.name.removeprefix("relax."))
    if definition is None:
        return call.sinfo_args[0] if len(call.sinfo_args) == 1 else None
    attrs = {**definition.attributes, **call.attrs}
    inferred: StructInfo = definition.infer(tuple(a.struct_info for a in call.args), attrs)
    return inferred


@dataclass(frozen=True, slots=True, eq=False)
class If(Expr):
    """The value of one of two branches."""

    cond: Expr
    true_branch: SeqExpr
    false_branch: SeqExpr
    struct_info: StructInfo | None = field(default=None, metadata=IGNORED)


class Binding(Node):
    """Base of bindings."""

    __slots__ = ()
    var: Var
    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class VarBinding(Binding):
    """`var = value`."""

    var: Var = field(metadata=DEFINES)
    value: Expr
    span: Span | None = field(default=None, metadata=IGNORED)


@dataclass(frozen=True, slots=True, eq=False)
class MatchCast(Binding):
    """`var = value`, checked at run time against `struct_info`, whose symbolic dimensions it defines."""

    var: Var = field(metadata=DEFINES)
    value: Expr
    struct_info: StructInfo

    @property
    def ty(self) -> StructInfo:
        """TVM's newer spelling of `struct_info`."""
        return self.struct_info


@dataclass(frozen=True, slots=True, eq=False)
class BindingBlock(Node):
    """Bindings in order."""

    bindings: tuple[Binding, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "bindings", tuple(self.bindings))


@dataclass(frozen=True, slots=True, eq=False)
class DataflowBlock(BindingBlock):
    """Bindings without side effects or branches; only its plain `Var`s are seen afterwards."""


@dataclass(frozen=True, slots=True, eq=False)
class SeqExpr(Expr):
    """Blocks of bindings, then a value."""

    blocks: tuple[BindingBlock, ...]
    body: Expr

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", tuple(self.blocks))

    @property
    def struct_info(self) -> StructInfo | None:  # type: ignore[override]
        return self.body.struct_info


@dataclass(frozen=True, slots=True, eq=False)
class Function(BaseFunc):
    """A function of the graph level."""

    params: tuple[Var, ...] = field(metadata=DEFINES)
    body: SeqExpr
    ret_struct_info: StructInfo | None = None
    is_pure: bool = True
    attrs: Attrs = field(default_factory=FrozenDict)
    span: Span | None = field(default=None, metadata=IGNORED)

    def __post_init__(self) -> None:
        if not isinstance(self.params, Sequence) or not all(isinstance(p, Var) for p in self.params):
            raise InvalidTypeError("Function takes a list of Vars as its parameters")
        if not isinstance(self.body, Expr):
            raise InvalidTypeError(f"Function: the body is a {type(self.body).__name__}, no expression")
        object.__setattr__(self, "params", tuple(self.params))
        if isinstance(self.body, Expr) and not isinstance(self.body, SeqExpr):
            object.__setattr__(self, "body", SeqExpr((), self.body))
        if self.ret_struct_info is None and isinstance(self.body, SeqExpr):
            object.__setattr__(self, "ret_struct_info", self.body.struct_info)
        object.__setattr__(self, "attrs", FrozenDict() if self.attrs is None else FrozenDict(self.attrs))

    def __call__(self, *args: object) -> Call:
        """A call of the function in a graph."""
        made: Call = hook("call")(self, args)
        return made

    def bind_params(self, binding_map: Mapping[str, object] | Mapping[Var, object]) -> Function:
        """The function without the parameters named, with arrays in their place. Raises ValueError for other names."""
        bound: Function = hook("bind_params")(self, binding_map)
        return bound

    def bind_symbolic_vars(self, binding_map: Mapping[str, int] | Mapping[TirVar, int]) -> Function:
        """The function for given values of symbolic dimensions, by name or variable. Raises ValueError for others."""
        bound: Function = hook("bind_symbolic_vars")(self, binding_map)
        return bound

    @property
    def ret_ty(self) -> StructInfo | None:
        return self.ret_struct_info

    @property
    def ret_type(self) -> StructInfo | None:
        """Relay's name of `ret_struct_info`."""
        return self.ret_struct_info

    @property
    def struct_info(self) -> FuncStructInfo:
        """What parameters and result are."""
        params = tuple(p.struct_info or ObjectStructInfo() for p in self.params)
        return FuncStructInfo(params, self.ret_struct_info or ObjectStructInfo())

    ty = checked_type = struct_info

    def bindings(self) -> Iterator[Binding]:
        """All bindings of the body, in order (those inside branches not included)."""
        for block in self.body.blocks:
            yield from block.bindings


def as_expr(x: object) -> Any:
    """Python values as expressions: sequences become tuples, numbers constants, arrays constants."""
    if isinstance(x, Expr | GlobalVar | Function):
        return x
    if isinstance(x, tuple | list):
        return Tuple(tuple(as_expr(v) for v in x))
    if isinstance(x, PrimExpr):
        return PrimValue(x)
    if isinstance(x, np.ndarray | np.generic | int | float | bool):
        return const(x)
    raise InvalidTypeError(f"cannot use {type(x).__name__} as a graph expression")


def shape_expr(x: object) -> Expr:
    """A sequence of dimensions as a ShapeExpr; expressions as they are."""
    if isinstance(x, Expr):
        return x
    if isinstance(x, Sequence):
        return shape_of(x)
    return ShapeExpr((x,))

"""Relay's way to write a graph: nested expressions, which `Function` binds one by one. They are relax's expressions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autosched.errors import InvalidTypeError, InvalidValueError, refuse
from autosched.ir import FrozenDict, GlobalVar, IRModule
from autosched.ir.node import Attrs
from autosched.relax import (
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    Expr,
    If,
    ObjectStructInfo,
    SeqExpr,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
)  # fmt: skip
from autosched.relax import Function as GraphFunction
from autosched.relax.expr import as_expr
from autosched.relax.names import UniqueNames
from autosched.relax.op import definition_of, remake
from autosched.relax.struct_info import Dim
from autosched.runtime import NDArray

TensorType, TupleType = TensorStructInfo, TupleStructInfo


def scalar_type(dtype: str) -> TensorStructInfo:
    """The type of a tensor without dimensions."""
    return TensorStructInfo((), dtype)


def info(x: object) -> TensorStructInfo:
    """The type of a tensor expression. Raises InvalidTypeError for anything else."""
    found = getattr(x, "struct_info", None)
    if not isinstance(found, TensorStructInfo):
        raise InvalidTypeError(f"a tensor is needed, not {type(x).__name__} of type {found}")
    return found


def var(
    name_hint: str,
    type_annotation: StructInfo | str | None = None,
    shape: Sequence[Dim] | None = None,
    dtype: str = "float32",
) -> Var:
    """A variable: `var("x", shape=(1, 3), dtype="float32")`, `var("x", TensorType(…))`, `var("x", "float32")`."""
    if not isinstance(name_hint, str):
        raise InvalidTypeError(f"var: a name is a text, not {type(name_hint).__name__}")
    if type_annotation is not None and shape is not None:
        raise InvalidValueError("var takes either type_annotation or shape")
    if isinstance(type_annotation, str):
        type_annotation = scalar_type(type_annotation)
    if shape is not None:
        type_annotation = TensorStructInfo(tuple(shape), dtype)
    if type_annotation is not None and not isinstance(type_annotation, StructInfo):
        raise InvalidTypeError(f"var '{name_hint}': {type(type_annotation).__name__} is no type")
    return Var(name_hint, type_annotation)


def const(value: object, dtype: str | None = None) -> Constant:
    """A constant; Python floats are float32 and integers int32 unless `dtype` says."""
    if isinstance(value, NDArray):
        value = value.numpy()
    if isinstance(value, bool):
        dtype = dtype or "bool"
    plain = np.asarray(value)
    if dtype is None and not isinstance(value, np.ndarray | np.generic):
        dtype = {"float64": "float32", "int64": "int32"}.get(str(plain.dtype))
    if plain.dtype.kind not in "biuf":
        raise InvalidTypeError(f"const: {type(value).__name__} is no number or array")
    return Constant(np.asarray(plain, dtype=dtype))


@dataclass(frozen=True, slots=True, eq=False)
class Let(Expr):
    """`var` stands for `value` in `body`."""

    var: Var
    value: Expr
    body: Expr

    @property
    def struct_info(self) -> StructInfo | None:  # type: ignore[override]
        return self.body.struct_info


@dataclass(frozen=True, slots=True, eq=False)
class Branch(Expr):
    """A choice between two nested expressions; `Function` makes relax's `If` of it."""

    cond: Expr
    true_branch: Expr
    false_branch: Expr

    @property
    def struct_info(self) -> StructInfo | None:  # type: ignore[override]
        return self.true_branch.struct_info


def call(op: object, args: Sequence[object], attrs: Attrs | None = None, type_args: object = None) -> Expr:
    """Apply an operator by name, a function, or a function of the module."""
    refuse("Call", type_args=type_args)
    exprs = tuple(as_expr(arg) for arg in args)
    if isinstance(op, GraphFunction):
        if len(exprs) != len(op.params):
            raise InvalidTypeError(f"a function of {len(op.params)} parameters is given {len(exprs)} arguments")
        return Call(op, exprs, FrozenDict(attrs or {}), (), op.ret_struct_info)
    if isinstance(op, GlobalVar | Var):
        return Call(op, exprs, FrozenDict(attrs or {}), (), ObjectStructInfo())
    raise InvalidTypeError(f"Call of a {type(op).__name__}", hint="call operators by their functions: relay.add(x, y)")


class TupleWrapper:
    """A value that is several: indexable, iterable, with a length."""

    def __init__(self, tuple_value: Expr, size: int):
        self.tuple_value, self.size = tuple_value, size

    def astuple(self) -> Expr:
        """The value itself."""
        return self.tuple_value

    def __str__(self) -> str:
        return str(self.tuple_value)

    astext = __str__

    def __getitem__(self, index: int) -> Expr:
        if not -self.size <= index < self.size:
            raise IndexError("Tuple index out of range")
        return TupleGetItem(self.tuple_value, index % self.size)

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Expr]:
        return (self[index] for index in range(self.size))


def unwrap(x: object) -> Expr:
    """The expression of a `TupleWrapper`; numbers and arrays as constants; sequences as tuples."""
    if isinstance(x, TupleWrapper):
        return x.tuple_value
    if isinstance(x, list | tuple):
        return Tuple(tuple(unwrap(field) for field in x))
    found: Expr = const(x) if isinstance(x, NDArray) else as_expr(x)
    return found


def Function(  # noqa: N802  (TVM's name)
    params: Sequence[Var],
    body: object,
    ret_type: StructInfo | None = None,
    type_params: object = None,
    attrs: Attrs | None = None,
) -> GraphFunction:
    """A function: the nested expression bound value by value, shared parts once.

    Raises InvalidValueError for a variable that is no parameter, InvalidTypeError for what is no expression.
    """
    refuse("Function", type_params=type_params)
    if isinstance(params, Var) or not isinstance(params, Iterable):
        raise InvalidTypeError(f"Function: params is a {type(params).__name__}, expected a list of relay.var")
    given = tuple(params)
    for param in given:
        if not isinstance(param, Var):
            raise InvalidTypeError(f"Function: a parameter is a relay.var, not {type(param).__name__}")
    whole = unwrap(body)
    branches = any(isinstance(x, Branch) for x in post_order(whole))
    binder = Binder({param: param for param in given}, UniqueNames(param.name for param in given), not branches)
    result = binder.value(whole)
    blocks: tuple[BindingBlock, ...] = ()
    if binder.bindings and branches:
        blocks = (BindingBlock(tuple(binder.bindings)),)
    elif binder.bindings:
        result = binder.shown(result)
        blocks = (DataflowBlock(tuple(binder.bindings)),)
    info = result.struct_info if ret_type is None else ret_type
    return GraphFunction(
        given, SeqExpr(blocks, result), info, True, FrozenDict({"global_symbol": "main", **(attrs or {})})
    )


def parts(x: object) -> tuple[Expr, ...]:
    """The expressions directly inside of one."""
    match x:
        case Call():
            return x.args
        case Tuple():
            return x.fields
        case TupleGetItem():
            return (x.tuple_value,)
        case Let():
            return (x.value, x.body)
        case Branch():
            return (x.cond, x.true_branch, x.false_branch)
    return ()


def post_order(root: Expr) -> Iterator[Expr]:
    """Every expression below one, itself last, each once, parts before what they are parts of."""
    done: set[int] = set()
    stack = [root]
    while stack:
        top = stack[-1]
        waiting = [x for x in parts(top) if id(x) not in done]
        if waiting and id(top) not in done:
            stack.extend(reversed(waiting))
            continue
        stack.pop()
        if id(top) not in done:
            done.add(id(top))
            yield top


def free_vars(expr: object) -> list[Var]:
    """The variables of a nested expression that no `Let` binds, in order of first use; none of a function."""
    if isinstance(expr, GraphFunction):
        return []
    bound = {x.var for x in post_order(unwrap(expr)) if isinstance(x, Let)}
    return [x for x in post_order(unwrap(expr)) if isinstance(x, Var) and x not in bound]


class Binder:
    """Turns nested expressions into bindings; an expression that occurs twice is bound once.

    known     what stands for an expression already: parameters for themselves
    dataflow  whether the bindings will be a dataflow block
    """

    def __init__(self, known: Mapping[object, Expr], names: UniqueNames, dataflow: bool):
        self.known: dict[object, Expr] = dict(known)
        self.names, self.dataflow = names, dataflow
        self.bindings: list[VarBinding] = []

    def value(self, root: Expr) -> Expr:
        """The variable or leaf that stands for an expression."""
        stack = [root]
        while stack:
            top = stack[-1]
            if top in self.known:
                stack.pop()
                continue
            waiting = [x for x in self._first(top) if x not in self.known]
            if waiting:
                stack.extend(reversed(waiting))
            else:
                self.known[top] = self._make(top)
                stack.pop()
        return self.known[root]

    def _first(self, x: object) -> tuple[Expr, ...]:
        """What must be bound before an expression."""
        if isinstance(x, Let):
            if x.value not in self.known:
                return (x.value,)
            self.known[x.var] = self.known[x.value]
            return (x.body,)
        return (x.cond,) if isinstance(x, Branch) else parts(x)

    def _make(self, x: Expr) -> Expr:
        match x:
            case Let():
                return self.known[x.body]
            case Tuple():
                return Tuple(tuple(self.known[field] for field in x.fields))
            case TupleGetItem():
                source = self.known[x.tuple_value]
                return source.fields[x.index] if isinstance(source, Tuple) else self.bind(TupleGetItem(source, x.index))
            case Branch():
                branches = (self._branch(x.true_branch), self._branch(x.false_branch))
                return self.bind(If(self.known[x.cond], *branches, branches[0].struct_info))
            case Call(op=GraphFunction()):
                return self._inline(x)
            case Call():
                return self.bind(self._call(x))
            case Var():
                raise InvalidValueError(f"variable '{x.name}' is no parameter of the function")
        return x

    def _call(self, x: Call) -> Call:
        args = tuple(self.known[arg] for arg in x.args)
        if definition_of(x) is not None and (x.struct_info is None or isinstance(x.struct_info, ObjectStructInfo)):
            return remake(x, args)
        return Call(x.op, args, x.attrs, x.sinfo_args, x.struct_info, x.span)

    def _branch(self, x: Expr) -> SeqExpr:
        inner = Binder(self.known, self.names, False)
        result = inner.value(x)
        return SeqExpr((BindingBlock(tuple(inner.bindings)),) if inner.bindings else (), result)

    def _inline(self, x: Call) -> Expr:
        function = x.op
        known = {param: self.known[arg] for param, arg in zip(function.params, x.args, strict=True)}
        inner = Binder(known, self.names, self.dataflow)
        inner.bindings = self.bindings
        for binding in function.bindings():
            inner.known[binding.var] = inner.value(binding.value)
        return inner.value(function.body.body)

    def bind(self, value: Expr) -> Var:
        """A new variable for a value."""
        name = self.names("lv" if self.dataflow else "gv")
        variable = (DataflowVar if self.dataflow else Var)(name, value.struct_info)
        self.bindings.append(VarBinding(variable, value))
        return variable

    def shown(self, result: Expr) -> Expr:
        """A result that is seen after the dataflow block."""
        if isinstance(result, Tuple):
            return Tuple(tuple(self.shown(field) for field in result.fields))
        if not isinstance(result, DataflowVar):
            return result
        variable = Var(self.names("gv"), result.struct_info)
        self.bindings.append(VarBinding(variable, result))
        return variable


def from_expr(body: object, functions: Mapping[str | GlobalVar, object] | None = None) -> IRModule:
    """A module whose `main` is a function, or computes an expression of its free variables."""
    main = body if isinstance(body, GraphFunction) else Function(free_vars(body), body)
    named: dict[str | GlobalVar, object] = {"main": main}
    named |= functions or {}
    return IRModule(named)

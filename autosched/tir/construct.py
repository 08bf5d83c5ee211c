"""TVM's constructors of nodes: `tir.For(i, 0, 8, ForKind.SERIAL, body)`, `tir.IntImm("int32", 3)`.

Each name stands for the node's class in `isinstance` and `match`; called, it takes arguments in TVM's order, with
Python numbers and lists, and checks them. The compiler itself makes nodes through the classes of `tir.expr` and
`tir.stmt`, which take finished children only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from autosched.errors import InvalidTypeError, InvalidValueError
from autosched.ir.node import Attrs, FrozenDict
from autosched.tir import expr as E
from autosched.tir import function, stmt
from autosched.tir.access import infer_regions
from autosched.tir.axis import ITER_KINDS, IterVar, Range
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.dtypes import check_dtype, is_float, is_int
from autosched.tir.expr import ExprLike, PrimExpr, Var, to_expr
from autosched.tir.stmt import LoopKind, Stmt

T = TypeVar("T")


class Constructor(type):
    """A name that makes nodes of one class and stands for it in `isinstance`."""

    real: type

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, cls.real)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(getattr(other, "real", other), cls.real)

    def __eq__(cls, other: object) -> bool:
        return getattr(other, "real", other) is cls.real

    def __hash__(cls) -> int:
        return hash(cls.real)

    def __call__(cls, *args: object, **kwargs: object) -> Any:
        return cls.make(*args, **kwargs)

    def __getattr__(cls, name: str) -> Any:
        return getattr(type.__getattribute__(cls, "real"), name)

    def __repr__(cls) -> str:
        return repr(cls.real)


def _make(real: type, make: Callable[..., object]) -> Constructor:
    arguments = getattr(real, "__match_args__", ())
    text = {"real": real, "make": staticmethod(make), "__match_args__": arguments, "__doc__": real.__doc__}
    return Constructor(real.__name__, (), {**text, "__module__": real.__module__})


def _where(kind: str, argument: str, x: object, wanted: str) -> InvalidTypeError:
    return InvalidTypeError(f"{kind}: argument '{argument}' is a {type(x).__name__}, expected {wanted}")


def _expr(kind: str, argument: str, x: object, dtype: str | None = None) -> PrimExpr:
    if isinstance(x, str):
        return E.StringImm(x)
    try:
        return to_expr(x, dtype)
    except InvalidTypeError:
        raise _where(kind, argument, x, "an expression or a number") from None


def _exprs(kind: str, argument: str, xs: object, dtype: str | None = None) -> tuple[PrimExpr, ...]:
    items = xs if isinstance(xs, list | tuple) else (xs,)
    return tuple(_expr(kind, argument, x, dtype) for x in items)


def _is(kind: str, argument: str, x: object, wanted: type[T], words: str) -> T:
    if not isinstance(x, wanted):
        raise _where(kind, argument, x, words)
    return x


def _stmt(kind: str, argument: str, x: object) -> Stmt:
    if isinstance(x, PrimExpr):
        return stmt.Evaluate(x)
    return _is(kind, argument, x, Stmt, "a statement")


def _number(kind: str, dtype: object, value: object, span: object) -> tuple[Any, str]:
    if isinstance(dtype, int | float) and (value is None or isinstance(value, str)):  # our own order
        dtype, value = value or ("int32" if kind == "IntImm" else "float32"), dtype
    dtype = check_dtype(dtype, kind)
    if isinstance(value, PrimExpr | str) or not hasattr(value, "__float__"):
        raise _where(kind, "value", value, "a number")
    del span
    return value, dtype


def _int_imm(dtype: object, value: object = None, span: object = None) -> E.IntImm:
    number, kind = _number("IntImm", dtype, value, span)
    if not is_int(kind):
        raise InvalidValueError(f"IntImm: dtype '{kind}' is no integer type")
    return E.int_imm(int(number), kind)


def _float_imm(dtype: object, value: object = None, span: object = None) -> E.FloatImm:
    number, kind = _number("FloatImm", dtype, value, span)
    if not is_float(kind):
        raise InvalidValueError(f"FloatImm: dtype '{kind}' is no floating-point type")
    return E.FloatImm(float(number), kind)


def _string_imm(value: str, span: object = None) -> E.StringImm:
    return E.StringImm(_is("StringImm", "value", value, str, "a string"))


def _var(name: str, dtype: object = "int32", span: object = None) -> Var:
    return Var(_is("Var", "name", name, str, "a string"), check_dtype(dtype, "Var", "handle"))


def _size_var(name: str, dtype: object = "int32", span: object = None) -> Var:
    return E.SizeVar(_is("SizeVar", "name", name, str, "a string"), check_dtype(dtype, "SizeVar"))


def _binary(real: type[E.BinaryOp]) -> Callable[..., PrimExpr]:
    def make(a: ExprLike, b: ExprLike, span: object = None) -> PrimExpr:
        if issubclass(real, E.And | E.Or):
            return real(_expr(real.__name__, "a", a, "bool"), _expr(real.__name__, "b", b, "bool"))
        for argument, x in (("a", a), ("b", b)):
            _expr(real.__name__, argument, x)
        return real(*E.match_types(a, b))

    return make


def _not(a: object, span: object = None) -> E.Not:
    return E.Not(_expr("Not", "a", a, "bool"))


def _select(condition: object, true_value: ExprLike, false_value: ExprLike, span: object = None) -> E.Select:
    _expr("Select", "true_value", true_value)
    _expr("Select", "false_value", false_value)
    return E.Select(_expr("Select", "condition", condition, "bool"), *E.match_types(true_value, false_value))


def _cast(dtype: object, value: object = None, span: object = None) -> E.Cast:
    if isinstance(value, str) and not isinstance(dtype, str):  # our own order
        dtype, value = value, dtype
    return E.Cast(_expr("Cast", "value", value), check_dtype(dtype, "Cast"))


def _call(dtype: object, op: object, args: object = None, span: object = None) -> E.Call:
    if isinstance(op, list | tuple) and isinstance(args, str | None):  # our own order: op, args, dtype
        dtype, op, args = args or "float32", dtype, op
    name = str(getattr(op, "name", op)).removeprefix("tir.")
    return E.Call(name, _exprs("Call", "args", args or ()), check_dtype(dtype, "Call", "handle", "void"))


def _let(var: object, value: object, body: object, span: object = None) -> E.Let:
    var = _is("Let", "var", var, Var, "a Var")
    return E.Let(var, _expr("Let", "value", value, var.dtype), _expr("Let", "body", body))


def _indices(kind: str, buffer: Buffer, indices: object) -> tuple[PrimExpr, ...]:
    found = _exprs(kind, "indices", indices)
    if len(found) != buffer.ndim:
        raise InvalidValueError(
            f"{kind}: buffer '{buffer.name}' has {buffer.ndim} dimensions, got {len(found)} indices"
        )
    return found


def _load(buffer: object, indices: object, predicate: object = None, span: object = None) -> BufferLoad:
    buffer = _is("BufferLoad", "buffer", buffer, Buffer, "a Buffer")
    return BufferLoad(buffer, _indices("BufferLoad", buffer, indices))


def _store(
    buffer: object, value: object, indices: object, predicate: object = None, span: object = None
) -> stmt.BufferStore:
    buffer = _is("BufferStore", "buffer", buffer, Buffer, "a Buffer")
    found = E.cast(buffer.dtype, _expr("BufferStore", "value", value, buffer.dtype))
    return stmt.BufferStore(buffer, found, _indices("BufferStore", buffer, indices))


def _iter_kind(kind: object) -> str:
    """An axis's kind by its word or by TVM's number."""
    if isinstance(kind, str) and kind in ITER_KINDS:
        return kind
    if isinstance(kind, int) and 0 <= kind < len(ITER_KINDS):
        return ITER_KINDS[kind]
    raise InvalidValueError(f"IterVar: unknown kind {kind!r}", hint="such as IterVar.DataPar or IterVar.CommReduce")


def _iter_var(
    dom: Any,
    var: object,
    iter_type: object = 0,
    thread_tag: str = "",
    span: object = None,
) -> IterVar:
    if isinstance(dom, list | tuple):
        dom = make_range(*dom)
    if isinstance(var, str):
        var = Var(var, "int32" if dom is None else dom.extent.dtype)
    var = _is("IterVar", "var", var, Var, "a Var or a name")
    dom = Range(E.const(0, var.dtype), E.const(0, var.dtype)) if dom is None else dom
    return IterVar(_is("IterVar", "dom", dom, Range, "a Range"), var, _iter_kind(iter_type), thread_tag)


def make_range(begin: object, end: object = None, span: object = None) -> Range:
    """TVM's `ir.Range`: [0, begin), or [begin, end)."""
    if end is None:
        extent = _expr("Range", "begin", begin)
        return Range(E.const(0, extent.dtype), extent)
    low, high = E.match_types(_expr("Range", "begin", begin), _expr("Range", "end", end))
    return Range(low, E.sub(high, low))


def _loop_kind(kind: Any) -> LoopKind:
    try:
        return LoopKind(kind)
    except ValueError:
        hint = f"one of {', '.join(map(str, LoopKind))}"
        raise InvalidValueError(f"For: unknown loop kind {kind!r}", hint=hint) from None


def _for(
    loop_var: object, min: object = None, extent: object = None, kind: object = LoopKind.SERIAL, body: object = None,
    thread_binding: IterVar | str | None = None, annotations: Attrs | None = None, step: object = None,
    span: object = None,
) -> stmt.For:  # fmt: skip
    if isinstance(loop_var, IterVar):
        loop_var = loop_var.var
    var = _is("For", "loop_var", loop_var, Var, "a Var")
    thread = thread_binding.thread_tag if isinstance(thread_binding, IterVar) else thread_binding or ""
    start, size = (E.cast(var.dtype, _expr("For", n, x, var.dtype)) for n, x in (("min", min), ("extent", extent)))
    return stmt.For(
        var, start, size, _loop_kind(kind), _stmt("For", "body", body), thread, FrozenDict(annotations or {})
    )


def _while(condition: object, body: object, span: object = None) -> stmt.While:
    return stmt.While(_expr("While", "condition", condition, "bool"), _stmt("While", "body", body))


def _seq(seq: Iterable[object], span: object = None) -> stmt.SeqStmt:
    return stmt.SeqStmt(tuple(_stmt("SeqStmt", "seq", s) for s in seq))


def _if(condition: object, then_case: object, else_case: object = None, span: object = None) -> stmt.IfThenElse:
    other = None if else_case is None else _stmt("IfThenElse", "else_case", else_case)
    kept = _stmt("IfThenElse", "then_case", then_case)
    return stmt.IfThenElse(_expr("IfThenElse", "condition", condition, "bool"), kept, other)


def _let_stmt(var: object, value: object, body: object, span: object = None) -> stmt.LetStmt:
    var = _is("LetStmt", "var", var, Var, "a Var")
    return stmt.LetStmt(var, _expr("LetStmt", "value", value, var.dtype), _stmt("LetStmt", "body", body))


def _evaluate(value: object, span: object = None) -> stmt.Evaluate:
    return stmt.Evaluate(_expr("Evaluate", "value", value))


def _assert(condition: object, message: object, body: object, span: object = None) -> stmt.AssertStmt:
    text = message.value if isinstance(message, E.StringImm) else str(message)
    return stmt.AssertStmt(_expr("AssertStmt", "condition", condition, "bool"), text, _stmt("AssertStmt", "body", body))


def _region(buffer: object, region: Iterable[Range | ExprLike]) -> stmt.BufferRegion:
    buffer = _is("BufferRegion", "buffer", buffer, Buffer, "a Buffer")
    parts = tuple(r if isinstance(r, Range) else Range(to_expr(r), E.const(1, to_expr(r).dtype)) for r in region)
    return stmt.BufferRegion(buffer, parts)


def _match(buffer: object, source: object) -> stmt.MatchBufferRegion:
    return stmt.MatchBufferRegion(
        _is("MatchBufferRegion", "buffer", buffer, Buffer, "a Buffer"),
        _is("MatchBufferRegion", "source", source, stmt.BufferRegion, "a BufferRegion"),
    )


Regions = Sequence[stmt.BufferRegion] | None  # None: as the body says


def _block(
    iter_vars: Sequence[IterVar], reads: Regions = None, writes: Regions = None,
    name_hint: str = "", body: Stmt | None = None,
    init: Stmt | None = None, alloc_buffers: Sequence[Buffer] | None = None,
    match_buffers: Sequence[stmt.MatchBufferRegion] | None = None, annotations: Attrs | None = None,
    span: object = None,
) -> stmt.Block:  # fmt: skip
    if body is None:
        raise InvalidTypeError("Block: argument 'body' is missing")
    found = infer_regions(body, init, alloc_buffers or ())
    return stmt.Block(
        tuple(iter_vars), tuple(alloc_buffers or ()), found[0] if reads is None else tuple(reads),
        found[1] if writes is None else tuple(writes), name_hint, _stmt("Block", "body", body), init,
        tuple(match_buffers or ()), FrozenDict(annotations or {}),
    )  # fmt: skip


def _realize(iter_values: Iterable[object], predicate: object, block: object, span: object = None) -> stmt.BlockRealize:
    block = _is("BlockRealize", "block", block, stmt.Block, "a Block")
    values = _exprs("BlockRealize", "iter_values", list(iter_values))
    return stmt.BlockRealize(values, _expr("BlockRealize", "predicate", predicate, "bool"), block)


def _prim_func(
    params: Sequence[object], body: object = None, ret_type: object = None, buffer_map: Any = None,
    attrs: Attrs | None = None, span: object = None,
) -> function.PrimFunc:  # fmt: skip
    if isinstance(body, Mapping):  # our own order: params, buffer_map, body
        body, buffer_map, ret_type = ret_type, body, None
    found: list[Var] = []
    buffers: dict[Var, Buffer] = dict(buffer_map or {})
    for p in params:
        if isinstance(p, Buffer):
            found.append(Var(f"var_{p.name}", "handle"))
            buffers[found[-1]] = p
        else:
            found.append(_is("PrimFunc", "params", p, Var, "Vars or Buffers"))
    made = FrozenDict(buffers)
    notes = FrozenDict(attrs or {})
    return function.PrimFunc(tuple(found), made, _stmt("PrimFunc", "body", body), ret_type, notes)


CONSTRUCTORS: dict[str, Constructor] = {
    **{
        kind.__name__: _make(kind, _binary(kind))
        for kind in (
            E.Add, E.Sub, E.Mul, E.Div, E.Mod, E.FloorDiv, E.FloorMod, E.Min, E.Max, E.EQ, E.NE, E.LT, E.LE, E.GT, E.GE,
            E.And, E.Or,
        )
    },
    "IntImm": _make(E.IntImm, _int_imm), "FloatImm": _make(E.FloatImm, _float_imm),
    "StringImm": _make(E.StringImm, _string_imm), "Var": _make(E.Var, _var), "SizeVar": _make(E.SizeVar, _size_var),
    "Not": _make(E.Not, _not), "Select": _make(E.Select, _select), "Cast": _make(E.Cast, _cast),
    "Call": _make(E.Call, _call), "Let": _make(E.Let, _let), "BufferLoad": _make(BufferLoad, _load),
    "IterVar": _make(IterVar, _iter_var),
    "BufferStore": _make(stmt.BufferStore, _store), "For": _make(stmt.For, _for), "While": _make(stmt.While, _while),
    "SeqStmt": _make(stmt.SeqStmt, _seq), "IfThenElse": _make(stmt.IfThenElse, _if),
    "LetStmt": _make(stmt.LetStmt, _let_stmt), "Evaluate": _make(stmt.Evaluate, _evaluate),
    "AssertStmt": _make(stmt.AssertStmt, _assert), "BufferRegion": _make(stmt.BufferRegion, _region),
    "MatchBufferRegion": _make(stmt.MatchBufferRegion, _match), "Block": _make(stmt.Block, _block),
    "BlockRealize": _make(stmt.BlockRealize, _realize), "PrimFunc": _make(function.PrimFunc, _prim_func),
}  # fmt: skip
RangeConstructor = _make(Range, make_range)

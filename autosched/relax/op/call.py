"""Calls of functions: `call_tir` runs a PrimFunc of the module, its outputs allocated by the caller."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from autosched.errors import InvalidTypeError, InvalidValueError
from autosched.ir.module import GlobalVar
from autosched.ir.node import FrozenDict
from autosched.relax.expr import Call, ExternFunc, Op, StringImm, Tuple, as_expr
from autosched.relax.struct_info import (
    Expr,
    ObjectStructInfo,
    ShapeExpr,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    same_info,
)

CALL_TIR = Op("relax.call_tir")
CALL_TIR_INPLACE = Op("relax.call_tir_inplace")
CALL_DPS_PACKED = Op("relax.call_dps_packed")
CALL_PURE_PACKED = Op("relax.call_pure_packed")


OutInfo = StructInfo | Sequence[StructInfo] | None


def _out(out_sinfo: OutInfo) -> StructInfo:
    if isinstance(out_sinfo, StructInfo):
        return out_sinfo
    if isinstance(out_sinfo, Sequence) and out_sinfo and all(isinstance(s, StructInfo) for s in out_sinfo):
        return out_sinfo[0] if len(out_sinfo) == 1 else TupleStructInfo(tuple(out_sinfo))
    raise InvalidTypeError(
        "call_tir needs the type of its result", hint="pass out_sinfo=TensorStructInfo(shape, dtype)"
    )


def call_tir(
    gvar: GlobalVar,
    args: Expr | Iterable[object],
    out_sinfo: OutInfo = None,
    tir_vars: Expr | None = None,
    *,
    out_ty: OutInfo = None,
) -> Call:
    """Run a PrimFunc of the module on tensors; the result is what it writes to its last parameters.

    args       an expression, or several (the inputs)
    out_sinfo  the result's type, or a list for several results; `out_ty` is TVM 0.27's name
    """
    if not isinstance(gvar, GlobalVar):
        raise InvalidTypeError(f"call_tir takes a GlobalVar, got {type(gvar).__name__}")
    inputs = args if isinstance(args, Tuple) else Tuple((args,)) if isinstance(args, Expr) else as_expr(tuple(args))
    info = _out(out_sinfo if out_sinfo is not None else out_ty)
    extra = () if tir_vars is None else (tir_vars,)
    return Call(CALL_TIR, (gvar, inputs, *extra), sinfo_args=(info,), struct_info=info)


def call_tir_inplace(
    gvar: GlobalVar,
    args: Expr | Iterable[object],
    inplace_indices: int | Sequence[int],
    out_sinfo: OutInfo = None,
    tir_vars: Expr | None = None,
    *,
    out_ty: OutInfo = None,
) -> Call:
    """Run a PrimFunc that changes some of its arguments, which are results.

    inplace_indices  for each result the argument that it is, or -1 for one that the caller allocates
    """
    made = call_tir(gvar, args, out_sinfo, tir_vars, out_ty=out_ty)
    indices = (inplace_indices,) if isinstance(inplace_indices, int) else tuple(map(int, inplace_indices))
    inputs, info = tir_inputs(made), made.struct_info
    results = info.fields if isinstance(info, TupleStructInfo) else (info,)
    if len(indices) != len(results):
        raise InvalidValueError(f"call_tir_inplace: {len(indices)} indices for {len(results)} results")
    changed = [i for i in indices if i != -1]
    if not changed or len(set(changed)) < len(changed) or not all(0 <= i < len(inputs) for i in changed):
        raise InvalidValueError(
            f"call_tir_inplace: inplace_indices {list(indices)} with {len(inputs)} arguments",
            hint="each is -1 or another argument's position, and one at least is no -1",
        )
    for i, result in zip(indices, results, strict=True):
        if i >= 0 and not same_info(inputs[i].struct_info, result):
            raise InvalidTypeError(f"call_tir_inplace: argument {i} is {inputs[i].struct_info!r}, result {result!r}")
    return dataclasses.replace(made, op=CALL_TIR_INPLACE, attrs=FrozenDict({"inplace_indices": indices}))


def _extern(func: object) -> ExternFunc:
    if isinstance(func, ExternFunc):
        return func
    if not isinstance(func, str):
        raise InvalidTypeError(
            f"call_packed, call_dps_packed: expected the name of a registered function, got {type(func).__name__}"
        )
    return ExternFunc(func)


def call_dps_packed(
    func: object, args: Expr | Iterable[object], out_sinfo: OutInfo = None, *, out_ty: OutInfo = None
) -> Call:
    """Run a registered function (`register_func`) on the inputs and on outputs that the caller allocates."""
    inputs = args if isinstance(args, Tuple) else Tuple((args,)) if isinstance(args, Expr) else as_expr(tuple(args))
    info = _out(out_sinfo if out_sinfo is not None else out_ty)
    return Call(CALL_DPS_PACKED, (_extern(func), inputs), FrozenDict(), (info,), info)


def call_pure_packed(
    func: object,
    *args: object,
    sinfo_args: StructInfo | Sequence[StructInfo] = (),
    ty_args: StructInfo | Sequence[StructInfo] = (),
) -> Call:
    """Run a registered function without side effects; its value is the result, of the type `sinfo_args`."""
    given = sinfo_args or ty_args
    infos = tuple(given) if isinstance(given, list | tuple) else (given,)
    info = infos[0] if len(infos) == 1 else TupleStructInfo(infos) if infos else ObjectStructInfo()
    return Call(CALL_PURE_PACKED, (_extern(func), *map(as_expr, args)), FrozenDict(), infos, info)


def call_packed(func: object, *args: object, sinfo_args: StructInfo | Sequence[StructInfo] = ()) -> Call:
    """Run a registered function that may have side effects; its value is the result."""
    infos = tuple(sinfo_args) if isinstance(sinfo_args, list | tuple) else (sinfo_args,)
    info = infos[0] if len(infos) == 1 else TupleStructInfo(infos) if infos else ObjectStructInfo()
    return Call(_extern(func), tuple(map(as_expr, args)), FrozenDict(), infos, info)


def call_inplace_packed(
    func: object, *args: object, inplace_indices: int | Sequence[int],
    sinfo_args: StructInfo | Sequence[StructInfo] = (), ty_args: StructInfo | Sequence[StructInfo] = (),
) -> Call:  # fmt: skip
    """Run a registered function that changes the arguments at these places, which nobody else uses, and gives them.

    Raises InvalidValueError for a place that no argument has.
    """
    places = (inplace_indices,) if isinstance(inplace_indices, int) else tuple(inplace_indices)
    if not places or any(not 0 <= place < len(args) for place in places):
        raise InvalidValueError(f"call_inplace_packed: no arguments at {places}; there are {len(args)}")
    call = call_pure_packed(func, *args, sinfo_args=sinfo_args or ty_args)
    return dataclasses.replace(call, attrs=FrozenDict({"inplace_indices": places}))


def null_value() -> Call:
    """The value of nothing, of the type of any object."""
    return call_pure_packed("relax.run.null_value", sinfo_args=ObjectStructInfo())


NOTHING = TupleStructInfo(())


def print(*values: object, format: str | Expr = "") -> Call:  # noqa: A001, A002
    """Print values when the function runs, by a format with `{}` for each of them."""
    return call_packed("relax.run.print", _string(format), *values, sinfo_args=NOTHING)


def assert_op(
    condition: object, format_args: object = None, format: str | Expr = ""  # noqa: A002
) -> Call:  # fmt: skip
    """Raise AssertionError when the function runs, unless `condition` (a boolean scalar) is true.

    format_args  a value or a list of values that the message shows by `format`
    """
    values = () if format_args is None else format_args if isinstance(format_args, list | tuple) else (format_args,)
    checked = as_expr(condition)
    info = checked.struct_info
    if isinstance(info, TensorStructInfo) and (info.dtype != "bool" or info.ndim != 0):
        raise InvalidTypeError(f"assert_op takes a boolean scalar, not {info!r}")
    return call_packed("relax.run.assert_op", checked, _string(format), *values, sinfo_args=NOTHING)


def _string(text: str | Expr) -> Expr:
    if not isinstance(text, str | StringImm):
        raise InvalidTypeError(f"format is a {type(text).__name__}, expected a text")
    return StringImm(text) if isinstance(text, str) else text


def shape_of(expr: Expr) -> Expr:
    """The shape of a tensor as a value."""
    info = expr.struct_info
    if isinstance(info, TensorStructInfo) and info.shape is not None:
        return ShapeExpr(info.shape)
    if isinstance(info, ShapeStructInfo):
        return expr
    raise InvalidTypeError("shape_of takes a tensor whose number of dimensions is known")


def is_packed(x: object) -> bool:
    """Whether `x` is a call of a registered function."""
    return isinstance(x, Call) and (isinstance(x.op, ExternFunc) or x.op in (CALL_DPS_PACKED, CALL_PURE_PACKED))


def is_call_tir(x: object) -> bool:
    """Whether `x` is a call_tir."""
    return isinstance(x, Call) and x.op is CALL_TIR


def tir_target(call: Call) -> GlobalVar:
    """The name of the PrimFunc that a call_tir runs."""
    return call.args[0]  # type: ignore[no-any-return]


def tir_inputs(call: Call) -> tuple[Expr, ...]:
    """The inputs of a call_tir."""
    return call.args[1].fields  # type: ignore[no-any-return]

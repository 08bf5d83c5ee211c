"""Calls of functions: `call_tir` runs a PrimFunc of the module, its outputs allocated by the caller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autosched.errors import InvalidTypeError
from autosched.ir.module import GlobalVar
from autosched.relax.expr import Call, Op, Tuple, as_expr
from autosched.relax.struct_info import Expr, StructInfo, TupleStructInfo

CALL_TIR = Op("relax.call_tir")
CALL_DPS_PACKED = Op("relax.call_dps_packed")


def _out(out_sinfo: StructInfo | Sequence[StructInfo] | None) -> StructInfo:
    if isinstance(out_sinfo, StructInfo):
        return out_sinfo
    if isinstance(out_sinfo, Sequence) and out_sinfo and all(isinstance(s, StructInfo) for s in out_sinfo):
        return out_sinfo[0] if len(out_sinfo) == 1 else TupleStructInfo(tuple(out_sinfo))
    raise InvalidTypeError(
        "call_tir needs the type of its result", hint="pass out_sinfo=TensorStructInfo(shape, dtype)"
    )


def call_tir(gvar: GlobalVar, args: Any, out_sinfo: Any = None, tir_vars: Any = None, *, out_ty: Any = None) -> Call:
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


def is_call_tir(x: Any) -> bool:
    """Whether `x` is a call_tir."""
    return isinstance(x, Call) and x.op is CALL_TIR


def tir_target(call: Call) -> GlobalVar:
    """The name of the PrimFunc that a call_tir runs."""
    return call.args[0]  # type: ignore[no-any-return]


def tir_inputs(call: Call) -> tuple[Expr, ...]:
    """The inputs of a call_tir."""
    return call.args[1].fields  # type: ignore[no-any-return]

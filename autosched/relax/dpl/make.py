"""The functions that make patterns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autosched.errors import refuse
from autosched.relax.dpl.pattern import (
    AttrPattern,
    CallPattern,
    ConstantPattern,
    DataflowVarPattern,
    DataTypePattern,
    DFPattern,
    ExprPattern,
    ExternFuncPattern,
    GlobalVarPattern,
    PrimArrPattern,
    TupleGetItemPattern,
    TuplePattern,
    UnorderedTuplePattern,
    VarPattern,
    WildcardPattern,
)
from autosched.relax.expr import Op
from autosched.relax.op.call import CALL_DPS_PACKED, CALL_TIR
from autosched.relax.struct_info import Dim, Expr


def wildcard() -> WildcardPattern:
    """Anything."""
    return WildcardPattern()


def is_var(name: str = "") -> VarPattern:
    """A variable."""
    return VarPattern(name)


def is_dfv(name: str = "") -> DataflowVarPattern:
    """A variable of a dataflow block."""
    return DataflowVarPattern(name)


def is_gv(name: str = "") -> GlobalVarPattern:
    """A function of the module."""
    return GlobalVarPattern(name)


def is_const() -> ConstantPattern:
    """A constant."""
    return ConstantPattern()


def is_expr(expr: Expr | Op) -> ExprPattern:
    """One expression."""
    return ExprPattern(expr)


def is_op(op_name: str) -> ExprPattern:
    """An operator by its full name, "relax.add". Raises ValueError for an unknown one."""
    special = {op.name: op for op in (CALL_TIR, CALL_DPS_PACKED)}
    return ExprPattern(special.get(op_name) or Op.get(op_name))


def is_tuple(fields: Sequence[DFPattern], unordered: bool = False) -> TuplePattern:
    """A tuple."""
    return UnorderedTuplePattern(fields) if unordered else TuplePattern(fields)


def is_tuple_get_item(tuple_value: DFPattern, index: int | None = None) -> TupleGetItemPattern:
    """An item of a tuple."""
    return TupleGetItemPattern(tuple_value, index)


def is_shape(shape: Sequence[Dim]) -> PrimArrPattern:
    """A shape as a value."""
    return PrimArrPattern(shape)


def has_dtype(dtype: str, pattern: DFPattern | None = None) -> DataTypePattern:
    """A tensor of a dtype."""
    return DataTypePattern(pattern or wildcard(), dtype)


def has_attr(attrs: Mapping[str, object], pattern: DFPattern | None = None) -> AttrPattern:
    """Something with these attributes."""
    return AttrPattern(pattern or wildcard(), attrs)


def _inputs(args: Sequence[DFPattern] | TuplePattern | None) -> DFPattern:
    if args is None:
        return wildcard()
    return args if isinstance(args, DFPattern) else TuplePattern(args)


def is_call_tir(
    func_name: str, args: Sequence[DFPattern] | TuplePattern | None = None, tir_vars: object = None
) -> CallPattern:
    """A call_tir of the PrimFunc of that name."""
    refuse("is_call_tir", tir_vars=tir_vars is not None)
    return CallPattern(ExprPattern(CALL_TIR), [GlobalVarPattern(func_name), _inputs(args)], True)


def is_call_dps_packed(func_name: str, args: Sequence[DFPattern] | TuplePattern | None = None) -> CallPattern:
    """A call_dps_packed of the registered function of that name."""
    return CallPattern(ExprPattern(CALL_DPS_PACKED), [ExternFuncPattern(func_name), _inputs(args)], True)


def is_call_packed(func_name: str, args: Sequence[DFPattern] | None = None) -> CallPattern:
    """A call_packed of the registered function of that name."""
    return CallPattern(ExternFuncPattern(func_name), args)


def make_fused_bias_activation_pattern(
    op_name: str, with_bias: bool = False, activation: str | None = None
) -> DFPattern:
    """An operator of two operands, then perhaps a sum with a bias, then perhaps an activation."""
    out: DFPattern = is_op(op_name)(wildcard(), wildcard())
    if with_bias:
        out = is_op("relax.add")(out, wildcard())
    return is_op(activation)(out) if activation else out

"""Patterns of graph expressions: what a group of operators looks like, found and rewritten."""

from autosched.relax.dpl.context import PatternContext
from autosched.relax.dpl.make import (
    has_attr,
    has_dtype,
    is_call_dps_packed,
    is_call_packed,
    is_call_tir,
    is_const,
    is_dfv,
    is_expr,
    is_gv,
    is_op,
    is_shape,
    is_tuple,
    is_tuple_get_item,
    is_var,
    make_fused_bias_activation_pattern,
    wildcard,
)
from autosched.relax.dpl.pattern import (
    AndPattern,
    AttrPattern,
    CallPattern,
    ConstantPattern,
    DataflowVarPattern,
    DataTypePattern,
    DFPattern,
    ExprPattern,
    ExternFuncPattern,
    FunctionPattern,
    GlobalVarPattern,
    NotPattern,
    OrPattern,
    PatternSeq,
    PrimArrPattern,
    ShapePattern,
    StructInfoPattern,
    TupleGetItemPattern,
    TuplePattern,
    UnorderedTuplePattern,
    VarPattern,
    WildcardPattern,
)
from autosched.relax.dpl.rewrite import rewrite_bindings, rewrite_call

__all__ = [
    "AndPattern", "AttrPattern", "CallPattern", "ConstantPattern", "DFPattern", "DataTypePattern",
    "DataflowVarPattern", "ExprPattern", "ExternFuncPattern", "FunctionPattern", "GlobalVarPattern", "NotPattern",
    "OrPattern", "PatternContext", "PatternSeq", "PrimArrPattern", "ShapePattern", "StructInfoPattern",
    "TupleGetItemPattern", "TuplePattern", "UnorderedTuplePattern", "VarPattern", "WildcardPattern", "has_attr",
    "has_dtype", "is_call_dps_packed", "is_call_packed", "is_call_tir", "is_const", "is_dfv", "is_expr", "is_gv",
    "is_op", "is_shape", "is_tuple", "is_tuple_get_item", "is_var", "make_fused_bias_activation_pattern",
    "rewrite_bindings", "rewrite_call", "wildcard",
]  # fmt: skip

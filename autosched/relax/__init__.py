"""The graph level: relax functions in an IRModule, operators, passes."""

from autosched.lazy_names import lazy_names
from autosched.ir.module import GlobalVar, IRModule
from autosched.relax import op
from autosched.relax.block_builder import BlockBuilder
from autosched.relax.evaluate import evaluate
from autosched.relax.expr import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    Expr,
    ExternFunc,
    Function,
    If,
    MatchCast,
    Op,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
    const,
)
from autosched.relax.op.call import call_dps_packed, call_packed, call_pure_packed, call_tir, call_tir_inplace, shape_of
from autosched.relax.struct_info import (
    FuncStructInfo,
    FuncType,
    ObjectStructInfo,
    ObjectType,
    PrimStructInfo,
    PrimType,
    ShapeStructInfo,
    ShapeType,
    StructInfo,
    TensorStructInfo,
    TensorType,
    TupleStructInfo,
    TupleType,
)
from autosched.relax.verify import verify, well_formed

__getattr__, __dir__ = lazy_names(__name__)

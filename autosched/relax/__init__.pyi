# Made by `python -m tests.stubs` from the file beside it and autosched/public_names.py.
from autosched.driver.vm.relax_build import build_relax as _build
from autosched.ir.global_info import VDevice as VDevice
from autosched.ir.module import GlobalVar as GlobalVar
from autosched.ir.module import IRModule as IRModule
from autosched.relax import analysis as analysis
from autosched.relax import backend as backend
from autosched.relax import dpl as dpl
from autosched.relax import frontend as frontend
from autosched.relax import functor as _expr_functor
from autosched.relax import op as op
from autosched.relax import testing as testing
from autosched.relax import training as training
from autosched.relax import transform as transform
from autosched.relax.block_builder import BlockBuilder as BlockBuilder
from autosched.relax.evaluate import evaluate as evaluate
from autosched.relax.expr import Binding as Binding
from autosched.relax.expr import BindingBlock as BindingBlock
from autosched.relax.expr import Call as Call
from autosched.relax.expr import Constant as Constant
from autosched.relax.expr import DataflowBlock as DataflowBlock
from autosched.relax.expr import DataflowVar as DataflowVar
from autosched.relax.expr import Expr as Expr
from autosched.relax.expr import ExternFunc as ExternFunc
from autosched.relax.expr import ExternFunc as _extern
from autosched.relax.expr import Function as Function
from autosched.relax.expr import If as If
from autosched.relax.expr import MatchCast as MatchCast
from autosched.relax.expr import Op as Op
from autosched.relax.expr import PrimValue as PrimValue
from autosched.relax.expr import PrimValue as _prim_value
from autosched.relax.expr import SeqExpr as SeqExpr
from autosched.relax.expr import ShapeExpr as ShapeExpr
from autosched.relax.expr import StringImm as StringImm
from autosched.relax.expr import Tuple as Tuple
from autosched.relax.expr import TupleGetItem as TupleGetItem
from autosched.relax.expr import Var as Var
from autosched.relax.expr import VarBinding as VarBinding
from autosched.relax.expr import as_expr as _convert_to_expr
from autosched.relax.expr import const as const
from autosched.relax.functor import PyExprMutator as PyExprMutator
from autosched.relax.functor import PyExprMutator as _ExprMutator
from autosched.relax.functor import PyExprVisitor as PyExprVisitor
from autosched.relax.functor import PyExprVisitor as _ExprVisitor
from autosched.relax.op.call import call_dps_packed as call_dps_packed
from autosched.relax.op.call import call_packed as call_packed
from autosched.relax.op.call import call_pure_packed as call_pure_packed
from autosched.relax.op.call import call_tir as call_tir
from autosched.relax.op.call import call_tir_inplace as call_tir_inplace
from autosched.relax.op.call import shape_of as _get_shape_of
from autosched.relax.op.call import shape_of as shape_of
from autosched.relax.pipeline import get_default_pipeline as get_default_pipeline
from autosched.relax.pipeline import get_pipeline as get_pipeline
from autosched.relax.pipeline import register_pipeline as register_pipeline
from autosched.relax.struct_info import FuncStructInfo as FuncStructInfo
from autosched.relax.struct_info import FuncType as FuncType
from autosched.relax.struct_info import ObjectStructInfo as ObjectStructInfo
from autosched.relax.struct_info import ObjectType as ObjectType
from autosched.relax.struct_info import PrimStructInfo as PrimStructInfo
from autosched.relax.struct_info import PrimType as PrimType
from autosched.relax.struct_info import ShapeStructInfo as ShapeStructInfo
from autosched.relax.struct_info import ShapeType as ShapeType
from autosched.relax.struct_info import StructInfo as StructInfo
from autosched.relax.struct_info import TensorStructInfo as TensorStructInfo
from autosched.relax.struct_info import TensorType as TensorType
from autosched.relax.struct_info import TupleStructInfo as TupleStructInfo
from autosched.relax.struct_info import TupleType as TupleType
from autosched.relax.verify import verify as verify
from autosched.relax.verify import well_formed as well_formed
from autosched.runtime.relax_vm import VMExecutable as VMExecutable
from autosched.runtime.relax_vm import VMExecutable as _Executable
from autosched.runtime.relax_vm import VirtualMachine as VirtualMachine
Executable = _Executable
ExprMutator = _ExprMutator
ExprVisitor = _ExprVisitor
build = _build
convert_to_expr = _convert_to_expr
expr_functor = _expr_functor
extern = _extern
get_shape_of = _get_shape_of
prim_value = _prim_value

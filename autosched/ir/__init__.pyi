# Made by `python -m tests.stubs` from the file beside it and autosched/public_names.py.
from autosched.ir import instrument as instrument
from autosched.ir import transform as transform
from autosched.ir.function import BaseFunc as BaseFunc
from autosched.ir.global_info import DummyGlobalInfo as DummyGlobalInfo
from autosched.ir.global_info import GlobalInfo as GlobalInfo
from autosched.ir.global_info import VDevice as VDevice
from autosched.ir.module import GlobalVar as GlobalVar
from autosched.ir.module import IRModule as IRModule
from autosched.ir.node import Array as Array
from autosched.ir.node import FrozenDict as FrozenDict
from autosched.ir.node import FrozenDict as _Attrs
from autosched.ir.node import FrozenDict as _DictAttrs
from autosched.ir.node import FrozenDict as _Map
from autosched.ir.node import Node as Node
from autosched.ir.node import Node as _Object
from autosched.ir.node import Span as Span
from autosched.ir.node import children as children
from autosched.ir.node import map_children as map_children
from autosched.ir.node import preorder as preorder
from autosched.ir.structural import assert_structural_equal as assert_structural_equal
from autosched.ir.structural import structural_equal as structural_equal
from autosched.ir.structural import structural_hash as structural_hash
from autosched.ir.structural import structural_key as structural_key
from autosched.ir.transform import Pass as _ModulePass
from autosched.relax.expr import Call as Call
from autosched.relax.expr import Expr as _RelaxExpr
from autosched.relax.expr import Expr as _RelayExpr
from autosched.relax.expr import Op as Op
from autosched.relax.struct_info import FuncStructInfo as _FuncType
from autosched.relax.struct_info import PrimStructInfo as _PrimType
from autosched.relax.struct_info import StructInfo as _Type
from autosched.relax.struct_info import TensorStructInfo as _TensorType
from autosched.relax.struct_info import TupleStructInfo as _TupleType
from autosched.script.json_text import load_json as load_json
from autosched.script.json_text import save_json as save_json
from autosched.tir.construct import RangeConstructor as _Range
from autosched.tir.custom import register_intrin_lowering as register_intrin_lowering
from autosched.tir.custom import register_op_attr as register_op_attr
from autosched.tir.expr import PrimExpr as PrimExpr
Attrs = _Attrs
DictAttrs = _DictAttrs
FuncType = _FuncType
Map = _Map
ModulePass = _ModulePass
Object = _Object
PrimType = _PrimType
Range = _Range
RelaxExpr = _RelaxExpr
RelayExpr = _RelayExpr
TensorType = _TensorType
TupleType = _TupleType
Type = _Type

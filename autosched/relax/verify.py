"""The rules of well-formed graph functions."""

from __future__ import annotations

from typing import NoReturn

from autosched.errors import VerifyError
from autosched.ir.function import BaseFunc
from autosched.ir.module import GlobalVar, IRModule
from autosched.relax.expr import (
    Binding,
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
)  # fmt: skip
from autosched.relax.op.call import is_call_tir, tir_inputs, tir_target
from autosched.relax.op.registry import OPERATORS, definition_of
from autosched.relax.struct_info import (
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    covers,
    same_info,
    tensor_infos,
)
from autosched.tir.buffer import Buffer
from autosched.tir.expr import const_int
from autosched.tir.function import PrimFunc

LEAVES = (Var, Constant, ShapeExpr, PrimValue, StringImm, GlobalVar, ExternFunc)
SPECIAL = {"relax.call_tir", "relax.call_tir_inplace", "relax.call_dps_packed", "relax.call_pure_packed"}


Checked = dict[int, tuple[Call, object]]  # calls whose types agree, and the functions that they call, by id of the call


class _Verifier:
    def __init__(self, module: IRModule, checked: Checked):
        self.module, self.where, self.checked = module, "", checked
        self.functions = module.functions
        self.right: Checked = {}
        self.at: Var | BaseFunc | None = None  # the variable being bound or the function, which errors point at
        self.seen: set[Var] = set()

    def refuse(self, rule: str) -> NoReturn:
        error = VerifyError(rule, where=self.where)
        error.node = self.at
        raise error

    def function(self, name: str, function: Function) -> None:
        self.where, self.at = f"function '{name}'", function
        scope = set(function.params)
        if len(scope) != len(function.params):
            self.refuse("a parameter is listed twice")
        for p in function.params:
            self.define(p)
            if p.struct_info is None:
                self.refuse(f"parameter '{p.name}' has no type")
        self.sequence(function.body, scope)
        self.where, self.at = f"function '{name}'", function
        if function.ret_struct_info is not None and not covers(function.ret_struct_info, function.body.struct_info):
            self.refuse(f"the result is {function.body.struct_info!r}, the function says {function.ret_struct_info!r}")

    def define(self, var: Var) -> None:
        if var in self.seen:
            self.refuse(f"variable '{var.name}' is bound twice")
        self.seen.add(var)

    def sequence(self, body: SeqExpr, outer: set[Var]) -> None:
        scope = set(outer)
        for block in body.blocks:
            inside = set(scope)
            for b in block.bindings:
                self.binding(b, inside, isinstance(block, DataflowBlock))
                inside.add(b.var)
            scope |= {v for v in inside if not isinstance(v, DataflowVar)}
        self.leaf(body.body, scope)

    def binding(self, b: Binding, scope: set[Var], dataflow: bool) -> None:
        self.where = self.where.partition(", binding")[0] + f", binding of '{b.var.name}'"
        self.at = b.var
        if isinstance(b.var, DataflowVar) and not dataflow:
            self.refuse("a dataflow variable is bound outside of a dataflow block")
        self.define(b.var)
        self.value(b.value, scope, dataflow)
        if b.var.struct_info is None:
            self.refuse("the variable has no type")
        if isinstance(b, MatchCast):
            return
        if not covers(b.var.struct_info, b.value.struct_info):
            self.refuse(f"the variable is {b.var.struct_info!r}, its value {b.value.struct_info!r}")

    def value(self, value: Expr, scope: set[Var], dataflow: bool) -> None:
        match value:
            case Call():
                self.call(value, scope)
            case If():
                if dataflow:
                    self.refuse("a branch inside a dataflow block")
                self.leaf(value.cond, scope)
                self.sequence(value.true_branch, scope)
                self.sequence(value.false_branch, scope)
            case TupleGetItem():
                self.leaf(value.tuple_value, scope)
            case SeqExpr():
                self.refuse("a sequence is bound to a variable")
            case _:
                self.leaf(value, scope)

    def leaf(self, x: object, scope: set[Var]) -> None:
        if isinstance(x, Tuple):
            for f in x.fields:
                self.leaf(f, scope)
        elif isinstance(x, Var):
            if x not in scope:
                self.refuse(f"variable '{x.name}' is used where it is not defined")
        elif isinstance(x, GlobalVar):
            if x not in self.functions:
                self.refuse(f"the module has no function '{x.name}'")
        elif not isinstance(x, LEAVES):
            self.refuse(f"a {type(x).__name__} stands where only variables and constants may")

    def call(self, call: Call, scope: set[Var]) -> None:
        if isinstance(call.op, Op):
            if call.op.name not in SPECIAL and call.op.name.removeprefix("relax.") not in OPERATORS:
                self.refuse(f"unknown operator '{call.op.name}'")
        else:
            self.leaf(call.op, scope)
        for a in call.args:
            self.leaf(a, scope)
        target = self.module[tir_target(call)] if is_call_tir(call) else None
        known = self.checked.get(id(call))
        if known is None or known[1] is not target:
            self.types(call, target)
        self.right[id(call)] = call, target  # both are kept, so that the id stays the call's own

    def types(self, call: Call, target: BaseFunc | None) -> None:
        definition = definition_of(call)
        if definition is not None:
            inferred = definition.infer(tuple(a.struct_info for a in call.args), call.attrs)
            if not same_info(inferred, call.struct_info):
                self.refuse(f"the call says {call.struct_info!r}, its operator gives {inferred!r}")
        if is_call_tir(call):
            self.call_tir(call, target)

    def call_tir(self, call: Call, target: BaseFunc | None) -> None:
        if not isinstance(target, PrimFunc):
            self.refuse(f"call_tir of '{tir_target(call).name}', which is no PrimFunc")
        infos: list[StructInfo | None] = [a.struct_info for a in tir_inputs(call)]
        result = call.struct_info
        infos += result.fields if isinstance(result, TupleStructInfo) else [result]
        tensors = [t for i in infos for t in tensor_infos(i)]
        buffers = target.buffers
        if len(tensors) != len(buffers):
            self.refuse(f"'{tir_target(call).name}' takes {len(buffers)} tensors, the call passes {len(tensors)}")
        for t, b in zip(tensors, buffers, strict=True):
            if not _fits(t, b):
                self.refuse(
                    f"'{tir_target(call).name}' takes {TensorStructInfo(b.shape, b.dtype)!r} as '{b.name}', got {t!r}"
                )


def _fits(t: TensorStructInfo, b: Buffer) -> bool:
    if t.dtype != b.dtype or t.ndim != len(b.shape):
        return False
    if not t.is_static:
        return True
    known = [const_int(d) for d in b.shape]
    return None in known or (*known,) == t.dims


def verify(module: IRModule, checked: Checked | None = None) -> None:
    """Check every graph function of a module.

    Each variable is bound once and used in its scope, dataflow variables in their block; values are calls of variables
    and constants; types agree with what operators infer; called functions exist and take what they are passed.
    checked  what the check before found right, of a module that shares calls with this one: their types are not looked
             at again. Afterwards it holds what is right of this one.
    Raises VerifyError naming function and binding.
    """
    verifier = _Verifier(module, {} if checked is None else checked)
    for gv, function in module.functions_items():
        if isinstance(function, Function):
            verifier.function(gv.name, function)
    if checked is not None:
        checked.clear()
        checked.update(verifier.right)


def well_formed(module: IRModule) -> bool:
    """Whether `verify` finds nothing (TVM's `analysis.well_formed`)."""
    try:
        verify(module)
    except VerifyError:
        return False
    return True

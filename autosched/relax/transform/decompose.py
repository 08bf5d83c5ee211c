"""Operators of training, as simple operators of inference."""

from __future__ import annotations

from typing import Any

from autosched.errors import InvalidValueError
from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, PassInfo
from autosched.relax import op
from autosched.relax.expr import Call, Expr, Function, ShapeExpr, Tuple, Var, const
from autosched.relax.rewrite import Rewriter
from autosched.relax.struct_info import TensorStructInfo


def _batch_norm(call: Call, emit: Any) -> Expr:
    """x * scale + shift with scale = gamma / sqrt(var + epsilon), shift = beta - mean * scale, a value a channel."""
    x, gamma, beta, mean, var = call.args
    info = x.struct_info
    assert isinstance(info, TensorStructInfo)
    if call.attrs["training"]:
        raise InvalidValueError("batch_norm with training=True has no inference form", hint="pass training=False")
    axis = call.attrs["axis"] % info.ndim
    wide = ShapeExpr(tuple(d if i == axis else 1 for i, d in enumerate(info.dims)))
    deviation = emit(op.sqrt(op.add(var, const(call.attrs["epsilon"], info.dtype))))
    scale = emit(op.divide(gamma if call.attrs["scale"] else const(1.0, info.dtype), deviation))
    shift = emit(op.negative(op.multiply(mean, scale)))
    if call.attrs["center"]:
        shift = emit(op.add(shift, beta))
    out = op.add(op.multiply(x, op.reshape(scale, wide)), op.reshape(shift, wide))
    return Tuple((emit(out), mean, var))


def _dropout(call: Call, emit: Any) -> Expr:
    x = call.args[0]
    return Tuple((x, emit(op.ones(x.struct_info.shape, x.struct_info.dtype))))


RULES = {"nn.batch_norm": _batch_norm, "nn.dropout": _dropout}


class _Decomposer(Rewriter):
    def call(self, call: Call, var: Var) -> Expr:
        rule = RULES.get(call.op_name.removeprefix("relax."))
        return rule(call, self.emit) if rule else call


def DecomposeOpsForInference(func: str | None = None) -> Pass:  # noqa: N802  (TVM's name)
    """batch_norm becomes a scale and a shift, dropout nothing; in all functions or the named one."""

    def run(module: IRModule) -> IRModule:
        def apply(name: str, f: Any) -> Any:
            wanted = isinstance(f, Function) and func in (None, name)
            return _Decomposer().rewrite(f) if wanted else f

        return module.with_functions({gv: apply(gv.name, f) for gv, f in module.functions.items()})

    return Pass(run, PassInfo(0, "DecomposeOpsForInference"))


decompose_for_inference = DecomposeOpsForInference()

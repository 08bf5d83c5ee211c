"""Products and convolutions on float16."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from autosched.errors import InvalidValueError
from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import BindingBlock, Call, Expr, Function, SeqExpr, Var, VarBinding
from autosched.relax.op.registry import remake
from autosched.relax.rewrite import Rewriter, map_functions
from autosched.relax.struct_info import TensorStructInfo

ALWAYS = ("relax.matmul", "relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d", "relax.nn.conv2d_transpose")


class _Caster(Rewriter):
    def __init__(self, out_dtype: str):
        super().__init__()
        self.out_dtype = out_dtype
        self.halves: dict[Expr, Expr] = {}

    def half(self, x: Expr) -> Expr:
        info = x.struct_info
        if not isinstance(info, TensorStructInfo) or info.dtype != "float32":
            return x
        if x not in self.halves:
            self.halves[x] = self.emit(op.astype(x, "float16"))
        return self.halves[x]

    def call(self, call: Call, var: Var) -> Expr:
        if call.op_name not in ALWAYS or var.struct_info.dtype != "float32":  # type: ignore[union-attr]
            return call
        args = [self.half(a) for a in call.args]
        new = remake(call, args, {"out_dtype": self.out_dtype})
        return new if self.out_dtype == "float32" else op.astype(self.emit(new), "float32")


def to_mixed_precision(
    module: IRModule, out_dtype: str = "float32", fp16_input_names: Sequence[str] | None = None
) -> IRModule:
    """Give products and convolutions float16 operands; their results are accumulated in `out_dtype`.

    fp16_input_names  parameters that become float16 themselves
    """
    names = set(fp16_input_names or ())

    def convert(function: Function) -> Function:
        caster = _Caster(out_dtype)
        params = []
        for p in function.params:
            if p.name in names and isinstance(p.struct_info, TensorStructInfo):
                new = Var(p.name, TensorStructInfo(p.struct_info.shape, "float16"))
                caster.halves[p] = new
                params.append(new)
            else:
                params.append(p)
        return _with_params(caster.rewrite(function), params, caster)

    return map_functions(module, convert)


def _with_params(function: Function, params: Sequence[Var], caster: _Caster) -> Function:
    """The function with its new parameters; where the old ones are still read as float32, they are cast back."""
    changed = {old: new for old, new in zip(function.params, params, strict=True) if old is not new}
    if not changed:
        return function
    back = tuple(VarBinding(old, op.astype(new, "float32")) for old, new in changed.items())
    body = SeqExpr((BindingBlock(back), *function.body.blocks), function.body.body)
    return dataclasses.replace(function, params=tuple(params), body=body)


def ToMixedPrecision(  # noqa: N802
    out_dtype: str = "float32", fp16_input_names: Sequence[str] | None = None
) -> Pass:
    """See `to_mixed_precision`. Raises ValueError for another type than float32 and float16."""
    if out_dtype not in ("float32", "float16"):
        raise InvalidValueError(f"ToMixedPrecision: out_dtype '{out_dtype}'", hint="float32 or float16")
    return graph_pass("ToMixedPrecision")(lambda module: to_mixed_precision(module, out_dtype, fp16_input_names))

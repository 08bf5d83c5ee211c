"""Products and convolutions on float16, and what follows them, as TVM decides it.

A call of ALWAYS takes float16 and gives float16, whatever it is accumulated in. A call of FOLLOW computes in float16
where all its arguments are float16 or constants. Every other call takes float32. A variable that calls of ALWAYS alone
read is cast once, where it is bound.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from autosched.errors import InvalidValueError
from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import (
    Binding,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    Tuple,
    TupleGetItem,
    Var,
)  # fmt: skip
from autosched.relax.op.registry import definition_of, remake
from autosched.relax.rewrite import Rewriter, map_functions, used_vars
from autosched.relax.struct_info import TensorStructInfo, TupleStructInfo, same_info

HALF, FULL = "float16", "float32"
ALWAYS = frozenset((
    "matmul", "outer", "nn.conv1d", "nn.conv2d", "nn.conv3d", "nn.conv1d_transpose", "nn.conv2d_transpose",
    "nn.conv3d_transpose", "nn.attention", "nn.attention_bias",
))  # fmt: skip
FOLLOW = frozenset((
    "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "broadcast_to", "ceil", "concat", "cos",
    "cosh", "divide", "equal", "erf", "ewise_fma", "exp", "expand_dims", "flatten", "floor", "floor_divide",
    "floor_mod", "full_like", "greater", "greater_equal", "image.resize2d", "isfinite", "isinf", "isnan",
    "layout_transform", "less", "less_equal", "log", "log_add_exp", "maximum", "minimum", "mod", "multiply", "negative",
    "nn.adaptive_avg_pool1d", "nn.adaptive_avg_pool2d", "nn.adaptive_avg_pool3d", "nn.avg_pool1d", "nn.avg_pool2d",
    "nn.avg_pool3d", "nn.batch_flatten", "nn.dropout", "nn.gelu", "nn.gelu_tanh", "nn.group_norm", "nn.instance_norm",
    "nn.layer_norm", "nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d", "nn.relu", "nn.rms_norm", "nn.selu", "nn.silu",
    "not_equal", "permute_dims", "power", "reshape", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "split",
    "sqrt", "square", "squeeze", "stack", "strided_slice", "subtract", "tan", "tanh", "trunc",
))  # fmt: skip


def _dtype(x: Expr) -> str:
    return x.struct_info.dtype if isinstance(x.struct_info, TensorStructInfo) else ""


def _name(call: Call) -> str:
    return call.op_name.removeprefix("relax.")


def _wanted_as_halves(function: Function) -> set[Var]:
    """The float32 variables that nothing but calls of ALWAYS, in dataflow blocks, reads."""
    halves: set[Var] = set()
    others = set(used_vars(function.body.body))
    for block in function.body.blocks:
        for b in block.bindings:
            is_one = isinstance(b.value, Call) and _name(b.value) in ALWAYS and isinstance(block, DataflowBlock)
            (halves if is_one else others).update(used_vars(b.value))
    return {v for v in halves - others if _dtype(v) == FULL}


class _Caster(Rewriter):
    def __init__(self, out_dtype: str, wanted: set[Var]):
        super().__init__()
        self.out_dtype, self.wanted = out_dtype, wanted
        self.casts: dict[tuple[Expr, str], Expr] = {}  # of variables, as they have been cast

    def cast(self, x: Expr, dtype: str) -> Expr:
        """A float value as another dtype; others as they are."""
        if isinstance(x, Tuple):
            return Tuple(tuple(self.cast(f, dtype) for f in x.fields))
        if _dtype(x) not in (HALF, FULL) or _dtype(x) == dtype:
            return x
        if isinstance(x, Constant):
            return Constant(x.data.astype(dtype))
        if (x, dtype) not in self.casts:
            made = self.emit(op.astype(x, dtype))
            if dtype == FULL:  # each reader has its own
                return made
            self.casts[x, dtype] = made
        return self.casts[x, dtype]

    def rewrite(self, function: Function) -> Function:
        self.params = [p for p in function.params if p in self.wanted]
        return super().rewrite(function)

    def _binding(self, b: Binding) -> None:
        if self._dataflow:
            for param in self.params:  # before everything else
                self.cast(param, HALF)
            self.params = []
        super()._binding(b)
        if b.var in self.wanted and self._dataflow:
            self.cast(self.replaced.get(b.var, b.var), HALF)

    def value(self, value: Expr, var: Var) -> Expr:
        new = value
        if isinstance(value, Call) and self._dataflow and definition_of(value) is not None:
            new = self.converted(value)
        elif isinstance(value, Call):
            new = dataclasses.replace(value, args=tuple(self.cast(a, FULL) for a in value.args))
        return new if isinstance(var, DataflowVar) else self.shown(new, var)

    def shown(self, x: Expr, var: Var) -> Expr:
        """What others than this block see: float32 as before."""
        if isinstance(x, Tuple):
            return self.cast(x, FULL)
        if isinstance(x.struct_info, TupleStructInfo) and not same_info(x.struct_info, var.struct_info):
            made = self.emit(x)
            return self.cast(
                Tuple(tuple(self.emit(TupleGetItem(made, i)) for i in range(len(x.struct_info.fields)))), FULL
            )
        return op.astype(self.emit(x), FULL) if _dtype(x) == HALF and _dtype(var) == FULL else x

    def converted(self, call: Call) -> Expr:
        """A call of an operator with the arguments that it takes, and its result."""
        name, parts = _name(call), [p for a in call.args for p in (a.fields if isinstance(a, Tuple) else (a,))]
        floats = [p for p in parts if _dtype(p) in (HALF, FULL)]
        if name in ALWAYS and floats and _dtype(call) in (HALF, FULL):
            args = [self.cast(a, HALF) for a in call.args]
            attrs = {"out_dtype": self.out_dtype} if "out_dtype" in call.attrs else {}
            made = remake(call, args, attrs)
            return made if _dtype(made) == HALF else op.astype(self.emit(made), HALF)
        held = [p for p in floats if not isinstance(p, Constant)]
        if name in FOLLOW and held and all(_dtype(p) == HALF for p in held) and all(map(_fits, floats)):
            return self.remade(call, HALF)
        return self.remade(call, FULL)

    def remade(self, call: Call, dtype: str) -> Expr:
        args = [self.cast(a, dtype) for a in call.args]
        same = dtype == FULL and all(a is b for a, b in zip(args, call.args, strict=True))
        return call if same else remake(call, args)


def _fits(x: Expr) -> bool:
    """Whether a constant stays finite in float16."""
    if not isinstance(x, Constant):
        return True
    with np.errstate(over="ignore"):
        return bool(np.all(np.isfinite(x.data.astype(HALF)) | ~np.isfinite(x.data)))


def to_mixed_precision(
    module: IRModule, out_dtype: str = FULL, fp16_input_names: Sequence[str] | None = None
) -> IRModule:
    """Give products and convolutions float16 operands and results; they are accumulated in `out_dtype`.

    fp16_input_names  parameters that become float16 themselves
    """
    names = set(fp16_input_names or ())

    def convert(function: Function) -> Function:
        params = tuple(
            Var(p.name, TensorStructInfo(p.struct_info.shape, HALF))
            if p.name in names and isinstance(p.struct_info, TensorStructInfo) and p.struct_info.dtype == FULL else p
            for p in function.params
        )  # fmt: skip
        caster = _Caster(out_dtype, _wanted_as_halves(function))
        caster.replaced.update({a: b for a, b in zip(function.params, params, strict=True) if a is not b})
        return caster.rewrite(dataclasses.replace(function, params=params))

    return map_functions(module, convert)


def ToMixedPrecision(  # noqa: N802
    out_dtype: str = FULL, fp16_input_names: Sequence[str] | None = None
) -> Pass:
    """See `to_mixed_precision`. Raises ValueError for another type than float32 and float16."""
    if out_dtype not in (FULL, HALF):
        raise InvalidValueError(f"ToMixedPrecision: out_dtype '{out_dtype}'", hint="float32 or float16")
    return graph_pass("ToMixedPrecision")(lambda module: to_mixed_precision(module, out_dtype, fp16_input_names))

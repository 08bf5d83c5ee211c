"""Single operators that become calls of PrimFuncs, while the others stay operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autosched import te, topi
from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax.expr import Call, Expr, Function
from autosched.relax.functor import PyExprMutator
from autosched.relax.struct_info import TensorStructInfo
from autosched.relax.transform.dead_code import remove_unused_bindings

Form = Callable[[PyExprMutator, Call], Expr]


class _Mutator(PyExprMutator):
    def __init__(self, module: IRModule, forms: dict[str, Form]):
        super().__init__(module)
        self.forms = forms

    def visit_call_(self, op: Call) -> Any:
        call = self.visit_expr_post_order(op)
        form = self.forms.get(getattr(call, "op_name", ""))
        return call if form is None else form(self, call)


def _rewritten(module: IRModule, forms: dict[str, Form]) -> IRModule:
    mutator = _Mutator(module, forms)
    for gv, function in module.functions_items():
        if isinstance(function, Function):
            changed = mutator.visit_expr(function)
            if changed is not function:
                mutator.builder_.update_func(gv, remove_unused_bindings(changed))
    return mutator.builder_.get()


def _fast(compute: Callable[..., object], name: str) -> Form:
    return lambda mutator, call: mutator.builder_.call_te(compute, call.args[0], primfunc_name_hint=name)


def FastMathTransform() -> Pass:  # noqa: N802
    """`exp`, `erf` and `tanh` become calls of `topi.fast_exp`, `fast_erf` and `fast_tanh`."""
    forms = {
        "relax.exp": _fast(topi.fast_exp, "fast_exp"),
        "relax.erf": _fast(topi.fast_erf, "fast_erf"),
        "relax.tanh": _fast(topi.fast_tanh, "fast_tanh"),
    }
    return graph_pass("FastMathTransform")(lambda module: _rewritten(module, forms))


def transposed_matmul(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    """a @ b^T of the last two dimensions; the others are broadcast."""
    outer = [[*(1 for _ in range(max(a.ndim, b.ndim) - x.ndim)), *x.shape[:-2]] for x in (a, b)]
    leading = [y if _is_one(x) else x for x, y in zip(*outer, strict=True)]
    k = te.reduce_axis((0, a.shape[-1]), name="k")

    def product(*places: Any) -> Any:
        *lead, i, j = places
        return te.sum(a[(*_of(a, lead), i, k)] * b[(*_of(b, lead), j, k)], axis=k)

    made: te.Tensor = te.compute((*leading, a.shape[-2], b.shape[-2]), product, name="NT_matmul")
    return made


def _is_one(extent: object) -> bool:
    return getattr(extent, "value", extent) == 1


def _of(x: te.Tensor, lead: Sequence[Any]) -> list[Any]:
    """The leading places of a broadcast tensor."""
    own = lead[len(lead) - (x.ndim - 2) :] if x.ndim > 2 else []
    return [0 if _is_one(extent) else place for place, extent in zip(own, x.shape[:-2], strict=True)]


def _transposed(mutator: PyExprMutator, call: Call) -> Expr:
    a, b = call.args
    made = mutator.lookup_binding(b)
    infos = [x.struct_info for x in (a, b)]
    if not isinstance(made, Call) or made.op_name != "relax.permute_dims" or call.attrs["out_dtype"] not in (None, ""):
        return call
    if any(not isinstance(i, TensorStructInfo) or i.shape is None or i.ndim < 2 for i in infos):
        return call
    ndim = infos[1].ndim  # type: ignore[union-attr]
    axes = made.attrs["axes"] or tuple(reversed(range(ndim)))
    if [axis % ndim for axis in axes] != [*range(ndim - 2), ndim - 1, ndim - 2]:
        return call
    return mutator.builder_.call_te(transposed_matmul, a, made.args[0], primfunc_name_hint="NT_matmul")


def FuseTransposeMatmul() -> Pass:  # noqa: N802
    """A product whose right side is a transposition becomes one PrimFunc that reads it as it lies."""
    return graph_pass("FuseTransposeMatmul")(lambda module: _rewritten(module, {"relax.matmul": _transposed}))

"""Products of one matrix with several become one product."""

from __future__ import annotations

from collections.abc import Callable

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import Call, Constant, Expr, Function, Tuple, Var
from autosched.relax.rewrite import Rewriter, map_functions
from autosched.relax.struct_info import TensorStructInfo


def _key(function: Function, call: Call) -> tuple[Expr, int, object] | None:
    """What products that can be one have in common: the left operand, and all but the columns of the right one."""
    left, right = call.args
    info = right.struct_info
    known = isinstance(right, Constant) or (isinstance(right, Var) and right in function.params)
    if not isinstance(info, TensorStructInfo) or not info.is_static or info.ndim != 2 or not known:
        return None
    return left, info.static_shape[0], call.attrs["out_dtype"]


class _Combiner(Rewriter):
    def __init__(self, groups: dict[Var, list[tuple[Var, Call]]]):
        super().__init__()
        self.groups = groups
        self.pieces: dict[Var, Expr] = {}

    def call(self, call: Call, var: Var) -> Expr:
        if var not in self.groups:
            return call
        group = self.groups[var]
        if var not in self.pieces:
            self.combine(call, group)
        return self.pieces[var]

    def combine(self, call: Call, group: list[tuple[Var, Call]]) -> None:
        """One product, and its pieces."""
        columns = [c.args[1].struct_info.static_shape[1] for _, c in group]
        weight = self.emit(op.concat(Tuple(tuple(c.args[1] for _, c in group)), axis=1))
        product = self.emit(op.matmul(call.args[0], weight, call.struct_info.dtype))  # type: ignore[union-attr]
        cuts = [sum(columns[: i + 1]) for i in range(len(columns) - 1)]
        ndim = product.struct_info.ndim  # type: ignore[union-attr]
        parts = self.emit(op.split(product, tuple(cuts), axis=ndim - 1))
        for i, (v, _) in enumerate(group):
            self.pieces[v] = parts[i]  # type: ignore[index]


def combine_parallel_matmul(module: IRModule, check: Callable[..., bool] | None = None) -> IRModule:
    """Join products that have the left operand in common and weights on the right, then split the result.

    check  (left, rights, biases, bindings) -> whether to join a group
    """

    def combine(function: Function) -> Function:
        found: dict[tuple[Expr, int, object], list[tuple[Var, Call]]] = {}
        values = {b.var: b.value for b in function.bindings()}
        for var, value in values.items():
            if isinstance(value, Call) and value.op_name == "relax.matmul" and (key := _key(function, value)):
                found.setdefault(key, []).append((var, value))
        groups = [
            g for (left, *_), g in found.items()
            if len(g) > 1 and (check is None or check(left, [c.args[1] for _, c in g], {}, values))
        ]  # fmt: skip
        if not groups:
            return function
        return _Combiner({var: g for g in groups for var, _ in g}).rewrite(function)

    return map_functions(module, combine)


def CombineParallelMatmul(check: Callable[..., bool] | None = None) -> Pass:  # noqa: N802
    """See `combine_parallel_matmul`."""
    return graph_pass("CombineParallelMatmul")(lambda module: combine_parallel_matmul(module, check))

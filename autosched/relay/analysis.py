"""TVM's `relay.analysis`, as far as building a model needs it."""

from __future__ import annotations

from collections.abc import Callable

from autosched.relax import Call, Expr, Var, well_formed
from autosched.relay.expr import GraphFunction, free_vars, info, post_order, unwrap


def all_vars(expr: object) -> list[Var]:
    """All variables of an expression or function, in order of first use."""
    if isinstance(expr, GraphFunction):
        return list(expr.params)
    return [x for x in post_order(unwrap(expr)) if isinstance(x, Var)]


def post_order_visit(expr: object, fvisit: Callable[[Expr], object]) -> None:
    """Call `fvisit` on every expression below one, parts before what they are parts of."""
    if isinstance(expr, GraphFunction):
        for param in expr.params:
            fvisit(param)
        for binding in expr.bindings():
            fvisit(binding.value)
        return
    for x in post_order(unwrap(expr)):
        fvisit(x)


def get_total_mac_number(expr: object) -> int:
    """Multiply-adds of the convolutions and matrix products of a function."""
    total = 0
    calls = (b.value for b in expr.bindings()) if isinstance(expr, GraphFunction) else post_order(unwrap(expr))
    for x in calls:
        if isinstance(x, Call) and x.op_name in ("relax.nn.conv2d", "relax.matmul"):
            out = info(x)
            weight = info(x.args[1])
            size = 1
            for extent in out.static_shape:
                size *= extent
            shape = weight.static_shape
            inner = shape[1] * shape[2] * shape[3] if x.op_name == "relax.nn.conv2d" else shape[-2]
            total += size * inner
    return total


__all__ = ["all_vars", "free_vars", "get_total_mac_number", "post_order_visit", "well_formed"]

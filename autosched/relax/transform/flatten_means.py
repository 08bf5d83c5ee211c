"""Reductions of whole images in plain layout run over rows of H * W elements: vectors need not end where rows do."""

from __future__ import annotations

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import Call, Expr, ShapeExpr, Var
from autosched.relax.op.registry import definition_of, remake
from autosched.relax.op.types import axis_index
from autosched.relax.rewrite import Rewriter, map_functions
from autosched.relax.transform.blocked import dims_of
from autosched.relax.transform.flatten_rows import product_of
from autosched.relax.transform.layout_rules import REDUCTIONS


class _Flattener(Rewriter):
    def call(self, call: Call, var: Var) -> Expr:
        definition = definition_of(call)
        if definition is None or not call.args or len(shape := dims_of(call.args[0])) < 2:
            return call
        first = _first_reduced(definition.name, call, len(shape))
        is_known = all(isinstance(extent, int) for extent in shape)
        if first is None or first == 0 and is_known or first > len(shape) - 2:
            return call  # a whole array of known size is cut into pieces as it is
        rows = self.emit(op.reshape(call.args[0], ShapeExpr((*shape[:first], product_of(shape[first:])))))
        if definition.name in REDUCTIONS:
            reduced: Expr = remake(call, [rows], {"axis": (first,)})
        else:
            reduced = op.mean(rows, axis=(first,), keepdims=True)
        result, reduced = dims_of(var), self.emit(reduced)
        return reduced if len(dims_of(reduced)) == len(result) else op.reshape(reduced, ShapeExpr(result))


def _first_reduced(name: str, call: Call, ndim: int) -> int | None:
    """The first of the axes that are reduced, where these are the innermost ones; else None."""
    if name == "nn.adaptive_avg_pool2d":
        plain = call.attrs["layout"] == "NCHW" and ndim == 4
        return 2 if plain and _pooled_size(call) == (1, 1) else None
    if name not in REDUCTIONS:
        return None
    axes = range(ndim) if (given := call.attrs["axis"]) is None else given
    found = sorted(axis_index(a, ndim) for a in ((axes,) if isinstance(axes, int) else axes))
    return found[0] if found and found == list(range(found[0], ndim)) else None


def _pooled_size(call: Call) -> tuple[int, ...]:
    size = call.attrs["output_size"]
    if size is None:  # each pixel is a window
        return ()
    return (size, size) if isinstance(size, int) else tuple(size)


def flatten_means(module: IRModule) -> IRModule:
    """Sums, means and extremes over several innermost axes become such over one; reshapes around them copy nothing."""
    return map_functions(module, lambda f: _Flattener().rewrite(f))


def FlattenMeans() -> Pass:  # noqa: N802
    """See `flatten_means`."""
    return graph_pass("FlattenMeans")(flatten_means)


__all__ = ["FlattenMeans", "flatten_means"]

"""Calls that compute nothing go, and moves of moves become one."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import Call, Constant, Expr, ShapeExpr, Tuple, Var
from autosched.relax.op.registry import definition_of, remake
from autosched.relax.rewrite import CallTracker, map_functions
from autosched.relax.struct_info import Dim, TensorStructInfo, same_dims, same_info
from autosched.relax.transform.views import VIEWS, is_view
from autosched.tir.expr import const_int


def _shape(x: Expr) -> tuple[Dim, ...]:
    """Extents: integers, or expressions of symbols."""
    assert isinstance(x.struct_info, TensorStructInfo), "operators take tensors"
    return x.struct_info.dims


def _is_filled(x: object, value: float) -> bool:
    return isinstance(x, Constant) and x.data.size > 0 and x.data.dtype.kind == "f" and bool(np.all(x.data == value))


class _Remover(CallTracker):
    def call(self, call: Call, var: Var) -> Expr:
        name = call.op_name.removeprefix("relax.")
        rule = RULES.get(name) or (_view if name in VIEWS else None)
        info = call.struct_info if definition_of(call) is not None else None
        is_known = isinstance(info, TensorStructInfo) and info.shape is not None
        is_static = isinstance(info, TensorStructInfo) and info.is_static
        ready = is_static or (is_known and (name in VIEWS or name in OF_SYMBOLS))
        return rule(call, self) if rule is not None and (ready or name == "nn.dropout") else call

    def source(self, x: object, name: str) -> Call | None:
        """The call of operator `name` that computed `x`."""
        found = self.call_of(x)
        return found if found is not None and found.op_name == f"relax.{name}" else None

    def view_source(self, x: object) -> Call | None:
        found = self.call_of(x)
        return found if is_view(found) else None


Rule = Callable[[Call, _Remover], Expr]


def _first(call: Call, _: _Remover) -> Expr:
    return call.args[0]  # type: ignore[no-any-return]


def _dropout(call: Call, rewriter: _Remover) -> Expr:
    info = call.args[0].struct_info
    return Tuple((call.args[0], rewriter.emit(op.ones(info.shape, info.dtype))))


def _view(call: Call, rewriter: _Remover) -> Expr:
    """A view of a view is one view; a view under the same shape is nothing."""
    x, shape = call.args[0], _shape(call)
    inner = rewriter.view_source(x)
    if inner is not None:
        x = inner.args[0]
    if same_dims(_shape(x), shape):
        return x  # type: ignore[no-any-return]
    if inner is None:
        return call
    return op.reshape(x, ShapeExpr(shape))


def _permute(call: Call, rewriter: _Remover) -> Expr:
    """Two reorderings are one; one that moves nothing but dimensions of size 1 is a view."""
    x = call.args[0]
    axes = tuple(call.attrs["axes"] or reversed(range(len(_shape(x)))))
    axes = tuple(a % len(axes) for a in axes)
    inner = rewriter.source(x, "permute_dims")
    if inner is not None:
        x = inner.args[0]
        before = tuple(inner.attrs["axes"] or reversed(range(len(axes))))
        axes = tuple(before[a] % len(axes) for a in axes)
    if axes == tuple(range(len(axes))):
        return x  # type: ignore[no-any-return]
    wide = [a for a in axes if const_int(_shape(x)[a]) != 1]
    if wide == sorted(wide):
        return op.reshape(x, ShapeExpr(tuple(_shape(x)[a] for a in axes)))
    return op.permute_dims(x, axes=axes) if inner is not None else call


def _cast(call: Call, _: _Remover) -> Expr:
    same = call.args[0].struct_info.dtype == call.attrs["dtype"]
    return call.args[0] if same else call


def _neutral(value: float, sides: tuple[int, ...]) -> Rule:
    """x op value -> x, on the given sides (1: the second argument is neutral)."""

    def rule(call: Call, _: _Remover) -> Expr:
        for side in sides:
            kept = call.args[1 - side]
            if _is_filled(call.args[side], value) and same_info(kept.struct_info, call.struct_info):
                return kept  # type: ignore[no-any-return]
        return call

    return rule


def _same_shape(call: Call, _: _Remover) -> Expr:
    """Operators that, where the shape stays, copy: broadcast_to, tile, strided_slice with positive steps, pad."""
    return call.args[0] if same_info(call.args[0].struct_info, call.struct_info) else call


def _slice(call: Call, rewriter: _Remover) -> Expr:
    steps = call.attrs["strides"]
    return _same_shape(call, rewriter) if steps is None or min(steps, default=1) > 0 else call


def _concat(call: Call, _: _Remover) -> Expr:
    parts = call.args[0].fields if isinstance(call.args[0], Tuple) else ()
    parts = tuple(p for p in parts if math.prod(_shape(p)))
    if len(parts) == 1:
        return parts[0]
    return call if len(parts) in (0, len(call.args[0].fields)) else remake(call, [Tuple(parts)])


def _relu(call: Call, rewriter: _Remover) -> Expr:
    return call.args[0] if rewriter.source(call.args[0], "nn.relu") else call


def _conv2d(call: Call, rewriter: _Remover) -> Expr:
    """Zeros in front of a convolution are its padding, as TensorFlow's networks have them for strides of two."""
    pad, layout = rewriter.source(call.args[0], "nn.pad"), call.attrs["data_layout"]
    if pad is None or pad.attrs["pad_mode"] != "constant" or call.attrs["pad_value"] or pad.attrs["pad_value"]:
        return call
    width = [int(w) for w in pad.attrs["pad_width"]]
    widths = {axis: width[2 * n : 2 * n + 2] for n, axis in enumerate(layout)}
    if len(width) != 8 or min(width) < 0 or any(widths["N"] + widths["C"]):
        return call
    more = (widths[axis][side] for side in (0, 1) for axis in "HW")
    padding = tuple(a + b for a, b in zip(call.attrs["padding"], more, strict=True))
    return remake(call, [pad.args[0], *call.args[1:]], {"padding": padding})


RULES: dict[str, Rule] = {
    "identity": _first, "nn.dropout": _dropout, "permute_dims": _permute, "astype": _cast, "nn.relu": _relu,
    "add": _neutral(0.0, (0, 1)), "subtract": _neutral(0.0, (1,)), "multiply": _neutral(1.0, (0, 1)),
    "divide": _neutral(1.0, (1,)), "broadcast_to": _same_shape, "tile": _same_shape, "nn.pad": _same_shape,
    "strided_slice": _slice, "concat": _concat, "nn.conv2d": _conv2d,
}  # fmt: skip
OF_SYMBOLS = ("permute_dims", "astype", "add", "subtract", "multiply", "divide")  # rules for shapes of symbols too


def remove_identity(module: IRModule) -> IRModule:
    """Remove identity, dropout, casts to the same dtype, reshapes to the same shape, additions of zero and the like.

    Afterwards no view is the argument of a view and no reordering that of a reordering.
    """
    return map_functions(module, lambda function: _Remover().rewrite(function))


def RemoveIdentity() -> Pass:  # noqa: N802
    """See `remove_identity`."""
    return graph_pass("RemoveIdentity")(remove_identity)

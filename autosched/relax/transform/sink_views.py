"""Element-wise calls run under the shape in which their data were computed, so that they can join that kernel.

   y = reshape(conv2d(x, w), (8, 64, 333)); z = relu(add(y, bias))
-> z = reshape(relu(add(conv2d(x, w), bias')), (8, 64, 333))
"""

from __future__ import annotations

import math

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import Call, Constant, Expr, Function, ShapeExpr, Var
from autosched.relax.op.registry import definition_of, remake
from autosched.relax.rewrite import Rewriter, map_functions
from autosched.relax.transform.layout_rules import is_broadcast, is_elementwise
from autosched.relax.transform.stand_ins import StandIns
from autosched.relax.transform.views import is_view

Shape = tuple[int, ...]


def matching_axes(old: Shape, new: Shape) -> tuple[tuple[slice, slice], ...]:
    """The shortest runs of axes of two shapes of equal size that hold the same elements, in order."""
    runs, i, j = [], 0, 0
    while i < len(old) or j < len(new):
        start = i, j
        i, j = min(i + 1, len(old)), min(j + 1, len(new))
        while (have := math.prod(old[start[0] : i])) != (want := math.prod(new[start[1] : j])):
            if have < want:
                i += 1
            else:
                j += 1
        runs.append((slice(start[0], i), slice(start[1], j)))
    return tuple(runs)


def broadcast_under(shape: Shape, old: Shape, new: Shape) -> Shape | None:
    """What an operand that is broadcast to `old` has to be under `new`; None where no shape does it."""
    if not shape:
        return shape
    if math.prod(old) != math.prod(new):
        return None  # they are equal in each call, by a limit, and nobody sees it here
    wide = (*(1 for _ in range(len(old) - len(shape))), *shape)
    found: list[int] = []
    for before, after in matching_axes(old, new):
        if wide[before] == old[before]:
            found.extend(new[after])
        elif all(extent == 1 for extent in wide[before]):
            found.extend(1 for _ in new[after])
        else:
            return None
    return tuple(found)


class _Sinker(Rewriter):
    def __init__(self, function: Function):
        super().__init__()
        self.given = set(function.params)
        self.sizes = StandIns()
        self.sources: dict[Var, tuple[int, Var]] = {}  # view -> when and as what its elements were computed
        self.bound: dict[Var, int] = {}

    def call(self, call: Call, var: Var) -> Expr:
        new = self.sunk(call)
        if is_view(new) and isinstance(new.args[0], Var) and new.args[0] not in self.given:
            source = new.args[0]
            self.sources[var] = self.sources.get(source, (self.bound.get(source, len(self.bound)), source))
        self.bound[var] = len(self.bound)
        return new

    def sunk(self, call: Call) -> Call:
        """The call under the shape of the argument that was computed last, as a view; itself where that is no view."""
        definition = definition_of(call)
        if definition is None or not (is_elementwise(definition) or is_broadcast(definition)):
            return call
        shape = self.sizes.shape_of(call)
        views = [
            self.sources[a]
            for a in call.args
            if isinstance(a, Var) and a in self.sources and self.sizes.shape_of(a) == shape
        ]
        if not views or not shape or 0 in shape:  # the shape is () too where it is not known
            return call
        under = self.sizes.shape_of(max(views, key=lambda v: v[0])[1])
        arguments = [self.brought(a, shape, under) for a in call.args]
        if under == shape or any(a is None for a in arguments):
            return call
        result = self.emit(remake(call, [a for a in arguments if a is not None]))
        assert isinstance(result, Var), "a call was emitted"
        self.bound[result] = len(self.bound)
        return op.reshape(result, ShapeExpr(self.sizes.extents(shape)))

    def brought(self, x: Expr, old: Shape, new: Shape) -> Expr | None:
        """An argument under the new shape; None where it is broadcast along a part of an axis."""
        shape = broadcast_under(self.sizes.shape_of(x), old, new)
        if shape is None or shape == self.sizes.shape_of(x):
            return None if shape is None else x
        if isinstance(x, Constant):
            return Constant(x.data.reshape(shape))
        if isinstance(x, Var) and x in self.sources and self.sizes.shape_of(self.sources[x][1]) == shape:
            return self.sources[x][1]
        return self.emit(op.reshape(x, ShapeExpr(self.sizes.extents(shape))))


def sink_views(module: IRModule) -> IRModule:
    """Views move behind the element-wise calls that read them, as far as broadcasting allows."""
    return map_functions(module, lambda function: _Sinker(function).rewrite(function))


def SinkViews() -> Pass:  # noqa: N802
    """See `sink_views`."""
    return graph_pass("SinkViews")(sink_views)


__all__ = ["SinkViews", "broadcast_under", "matching_axes", "sink_views"]

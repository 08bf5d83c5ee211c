"""A product whose columns are taken apart is one for each part: no kernel moves them.

Before:  split(permute_dims(reshape(x W + b, [.., 3, heads, d]), [2, ..]), 3)    queries, keys and values of attention
After:   permute_dims(reshape(x Wi + bi, [.., heads, d]))                        for each of the three
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import Call, Constant, Expr, Function, ShapeExpr, Tuple, Var
from autosched.relax.op.manipulate import split_sizes
from autosched.relax.op.types import axis_index
from autosched.relax.rewrite import CallTracker, map_functions, read_once, users
from autosched.relax.struct_info import Dim, TensorStructInfo

LEAST_COLUMNS = 32  # of a part


@dataclass(frozen=True)
class _Product:
    """x W + b, whose columns are `tail` dimensions behind `lead`, before these are permuted.

    part  which dimension of the tail is taken apart
    """

    product: Call
    bias: Constant | None
    lead: tuple[Dim, ...]
    tail: tuple[int, ...]
    part: int
    axes: tuple[int, ...]

    def columns(self, constant: Constant, index: int) -> Constant:
        """The columns of a part."""
        data = constant.data
        whole = data.reshape(*data.shape[:-1], *self.tail)
        found = np.take(whole, index, axis=data.ndim - 1 + self.part)
        return Constant(np.ascontiguousarray(found.reshape(*data.shape[:-1], -1)))


class _Splitter(CallTracker):
    def __init__(self, function: Function):
        super().__init__()
        self.uses = users(function)
        self.single = read_once(self.uses)
        self.values = {b.var: b.value for b in function.bindings()}

    def call(self, call: Call, var: Var) -> Expr:
        if call.op_name == "relax.split":
            axis, parts = call.attrs["axis"], call.attrs["indices_or_sections"]
            found = self.product(call.args[0], axis, alone=True)
            if found is not None and {*split_sizes(found.tail[found.part], parts)} == {1}:
                return Tuple(tuple(self.turned(found, i, keeps=True) for i in range(found.tail[found.part])))
        if call.op_name == "relax.take" and isinstance(call.args[1], Constant) and not call.args[1].data.ndim:
            found = self.product(call.args[0], call.attrs["axis"] or 0, alone=False)
            index = int(call.args[1].data)
            least = -found.tail[found.part] if found is not None and call.attrs["mode"] == "raise" else 0
            if found is not None and least <= index < found.tail[found.part]:
                return self.turned(found, index, keeps=False)
        return call

    def turned(self, found: _Product, index: int, keeps: bool) -> Expr:
        """A part, with or without the dimension of one that it was taken from."""
        product = self.emit(
            op.matmul(
                found.product.args[0],
                found.columns(found.product.args[1], index),  # type: ignore[arg-type]  # it is a constant
                found.product.attrs["out_dtype"],
            )
        )
        if found.bias is not None:
            product = self.emit(op.add(product, found.columns(found.bias, index)))
        gone = len(found.lead) + found.part
        rest = (*found.tail[: found.part], *found.tail[found.part + 1 :])
        x = self.emit(op.reshape(product, ShapeExpr((*found.lead, *rest))))
        x = self.emit(op.permute_dims(x, [a - (a > gone) for a in found.axes if a != gone]))
        return self.emit(op.expand_dims(x, [found.axes.index(gone)])) if keeps else x

    def product(self, x: Expr, axis: int, alone: bool) -> _Product | None:
        """What a value is whose parts along an axis are columns of a product with a weight."""
        turn = self.made_by(x, "permute_dims", alone)
        flat = self.made_by(turn.args[0], "reshape") if turn is not None else None
        if turn is None or flat is None:
            return None
        total, bias = flat.args[0], None
        add = self.made_by(total, "add")
        if add is not None:
            known = [a for a in add.args if isinstance(a, Constant)]
            others = [a for a in add.args if not isinstance(a, Constant)]
            if len(known) != 1:
                return None
            total, bias = others[0], known[0]
        product = self.made_by(total, "matmul")
        weight = product.args[1] if product is not None else None
        if product is None or not isinstance(weight, Constant) or weight.data.ndim != 2:
            return None
        columns, dims = weight.data.shape[1], _dims(turn.args[0])
        axes = tuple(a % len(dims) for a in turn.attrs["axes"] or reversed(range(len(dims))))
        first = next((n for n in range(len(dims)) if _size(dims[n:]) == columns), None)
        fits = bias is None or bias.data.shape == (columns,)
        if not columns or not fits or first is None or axes[-1] != len(dims) - 1:
            return None
        part = axes[axis_index(axis, len(dims))] - first
        tail = tuple(n for n in dims[first:] if isinstance(n, int))
        if not 0 <= part < len(tail) - 1 or columns // tail[part] < LEAST_COLUMNS:
            return None
        return _Product(product, bias, dims[:first], tail, part, axes)

    def made_by(self, x: Expr, name: str, alone: bool = True) -> Call | None:
        """The call of that name that computed `x`, where one other reads it or, where not `alone`, takes read it."""
        call = self.call_of(x)
        if call is None or call.op_name != f"relax.{name}" or not isinstance(x, Var):
            return None
        return call if x in self.single or (not alone and self.is_taken_apart(x)) else None

    def is_taken_apart(self, x: Var) -> bool:
        """Whether all that read a value take one position of the same axis."""
        readers = [self.values.get(r) if r is not None else None for r in self.uses[x]]
        takes = [r for r in readers if isinstance(r, Call) and r.op_name == "relax.take"]
        known = all(isinstance(t.args[1], Constant) and not t.args[1].data.ndim for t in takes)
        return known and len(takes) == len(readers) and len({t.attrs["axis"] for t in takes}) == 1


def _dims(x: Expr) -> tuple[Dim, ...]:
    assert isinstance(x.struct_info, TensorStructInfo), "what is permuted is a tensor"
    return tuple(x.struct_info.dims)


def _size(dims: Sequence[Dim]) -> int | None:
    """The product of sizes that are known."""
    return math.prod(n for n in dims if isinstance(n, int)) if all(isinstance(n, int) for n in dims) else None


def split_products(module: IRModule) -> IRModule:
    """No product with a weight has columns that are only read part by part, each permuted as a whole."""
    return map_functions(module, lambda function: _Splitter(function).rewrite(function))


def SplitProducts() -> Pass:  # noqa: N802
    """See `split_products`."""
    return graph_pass("SplitProducts")(split_products)


__all__ = ["SplitProducts", "split_products"]

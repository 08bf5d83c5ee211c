"""Attention written as separate operators becomes one: softmax(q kᵀ * scale + mask) v.

The forms that exporters write are recognised: heads split by `permute_dims` or not, keys transposed in one step or in
two, the scale on the scores or on query and key, an added or a boolean mask, products of rank 4 or 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import Call, Constant, Expr, Function, ShapeExpr, Var
from autosched.relax.op.registry import remake
from autosched.relax.rewrite import Rewriter, map_functions, users
from autosched.relax.struct_info import TensorStructInfo

ATTENTION = ("relax.nn.attention", "relax.nn.attention_bias")


@dataclass
class _Scores:
    """q kᵀ * scale + bias, before it is known to be attention."""

    query: Expr
    key: Expr  # [..., D, T]
    scale: float
    bias: Expr | None


@dataclass
class _Operand:
    """A tensor and the order of its dimensions: `value` transposed from `layout` is the operand."""

    value: Expr
    layout: str


class _Fuser(Rewriter):
    def __init__(self, function: Function):
        super().__init__()
        uses = users(function)
        self.single = {v for v, readers in uses.items() if len(readers) == 1 and readers[0] is not None}
        self.calls: dict[Var, Call] = {}

    def call(self, call: Call, var: Var) -> Expr:
        new: Expr = call
        if call.op_name == "relax.matmul":
            new = self.attention(call) or call
        elif call.op_name == "relax.permute_dims":
            new = self.absorbed(call)
        if isinstance(new, Call):
            self.calls[var] = new
        return new

    def made_by(self, x: Any, *names: str, alone: bool = True) -> Call | None:
        """The call that computed `x`, where nobody else reads it (or no matter who)."""
        found = self.calls.get(x) if isinstance(x, Var) and (x in self.single or not alone) else None
        return found if found is not None and found.op_name.removeprefix("relax.") in names else None

    # --- the match --------------------------------------------------------------------------------------------------

    def attention(self, product: Call) -> Expr | None:
        """The attention that a product with a softmax computes."""
        softmax = self.made_by(product.args[0], "nn.softmax")
        ndim = _ndim(product)
        if softmax is None or ndim not in (3, 4) or softmax.attrs["axis"] not in (-1, ndim - 1):
            return None
        if not all(_is_static(x) and _ndim(x) == ndim for x in (*product.args, softmax)):
            return None
        scores = self.scores(softmax.args[0])
        if scores is None or not all(_is_static(x) and _ndim(x) == ndim for x in (scores.query, scores.key)):
            return None
        shapes = [_shape(x) for x in (scores.query, scores.key, product.args[1])]
        if any(s[:-2] != shapes[0][:-2] for s in shapes):
            return None  # heads that share keys by broadcasting
        if ndim == 3:
            return self.three_dimensions(scores, product)
        q = self.operand(scores.query, "BHSD")
        k = self.operand(scores.key, "BHDS")
        v = self.operand(product.args[1], "BHSD")
        layouts = (q.layout, k.layout, v.layout, "BHSD")
        return op.nn.attention(q.value, k.value, v.value, scores.bias, scale=scores.scale, layouts=layouts)

    def three_dimensions(self, scores: _Scores, product: Call) -> Expr | None:
        """[N, S, D]: N images of one head."""
        n, rows, _ = _shape(scores.query)
        bias = scores.bias
        if bias is not None and _ndim(bias) == 3:
            m, r, c = _shape(bias)
            bias = self.emit(op.reshape(bias, ShapeExpr((m, 1, r, c))))
        elif bias is not None and _ndim(bias) > 3:
            return None
        values = [scores.query, scores.key, product.args[1]]
        q, k, v = (self.emit(op.reshape(x, ShapeExpr((n, 1, *_shape(x)[1:])))) for x in values)
        layouts = ("BHSD", "BHDS", "BHSD", "BHSD")
        out = self.emit(op.nn.attention(q, k, v, bias, scale=scores.scale, layouts=layouts))
        return op.reshape(out, ShapeExpr((n, rows, _shape(product)[-1])))

    def scores(self, x: Expr) -> _Scores | None:
        """Takes mask and scale off the argument of the softmax."""
        bias: Expr | None = None
        if (sum_ := self.made_by(x, "add")) is not None:
            x, bias = self.scores_and_mask(sum_) or (x, None)
        elif (choice := self.made_by(x, "where")) is not None and self.is_scores(choice.args[1]):
            x, bias = choice.args[1], self.boolean_bias(choice)
            if bias is None:
                return None
        scale = 1.0
        x, scale = self.without_scale(x, scale, alone=True)
        product = self.made_by(x, "matmul")
        if product is None or product.attrs["out_dtype"] is not None:
            return None
        query, scale = self.without_scale(product.args[0], scale, alone=False)
        key, scale = self.without_scale(product.args[1], scale, alone=False)
        return _Scores(query, key, scale, bias)

    def scores_and_mask(self, sum_: Call) -> tuple[Expr, Expr] | None:
        for x, mask in (sum_.args, sum_.args[::-1]):
            if self.is_scores(x) and _broadcasts(mask, x):
                return x, mask
        return None

    def is_scores(self, x: Expr) -> bool:
        product, _ = self.without_scale(x, 1.0, alone=True)
        return self.made_by(product, "matmul") is not None

    def boolean_bias(self, choice: Call) -> Expr | None:
        """where(seen, scores, low) as scores + where(seen, 0, low)."""
        seen, scores, low = choice.args
        number = _number(low)
        if number is None or number > -1e4 or not _broadcasts(seen, scores):
            return None
        dtype = _info(scores).dtype
        zero, small = (Constant(np.asarray(v, dtype)) for v in (0.0, number))
        return self.emit(op.where(seen, zero, small))

    def without_scale(self, x: Expr, scale: float, alone: bool) -> tuple[Expr, float]:
        """Takes factors that are numbers off a value."""
        while (call := self.made_by(x, "multiply", "divide", alone=alone)) is not None:
            a, b = call.args
            if (number := _number(b)) is not None and number != 0.0:
                x, scale = a, scale * number if call.op_name == "relax.multiply" else scale / number
            elif call.op_name == "relax.multiply" and (number := _number(a)) is not None:
                x, scale = b, scale * number
            else:
                break
        return x, scale

    # --- layouts ----------------------------------------------------------------------------------------------------

    def operand(self, x: Expr, layout: str) -> _Operand:
        """The tensor below permutations and numbers' factors; the order of its dimensions."""
        while (call := self.made_by(x, "permute_dims", alone=False)) is not None:
            axes = call.attrs["axes"]
            axes = tuple(reversed(range(4))) if axes is None else tuple(a % 4 for a in axes)
            below = [""] * 4
            for position, axis in enumerate(axes):
                below[axis] = layout[position]
            x, layout = call.args[0], "".join(below)
        return _Operand(x, layout)

    def absorbed(self, call: Call) -> Expr:
        """A permutation of an attention's result becomes its layout."""
        attention = self.calls.get(call.args[0]) if isinstance(call.args[0], Var) else None
        if attention is None or attention.op_name not in ATTENTION or call.args[0] not in self.single:
            return call
        layouts, axes = attention.attrs["layouts"], call.attrs["axes"]
        axes = tuple(reversed(range(4))) if axes is None else tuple(a % 4 for a in axes)
        out = "".join(layouts[3][a] for a in axes)
        if out[-1] != "D":
            return call
        return remake(attention, attrs={"layouts": (*layouts[:3], out)})


def _info(x: Expr) -> TensorStructInfo:
    assert isinstance(x.struct_info, TensorStructInfo), "an operand of a product is a tensor"
    return x.struct_info


def _is_static(x: Expr) -> bool:
    return isinstance(x.struct_info, TensorStructInfo) and x.struct_info.is_static


def _shape(x: Expr) -> tuple[int, ...]:
    return _info(x).static_shape


def _ndim(x: Expr) -> int:
    return _info(x).ndim


def _number(x: Expr) -> float | None:
    return float(x.data.reshape(-1)[0]) if isinstance(x, Constant) and x.data.size == 1 else None


def _broadcasts(mask: Expr, scores: Expr) -> bool:
    """Whether a mask broadcasts to the scores' shape without enlarging it."""
    if not (_is_static(mask) and _is_static(scores)):
        return False
    own, full = _shape(mask), _shape(scores)
    return len(own) <= len(full) and all(a in (1, b) for a, b in zip(reversed(own), reversed(full), strict=False))


def fuse_attention(module: IRModule) -> IRModule:
    """Replace matmul, softmax, matmul by `nn.attention`, with scale, mask and transpositions taken in."""
    return map_functions(module, lambda function: _Fuser(function).rewrite(function))


def FuseAttention() -> Pass:  # noqa: N802
    """See `fuse_attention`."""
    return graph_pass("FuseAttention")(fuse_attention)

"""Attention written as separate operators becomes one: softmax(q kᵀ * scale + mask) v.

The forms that exporters write are recognised: heads split by `permute_dims` or not, keys transposed in one step or in
two, the scale on the scores or on query and key, added and boolean masks, products of rank 4 or 3, the second one
transposed or not. A mask known at build that is causal becomes the operator's `causal_mask`: kernels skip what it
hides. Keys and values of heads that were repeated for several heads of queries are read as they were, where the target
does that. Weights that are set to 0 where they are NaN, or where all scores of a row are -inf, are its `zero_rows`.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import Call, Constant, Expr, Function, ShapeExpr, Var
from autosched.relax.op.products import keeps_dtype
from autosched.relax.op.registry import definition_of, is_constant, python_argument, remake
from autosched.relax.rewrite import CallTracker, map_functions, read_once, users
from autosched.relax.struct_info import Dim, TensorStructInfo, same_dims
from autosched.relax.transform.attention_masks import Mask, causal_kind
from autosched.relax.transform.fold_constant import as_constants
from autosched.tir.expr import const_int

MOST_KNOWN = 1 << 24  # elements of a mask that is computed to be looked at: 4096 queries and keys
ATTENTION = ("relax.nn.attention", "relax.nn.attention_bias")


@dataclass
class _Scores:
    """q kᵀ * scale + bias, before it is known to be attention."""

    query: Expr
    key: Expr  # [..., D, T]
    scale: float
    bias: Expr | None
    causal: str | None
    zero_rows: str | None

    def attention(
        self, query: Expr, key: Expr, value: Expr, bias: Expr | None, layouts: tuple[str, ...], shared: int = 1
    ) -> Call:
        """The operator on these tensors."""
        return op.nn.attention(
            query, key, value, bias, self.scale, self.causal, layouts=layouts, zero_rows=self.zero_rows, shared=shared
        )


@dataclass
class _Operand:
    """A tensor and the order of its dimensions: `value` transposed from `layout` is the operand."""

    value: Expr
    layout: str


class _Fuser(CallTracker):
    def __init__(self, function: Function, shares_heads: bool):
        super().__init__()
        self.shares_heads = shares_heads
        uses = self.uses = users(function)
        self.single = read_once(uses)
        self.constants: dict[Var, Constant | None] = {}  # what `known` was asked for
        self.biases: dict[tuple[object, ...], Expr] = {}  # of masks, which layers have in common

    def call(self, call: Call, var: Var) -> Expr:
        if call.op_name == "relax.matmul" and keeps_dtype(call):
            return self.attention(*call.args) or self.transposed(*call.args) or call
        return self.absorbed(call) if call.op_name == "relax.permute_dims" else call

    def made_by(self, x: object, *names: str, alone: bool = True) -> Call | None:
        """The call that computed `x`, where nobody else reads it (or no matter who)."""
        found = self.call_of(x) if x in self.single or not alone else None
        return found if found is not None and found.op_name.removeprefix("relax.") in names else None

    # --- the match --------------------------------------------------------------------------------------------------

    def transposed(self, value: Expr, weights: Expr) -> Expr | None:
        """The attention of value softmaxᵀ, as images have it: elements in front of tokens."""
        turn = self.made_by(weights, "permute_dims")
        if turn is None or self.weights(turn.args[0])[0] is None or not _is_known(value):
            return None
        ndim = _ndim(value)
        swap = [*range(ndim - 2), ndim - 1, ndim - 2]
        if [a % ndim for a in turn.attrs["axes"] or reversed(range(ndim))] != swap:
            return None
        found = self.attention(turn.args[0], self.emit(op.permute_dims(value, swap)))
        return None if found is None else op.permute_dims(self.emit(found), swap)

    def attention(self, weights: Expr, value: Expr) -> Expr | None:
        """The attention that a product with a softmax computes."""
        softmax, zero_rows = self.weights(weights)
        if softmax is None or not all(map(_is_known, (weights, value))):
            return None
        ndim = _ndim(value)
        if ndim not in (3, 4) or softmax.attrs["axis"] not in (-1, ndim - 1) or _ndim(weights) != ndim:
            return None
        scores = self.scores(softmax.args[0], zero_rows)
        if scores is None or not all(_is_known(x) and _ndim(x) == ndim for x in (scores.query, scores.key)):
            return None
        shapes = [_shape(x) for x in (scores.query, scores.key, value)]
        if not all(same_dims(s[:-2], shapes[0][:-2]) for s in shapes):
            return None  # heads that share keys by broadcasting
        if ndim == 3:
            return self.three_dimensions(scores, value)
        q = self.operand(scores.query, "BHSD")
        k = self.operand(scores.key, "BHDS")
        v = self.operand(value, "BHSD")
        layouts = (q.layout, k.layout, v.layout, "BHSD")
        key_heads, value_heads = self.repeated(k), self.repeated(v)
        if key_heads is not None and value_heads is not None and key_heads[1] == value_heads[1]:
            few = key_heads[0], value_heads[0]
            return scores.attention(q.value, *few, scores.bias, layouts, key_heads[1])
        return scores.attention(q.value, k.value, v.value, scores.bias, layouts)

    def weights(self, x: object) -> tuple[Call | None, str | None]:
        """(the softmax that a factor of the second product is, which of its rows are set to 0)."""
        choice = self.made_by(x, "where")
        if choice is None:
            return self.made_by(x, "nn.softmax"), None
        condition, zero, weights = choice.args
        softmax = self.made_by(weights, "nn.softmax", alone=False)
        test = self.made_by(condition, "isnan", "equal")
        if softmax is None or test is None or _number(zero) != 0.0:
            return None, None
        if test.op_name == "relax.isnan":
            alike = test.args[0] is weights and len(self.uses[weights]) == 2
            return (softmax, "nan") if alike else (None, None)
        scores = softmax.args[0]
        largest, low = test.args if _number(test.args[0]) is None else test.args[::-1]
        if _number(low) != -np.inf or weights not in self.single or not self.is_largest(largest, scores):
            return None, None
        self.single.add(scores)  # the softmax is what reads them, besides the maximum that goes with it
        return softmax, "masked"

    def is_largest(self, x: Expr, scores: object) -> bool:
        """Whether a value is the largest score of each row, and these two readers are the scores' only ones."""
        found = self.made_by(x, "max")
        if found is None or found.args[0] is not scores or len(self.uses[scores]) != 2:
            return False
        axes = found.attrs["axis"]
        axes = axes if isinstance(axes, tuple | list) else (axes,)
        return bool(found.attrs["keepdims"]) and axes in ((-1,), [-1], (_ndim(scores) - 1,), [_ndim(scores) - 1])

    def three_dimensions(self, scores: _Scores, value: Expr) -> Expr | None:
        """[N, S, D]: N images of one head."""
        n, rows, _ = _shape(scores.query)
        bias = scores.bias
        if bias is not None and _ndim(bias) == 3:
            m, r, c = _shape(bias)
            bias = self.emit(op.reshape(bias, ShapeExpr((m, 1, r, c))))
        elif bias is not None and _ndim(bias) > 3:
            return None
        values = [scores.query, scores.key, value]
        q, k, v = (self.emit(op.reshape(x, ShapeExpr((n, 1, *_shape(x)[1:])))) for x in values)
        layouts = ("BHSD", "BHDS", "BHSD", "BHSD")
        out = self.emit(scores.attention(q, k, v, bias, layouts))
        return op.reshape(out, ShapeExpr((n, rows, _shape(value)[-1])))

    def scores(self, x: Expr, zero_rows: str | None) -> _Scores | None:
        """Takes masks and scale off the argument of the softmax."""
        masks: list[Mask] = []
        while (found := self.masked(x)) is not None:
            x, mask = found
            masks.append(mask)
        dtype = _info(x).dtype
        x, scale = self.without_scale(x, 1.0, alone=True)
        product = self.made_by(x, "matmul")
        if product is None or not keeps_dtype(product):
            return None
        query, scale = self.without_scale(product.args[0], scale, alone=False)
        key, scale = self.without_scale(product.args[1], scale, alone=False)
        bias, causal = None, None
        rows, columns = _shape(product)[-2:]
        for mask in masks:
            known = dataclasses.replace(mask, value=self.known(mask.value) or mask.value).added(dtype)
            kind = None if causal else causal_kind(known, rows, columns, alone=len(masks) == 1)
            if kind:
                causal = kind
                continue
            added = self.added(mask, dtype)
            bias = added if bias is None else self.shared((bias, added), op.add(bias, added))
        return _Scores(query, key, scale, bias, causal, zero_rows)

    def known(self, x: object) -> Constant | None:
        """What is computed from constants alone, up to the size of a mask; such as are large are not folded."""
        if isinstance(x, Constant):
            return x
        if not isinstance(x, Var) or (call := self.call_of(x)) is None:
            return None
        if x not in self.constants:
            self.constants[x] = None
            definition, info = definition_of(call), x.struct_info
            if definition is None or definition.reference is None or not isinstance(info, TensorStructInfo):
                return None
            if not info.is_static or math.prod(info.static_shape) > MOST_KNOWN:
                return None
            args = [a if is_constant(a) else self.known(a) for a in call.args]
            if None not in args:
                values = [python_argument(a, lambda c: c.data) for a in args if a is not None]
                with np.errstate(all="ignore"):
                    made = as_constants(definition.run_reference(values, call.attrs), info)
                self.constants[x] = made if isinstance(made, Constant) else None
        return self.constants[x]

    def masked(self, x: Expr) -> tuple[Expr, Mask] | None:
        """(scores, what they are masked with)."""
        if (sum_ := self.made_by(x, "add")) is not None:
            for scores, value in (sum_.args, sum_.args[::-1]):
                if self.is_scores(scores) and _broadcasts(value, scores):
                    return scores, Mask(value)
        elif (choice := self.made_by(x, "where")) is not None:
            condition, *sides = choice.args
            for scores, low, inverted in ((*sides, True), (*reversed(sides), False)):
                if self.is_scores(scores) and _number(low) is not None and _broadcasts(condition, scores):
                    mask = Mask(condition, _number(low), inverted)
                    return (scores, mask) if mask.is_sum else None
        return None

    def is_scores(self, x: Expr) -> bool:
        product, _ = self.without_scale(x, 1.0, alone=True)
        return self.made_by(product, "matmul") is not None or self.masked(x) is not None

    def added(self, mask: Mask, dtype: str) -> Expr:
        """What a mask adds to the scores: where(seen, scores, low) is scores + where(seen, 0, low)."""
        known = mask.added(dtype)
        if known is not None:
            return known
        zero, low = (Constant(np.asarray(v, dtype)) for v in (0.0, mask.low))
        made = op.where(mask.value, *((zero, low) if mask.inverted else (low, zero)))
        return self.shared((mask.value, mask.low, mask.inverted, dtype), made)

    def shared(self, key: tuple[object, ...], call: Call) -> Expr:
        """What a call gives, computed once for equal keys."""
        if key not in self.biases:
            self.biases[key] = self.emit(call)
        return self.biases[key]

    def without_scale(self, x: Expr, scale: float, alone: bool) -> tuple[Expr, float]:
        """Takes factors that are numbers off a value, below a reshape too."""
        view = None if alone else self.made_by(x, "reshape", alone=False)
        if view is not None:
            below, scaled = self.without_scale(view.args[0], scale, alone)
            if below is view.args[0]:
                return x, scale
            made = remake(view, [below, *view.args[1:]])
            bound = self.emit(made)
            assert isinstance(bound, Var), "a call is bound to a variable"
            self.calls[bound] = made
            return bound, scaled
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
        while (call := self.made_by(x, "permute_dims", "reshape", alone=False)) is not None:
            if call.op_name == "relax.reshape":
                below_both = self.swapped_flat(call)
                if below_both is None:
                    break
                x, layout = below_both, layout[:2] + layout[3] + layout[2]
                continue
            axes = call.attrs["axes"]
            axes = tuple(reversed(range(4))) if axes is None else tuple(a % 4 for a in axes)
            below = [""] * 4
            for position, axis in enumerate(axes):
                below[axis] = layout[position]
            x, layout = call.args[0], "".join(below)
        return _Operand(x, layout)

    def repeated(self, x: _Operand) -> tuple[Expr, int] | None:
        """(the heads of which an operand has each several times in a row, how often)."""
        flat = self.made_by(x.value, "reshape", alone=False) if self.shares_heads else None
        wide = None if flat is None else self.made_by(flat.args[0], "broadcast_to", alone=False)
        apart = None if wide is None else self.made_by(wide.args[0], "reshape", "expand_dims", alone=False)
        if wide is None or apart is None or not _is_known(apart.args[0]):
            return None
        at, few, found = x.layout.index("H"), apart.args[0], _shape(wide)
        own, count = _shape(few), const_int(found[at + 1]) if len(found) == 5 else None
        if count is None or len(own) != 4:
            return None
        head, rest = own[: at + 1], own[at + 1 :]
        fits = (
            same_dims(_shape(apart), (*head, 1, *rest))
            and same_dims(found, (*head, count, *rest))
            and same_dims(_shape(x.value), (*own[:at], own[at] * count, *rest))
        )
        return (few, count) if fits else None

    def swapped_flat(self, call: Call) -> Expr | None:
        """The y of [B, H, S, D] whose last two dimensions are swapped as [B * H, S, D], where the call ends that."""
        swap = self.made_by(call.args[0], "permute_dims", alone=False)
        flat = None if swap is None else self.made_by(swap.args[0], "reshape", alone=False)
        if swap is None or flat is None or _ndim(swap) != 3 or swap.attrs["axes"] is None:
            return None
        y = flat.args[0]
        if tuple(a % 3 for a in swap.attrs["axes"]) != (0, 2, 1) or not _is_known(y) or _ndim(y) != 4:
            return None
        b, h, s, d = _shape(y)
        return y if same_dims(_shape(flat), (b * h, s, d)) and same_dims(_shape(call), (b, h, d, s)) else None

    def absorbed(self, call: Call) -> Expr:
        """A permutation of an attention's result becomes its layout."""
        attention = self.call_of(call.args[0])
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


def _is_known(x: Expr) -> bool:
    """Whether the shape is known, in symbols at least."""
    return isinstance(x.struct_info, TensorStructInfo) and x.struct_info.shape is not None


def _shape(x: Expr) -> tuple[Dim, ...]:
    """Extents: numbers, or expressions of symbols."""
    return _info(x).dims


def _ndim(x: Expr) -> int:
    return _info(x).ndim


def _number(x: Expr) -> float | None:
    return float(x.data.reshape(-1)[0]) if isinstance(x, Constant) and x.data.size == 1 else None


def _broadcasts(mask: Expr, scores: Expr) -> bool:
    """Whether a mask broadcasts to the scores' shape without enlarging it."""
    if not (_is_known(mask) and _is_known(scores)):
        return False
    own, full = _shape(mask), _shape(scores)
    pairs = zip(reversed(own), reversed(full), strict=False)
    return len(own) <= len(full) and all(const_int(a) == 1 or same_dims((a,), (b,)) for a, b in pairs)


def fuse_attention(module: IRModule, shares_heads: bool = False) -> IRModule:
    """Replace matmul, softmax, matmul by `nn.attention`, with scale, mask and transpositions taken in.

    shares_heads  read keys and values of heads that were repeated as they were before
    """
    return map_functions(module, lambda function: _Fuser(function, shares_heads).rewrite(function))


def FuseAttention(shares_heads: bool = False) -> Pass:  # noqa: N802
    """See `fuse_attention`."""
    return graph_pass("FuseAttention")(lambda module: fuse_attention(module, shares_heads))

"""Attention between quantisers becomes one operator, of which no score is written to memory.

Before:  s = quantise(matmul(dequantise(q), dequantise(k))); p = quantise(softmax(dequantise(s) / c + mask))
         y = matmul(dequantise(p), dequantise(v))
After:   y = attention_bytes(q - zero, k - zero, v - zero, mask) * (scale of p * scale of v)

Bytes less a zero point are whole numbers of bfloat16, whose products tile registers sum up exactly in float32; what
happens between the products is computed as the model states it, element by element.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import Call, Constant, Expr, Function, Var
from autosched.relax.op.products import keeps_dtype
from autosched.relax.rewrite import map_functions, users
from autosched.relax.struct_info import TensorStructInfo
from autosched.relax.transform.narrow_products import NARROW, Attends
from autosched.relax.transform.quantised import QuantisedRewriter, Scale
from autosched.runtime.bfloat16 import know_dtype
from autosched.topi.attention_bytes import Change

MOST_EXACT = 2**24  # of a sum of whole numbers in float32
LARGEST = 255  # a byte less a zero point


@dataclass(frozen=True)
class _Operand:
    """Bytes with their scale, and the order of their dimensions."""

    value: Expr
    by: Scale
    layout: str

    @property
    def sizes(self) -> dict[str, int]:
        info = self.value.struct_info
        assert isinstance(info, TensorStructInfo), "bytes are a tensor's"
        return dict(zip(self.layout, info.static_shape, strict=True))


class _Fuser(QuantisedRewriter):
    def __init__(self, function: Function, attends: Attends):
        super().__init__()
        self.attends = attends
        readers = users(function)
        self.single = {v for v, who in readers.items() if len(who) == 1 and who[0] is not None}

    def call(self, call: Call, var: Var) -> Expr:
        return (self.attention(call) if call.op_name == "relax.matmul" else None) or call

    def attention(self, product: Call) -> Call | None:
        """The operator that a product with quantised weights is; None for any other product."""
        shares = self.dequantised(product.args[0])
        if shares is None or not keeps_dtype(product) or _rank(product.args[1]) != 4:
            return None
        made = self.call_of(shares[0])
        quantiser = None if made is None else self.quantiser(made)
        softmax = None if quantiser is None or quantiser[1] != shares[1] else self.call_of(quantiser[0])
        if softmax is None or softmax.op_name != "relax.nn.softmax" or softmax.attrs["axis"] not in (-1, 3):
            return None
        found = self.changes(softmax.args[0])
        if found is None:
            return None
        scores, changes, bias = found
        q, k, v = (
            self.operand(x, layout)
            for x, layout in ((scores.args[0], "BHSD"), (scores.args[1], "BHDS"), (product.args[1], "BHSD"))
        )
        if q is None or k is None or v is None or not self.is_exact(q, k, v, shares[1]):
            return None
        first: Change = ("multiply", float(np.float32(q.by.scale) * np.float32(k.by.scale)))
        layouts = (q.layout, k.layout, v.layout, "BHSD")
        weights = shares[1].scale, shares[1].zero, shares[1].dtype
        know_dtype(NARROW)
        query, key, value = (self.emit(self.centred(x)) for x in (q, k, v))
        whole = op.nn.attention_bytes(query, key, value, bias, (first, *changes), weights, layouts)
        scale = np.float32(shares[1].scale) * np.float32(v.by.scale)
        result: Call = op.multiply(self.emit(whole), Constant(np.array(scale, np.float32)))
        return result

    def is_exact(self, q: _Operand, k: _Operand, v: _Operand, shares: Scale) -> bool:
        """Whether heads belong to each other, are worth it, and no sum leaves what float32 holds exactly."""
        rows, columns, values = q.sizes, k.sizes, v.sizes
        fit = all(rows[a] == columns[a] == values[a] for a in "BH") and columns["S"] == values["S"]
        # shares add up to 1, and each is rounded by half a step at most
        most = LARGEST * (1 / shares.scale + columns["S"] / 2)
        exact = max(LARGEST * LARGEST * rows["D"], most) < MOST_EXACT
        return fit and exact and self.attends(rows["S"], columns["S"])

    def changes(self, x: Expr) -> tuple[Call, list[Change], Expr | None] | None:
        """(the product of query and key, what happens to it, in order, what is added)."""
        found: list[Change] = []
        bias: Expr | None = None
        while True:
            call = self.call_of(x) if x in self.single else None
            if call is None:
                return None
            if call.op_name == "relax.matmul":
                known = keeps_dtype(call) and _rank(call.args[0]) == 4 == _rank(call.args[1])
                return (call, found[::-1], bias) if known else None
            byte = self.dequantised(x)
            quantiser = None if byte is None or (made := self.call_of(byte[0])) is None else self.quantiser(made)
            if byte is not None and quantiser is not None:
                by, again = quantiser[1], byte[1]
                if (by.zero, by.dtype) != (again.zero, again.dtype):
                    return None
                found.append(("quantise", by.scale, by.zero, by.dtype, again.scale))
                x = quantiser[0]
            elif call.op_name in ("relax.multiply", "relax.divide") and (n := self.number(call.args[1])):
                found.append((call.op_name.removeprefix("relax."), float(np.float32(n))))
                x = call.args[0]
            elif call.op_name == "relax.add" and bias is None:
                scores, bias = call.args if self.is_product(call.args[0]) else call.args[::-1]
                if not _spreads(bias, scores):
                    return None
                found.append(("add",))
                x = scores
            else:
                return None

    def is_product(self, x: Expr) -> bool:
        """Whether a value is made of a product, and not what is added to it."""
        info = x.struct_info
        return x in self.single and isinstance(info, TensorStructInfo) and self.dequantised(x) is not None

    def operand(self, x: Expr, layout: str) -> _Operand | None:
        """A factor as bytes, below permutations."""
        found = self.dequantised(x)
        if found is None:
            return None
        value: Expr = found[0]
        while (call := self.call_of(value)) is not None and call.op_name == "relax.permute_dims":
            axes = call.attrs["axes"]
            axes = tuple(reversed(range(4))) if axes is None else tuple(a % 4 for a in axes)
            below = [""] * 4
            for position, axis in enumerate(axes):
                below[axis] = layout[position]
            value, layout = call.args[0], "".join(below)
        info = value.struct_info
        if not isinstance(info, TensorStructInfo) or not info.is_static or info.ndim != 4:
            return None
        return _Operand(value, found[1], layout)

    def centred(self, x: _Operand) -> Expr:
        """Bytes less the zero point in bfloat16."""
        whole = self.emit(op.astype(x.value, "int32"))
        if x.by.zero:
            whole = self.emit(op.subtract(whole, Constant(np.array(x.by.zero, "int32"))))
        return op.astype(self.emit(op.astype(whole, "float32")), NARROW)


def _rank(x: Expr) -> int:
    return x.struct_info.ndim if isinstance(x.struct_info, TensorStructInfo) else -1


def _spreads(bias: Expr, scores: Expr) -> bool:
    """Whether a bias of floats broadcasts to the scores without enlarging them."""
    own, full = bias.struct_info, scores.struct_info
    if not isinstance(own, TensorStructInfo) or not isinstance(full, TensorStructInfo):
        return False
    if not own.is_static or not full.is_static or own.dtype != "float32":
        return False
    pairs = zip(reversed(own.static_shape), reversed(full.static_shape), strict=False)
    return own.ndim <= full.ndim and all(a in (1, b) for a, b in pairs)


def fuse_byte_attention(module: IRModule, attends: Attends) -> IRModule:
    """See above. attends: (queries, keys) -> whether such an attention is faster on bfloat16."""
    return map_functions(module, lambda function: _Fuser(function, attends).rewrite(function))


def FuseByteAttention(attends: Attends) -> Pass:  # noqa: N802
    """See `fuse_byte_attention`."""
    return graph_pass("FuseByteAttention")(lambda module: fuse_byte_attention(module, attends))


__all__ = ["FuseByteAttention", "fuse_byte_attention"]

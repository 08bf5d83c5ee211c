"""Squares, whole parts, remainders, bits, and questions about numbers; element by element."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from autosched import te, topi
from autosched.errors import InvalidTypeError
from autosched.relax.op.registry import OpDef, define_op, sample
from autosched.relax.op.types import broadcast, broadcast_dims, common_dtype, float_same, same, tensor
from autosched.relax.struct_info import StructInfo, TensorStructInfo
from autosched.tir import expr as E
from autosched.tir.expr import PrimExpr
from autosched.topi.broadcast import elementwise as broadcast_with
from autosched.topi.unary import elementwise

INTS = (((3, 5), "int32"), ((1, 5), "int32"))
SHORT = (((4,), "int64"), ((4,), "int64"))


def _bits(op: str) -> Callable[..., PrimExpr]:
    return lambda *values: E.Call(op, values, values[0].dtype)


def _whole(x: StructInfo, *_: StructInfo) -> TensorStructInfo:
    t = tensor(x)
    if not t.dtype.startswith(("int", "uint", "bool")):
        raise InvalidTypeError(f"needs integers, got {t.dtype}")
    return t


def _whole_pair(x1: StructInfo, x2: StructInfo) -> TensorStructInfo:
    _whole(x1)
    return broadcast(x1, x2)


def _truth(x: StructInfo) -> TensorStructInfo:
    return TensorStructInfo(float_same(x).shape, "bool")


def _unary(
    name: str,
    scalar: Callable[..., PrimExpr],
    reference: Callable[..., object],
    infer: Callable[..., StructInfo] = same,
    samples: Sequence[Sequence[object]] = ((3, 5), (1,)),
) -> OpDef:
    return define_op(
        name, infer_type=infer, compute=lambda x: elementwise(x, scalar), reference=reference,
        samples=[sample(s) for s in samples],
    )  # fmt: skip


def _binary(
    name: str,
    scalar: Callable[..., PrimExpr],
    reference: Callable[..., object],
    infer: Callable[..., StructInfo],
    samples: Sequence[Sequence[object]],
    low: float = 0,
    high: float = 9,
) -> OpDef:
    return define_op(
        name, inputs=("x1", "x2"), infer_type=infer,
        compute=lambda x1, x2: broadcast_with(scalar, f"T_{name}", x1, x2), reference=reference,
        samples=[sample(*s, low=low, high=high) for s in samples],
    )  # fmt: skip


square = _unary("square", lambda v: v * v, np.square)
trunc = _unary("trunc", te.trunc, np.trunc, float_same)
isnan = _unary("isnan", te.isnan, np.isnan, _truth)
isinf = _unary("isinf", te.isinf, np.isinf, _truth)
isfinite = _unary("isfinite", te.isfinite, np.isfinite, _truth)
bitwise_not = _unary("bitwise_not", _bits("bitwise_not"), np.invert, _whole, [((4,), "int32")])
relu6 = _unary(
    "nn.relu6", lambda v: E.minimum(E.maximum(v, E.const(0, v.dtype)), E.const(6, v.dtype)),
    lambda x: np.clip(x, 0, 6).astype(x.dtype),
)  # fmt: skip


def _log_add_exp(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """log(exp(a) + exp(b)): of two equal numbers, infinities too, it is a + log(2)."""
    largest, difference = E.maximum(a, b), a - b
    larger = largest + te.log(te.const(1, a.dtype) + te.exp(te.const(0, a.dtype) - te.abs(difference)))
    return E.select(E.compare(E.EQ, a, b), a + te.const(math.log(2), a.dtype), larger)


FLOATS = (((3, 5), (3, 5)), ((2, 1), (1, 3)))
floor_mod = _binary("floor_mod", te.floormod, np.mod, broadcast, (*FLOATS, INTS), 1, 9)
mod = _binary("mod", te.truncmod, np.fmod, broadcast, (*FLOATS, INTS), 1, 9)
log_add_exp = _binary(
    "log_add_exp", _log_add_exp, np.logaddexp, lambda a, b: broadcast(float_same(a), b), FLOATS, -2, 2,
)  # fmt: skip
bitwise_and = _binary("bitwise_and", _bits("bitwise_and"), np.bitwise_and, _whole_pair, (INTS, SHORT))
bitwise_or = _binary("bitwise_or", _bits("bitwise_or"), np.bitwise_or, _whole_pair, (INTS, SHORT))
bitwise_xor = _binary("bitwise_xor", _bits("bitwise_xor"), np.bitwise_xor, _whole_pair, (INTS, SHORT))
left_shift = _binary("left_shift", _bits("shift_left"), np.left_shift, _whole_pair, (INTS, SHORT))
right_shift = _binary("right_shift", _bits("shift_right"), np.right_shift, _whole_pair, (INTS, SHORT))
logical_xor = _binary(
    "logical_xor", lambda a, b: E.compare(E.NE, a, b), np.logical_xor, broadcast, [(((3, 4), "bool"), ((4,), "bool"))]
)


def _fma_type(x1: StructInfo, x2: StructInfo, x3: StructInfo) -> TensorStructInfo:
    ts = tensor(x1), tensor(x2), tensor(x3)
    return TensorStructInfo(broadcast_dims(*(t.dims for t in ts)), common_dtype(*ts))


ewise_fma = define_op(
    "ewise_fma", inputs=("x1", "x2", "x3"), infer_type=_fma_type,
    compute=lambda a, b, c: topi.add(topi.multiply(a, b), c), reference=lambda a, b, c: a * b + c,
    samples=[sample((3, 4), (3, 4), (3, 4))],
)  # fmt: skip

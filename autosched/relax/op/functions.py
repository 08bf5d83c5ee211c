"""Logarithms, exponentials, angles and floors of quotients, by the functions of the C library."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from autosched import te
from autosched.relax.op.conv2d import Array
from autosched.relax.op.registry import OpDef, define_op, sample
from autosched.relax.op.types import broadcast, float_same
from autosched.relax.struct_info import StructInfo, TensorStructInfo
from autosched.tir import expr as E
from autosched.tir.expr import PrimExpr
from autosched.topi.broadcast import elementwise as broadcast_with
from autosched.topi.unary import elementwise

PAIRS = (((3, 5), (3, 5)), ((2, 1), (1, 3)))


def _function(name: str, reference: Callable[..., object], low: float, high: float) -> OpDef:
    return define_op(
        name, infer_type=float_same, compute=lambda x: elementwise(x, lambda v: E.call(name, v)), reference=reference,
        samples=[sample(s, low=low, high=high) for s in ((3, 5), (1,), ())],
    )  # fmt: skip


def _pair(
    name: str,
    scalar: Callable[..., PrimExpr],
    reference: Callable[..., object],
    infer: Callable[..., StructInfo],
    samples: Sequence[Sequence[object]],
    low: float,
) -> OpDef:
    return define_op(
        name, inputs=("x1", "x2"), infer_type=infer,
        compute=lambda x1, x2: broadcast_with(scalar, f"T_{name}", x1, x2), reference=reference,
        samples=[sample(*s, low=low, high=9) for s in samples],
    )  # fmt: skip


log1p = _function("log1p", np.log1p, -0.5, 4.0)
log2 = _function("log2", np.log2, 0.1, 4.0)
log10 = _function("log10", np.log10, 0.1, 4.0)
expm1 = _function("expm1", np.expm1, -2.0, 2.0)
exp2 = _function("exp2", np.exp2, -2.0, 2.0)


def _float_pair(x1: StructInfo, x2: StructInfo) -> TensorStructInfo:
    return broadcast(float_same(x1), x2)


atan2 = _pair("atan2", lambda a, b: E.call("atan2", a, b), np.arctan2, _float_pair, PAIRS, -2)


def _floor_quotient(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """The floor of the exact quotient of floats; `floor(a / b)` is one too many where a / b is rounded up."""
    zero, one, half = (E.const(v, a.dtype) for v in (0, 1, 0.5))
    rest = te.truncmod(a, b)
    quotient = (a - rest) / b
    signs_differ = E.compare(E.NE, E.compare(E.LT, rest, zero), E.compare(E.LT, b, zero))
    below = E.select(te.all(E.compare(E.NE, rest, zero), signs_differ), quotient - one, quotient)
    whole = te.floor(below)
    nearest = E.select(E.compare(E.GT, below - whole, half), whole + one, whole)
    return E.select(E.compare(E.EQ, b, zero), a / b, nearest)


def _floor_quotient_reference(a: Array, b: Array) -> Array:
    with np.errstate(all="ignore"):
        rest = np.fmod(a, b)
        below = (a - rest) / b - ((rest != 0) & ((rest < 0) != (b < 0)))
        whole = np.floor(below)
        found: Array = np.where(b == 0, a / b, whole + (below - whole > 0.5)).astype(a.dtype)
        return found


floor_quotient = _pair("floor_quotient", _floor_quotient, _floor_quotient_reference, _float_pair, PAIRS, 1)

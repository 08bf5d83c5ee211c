"""Angles and hyperbolic functions, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from autosched import te
from autosched.relax.op.registry import OpDef, define_op, sample
from autosched.relax.op.types import float_same
from autosched.topi.unary import elementwise

SHAPES = ((3, 5), (1,), ())


def _function(name: str, scalar: Any, reference: Any, low: float = -2.0, high: float = 2.0) -> OpDef:
    samples = [sample(s, low=low, high=high) for s in SHAPES]
    return define_op(
        name, infer_type=float_same, compute=lambda x: elementwise(x, scalar), reference=reference, samples=samples
    )


def _asinh(v: Any) -> Any:
    return te.log(v + te.sqrt(v * v + te.const(1, v.dtype)))


def _acosh(v: Any) -> Any:
    return te.log(v + te.sqrt(v * v - te.const(1, v.dtype)))


def _atanh(v: Any) -> Any:
    one = te.const(1, v.dtype)
    return te.log((one + v) / (one - v)) * te.const(0.5, v.dtype)


tan = _function("tan", te.tan, np.tan, -1.0, 1.0)
asin = _function("asin", te.asin, np.arcsin, -0.9, 0.9)
acos = _function("acos", te.acos, np.arccos, -0.9, 0.9)
atan = _function("atan", te.atan, np.arctan)
sinh = _function("sinh", te.sinh, np.sinh)
cosh = _function("cosh", te.cosh, np.cosh)
asinh = _function("asinh", _asinh, np.arcsinh, 0.0)
acosh = _function("acosh", _acosh, np.arccosh, 1.5, 4.0)
atanh = _function("atanh", _atanh, np.arctanh, -0.9, 0.9)

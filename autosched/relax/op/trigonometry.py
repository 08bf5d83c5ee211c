"""Angles and hyperbolic functions, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from autosched import te
from autosched.relax.op.registry import OpDef, define_op, sample
from autosched.relax.op.types import float_same
from autosched.tir import expr as E
from autosched.topi.unary import elementwise

SHAPES = ((3, 5), (1,), ())


def _function(name: str, scalar: Any, reference: Any, low: float = -2.0, high: float = 2.0) -> OpDef:
    samples = [sample(s, low=low, high=high) for s in SHAPES]
    return define_op(
        name, infer_type=float_same, compute=lambda x: elementwise(x, scalar), reference=reference, samples=samples
    )


def _library(name: str) -> Any:
    """The C library's function: formulas with logarithms lose digits near 0 and overflow for large numbers."""
    return lambda v: E.call(name, v)


tan = _function("tan", te.tan, np.tan, -1.0, 1.0)
asin = _function("asin", te.asin, np.arcsin, -0.9, 0.9)
acos = _function("acos", te.acos, np.arccos, -0.9, 0.9)
atan = _function("atan", te.atan, np.arctan)
sinh = _function("sinh", te.sinh, np.sinh)
cosh = _function("cosh", te.cosh, np.cosh)
asinh = _function("asinh", _library("asinh"), np.arcsinh, -9.0, 9.0)
acosh = _function("acosh", _library("acosh"), np.arccosh, 1.5, 4.0)
atanh = _function("atanh", _library("atanh"), np.arctanh, -0.9, 0.9)

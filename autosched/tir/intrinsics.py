"""What the named functions of expressions compute, in NumPy: on scalars and arrays alike, keeping the dtype."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = Any  # np.ndarray or a number: NumPy's stubs type most results as Any


def _like(result: object, x: object) -> Array:
    dtype = getattr(x, "dtype", np.dtype(np.float64))
    return np.asarray(result, dtype=dtype)[()]


_erf = np.frompyfunc(math.erf, 1, 1)
_erfc = np.frompyfunc(math.erfc, 1, 1)


def _of_gamma(x: float) -> float:
    return math.inf if -math.inf < x <= 0 and float(x).is_integer() else math.lgamma(x)


_log_gamma = np.frompyfunc(_of_gamma, 1, 1)


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), without overflow for large negative x."""
    e = np.exp(-np.abs(x))
    return _like(np.where(x >= 0, 1 / (1 + e), e / (1 + e)), x)


def dot_bytes(total: Array, unsigned: Array, signed: Array) -> Array:
    """A sum with the products of four unsigned bytes in a word and four signed ones."""
    for shift in (0, 8, 16, 24):
        x, y = (np.asarray(word, np.int64) >> shift & 255 for word in (unsigned, signed))
        total = total + x * ((y ^ 128) - 128)
    return np.asarray(total).astype(np.int32)[()]


NUMPY: dict[str, Callable[..., Array]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10,
    "log1p": np.log1p,
    "sqrt": np.sqrt, "tanh": np.tanh, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.round, "nearbyint": np.rint,
    "fabs": np.abs, "abs": np.abs, "pow": np.power, "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite,
    "atan2": np.arctan2, "hypot": np.hypot, "copysign": np.copysign, "fmod": np.fmod,
    "exp10": lambda x: _like(np.power(10.0, x), x),
    "rsqrt": lambda x: _like(1 / np.sqrt(x), x),
    "sigmoid": sigmoid,
    "erf": lambda x: _like(_erf(x), x),
    "normcdf": lambda x: _like(0.5 * np.asarray(_erfc(np.asarray(x) * -math.sqrt(0.5)), np.float64), x),
    "erfc": lambda x: _like(_erfc(x), x),
    "lgamma": lambda x: _like(_log_gamma(x), x),
    "fma": lambda a, b, c: _like(np.float64(a) * np.float64(b) + c, c),
    "likely": lambda x: x, "dot_bytes": dot_bytes,
    "bitwise_and": lambda a, b: a & b, "bitwise_or": lambda a, b: a | b, "bitwise_xor": lambda a, b: a ^ b,
    "bitwise_not": lambda a: ~a, "shift_left": lambda a, b: a << b, "shift_right": lambda a, b: a >> b,
}  # fmt: skip

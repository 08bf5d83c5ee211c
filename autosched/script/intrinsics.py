"""What printer and parser both know: the dtypes, and whose dtype the result of an intrinsic has."""

from __future__ import annotations

from collections.abc import Mapping

DTYPES = (
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
    "bfloat16", "bool",
)  # fmt: skip

_LIKE_FIRST = (
    "exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "floor", "ceil", "round", "trunc", "nearbyint", "sin",
    "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "exp2", "exp10", "log2", "log10",
    "log1p", "normcdf", "fabs", "abs", "pow", "fma", "fmod", "atan2", "hypot", "copysign", "nextafter", "popcount",
    "likely",
    "shift_left", "shift_right", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not",
)  # fmt: skip

# the position of the argument whose dtype the result has; -1: the result is bool. Others name their dtype in the text
RESULT_LIKE: Mapping[str, int] = {
    **dict.fromkeys(_LIKE_FIRST, 0), "if_then_else": 1, "isnan": -1, "isinf": -1, "isfinite": -1,
}  # fmt: skip

"""Element-wise operators of one tensor."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from autosched import te, topi
from autosched.relax.op.registry import OpDef, define_op, sample
from autosched.relax.op.types import float_same, same, tensor
from autosched.relax.struct_info import StructInfo, TensorStructInfo
from autosched.te import Tensor
from autosched.tir import expr as E
from autosched.tir.dtypes import check_dtype
from autosched.tir.expr import PrimExpr
from autosched.topi import unary
from autosched.topi.unary import elementwise

SHAPES = ((3, 5), (1,), ())
_c_erf = np.frompyfunc(math.erf, 1, 1)


def _np_erf(x: object) -> np.ndarray:
    """The error function, in the argument's dtype; SciPy's where it is installed, else the C library's, slowly."""
    array = np.asarray(x)
    try:
        from scipy.special import erf as fast
    except ImportError:
        return np.asarray(_c_erf(array), dtype=np.float64).astype(array.dtype)
    return np.asarray(fast(array), dtype=array.dtype)


def _float(
    name: str,
    compute: Callable[..., Tensor],
    reference: Callable[..., object],
    low: float = -2.0,
    high: float = 2.0,
) -> OpDef:
    samples = [sample(s, low=low, high=high) for s in SHAPES]
    return define_op(name, infer_type=float_same, compute=compute, reference=reference, samples=samples)


exp = _float("exp", topi.exp, np.exp)
log = _float("log", topi.log, np.log, low=0.1)
sqrt = _float("sqrt", topi.sqrt, np.sqrt, low=0.1)
rsqrt = _float("rsqrt", topi.rsqrt, lambda x: 1 / np.sqrt(x), low=0.1)
erf = _float("erf", topi.erf, _np_erf)
tanh = _float("tanh", topi.tanh, np.tanh)
sigmoid = _float("sigmoid", topi.sigmoid, lambda x: 1 / (1 + np.exp(-x)))
sin = _float("sin", topi.sin, np.sin)
cos = _float("cos", topi.cos, np.cos)
floor = _float("floor", topi.floor, np.floor)
ceil = _float("ceil", topi.ceil, np.ceil)
round = _float("round", topi.round, np.rint)  # noqa: A001

abs = define_op(  # noqa: A001
    "abs", infer_type=same, compute=topi.abs, reference=np.abs, samples=[sample((3, 5)), sample(((4,), "int32"))]
)
negative = define_op(
    "negative",
    infer_type=same,
    compute=topi.negative,
    reference=np.negative,
    samples=[sample((3, 5)), sample(((4,), "int32"))],
)
sign = define_op("sign", infer_type=same, compute=topi.sign, reference=np.sign, samples=[sample((3, 5))])
identity = define_op(
    "identity", infer_type=same, compute=topi.identity, reference=lambda x: x, samples=[sample((3, 5))], is_view=True
)
logical_not = define_op(
    "logical_not",
    infer_type=same,
    compute=topi.logical_not,
    reference=np.logical_not,
    samples=[sample(((3, 5), "bool"))],
)

clip = define_op(
    "clip",
    attributes={"min": 0.0, "max": 6.0},
    infer_type=same,
    compute=unary.clip,
    reference=lambda x, min, max: np.clip(x, np.asarray(min, x.dtype), np.asarray(max, x.dtype)),
    samples=[sample((3, 5), min=-0.5, max=1.0), sample((4,), min=0.0, max=6.0)],
)


def _cast_type(x: StructInfo, dtype: str) -> TensorStructInfo:
    t = tensor(x)
    return TensorStructInfo(t.shape, check_dtype(dtype, "dtype"), t.ndim)


astype = define_op(
    "astype",
    attributes={"dtype": "float32"},
    infer_type=_cast_type,
    compute=topi.cast,
    legal_name="cast",
    reference=lambda x, dtype: x.astype(dtype),
    samples=[sample((3, 5), dtype="int32"), sample(((4,), "int64"), dtype="float32"), sample((4,), dtype="bool")],
)

relu = define_op(
    "nn.relu",
    infer_type=same,
    compute=topi.relu,
    reference=lambda x: np.maximum(x, 0),
    samples=[sample((3, 5)), sample((1,))],
)
leakyrelu = define_op(
    "nn.leakyrelu",
    attributes={"alpha": 0.01},
    infer_type=float_same,
    compute=topi.leaky_relu,
    legal_name="leaky_relu",
    reference=lambda x, alpha: np.where(x > 0, x, x * np.asarray(alpha, x.dtype)),
    samples=[sample((3, 5), alpha=0.1)],
)
gelu = _float(
    "nn.gelu", topi.gelu, lambda x: x * (_np_erf(x * np.asarray(0.5**0.5, x.dtype)) * 0.5 + 0.5).astype(x.dtype)
)
gelu_tanh = _float(
    "nn.gelu_tanh",
    topi.gelu_tanh,
    lambda x: (
        0.5
        * x
        * (1 + np.tanh(np.asarray((2 / np.pi) ** 0.5, x.dtype) * (x + np.asarray(0.044715, x.dtype) * x * x * x)))
    ),
)
silu = _float("nn.silu", topi.silu, lambda x: x / (1 + np.exp(-x)))
hard_sigmoid = define_op(
    "nn.hard_sigmoid",
    attributes={"alpha": 0.2, "beta": 0.5},
    infer_type=float_same,
    compute=topi.hard_sigmoid,
    reference=lambda x, alpha, beta: np.clip(x * np.asarray(alpha, x.dtype) + np.asarray(beta, x.dtype), 0, 1),
    samples=[sample((3, 5), low=-4.0, high=4.0)],
)


def _of_each(scalar: Callable[..., PrimExpr]) -> Callable[[Tensor], Tensor]:
    """The compute of a scalar function on each element."""
    return lambda x: elementwise(x, scalar)


def _library(name: str) -> Callable[[Tensor], Tensor]:
    """The C library's function: formulas with logarithms lose digits near 0 and overflow for large numbers."""
    return _of_each(lambda v: E.call(name, v))


tan = _float("tan", _of_each(te.tan), np.tan, -1.0, 1.0)
asin = _float("asin", _of_each(te.asin), np.arcsin, -0.9, 0.9)
acos = _float("acos", _of_each(te.acos), np.arccos, -0.9, 0.9)
atan = _float("atan", _of_each(te.atan), np.arctan)
sinh = _float("sinh", _of_each(te.sinh), np.sinh)
cosh = _float("cosh", _of_each(te.cosh), np.cosh)
asinh = _float("asinh", _library("asinh"), np.arcsinh, -9.0, 9.0)
acosh = _float("acosh", _library("acosh"), np.arccosh, 1.5, 4.0)
atanh = _float("atanh", _library("atanh"), np.arctanh, -0.9, 0.9)

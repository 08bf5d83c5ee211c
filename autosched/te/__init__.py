"""Tensor expressions: say what each element is; `create_prim_func` makes the loops."""

from autosched.lazy_names import lazy_names
from autosched.te.build import (
    comm_reducer, compute, max, max_value, min, min_value, placeholder, prod, reduce_axis, size_var, sum, tag_scope,
    var,
)  # fmt: skip
from autosched.te.extern import ExternOp, extern, extern_primfunc
from autosched.te.math import (
    abs, acos, acosh, asin, asinh, atan, atanh, ceil, ceildiv, cos, cosh, erf, exp, exp10, exp2, floor, fma, fmod,
    isfinite, isinf, isnan, log, log10, log1p, log2, logaddexp, nearbyint, normcdf, pow, power, round, rsqrt,
    sigmoid, sin, sinh, sqrt, tan, tanh, trunc,
)  # fmt: skip
from autosched.te.prim_func import create_prim_func
from autosched.te.scan import ScanOp, scan
from autosched.te.schedule import Schedule, create_schedule
from autosched.te.stage import Stage, thread_axis
from autosched.te.stage_loops import to_prim_func
from autosched.te.tensor_intrin import TensorIntrin, decl_tensor_intrin
from autosched.te.tensor import ComputeOp, Operation, PlaceholderOp, Tensor, TensorSlice
from autosched.tir.expr import (
    all_of as all, any_of as any, const, floordiv, floormod, if_then_else, indexdiv, indexmod, truncdiv, truncmod,
)  # fmt: skip
from autosched.tir.index_map import IndexMap

AXIS_SEPARATOR = IndexMap.AXIS_SEPARATOR  # among the indices of Stage.transform_layout

__getattr__, __dir__ = lazy_names(__name__)

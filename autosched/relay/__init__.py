"""TVM's Relay, as far as it takes to write, import, build and run a model: a builder over relax."""

from autosched.lazy_names import lazy_names
from autosched.ir import GlobalVar, IRModule
from autosched.relay import op
from autosched.relay.build_module import bind_params_by_name, build, create_executor, optimize
from autosched.relay.expr import (
    Branch, Call as RelaxCall, Constant, Expr, Function, Let, TensorType, Tuple as RelaxTuple, TupleGetItem, TupleType,
    TupleWrapper, Var, call, const, free_vars, from_expr, scalar_type, var,
)  # fmt: skip
from autosched.relay.functor import ExprFunctor, ExprMutator, ExprVisitor
from autosched.relay.op import image, nn
from autosched.relay.op.create import (
    arange, full, full_like, ndarray_size, ones, ones_like, shape_of, zeros, zeros_like,
)  # fmt: skip
from autosched.relay.op.elementwise import (
    abs, acos, acosh, add, asin, asinh, atan, atanh, bitwise_and, bitwise_not, bitwise_or, bitwise_xor, cast, ceil,
    clip, copy, cos, cosh, divide, equal, erf, exp, floor, floor_divide, floor_mod, greater, greater_equal,
    identity, isfinite, isinf, isnan, left_shift, less, less_equal, log, log10, log2, logical_and, logical_not,
    logical_or, logical_xor, maximum, minimum, mod, multiply, negative, not_equal, power, right_shift, round, rsqrt,
    sigmoid, sign, sin, sinh, sqrt, subtract, tan, tanh, trunc, where,
)  # fmt: skip
from autosched.relay.op.manipulate import (
    broadcast_to, broadcast_to_like, concatenate, expand_dims, flip, layout_transform, repeat, reshape,
    reshape_like, reverse, split, squeeze, stack, strided_slice, tile, transpose, trilu,
)  # fmt: skip
from autosched.relay.op.reduce import (
    all, any, argmax, argmin, collapse_sum_like, collapse_sum_to, cumprod, cumsum, max, mean, mean_std,
    mean_variance, min, prod, std, sum, variance,
)  # fmt: skip
from autosched.relay.op.select import argsort, gather, gather_nd, one_hot, scatter, scatter_elements, sort, take, topk
from autosched.relay.parser import fromtext, parse, parse_expr
from autosched.relay.types import Any_ as Any, If, ScopeBuilder, Tuple
from autosched.runtime import load_param_dict, save_param_dict

Call = call
__getattr__, __dir__ = lazy_names(__name__)

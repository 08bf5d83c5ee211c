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
from autosched.relay.op.more import (
    acos, acosh, all, any, argsort, asin, asinh, atan, atanh, bitwise_and, bitwise_not, bitwise_or, bitwise_xor,
    broadcast_to_like, collapse_sum_like, collapse_sum_to, cosh, cumprod, cumsum, flip, floor_mod, gather,
    gather_nd, isfinite, isinf, isnan, left_shift, log10, log2, logical_xor, mean_std, mean_variance, mod,
    one_hot, reshape_like, right_shift, scatter, scatter_elements, sinh, sort, std, tan, topk, trilu, trunc,
)  # fmt: skip
from autosched.relay.op.tensor import (
    abs, add, arange, argmax, argmin, broadcast_to, cast, ceil, clip, concatenate, copy, cos, divide, equal, erf, exp,
    expand_dims, floor, floor_divide, full, full_like, greater, greater_equal, identity, layout_transform, less,
    less_equal, log, logical_and, logical_not, logical_or, max, maximum, mean, min, minimum, multiply, ndarray_size,
    negative, not_equal, ones, ones_like, power, prod, repeat, reshape, reverse, round, rsqrt, shape_of, sigmoid, sign,
    sin, split, sqrt, squeeze, stack, strided_slice, subtract, sum, take, tanh, tile, transpose, variance, where, zeros,
    zeros_like,
)  # fmt: skip
from autosched.relay.parser import fromtext, parse, parse_expr
from autosched.relay.types import Any_ as Any, If, ScopeBuilder, Tuple
from autosched.runtime import load_param_dict, save_param_dict

Call = call
__getattr__, __dir__ = lazy_names(__name__)

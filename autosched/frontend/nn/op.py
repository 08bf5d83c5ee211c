"""Operators on tensors of a model, with the signatures of TVM's `relax.frontend.nn.op`.

Each binds its result under the operator's name; numbers beside tensors become constants of the tensor's dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autosched.errors import InvalidTypeError, InvalidValueError
from autosched.frontend.nn.core import Tensor, unwrap, wrap_nested
from autosched.relax import op as R
from autosched.relax.block_builder import BlockBuilder
from autosched.relax.expr import Constant, Expr, ShapeExpr, Tuple
from autosched.relax.op.registry import get_op
from autosched.tir.expr import PrimExpr

__all__ = [
    "abs", "add", "arange", "argmax", "argmin", "argsort", "astype", "broadcast_to", "ceil", "chunk", "clip",
    "concat", "conv1d", "conv1d_transpose", "conv2d", "conv3d", "cos", "cumsum", "divide", "empty", "equal", "erf",
    "exp", "floor", "full", "gelu", "greater", "greater_equal", "group_norm", "interpolate", "layer_norm", "less",
    "less_equal", "log", "matmul", "max", "maximum", "mean", "min", "minimum", "multiply", "negative", "not_equal",
    "ones", "pad", "permute", "permute_dims", "prelu", "relu", "relu6", "repeat", "reshape", "rms_norm",
    "scaled_dot_product_attention", "sigmoid", "silu", "sin", "softmax", "softplus", "sort", "split", "sqrt",
    "square", "squeeze", "stack", "subtract", "sum", "take", "tanh", "tensor_expr_op", "tensor_ir_op", "topk",
    "tril", "triu", "unsqueeze", "where", "wrap_nested", "zeros",
]  # fmt: skip


def _pair(a: Any, b: Any) -> tuple[Any, Any]:
    tensor = a if isinstance(a, Tensor) else b
    if not isinstance(tensor, Tensor):
        raise InvalidTypeError("one of the operands must be a Tensor")
    return tuple(x._expr if isinstance(x, Tensor) else Constant(np.asarray(x, tensor.dtype)) for x in (a, b))  # type: ignore[return-value]


def _binary(definition: Any, default: str) -> Callable[..., Tensor]:
    def function(a: Any, b: Any, name: str = default) -> Tensor:
        return wrap_nested(definition(*_pair(a, b)), name)  # type: ignore[no-any-return]

    function.__name__, function.__doc__ = default, f"{default} of two tensors, or of a tensor and a number."
    return function


def _unary(definition: Any, default: str) -> Callable[..., Tensor]:
    def function(x: Tensor, name: str = default) -> Tensor:
        return wrap_nested(definition(_tensor(x, default)), name)  # type: ignore[no-any-return]

    function.__name__, function.__doc__ = default, f"{default}, element by element."
    return function


def _tensor(x: Any, where: str) -> Expr:
    if not isinstance(x, Tensor):
        raise InvalidTypeError(f"{where} takes a Tensor, not a {type(x).__name__}")
    return x._expr


add = _binary(R.add, "add")
subtract = _binary(R.subtract, "subtract")
multiply = _binary(R.multiply, "mul")
divide = _binary(R.divide, "divide")
maximum = _binary(R.maximum, "maximum")
minimum = _binary(R.minimum, "minimum")
equal = _binary(R.equal, "equal")
not_equal = _binary(R.not_equal, "not_equal")
less = _binary(R.less, "less")
less_equal = _binary(R.less_equal, "less_equal")
greater = _binary(R.greater, "greater")
greater_equal = _binary(R.greater_equal, "greater_equal")

relu = _unary(R.nn.relu, "relu")
silu = _unary(R.nn.silu, "silu")
sigmoid = _unary(R.sigmoid, "sigmoid")
tanh = _unary(R.tanh, "tanh")
exp = _unary(R.exp, "exp")
log = _unary(R.log, "log")
sin = _unary(R.sin, "sin")
cos = _unary(R.cos, "cos")
abs = _unary(R.abs, "abs")
ceil = _unary(R.ceil, "ceil")
floor = _unary(R.floor, "floor")
negative = _unary(R.negative, "neg")
sqrt = _unary(R.sqrt, "sqrt")
erf = _unary(R.erf, "erf")


def tril(x: Tensor, diagonal: int = 0, name: str = "tril") -> Tensor:
    """The lower triangle, zeros elsewhere."""
    return wrap_nested(R.tril(_tensor(x, name), diagonal), name)  # type: ignore[no-any-return]


def prelu(x: Tensor, alpha: Tensor, name: str = "prelu") -> Tensor:
    """x where positive, else alpha x."""
    return wrap_nested(R.nn.prelu(_tensor(x, name), _tensor(alpha, name)), name)  # type: ignore[no-any-return]


def sort(x: Tensor, axis: int = -1, descending: bool = False, name: str = "sort") -> Tensor:
    """In order along an axis."""
    return wrap_nested(R.sort(_tensor(x, name), axis=axis, descending=descending), name)  # type: ignore[no-any-return]


def argsort(
    data: Tensor, axis: int = -1, descending: bool = False, dtype: str = "int32", name: str = "argsort"
) -> Tensor:
    """The positions in order along an axis."""
    call = R.argsort(_tensor(data, name), axis=axis, descending=descending, dtype=dtype)
    return wrap_nested(call, name)  # type: ignore[no-any-return]


def relu6(x: Tensor, name: str = "relu6") -> Tensor:
    """min(max(x, 0), 6)."""
    return clip(x, 0.0, 6.0, name)


def clip(x: Tensor, min: float, max: float, name: str = "clip") -> Tensor:
    """Values between two bounds."""
    return wrap_nested(R.clip(_tensor(x, name), min=float(min), max=float(max)), name)  # type: ignore[no-any-return]


def square(x: Tensor, name: str = "square") -> Tensor:
    """x * x."""
    return wrap_nested(R.multiply(_tensor(x, name), x._expr), name)  # type: ignore[no-any-return]


def gelu(x: Tensor, approximate: str | None = None, name: str = "gelu") -> Tensor:
    """The exact form, or with approximate="tanh" the other."""
    if approximate not in (None, "", "tanh"):
        raise InvalidValueError(f"gelu with approximate='{approximate}'", hint="None or 'tanh'")
    return wrap_nested((R.nn.gelu_tanh if approximate else R.nn.gelu)(_tensor(x, name)), name)  # type: ignore[no-any-return]


def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0, name: str = "softplus") -> Tensor:
    """log(1 + exp(beta x)) / beta; x itself beyond the threshold."""
    scaled = multiply(x, beta)
    soft = divide(log(add(exp(minimum(scaled, threshold)), 1.0)), beta)
    return where(greater(scaled, threshold), x, soft, name)


def matmul(a: Tensor, b: Tensor, out_dtype: str | None = None, name: str = "matmul") -> Tensor:
    """The matrix product over the last two dimensions."""
    return wrap_nested(R.matmul(_tensor(a, name), _tensor(b, name), out_dtype=out_dtype), name)  # type: ignore[no-any-return]


def astype(x: Tensor, dtype: str, name: str = "astype") -> Tensor:
    """The tensor as another dtype; itself where it has it."""
    return x if x.dtype == dtype else wrap_nested(R.astype(_tensor(x, name), dtype=dtype), name)


# --- shapes --------------------------------------------------------------------------------------------------------


def _dims(shape: Any) -> ShapeExpr:
    values = shape.values if isinstance(shape, ShapeExpr) else tuple(shape)
    return ShapeExpr(tuple(v if isinstance(v, int | PrimExpr) else int(v) for v in values))


def reshape(x: Tensor, shape: Any, name: str = "reshape") -> Tensor:
    """Another shape; one dimension may be -1."""
    call = R.reshape(_tensor(x, name), _dims(shape))
    resolved = R.reshape(x._expr, call.struct_info.shape)  # type: ignore[union-attr]
    return wrap_nested(resolved, name)  # type: ignore[no-any-return]


def permute_dims(x: Tensor, axes: Sequence[int] | None = None, name: str | None = None) -> Tensor:
    """The dimensions in another order; reversed by default."""
    return wrap_nested(  # type: ignore[no-any-return]
        R.permute_dims(_tensor(x, "permute_dims"), axes=None if axes is None else list(axes)), name or "permute_dims"
    )


permute = permute_dims


def unsqueeze(x: Tensor, dim: int, name: str = "unsqueeze") -> Tensor:
    """A dimension of one more."""
    return wrap_nested(R.expand_dims(_tensor(x, name), axis=dim), name)  # type: ignore[no-any-return]


def squeeze(x: Tensor, axis: int = -1, name: str = "squeeze") -> Tensor:
    """A dimension of one less."""
    return wrap_nested(R.squeeze(_tensor(x, name), axis=[axis]), name)  # type: ignore[no-any-return]


def broadcast_to(x: Tensor, shape: Sequence[Any], name: str = "broadcast_to") -> Tensor:
    """Dimensions of one repeated."""
    return wrap_nested(R.broadcast_to(_tensor(x, name), _dims(shape)), name)  # type: ignore[no-any-return]


def repeat(x: Tensor, repeats: int, axis: int | None = None, name: str = "repeat") -> Tensor:
    """Each element several times in a row along an axis; of the flat tensor where there is none."""
    if axis is None:
        x, axis = reshape(x, [-1]), 0
    shape = list(x.struct_info.static_shape)
    axis %= len(shape)
    wide = broadcast_to(unsqueeze(x, axis + 1), [*shape[: axis + 1], repeats, *shape[axis + 1 :]])
    return reshape(wide, [*shape[:axis], shape[axis] * repeats, *shape[axis + 1 :]], name)


def concat(x: Sequence[Tensor], dim: int, name: str = "concat") -> Tensor:
    """Tensors joined along a dimension."""
    return wrap_nested(R.concat(Tuple(tuple(_tensor(t, name) for t in x)), axis=dim), name)  # type: ignore[no-any-return]


def stack(x: Sequence[Tensor], dim: int = 0, name: str = "stack") -> Tensor:
    """Tensors joined along a new dimension."""
    axis = dim if dim >= 0 else dim + x[0].ndim + 1
    return concat([unsqueeze(t, axis) for t in x], axis, name)


def split(
    x: Tensor, indices_or_sections: int | Sequence[int], axis: int = 0, name: str = "split"
) -> tuple[Tensor, ...]:
    """In equal parts, or cut at positions."""
    cuts = indices_or_sections if isinstance(indices_or_sections, int) else list(indices_or_sections)
    return wrap_nested(R.split(_tensor(x, name), indices_or_sections=cuts, axis=axis), name)  # type: ignore[no-any-return]


def chunk(x: Tensor, chunks: int, dim: int = 0, name: str = "chunk") -> tuple[Tensor, ...]:
    """In equal parts."""
    return split(x, chunks, dim, name)


def pad(x: Tensor, pad: Sequence[int], mode: str = "constant", value: float = 0.0, name: str = "pad") -> Tensor:
    """Widths before and after each dimension, the last dimension first."""
    if mode != "constant":
        raise InvalidValueError(f"pad with mode '{mode}' is not supported", hint="use 'constant'")
    widths = [0] * (2 * x.ndim)
    for i in range(len(pad) // 2):
        at = 2 * (x.ndim - 1 - i)
        widths[at : at + 2] = pad[2 * i : 2 * i + 2]
    return wrap_nested(R.nn.pad(_tensor(x, name), pad_width=widths, pad_value=value), name)  # type: ignore[no-any-return]


# --- look-ups, choices, reductions ---------------------------------------------------------------------------------


def take(x: Tensor, indices: Tensor, axis: int | None = None, name: str = "take") -> Tensor:
    """Entries along an axis by index; of the flat tensor where there is none."""
    if axis is None:
        x, axis = reshape(x, [-1]), 0
    return wrap_nested(R.take(_tensor(x, name), _tensor(indices, name), axis=axis), name)  # type: ignore[no-any-return]


def where(condition: Tensor, x1: Any, x2: Any, name: str = "where") -> Tensor:
    """x1 where the condition holds, else x2."""
    return wrap_nested(R.where(_tensor(astype(condition, "bool"), name), *_pair(x1, x2)), name)  # type: ignore[no-any-return]


def _reduction(definition: Any, default: str) -> Callable[..., Tensor]:
    def function(x: Tensor, axis: Any = None, keepdims: bool = False, name: str = default) -> Tensor:
        return wrap_nested(definition(_tensor(x, default), axis=axis, keepdims=keepdims), name)  # type: ignore[no-any-return]

    function.__name__, function.__doc__ = default, f"{default} over one or several axes, or over all."
    return function


sum = _reduction(R.sum, "sum")
max = _reduction(R.max, "max")
min = _reduction(R.min, "min")
mean = _reduction(R.mean, "mean")
argmax = _reduction(R.argmax, "argmax")
argmin = _reduction(R.argmin, "argmin")


def cumsum(
    data: Tensor, axis: int | None = None, dtype: str | None = None, exclusive: bool | None = None, name: str = "cumsum"
) -> Tensor:
    """Sums of all elements up to each, along an axis."""
    if axis is None:
        data, axis = reshape(data, [-1]), 0
    x = data if dtype is None else astype(data, dtype)
    return wrap_nested(get_op("cumsum")(_tensor(x, name), axis=axis, exclusive=bool(exclusive)), name)  # type: ignore[no-any-return]


def topk(
    data: Tensor,
    k: int = 1,
    axis: int = -1,
    ret_type: str = "both",
    largest: bool = True,
    dtype: str = "int32",
    name: str = "topk",
) -> Any:
    """The k largest (or smallest) along an axis, sorted: values and positions, or one of them."""
    call = get_op("topk")(_tensor(data, name), k=k, axis=axis, ret_type=ret_type, largest=largest, dtype=dtype)
    return wrap_nested(call, name)


# --- normalisations and attention ----------------------------------------------------------------------------------


def softmax(x: Tensor, axis: int = -1, name: str = "softmax") -> Tensor:
    """exp(x) over its sum along an axis."""
    return wrap_nested(R.nn.softmax(_tensor(x, name), axis=axis), name)  # type: ignore[no-any-return]


def _filled(shape: Sequence[int], value: float, dtype: str) -> Constant:
    return Constant(np.full(tuple(shape), value, dtype))


def layer_norm(
    x: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    name: str = "layer_norm",
) -> Tensor:
    """Over the last dimensions."""
    own = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    gamma = _filled(own, 1.0, x.dtype) if weight is None else weight._expr
    beta = _filled(own, 0.0, x.dtype) if bias is None else bias._expr
    axes = list(range(-len(own), 0))
    return wrap_nested(R.nn.layer_norm(_tensor(x, name), gamma, beta, axes=axes, epsilon=eps), name)  # type: ignore[no-any-return]


def rms_norm(
    x: Tensor, weight: Tensor, axes: int | Sequence[int], epsilon: float = 1e-5, name: str = "rms_norm"
) -> Tensor:
    """x * weight over the root of x's mean square along the axes."""
    along = [axes] if isinstance(axes, int) else list(axes)
    scale = R.rsqrt(R.add(R.mean(R.multiply(x._expr, x._expr), axis=along, keepdims=True), _scalar(epsilon, x)))
    return wrap_nested(R.multiply(R.multiply(_tensor(x, name), scale), weight._expr), name)  # type: ignore[no-any-return]


def _scalar(value: float, like: Tensor) -> Constant:
    return Constant(np.asarray(value, like.dtype))


def group_norm(
    x: Tensor,
    num_groups: int,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float = 1e-5,
    channel_axis: int = 1,
    axes: Any = None,
    name: str = "group_norm",
) -> Tensor:
    """Over the channels of each group and all that follows."""
    if channel_axis % x.ndim != 1 or (axes is not None and [a % x.ndim for a in axes] != list(range(2, x.ndim))):
        raise InvalidValueError("group_norm is supported with channels in dimension 1 and over all behind it")
    shape = x.struct_info.static_shape
    rest = math.prod(shape[1:]) // num_groups
    grouped = reshape(x, [shape[0], num_groups, rest])
    result = reshape(layer_norm(grouped, rest, None, None, eps), shape, name)
    wide = [1, shape[1], *[1] * (len(shape) - 2)]
    if weight is not None:
        result = multiply(result, reshape(weight, wide))
    return result if bias is None else add(result, reshape(bias, wide))


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool | None = False,
    scale: float | None = None,
    name: str = "scaled_dot_product_attention",
) -> Tensor:
    """softmax(Q K' * scale + mask) V over [batch, tokens, heads, dim]; the mask over [batch, heads, tokens, tokens]."""
    q, k, v = (permute_dims(t, [0, 2, 1, 3]) for t in (query, key, value))
    factor = 1.0 / math.sqrt(int(query.struct_info.dims[-1])) if scale is None else scale  # type: ignore[arg-type]
    scores = multiply(matmul(q, permute_dims(k, [0, 1, 3, 2])), factor)
    if is_causal:
        rows, columns = scores.struct_info.static_shape[-2:]
        below = np.tril(np.ones((rows, columns), bool), columns - rows)
        scores = add(scores, Tensor.from_const(np.where(below, 0.0, -np.inf).astype(query.dtype)))
    if attn_mask is not None:
        scores = add(scores, attn_mask)
    return permute_dims(matmul(softmax(scores), v), [0, 2, 1, 3], name)


# --- convolutions --------------------------------------------------------------------------------------------------


def _biased(result: Any, bias: Tensor | None, ndim: int, name: str, channel: int = 1) -> Tensor:
    value = wrap_nested(result, name)
    if bias is None:
        return value  # type: ignore[no-any-return]
    shape = [1] * ndim
    shape[channel] = bias.shape[0]
    return add(value, reshape(bias, shape))


def conv1d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1, name: str = "conv1d",
) -> Tensor:  # fmt: skip
    """[N, C, W] with a weight [O, C / groups, K]."""
    geometry = {"strides": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return _biased(get_op("nn.conv1d")(_tensor(x, name), _tensor(weight, name), **geometry), bias, 3, name)


def conv2d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1, data_layout: str = "NCHW", name: str = "conv2d",
) -> Tensor:  # fmt: skip
    """[N, C, H, W] with a weight [O, C / groups, KH, KW]."""
    if data_layout != "NCHW":
        raise InvalidValueError(f"conv2d with data_layout '{data_layout}' is not supported", hint="use NCHW")
    geometry = {"strides": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return _biased(R.nn.conv2d(_tensor(x, name), _tensor(weight, name), **geometry), bias, 4, name)


def conv3d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1, data_layout: str = "NCDHW", name: str = "conv3d",
) -> Tensor:  # fmt: skip
    """[N, C, D, H, W] with a weight [O, C / groups, KD, KH, KW]."""
    if data_layout != "NCDHW":
        raise InvalidValueError(f"conv3d with data_layout '{data_layout}' is not supported", hint="use NCDHW")
    geometry = {"strides": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return _biased(get_op("nn.conv3d")(_tensor(x, name), _tensor(weight, name), **geometry), bias, 5, name)


def conv1d_transpose(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    dilation: Any = 1, groups: int = 1, name: str = "conv1d_transpose",
) -> Tensor:  # fmt: skip
    """[N, C, W] with a weight [C, O / groups, K]."""
    geometry = {
        "strides": stride, "padding": padding, "output_padding": output_padding, "dilation": dilation,
        "groups": groups,
    }  # fmt: skip
    return _biased(get_op("nn.conv1d_transpose")(_tensor(x, name), _tensor(weight, name), **geometry), bias, 3, name)


def interpolate(
    x: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool | None = None,
    data_layout: str = "NCHW",
    name: str = "interpolate",
) -> Tensor:
    """Images of another size: nearest, bilinear ("linear")."""
    height, width = x.struct_info.static_shape[2:]
    if size is None:
        factors = [scale_factor] * 2 if isinstance(scale_factor, int | float) else list(scale_factor)
        size = [int(height * factors[0]), int(width * factors[1])]
    wanted = [size, size] if isinstance(size, int) else list(size)
    method = "nearest_neighbor" if mode.startswith("nearest") else "linear" if mode in ("linear", "bilinear") else mode
    positions = "asymmetric" if method == "nearest_neighbor" else "align_corners" if align_corners else "half_pixel"
    call = get_op("image.resize2d")(
        _tensor(x, name), ShapeExpr(tuple(wanted)), layout=data_layout, method=method,
        coordinate_transformation_mode=positions, rounding_method="floor" if method == "nearest_neighbor" else "round",
    )  # fmt: skip
    return wrap_nested(call, name)  # type: ignore[no-any-return]


# --- made from nothing ---------------------------------------------------------------------------------------------


def full(shape: Sequence[Any], fill_value: Any, dtype: str = "float32", name: str = "full") -> Tensor:
    """One value everywhere."""
    return wrap_nested(R.full(_dims(shape), fill_value=fill_value, dtype=dtype), name)  # type: ignore[no-any-return]


def zeros(shape: Sequence[Any], dtype: str = "float32", name: str = "zeros") -> Tensor:
    """Zeros."""
    return full(shape, 0.0, dtype, name)


def ones(shape: Sequence[Any], dtype: str = "float32", name: str = "ones") -> Tensor:
    """Ones."""
    return full(shape, 1.0, dtype, name)


def empty(shape: Sequence[Any], dtype: str = "float32", name: str = "empty") -> Tensor:
    """Values that do not matter: zeros."""
    return zeros(shape, dtype, name)


def arange(
    start: int, end: int | None = None, step: int = 1, dtype: str | None = "float32", name: str = "arange"
) -> Tensor:
    """start, start + step, … below end."""
    first, last = (0, start) if end is None else (start, end)
    return wrap_nested(R.arange(start=first, end=last, step=step, dtype=dtype or "int64"), name)  # type: ignore[no-any-return]


def triu(x: Tensor, diagonal: int = 0, name: str = "triu") -> Tensor:
    """The part above a diagonal; zeros elsewhere."""
    rows, columns = x.struct_info.static_shape[-2:]
    above = Tensor.from_const(np.triu(np.ones((rows, columns), bool), diagonal))
    return where(above, x, 0.0, name)


# --- one's own -----------------------------------------------------------------------------------------------------


def tensor_expr_op(tensor_expr_func: Callable[..., Any], name_hint: str, args: Sequence[Any]) -> Any:
    """The result of a function written with te, called on tensors."""
    builder = BlockBuilder.current()
    if builder is None:
        raise InvalidValueError("tensor_expr_op is called outside of a method that is being exported")
    call = builder.call_te(tensor_expr_func, *(unwrap(a) for a in args), primfunc_name_hint=name_hint)
    return wrap_nested(call, name_hint)


def tensor_ir_op(func: Any, name_hint: str, args: Any, out: Any) -> Any:
    """The result of a PrimFunc; `out` (placeholders) says shapes and dtypes of what it writes."""
    builder = BlockBuilder.current()
    if builder is None:
        raise InvalidValueError("tensor_ir_op is called outside of a method that is being exported")
    results = out if isinstance(out, list | tuple) else [out]
    infos = [r.struct_info for r in results]
    tensors = Tuple(tuple(unwrap(a) for a in (args if isinstance(args, list | tuple) else [args])))
    call = R.call_tir(builder.add_func(func, name_hint), tensors, infos if isinstance(out, list | tuple) else infos[0])
    return wrap_nested(call, name_hint)

"""How the gradient of an operator's result reaches its operands: a rule an operator."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from autosched.errors import InvalidValueError
from autosched.relax import op
from autosched.relax.expr import Call, Expr, ShapeExpr, Tuple, Var
from autosched.relax.op.types import axes_tuple, axis_index
from autosched.relax.struct_info import TensorStructInfo

Emit = Callable[[Expr], Expr]
Rule = Callable[
    [Call, Var, Expr, Emit], Sequence[Expr | None]
]  # call, its variable, gradient of the result -> of each operand

RULES: dict[str, Rule] = {}


def register_gradient(op_name: str, rule: Rule | None = None) -> Callable[[Rule], Rule]:
    """Enter a rule for an operator by its full name; also as a decorator. A later one replaces an earlier one."""

    def enter(function: Rule) -> Rule:
        RULES[op_name] = function
        return function

    if rule is not None:
        enter(rule)
    return enter


def tensor_info(x: Expr) -> TensorStructInfo:
    info = x.struct_info
    assert isinstance(info, TensorStructInfo), "gradients are of tensors"
    return info


def _shape(x: Expr) -> tuple[int, ...]:
    return tensor_info(x).static_shape


def _fit(gradient: Expr, operand: Expr) -> Expr:
    """Summed over the dimensions in which the operand was repeated."""
    if _shape(gradient) == _shape(operand):
        return gradient
    return op.collapse_sum_to(gradient, ShapeExpr(_shape(operand)))


def _unary(name: str, f: Callable[[Expr, Var, Expr, Emit], Expr]) -> None:
    register_gradient(f"relax.{name}", lambda call, out, g, emit: [f(call.args[0], out, g, emit)])


def _binary(name: str, f: Callable[[Expr, Expr, Var, Expr, Emit], Sequence[Expr]]) -> None:
    def rule(call: Call, out: Var, g: Expr, emit: Emit) -> list[Expr | None]:
        a, b = call.args
        return [_fit(emit(v), x) for v, x in zip(f(a, b, out, g, emit), (a, b), strict=True)]

    register_gradient(f"relax.{name}", rule)


_binary("add", lambda a, b, out, g, emit: (g, g))
_binary("subtract", lambda a, b, out, g, emit: (g, op.negative(g)))
_binary("multiply", lambda a, b, out, g, emit: (op.multiply(g, b), op.multiply(g, a)))
_binary("divide", lambda a, b, out, g, emit: (op.divide(g, b), op.negative(emit(op.divide(op.multiply(g, out), b)))))
_binary(
    "power",
    lambda a, b, out, g, emit: (
        op.multiply(op.multiply(g, b), op.power(a, op.subtract(b, 1.0))), op.multiply(op.multiply(g, out), op.log(a))
    ),
)  # fmt: skip
_binary("maximum", lambda a, b, out, g, emit: (_where(op.greater_equal(a, b), g, emit), _where(op.less(a, b), g, emit)))
_binary("minimum", lambda a, b, out, g, emit: (_where(op.less_equal(a, b), g, emit), _where(op.greater(a, b), g, emit)))


def _where(condition: Expr, g: Expr, emit: Emit) -> Expr:
    return op.where(emit(condition), g, emit(op.zeros_like(g)))


_unary("negative", lambda x, out, g, emit: op.negative(g))
_unary("exp", lambda x, out, g, emit: op.multiply(g, out))
_unary("log", lambda x, out, g, emit: op.divide(g, x))
_unary("sqrt", lambda x, out, g, emit: op.divide(op.multiply(g, 0.5), out))
_unary("rsqrt", lambda x, out, g, emit: op.multiply(op.multiply(g, -0.5), op.divide(out, x)))
_unary("square", lambda x, out, g, emit: op.multiply(op.multiply(g, 2.0), x))
_unary("sin", lambda x, out, g, emit: op.multiply(g, op.cos(x)))
_unary("cos", lambda x, out, g, emit: op.negative(emit(op.multiply(g, op.sin(x)))))
_unary("tanh", lambda x, out, g, emit: op.multiply(g, op.subtract(1.0, op.multiply(out, out))))
_unary("sigmoid", lambda x, out, g, emit: op.multiply(g, op.multiply(out, op.subtract(1.0, out))))
_unary("abs", lambda x, out, g, emit: op.multiply(g, op.sign(x)))
_unary("nn.relu", lambda x, out, g, emit: _where(op.greater(x, 0.0), g, emit))
_unary(
    "nn.silu",
    lambda x, out, g, emit: op.multiply(
        g, op.add(emit(op.sigmoid(x)), op.multiply(out, op.subtract(1.0, emit(op.sigmoid(x)))))
    ),
)  # fmt: skip
_unary("astype", lambda x, out, g, emit: op.astype(g, tensor_info(x).dtype))
for _name in ("reshape", "squeeze", "expand_dims", "flatten", "nn.batch_flatten"):
    register_gradient(
        f"relax.{_name}",
        lambda call, out, g, emit: [op.reshape(g, ShapeExpr(_shape(call.args[0]))), *[None] * (len(call.args) - 1)],
    )


@register_gradient("relax.nn.gelu")
def _gelu(call: Call, out: Var, g: Expr, emit: Emit) -> list[Expr | None]:
    x = call.args[0]
    phi = emit(op.multiply(op.exp(op.multiply(op.multiply(x, x), -0.5)), 0.3989422804014327))
    cdf = emit(op.multiply(op.add(op.erf(op.multiply(x, 0.5**0.5)), 1.0), 0.5))
    return [op.multiply(g, op.add(cdf, op.multiply(x, phi)))]


@register_gradient("relax.permute_dims")
def _permute(call: Call, out: Var, g: Expr, emit: Emit) -> list[Expr | None]:
    ndim = len(_shape(call.args[0]))
    axes = call.attrs["axes"]
    order = [a % ndim for a in axes] if axes is not None else list(reversed(range(ndim)))
    return [op.permute_dims(g, tuple(order.index(i) for i in range(ndim)))]


@register_gradient("relax.broadcast_to")
def _broadcast(call: Call, out: Var, g: Expr, emit: Emit) -> list[Expr | None]:
    return [_fit(g, call.args[0]), None]


@register_gradient("relax.where")
def _where_rule(call: Call, out: Var, g: Expr, emit: Emit) -> list[Expr | None]:
    condition, a, b = call.args
    zero = emit(op.zeros_like(g))
    return [None, _fit(emit(op.where(condition, g, zero)), a), _fit(emit(op.where(condition, zero, g)), b)]


def _spread(call: Call, g: Expr) -> Expr:
    """The gradient of a reduction's result, repeated over the reduced dimensions."""
    shape = _shape(call.args[0])
    axes = axes_tuple(call.attrs["axis"], len(shape))
    kept = tuple(1 if i in axes else s for i, s in enumerate(shape))
    return op.broadcast_to(op.reshape(g, ShapeExpr(kept)), ShapeExpr(shape))


@register_gradient("relax.sum")
def _sum(call: Call, out: Var, g: Expr, emit: Emit) -> list[Expr | None]:
    return [_spread(call, g)]


@register_gradient("relax.mean")
def _mean(call: Call, out: Var, g: Expr, emit: Emit) -> list[Expr | None]:
    shape = _shape(call.args[0])
    count = math.prod(shape[a] for a in axes_tuple(call.attrs["axis"], len(shape)))
    return [op.multiply(_spread(call, g), 1.0 / count)]


@register_gradient("relax.variance")
def _variance(call: Call, out: Var, g: Expr, emit: Emit) -> list[Expr | None]:
    (x,), shape = call.args, _shape(call.args[0])
    axes = axes_tuple(call.attrs["axis"], len(shape))
    count = math.prod(shape[a] for a in axes)
    distance = emit(op.subtract(x, op.mean(x, axis=axes, keepdims=True)))
    return [op.multiply(emit(op.multiply(_spread(call, g), distance)), 2.0 / count)]


def _last_two(ndim: int) -> tuple[int, ...]:
    return (*range(ndim - 2), ndim - 1, ndim - 2)


@register_gradient("relax.matmul")
def _matmul(call: Call, out: Var, g: Expr, emit: Emit) -> list[Expr | None]:
    a, b = call.args
    wide_a = a if len(_shape(a)) > 1 else emit(op.reshape(a, ShapeExpr((1, *_shape(a)))))
    wide_b = b if len(_shape(b)) > 1 else emit(op.reshape(b, ShapeExpr((*_shape(b), 1))))
    full = list(_shape(out))
    if len(_shape(b)) == 1:
        full.append(1)
    if len(_shape(a)) == 1:
        full.insert(len(full) - 1, 1)
    g = g if tuple(full) == _shape(g) else emit(op.reshape(g, ShapeExpr(tuple(full))))
    to_a = emit(op.matmul(g, emit(op.permute_dims(wide_b, _last_two(len(_shape(wide_b)))))))
    to_b = emit(op.matmul(emit(op.permute_dims(wide_a, _last_two(len(_shape(wide_a))))), g))
    results: list[Expr | None] = []
    for gradient, wide, own in ((to_a, wide_a, a), (to_b, wide_b, b)):
        fitted = emit(_fit(gradient, wide))
        results.append(fitted if wide is own else op.reshape(fitted, ShapeExpr(_shape(own))))
    return results


@register_gradient("relax.nn.softmax")
def _softmax(call: Call, out: Var, g: Expr, emit: Emit) -> list[Expr | None]:
    weighted = emit(op.multiply(g, out))
    total = emit(op.sum(weighted, axis=(call.attrs["axis"],), keepdims=True))
    return [op.multiply(op.subtract(g, total), out)]


@register_gradient("relax.nn.log_softmax")
def _log_softmax(call: Call, out: Var, g: Expr, emit: Emit) -> list[Expr | None]:
    total = emit(op.sum(g, axis=(call.attrs["axis"],), keepdims=True))
    return [op.subtract(g, op.multiply(total, op.exp(out)))]


@register_gradient("relax.nn.cross_entropy_with_logits")
def _cross_entropy(call: Call, out: Var, g: Expr, emit: Emit) -> list[Expr | None]:
    predictions, labels = call.args
    share = emit(op.negative(g))
    if len(_shape(predictions)) > 1:
        share = emit(op.divide(share, float(_shape(predictions)[0])))
    return [op.multiply(share, labels), op.multiply(share, predictions)]


@register_gradient("relax.nn.nll_loss")
def _nll(call: Call, out: Var, g: Expr, emit: Emit) -> list[Expr | None]:
    predictions, targets, weights = call.args
    shape, ignored = _shape(predictions), call.attrs["ignore_index"]
    one, zero = op.full(ShapeExpr(()), 1.0), op.full(ShapeExpr(()), 0.0)
    axis = 1 if len(shape) > 1 else 0
    hot = emit(op.one_hot(targets, emit(one), emit(zero), depth=shape[axis], axis=axis))
    kept = emit(op.astype(op.not_equal(targets, ignored), predictions.struct_info.dtype))
    own = emit(op.reshape(weights, ShapeExpr(tuple(s if i == axis else 1 for i, s in enumerate(shape)))))
    masked = emit(op.multiply(op.multiply(hot, own), emit(op.expand_dims(kept, axis=axis))))
    reduction = call.attrs["reduction"]
    if reduction == "mean":
        g = emit(op.divide(g, emit(op.sum(masked))))
    elif reduction == "none":
        g = emit(op.expand_dims(g, axis=axis))
    return [op.negative(emit(op.multiply(masked, g))), None, None]


@register_gradient("relax.concat")
def _concat(call: Call, out: Var, g: Expr, emit: Emit) -> list[Expr | None]:
    fields = call.args[0].fields
    axis = axis_index(call.attrs["axis"], len(_shape(out)))
    sizes = [_shape(f)[axis] for f in fields]
    cuts = tuple(sum(sizes[: i + 1]) for i in range(len(sizes) - 1))
    if not cuts:
        return [Tuple((g,))]
    parts = emit(op.split(g, cuts, axis=axis))
    return [Tuple(tuple(emit(parts[i]) for i in range(len(sizes))))]  # type: ignore[index]


@register_gradient("relax.split")
def _split(call: Call, out: Var, g: Expr, emit: Emit) -> list[Expr | None]:
    return [op.concat(g, axis=call.attrs["axis"])]


@register_gradient("relax.nn.conv2d")
def _conv2d(call: Call, out: Var, g: Expr, emit: Emit) -> list[Expr | None]:
    """By a transposed convolution for the data, and a convolution over the batch for the weight."""
    data, weight = call.args
    a = call.attrs
    (_, _, h, w), (_, _, kh, kw) = _shape(data), _shape(weight)
    strides, dilation, (top, left, bottom, right) = a["strides"], a["dilation"], a["padding"]
    size = _shape(out)[2:]
    extra = tuple(
        have + p + q - ((n - 1) * s + d * (k - 1) + 1)
        for have, p, q, n, s, d, k in zip(
            (h, w), (top, left), (bottom, right), size, strides, dilation, (kh, kw), strict=True
        )
    )
    to_data = op.nn.conv2d_transpose(
        g, weight, strides=strides, padding=a["padding"], output_padding=extra, dilation=dilation, groups=a["groups"]
    )
    swapped, seen = emit(op.permute_dims(data, (1, 0, 2, 3))), emit(op.permute_dims(g, (1, 0, 2, 3)))
    wide = emit(op.nn.conv2d(swapped, seen, strides=dilation, padding=a["padding"], dilation=strides))
    cut = emit(op.strided_slice(wide, axes=(2, 3), begin=(0, 0), end=(kh, kw)))
    return [to_data, op.permute_dims(cut, (1, 0, 2, 3))]


@register_gradient("relax.grad.no_grad")
def _no_grad(call: Call, out: Var, g: Expr, emit: Emit) -> list[Expr | None]:
    return [None]


def _pool2d(kind: str) -> None:
    backward = {"max": op.grad.max_pool2d_backward, "avg": op.grad.avg_pool2d_backward}[kind]

    def rule(call: Call, out: Var, g: Expr, emit: Emit) -> list[Expr | None]:
        names = ("pool_size", "strides", "padding", "dilation", "ceil_mode", "layout")
        attrs = {name: call.attrs[name] for name in names}
        return [backward(g, call.args[0], count_include_pad=call.attrs.get("count_include_pad", False), **attrs)]

    register_gradient(f"relax.nn.{kind}_pool2d", rule)


_pool2d("max")
_pool2d("avg")


@register_gradient("relax.take")
def _take(call: Call, out: Var, g: Expr, emit: Emit) -> list[Expr | None]:
    if call.attrs["mode"] not in ("raise", "fast"):
        raise InvalidValueError(f"the gradient of take with mode '{call.attrs['mode']}'")
    return [op.grad.take_backward(g, *call.args, axis=call.attrs["axis"] or 0), None]


def _no_gradient(call: Call, out: Var, g: Expr, emit: Emit) -> list[Expr | None]:
    return []


for _name in (
    "equal", "not_equal", "less", "less_equal", "greater", "greater_equal",
    "ones", "ones_like", "zeros", "zeros_like", "full", "full_like",
):  # fmt: skip
    register_gradient(f"relax.{_name}", _no_gradient)

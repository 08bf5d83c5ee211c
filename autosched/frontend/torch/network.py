"""The other way round: a graph function as calls of PyTorch, so that PyTorch can be a peer on any imported model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from autosched.errors import UsageError
from autosched.frontend.torch.emitter import Ints
from autosched.ir.module import IRModule
from autosched.relax.expr import Call, Constant, Expr, TupleGetItem, Var
from autosched.relax.op.registry import definition_of, python_argument

if TYPE_CHECKING:
    from torch import Tensor

SAME_NAME = (
    "abs", "add", "argmax", "argmin", "ceil", "cos", "divide", "equal", "erf", "exp", "floor", "floor_divide",
    "greater", "greater_equal", "less", "less_equal", "log", "logical_and", "logical_not", "logical_or", "maximum",
    "minimum", "multiply", "negative", "not_equal", "round", "rsqrt", "sigmoid", "sign", "sin", "sqrt", "subtract",
    "tanh", "where",
)  # fmt: skip
Rule: TypeAlias = Callable[..., Any]  # (tensors and sequences…, **attributes) -> tensor or tuple


@dataclass(frozen=True)
class _Step:
    var: Var
    run: Rule
    args: tuple[Expr, ...]


class TorchNetwork:
    """A module's `main` in eager PyTorch: called on tensors, gives a tensor or a tuple of them.

    device  where its constants are, and what it makes itself
    Raises  UsageError that lists all operators for which there is no rule.
    """

    def __init__(self, module: IRModule, device: str = "cpu"):
        import torch

        self._torch, self._device = torch, device
        rules = _rules(torch)
        main = module["main"]
        self._params = main.params
        self._constants: dict[int, Tensor] = {}
        self._steps: list[_Step] = []
        missing = sorted({_name(b.value) for b in main.bindings() if isinstance(b.value, Call)} - set(rules))
        if missing:
            raise UsageError(f"PyTorch cannot run this model here: no rule for {', '.join(missing)}")
        for binding in main.bindings():
            value = binding.value
            if isinstance(value, Call):
                step = _Step(binding.var, _with(rules[_name(value)], value.attrs), value.args)
            else:
                step = _Step(binding.var, lambda x: x, (value,))
            self._steps.append(step)
        self._result = main.body.body

    def __call__(self, *inputs: object) -> Any:
        values: dict[Var, Any] = dict(zip(self._params, inputs, strict=True))

        def lookup(x: Any) -> Any:
            if isinstance(x, TupleGetItem):
                return lookup(x.tuple_value)[x.index]
            return self._constant(x) if isinstance(x, Constant) else values[x]

        def argument(x: Expr) -> Any:
            return lookup(x) if isinstance(x, TupleGetItem) else python_argument(x, lookup)

        with self._torch.inference_mode(), self._torch.device(self._device):
            for step in self._steps:
                values[step.var] = step.run(*(argument(a) for a in step.args))
            result = argument(self._result)
        return tuple(result) if isinstance(result, list) else result

    def _constant(self, x: Constant) -> object:
        if id(x) not in self._constants:
            self._constants[id(x)] = self._torch.from_numpy(np.array(x.data)).to(self._device)
        return self._constants[id(x)]


def _name(call: Call) -> str:
    definition = definition_of(call)
    return definition.name if definition is not None else str(call.op)


def _with(rule: Rule, attrs: Mapping[str, object]) -> Rule:
    return lambda *args: rule(*args, **attrs)


def _rules(torch: ModuleType) -> dict[str, Rule]:
    """Operator -> how PyTorch computes it; attributes come under the operator's own names."""
    same: dict[str, Rule] = {name: _plain(getattr(torch, name)) for name in SAME_NAME}
    return {**same, **_arithmetic(torch), **_movement(torch), **_windows(torch), **_layers(torch)}


def _arithmetic(torch: ModuleType) -> dict[str, Rule]:
    """Element by element, reductions, products."""

    def reduction(function: Rule, name: str) -> Rule:
        def rule(x: Tensor, axis: Ints | None, keepdims: bool) -> Tensor:
            return function(x, dim=tuple(range(x.ndim)) if axis is None else axis, keepdim=keepdims)

        rule.__name__ = name
        return rule

    return {
        "astype": lambda x, dtype: x.to(getattr(torch, dtype)),
        "clip": lambda x, min, max: torch.clamp(x, min, max),
        "identity": lambda x: x,
        "matmul": lambda a, b, out_dtype: torch.matmul(a, b),
        "max": reduction(torch.amax, "max"),
        "mean": reduction(torch.mean, "mean"),
        "min": reduction(torch.amin, "min"),
        "power": _plain(torch.pow),
        "sum": reduction(torch.sum, "sum"),
        "variance": lambda x, axis, keepdims: torch.var(x, dim=axis, correction=0, keepdim=keepdims),
    }


def _movement(torch: ModuleType) -> dict[str, Rule]:
    """Elements in other places."""

    def split(x: Tensor, indices_or_sections: Ints, axis: int) -> tuple[Tensor, ...]:
        if isinstance(indices_or_sections, int):
            return tuple(torch.chunk(x, indices_or_sections, dim=axis))
        return tuple(torch.tensor_split(x, list(indices_or_sections), dim=axis))

    def strided_slice(
        x: Tensor, axes: Sequence[int], begin: Sequence[int], end: Sequence[int], strides: Sequence[int] | None
    ) -> Tensor:
        index = [slice(None)] * x.ndim
        for i, axis in enumerate(axes):
            index[axis] = slice(begin[i], end[i], strides[i] if strides else 1)
        return x[tuple(index)]

    def take(x: Tensor, indices: Tensor, axis: int | None) -> Tensor:
        if axis in (0, -x.ndim) and x.ndim == 2:
            return torch.nn.functional.embedding(indices, x)
        flat = torch.index_select(x, axis, indices.reshape(-1))
        at = axis % x.ndim
        return flat.reshape(*x.shape[:at], *indices.shape, *x.shape[at + 1 :])

    return {
        "broadcast_to": lambda x, shape: x.expand(shape),
        "concat": lambda xs, axis: torch.cat(list(xs), dim=axis),
        "expand_dims": lambda x, axis: _unsqueezed(x, axis),
        "flatten": lambda x: x.reshape(-1),
        "gather_elements": lambda x, i, axis: torch.gather(x, axis, i),
        "permute_dims": lambda x, axes: x.permute(*(axes or range(x.ndim - 1, -1, -1))),
        "reshape": lambda x, shape: x.reshape(shape),
        "split": split,
        "squeeze": lambda x, axis: x.squeeze() if axis is None else x.squeeze(axis),
        "strided_slice": strided_slice,
        "take": take,
        "tile": lambda x, repeats: x.repeat(*repeats),
    }


def _windows(torch: ModuleType) -> dict[str, Rule]:
    """Convolution and pooling of images."""
    F = torch.nn.functional  # noqa: N806  (PyTorch's own short name)
    return {
        "nn.adaptive_avg_pool2d": lambda x, output_size, **_: F.adaptive_avg_pool2d(x, output_size),
        "nn.avg_pool2d": lambda x, **a: _pooled(F, x, average=True, **a),
        "nn.max_pool2d": lambda x, **a: _pooled(F, x, average=False, **a),
        "nn.conv2d": lambda x, w, strides, padding, dilation, groups, **_: F.conv2d(
            _padded(F, x, padding), w, None, strides, _even(padding), dilation, groups
        ),
        "nn.pad": lambda x, pad_width, pad_value: F.pad(x, _torch_widths(pad_width), value=pad_value),
    }


def _layers(torch: ModuleType) -> dict[str, Rule]:
    """Activations and normalisations."""
    F = torch.nn.functional  # noqa: N806  (PyTorch's own short name)

    def batch_norm(
        x: object, gamma: object, beta: object, mean: object, var: object, epsilon: float, **_: object
    ) -> object:
        return (F.batch_norm(x, mean, var, gamma, beta, eps=epsilon), mean, var)

    def layer_norm(x: Tensor, gamma: Tensor, beta: Tensor, axes: object, epsilon: float, **_: object) -> Tensor:
        return F.layer_norm(x, gamma.shape, gamma, beta, epsilon)

    return {
        "nn.batch_norm": batch_norm,
        "nn.dropout": lambda x, rate: (x, x),
        "nn.gelu": lambda x: F.gelu(x),
        "nn.gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
        "nn.hard_sigmoid": lambda x, alpha, beta: torch.clamp(x * alpha + beta, 0.0, 1.0),
        "nn.layer_norm": layer_norm,
        "nn.leakyrelu": lambda x, alpha: F.leaky_relu(x, alpha),
        "nn.log_softmax": lambda x, axis: F.log_softmax(x, dim=axis),
        "nn.lrn": lambda x, size, axis, alpha, beta, bias: F.local_response_norm(x, size, alpha, beta, bias),
        "nn.relu": lambda x: torch.relu(x),
        "nn.silu": lambda x: F.silu(x),
        "nn.softmax": lambda x, axis: F.softmax(x, dim=axis),
    }


def _plain(function: Rule) -> Rule:
    def rule(*args: Tensor, axis: Ints | None = None, keepdims: bool = False) -> Tensor:
        return function(*args) if axis is None else function(*args, dim=axis, keepdim=keepdims)

    return rule


def _unsqueezed(x: Tensor, axis: Ints) -> Tensor:
    for a in [axis] if isinstance(axis, int) else axis:
        x = x.unsqueeze(a)
    return x


def _even(padding: Sequence[int]) -> list[int]:
    """(top, left, bottom, right) as PyTorch takes it, where both sides are alike; else nothing is left to pad."""
    top, left, bottom, right = padding
    return [top, left] if (top, left) == (bottom, right) else [0, 0]


def _padded(F: ModuleType, x: Tensor, padding: Sequence[int], value: float = 0.0) -> Tensor:  # noqa: N803
    top, left, bottom, right = padding
    return x if (top, left) == (bottom, right) else F.pad(x, (left, right, top, bottom), value=value)


def _pooled(
    F: ModuleType,
    x: Tensor,
    *,
    average: bool,
    pool_size: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    **rest: object,
) -> Tensor:  # noqa: N803
    uneven = tuple(padding[:2]) != tuple(padding[2:])
    if average and set(dilation) != {1}:
        raise UsageError("PyTorch cannot run this model here: a dilated average pool")
    if average and uneven and not rest["count_include_pad"]:  # sums over the counts of what is inside
        total, inside = (
            F.avg_pool2d(_padded(F, v, padding), pool_size, strides, 0, ceil_mode, divisor_override=1)
            for v in (x, x.new_ones(1, 1, *x.shape[2:]))
        )
        return total / inside
    if average:
        x = _padded(F, x, padding)
        return F.avg_pool2d(x, pool_size, strides, _even(padding), ceil_mode, rest["count_include_pad"])
    x = _padded(F, x, padding, float("-inf"))
    return F.max_pool2d(x, pool_size, strides, _even(padding), dilation, ceil_mode)


def _torch_widths(pad_width: Sequence[int]) -> list[int]:
    """Ours begin with the first dimension, PyTorch's with the last."""
    widths: list[int] = []
    for d in range(len(pad_width) - 2, -2, -2):
        widths += pad_width[d : d + 2]
    return widths

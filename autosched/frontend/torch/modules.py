"""torch.nn modules as calls of operators: what `from_fx` needs to know of each class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import torch
    from torch import nn

    from autosched.relax.expr import Expr

Applied: TypeAlias = tuple[str, dict[str, Any]]  # an operator, keyword arguments after the inputs
Weight: TypeAlias = (
    "Callable[[torch.Tensor | None], Expr | None]"  # a tensor of the module -> the expression that stands for it
)
ModuleRule: TypeAlias = "Callable[[nn.Module, Weight], Applied]"


def _plain(name: str, *attributes: str) -> ModuleRule:
    """An operator that takes some of the module's attributes under their own names."""
    return lambda m, _: (name, {a: getattr(m, a) for a in attributes})


def _conv(name: str) -> ModuleRule:
    def rule(m: nn.Module, weight: Weight) -> Applied:
        return name, {
            "weight": weight(m.weight), "bias": weight(m.bias), "stride": m.stride, "padding": m.padding,
            "dilation": m.dilation, "groups": m.groups,
        }  # fmt: skip

    return rule


def _batch_norm(m: nn.Module, weight: Weight) -> Applied:
    return "batch_norm", {
        "weight": weight(m.weight), "bias": weight(m.bias), "running_mean": weight(m.running_mean),
        "running_var": weight(m.running_var), "eps": m.eps,
    }  # fmt: skip


def _affine(name: str, *attributes: str) -> ModuleRule:
    """An operator with weight and bias, either of which may be missing."""

    def rule(m: nn.Module, weight: Weight) -> Applied:
        return name, {
            "weight": weight(m.weight), "bias": weight(getattr(m, "bias", None)),
            **{a: getattr(m, a) for a in attributes},
        }  # fmt: skip

    return rule


def _embedding(m: nn.Module, weight: Weight) -> Applied:
    return "take_rows", {"weight": weight(m.weight)}


MODULES: Mapping[str, ModuleRule] = {
    "Linear": _affine("linear"),
    "Conv1d": _conv("conv1d"),
    "Conv2d": _conv("conv2d"),
    "BatchNorm1d": _batch_norm,
    "BatchNorm2d": _batch_norm,
    "LayerNorm": _affine("layer_norm", "normalized_shape", "eps"),
    "GroupNorm": _affine("group_norm", "num_groups", "eps"),
    "RMSNorm": lambda m, weight: (
        "rms_norm",
        {"normalized_shape": m.normalized_shape, "weight": weight(m.weight), "eps": m.eps},
    ),
    "Embedding": _embedding,
    "MaxPool2d": _plain("max_pool2d", "kernel_size", "stride", "padding", "dilation", "ceil_mode"),
    "AvgPool2d": _plain("avg_pool2d", "kernel_size", "stride", "padding", "ceil_mode", "count_include_pad"),
    "AdaptiveAvgPool2d": _plain("adaptive_avg_pool2d", "output_size"),
    "Flatten": _plain("flatten", "start_dim", "end_dim"),
    "Softmax": _plain("softmax", "dim"),
    "LogSoftmax": _plain("log_softmax", "dim"),
    "ReLU": _plain("relu"),
    "ReLU6": _plain("relu6"),
    "Hardtanh": _plain("hardtanh", "min_val", "max_val"),
    "LeakyReLU": _plain("leaky_relu", "negative_slope"),
    "ELU": _plain("elu", "alpha"),
    "GELU": _plain("gelu", "approximate"),
    "SiLU": _plain("silu"),
    "Mish": _plain("mish"),
    "Sigmoid": _plain("sigmoid"),
    "Tanh": _plain("tanh"),
    "Softplus": _plain("softplus", "beta", "threshold"),
    "Hardsigmoid": _plain("hardsigmoid"),
    "Hardswish": _plain("hardswish"),
    "Identity": _plain("identity"),
    "Dropout": _plain("dropout"),
    "Dropout2d": _plain("dropout"),
}

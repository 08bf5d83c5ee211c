"""Normalisations."""

from __future__ import annotations

from collections.abc import Sequence

from autosched import te
from autosched.te import Tensor
from autosched.tir import expr as E
from autosched.tir.axis import IterVar
from autosched.tir.expr import IntImm, PrimExpr, as_int
from autosched.topi.reduction import full_index, reduced_shape
from autosched.topi.shapes import axis_names, dims


def batch_norm(
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    mean: Tensor,
    var: Tensor,
    axis: int,
    epsilon: float,
    center: bool,
    scale: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Inference: (x - mean) / sqrt(var + epsilon) * gamma + beta along `axis`; and the statistics as they were."""

    def compute(*i: PrimExpr) -> PrimExpr:
        c = i[axis]
        value = (x(*i) - mean(c)) * te.rsqrt(var(c) + E.const(epsilon, x.dtype))
        value = value * gamma(c) if scale else value
        return value + beta(c) if center else value

    out = te.compute(x.shape, compute, name="T_batch_norm", varargs_names=axis_names(x.ndim))
    return out, _copy(mean, "T_mean"), _copy(var, "T_var")


def _copy(x: Tensor, name: str) -> Tensor:
    return te.compute(x.shape, lambda *i: x(*i), name=name, varargs_names=axis_names(x.ndim))


def layer_norm(
    x: Tensor, gamma: Tensor, beta: Tensor, axes: Sequence[int], epsilon: float, center: bool, scale: bool
) -> Tensor:
    """Subtract the mean over `axes`, divide by the standard deviation, times gamma, plus beta.

    Two passes, mean then squared distances: the one-pass formula loses all digits where the mean is large.
    """
    shape = dims(x.shape)
    rest = dims(reduced_shape(shape, axes, False))
    count = 1
    for a in axes:
        count *= as_int(x.shape[a])

    def over() -> list[IterVar]:
        return [te.reduce_axis((0, shape[a]), f"k{a}") for a in axes]

    def kept(index: Sequence[PrimExpr]) -> list[PrimExpr]:
        return [v for i, v in enumerate(index) if i not in axes]

    k = over()
    names = axis_names(len(rest))
    total = te.compute(
        rest,
        lambda *i: te.sum(x(*full_index(i, k, x.ndim, axes, False)), axis=k),
        name="layer_norm_sum",
        varargs_names=names,
    )
    mean = te.compute(rest, lambda *i: total(*i) / E.const(count, x.dtype), name="layer_norm_mean", varargs_names=names)
    k2 = over()

    def squares(*i: PrimExpr) -> PrimExpr:
        distance = x(*full_index(i, k2, x.ndim, axes, False)) - mean(*i)
        return te.sum(distance * distance, axis=k2)

    squared = te.compute(rest, squares, name="layer_norm_squares", varargs_names=names)
    inverse = te.compute(
        rest, lambda *i: te.rsqrt(squared(*i) / E.const(count, x.dtype) + E.const(epsilon, x.dtype)),
        name="layer_norm_rstd", varargs_names=names,
    )  # fmt: skip

    def normalise(*i: PrimExpr) -> PrimExpr:
        own, outer = [i[a] for a in axes], kept(i)
        value = (x(*i) - mean(*outer)) * inverse(*outer)
        value = value * gamma(*own) if scale else value
        return value + beta(*own) if center else value

    return te.compute(shape, normalise, name="T_layer_norm", varargs_names=axis_names(x.ndim))


def rms_norm(x: Tensor, weight: Tensor, axes: Sequence[int], epsilon: float) -> Tensor:
    """Divide by the root of the mean square over `axes`, times the weight. Source: Zhang, Sennrich 2019."""
    shape = dims(x.shape)
    rest = dims(reduced_shape(shape, axes, False))
    count = 1
    for a in axes:
        count *= as_int(x.shape[a])
    k = [te.reduce_axis((0, shape[a]), f"k{a}") for a in axes]
    names = axis_names(len(rest))

    def squares(*i: PrimExpr) -> PrimExpr:
        value = x(*full_index(i, k, x.ndim, axes, False))
        return te.sum(value * value, axis=k)

    total = te.compute(rest, squares, name="rms_norm_squares", varargs_names=names)
    inverse = te.compute(
        rest, lambda *i: te.rsqrt(total(*i) / E.const(count, x.dtype) + E.const(epsilon, x.dtype)),
        name="rms_norm_inverse", varargs_names=names,
    )  # fmt: skip

    def scaled(*i: PrimExpr) -> PrimExpr:
        outer = [v for n, v in enumerate(i) if n not in axes]
        return x(*i) * inverse(*outer) * weight(*(i[a] for a in axes))

    return te.compute(shape, scaled, name="T_rms_norm", varargs_names=axis_names(x.ndim))


def lrn(x: Tensor, size: int, axis: int, alpha: float, beta: float, bias: float) -> Tensor:
    """Local response normalisation: x / (bias + alpha / size * sum of squares over `size` neighbours) ** beta.

    Source: Krizhevsky, Sutskever, Hinton 2012, section 3.3; alpha divided by size as in ONNX.
    """
    shape = dims(x.shape)
    extent, before = x.shape[axis], (size - 1) // 2
    k = te.reduce_axis((0, IntImm(size, "int64")), "k")
    names = axis_names(x.ndim)

    def squares(*i: PrimExpr) -> PrimExpr:
        at = i[axis] + k - before
        value = x(*(at if a == axis else v for a, v in enumerate(i)))
        return te.sum(value * value, axis=k, where=te.all(at >= 0, at < extent))

    total = te.compute(shape, squares, name="lrn_squares", varargs_names=names)

    def normalise(*i: PrimExpr) -> PrimExpr:
        base = total(*i) * E.const(alpha / size, x.dtype) + E.const(bias, x.dtype)
        return x(*i) / _power(base, beta)

    return te.compute(shape, normalise, name="T_lrn", varargs_names=names)


def _power(base: PrimExpr, beta: float) -> PrimExpr:
    """base ** beta by square roots where that is exact: a square root is far cheaper than a power."""
    if beta == 1.0:
        return base
    root = te.sqrt(base)
    if beta == 0.5:
        return root
    if beta == 0.75:
        return root * te.sqrt(root)
    return te.power(base, E.const(beta, base.dtype))

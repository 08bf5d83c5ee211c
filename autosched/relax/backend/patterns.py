"""Forms that libraries have kernels for."""

from __future__ import annotations

from autosched.relax.dpl import DFPattern, is_op, wildcard

Named = tuple[DFPattern, dict[str, DFPattern]]


def _with_bias_activation(
    out: DFPattern, names: dict[str, DFPattern], with_bias: bool, activation: str | None
) -> Named:
    names["root"] = out
    if with_bias:
        names["bias"] = bias = wildcard()
        out = is_op("relax.add")(out, bias)
    return (is_op(activation)(out) if activation else out), names


def make_fused_bias_activation_pattern(op_name: str, with_bias: bool = False, activation: str | None = None) -> Named:
    """An operator of two operands, then perhaps a sum with a bias, then perhaps an activation."""
    lhs, rhs = wildcard(), wildcard()
    return _with_bias_activation(is_op(op_name)(lhs, rhs), {"lhs": lhs, "rhs": rhs}, with_bias, activation)


def make_matmul_pattern(with_bias: bool = False, activation: str | None = None, transposed_rhs: bool = False) -> Named:
    """A matrix product, the second operand perhaps transposed, then perhaps bias and activation."""
    lhs, rhs = wildcard(), wildcard()
    names: dict[str, DFPattern] = {"lhs": lhs, "rhs": rhs}
    right = is_op("relax.permute_dims")(rhs) if transposed_rhs else rhs
    return _with_bias_activation(is_op("relax.matmul")(lhs, right), names, with_bias, activation)

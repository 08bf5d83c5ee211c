"""Products with weights of 2, 4 or 8 bits in groups, each group with a scale."""

from __future__ import annotations

from autosched import te
from autosched.te import Tensor
from autosched.tir.axis import IterVar
from autosched.tir.checked_index import position
from autosched.tir.expr import PrimExpr, as_int, bitwise, cast, const, const_int
from autosched.topi.shapes import dims

WORD_BITS = 32
ACTIVATION_BITS = "activation_bits"  # the annotation of a product whose activations may be rounded
FEW_ROWS = (
    4  # so many rows and fewer are summed up group by group: a scale is multiplied in once a group, not per weight
)


def field(word: PrimExpr, k: PrimExpr | IterVar, bits: int) -> PrimExpr:
    """Number `k` of the integers in a word of 32 bits, counted modulo those that it holds from the lowest bit."""
    at = cast("uint32", k % (WORD_BITS // bits) * bits)
    return cast("float32", bitwise("bitwise_and", bitwise("shift_right", word, at), const((1 << bits) - 1, "uint32")))


def matmul_nbits(
    x: Tensor,
    weight: Tensor,
    scales: Tensor,
    zeros: Tensor | None,
    bits: int,
    block: int,
    activation_bits: int = WORD_BITS,
    by_groups: bool | None = None,
) -> Tensor:
    """[..., M, K] times the transposed dequantised weight, in float32.

    weight  uint32 [N, K * bits / 32]: integers of `bits` bits, the first one in a word's lowest bits
    scales  [N, K / block]; zeros alike, in units of the integers; 2^(bits - 1) where there are none

    by_groups  whether groups are summed up by themselves; None: those of few rows are

    With 8 activation bits a schedule may round each block of a row to 255 steps; this computes with x as it is.
    """
    attrs = {ACTIVATION_BITS: activation_bits} if activation_bits < WORD_BITS else {}
    per_word = WORD_BITS // bits
    *outer, depth = dims(x.shape)
    n = dims(weight.shape)[0]
    groups = dims(scales.shape)[1]
    few = len(outer) == 1 and (const_int(outer[0]) or FEW_ROWS + 1) <= FEW_ROWS if by_groups is None else by_groups

    def whole(j: PrimExpr, k: PrimExpr, group: PrimExpr) -> PrimExpr:
        """The integer at column j and depth k, less its zero point."""
        zero = const(float(1 << bits - 1), "float32") if zeros is None else cast("float32", zeros(j, group))
        return field(weight(j, k // per_word), k, bits) - zero

    if few:
        inner = te.reduce_axis((0, block), name="k")
        partial = te.compute(
            (outer[0], n, groups),
            lambda i, j, g: te.sum(
                cast("float32", x(i, g * block + inner)) * whole(j, g * block + inner, g), axis=inner
            ),
            name="group_sums",
        )
        group = te.reduce_axis((0, groups), name="g")
        return te.compute(
            (outer[0], n),
            lambda i, j: te.sum(partial(i, j, group) * cast("float32", scales(j, group)), axis=group),
            name="matmul_nbits",
            attrs=attrs,
        )
    real = te.compute(
        (n, depth), lambda j, k: whole(j, k, k // block) * cast("float32", scales(j, k // block)), name="dequantized"
    )
    k = te.reduce_axis((0, depth), name="k")
    return te.compute(
        (*outer, n),
        lambda *i: te.sum(cast("float32", x(*i[:-1], k)) * real(i[-1], k), axis=k),
        name="matmul_nbits",
        attrs=attrs,
    )


def grouped_matmul_nbits(
    x: Tensor, weight: Tensor, scales: Tensor, zeros: Tensor | None, groups: Tensor, bits: int
) -> Tensor:
    """[rows, N] in float32: each row of x [rows, K] by the dequantised matrix that `groups` [rows] names.

    weight  uint32 [groups, K * bits / 32, N]: words of a column one below the other, their integers as above
    scales  [groups, K / block, N]; zeros alike, in units of the integers; 2^(bits - 1) where there are none
    """
    per_word, depth = WORD_BITS // bits, as_int(x.shape[1])
    block = depth // as_int(scales.shape[1])
    k = te.reduce_axis((0, depth), name="k")

    def compute(row: PrimExpr, column: PrimExpr) -> PrimExpr:
        group = position(groups(row), as_int(weight.shape[0]), "grouped_matmul_nbits", "clip")
        at = (group, k // block, column)
        zero = const(float(1 << bits - 1), "float32") if zeros is None else cast("float32", zeros(*at))
        real = (field(weight(group, k // per_word, column), k, bits) - zero) * cast("float32", scales(*at))
        return te.sum(cast("float32", x(row, k)) * real, axis=k)

    return te.compute(dims((x.shape[0], weight.shape[2])), compute, name="grouped_matmul_nbits")

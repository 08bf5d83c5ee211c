"""Products with weights of 2, 4 or 8 bits in groups: activations are floats, weights are unpacked in registers."""

from __future__ import annotations

import numpy as np

from autosched import topi
from autosched.errors import InvalidTypeError, InvalidValueError, ShapeError
from autosched.relax.expr import Call
from autosched.relax.op.registry import Sample, define_op, sample
from autosched.relax.op.types import float_same, tensor
from autosched.relax.struct_info import Expr, StructInfo, TensorStructInfo, same_dim
from autosched.te import Tensor
from autosched.topi.nbits import WORD_BITS

BITS, ACTIVATION_BITS = (2, 4, 8), (8, 32)
ZERO_TYPES = ("uint8", "float16", "float32")
Array = np.ndarray


def _type(
    x: StructInfo, weight: StructInfo, scales: StructInfo, bits: int, block: int, activation_bits: int
) -> TensorStructInfo:
    rows, packed, factors = float_same(x), tensor(weight), tensor(scales)
    if bits not in BITS:
        raise InvalidValueError(f"weights of {bits} bits", hint=f"there are {', '.join(map(str, BITS))}")
    if activation_bits not in ACTIVATION_BITS:
        hint = f"{' or '.join(map(str, ACTIVATION_BITS))}: 32 for activations as they are"
        raise InvalidValueError(f"activations of {activation_bits} bits", hint=hint)
    per_word = WORD_BITS // bits
    if block < 1 or block % per_word:
        raise InvalidValueError(f"groups of {block}", hint=f"a multiple of {per_word} for weights of {bits} bits")
    if packed.dtype != "uint32" or packed.ndim != 2:
        raise InvalidTypeError(f"the weight is {packed!r}", hint="words: uint32 [N, K * bits / 32]")
    if factors.dtype not in ("float16", "float32"):
        raise InvalidTypeError(f"scales of {factors.dtype}", hint="float32 or float16")
    if rows.ndim < 2:
        raise ShapeError(f"{rows!r} has no rows", hint="[..., M, K]")
    n, words = packed.dims
    depth = rows.dims[-1]
    if not isinstance(depth, int) or depth % block or words * per_word != depth:
        raise ShapeError(f"a weight of {words} words a row holds {words * per_word} numbers, {rows!r} has {depth}")
    if factors.ndim != 2 or not same_dim(factors.dims[0], n) or factors.dims[1] != depth // block:
        raise ShapeError(f"scales {factors!r} for {n} rows of {depth // block} groups")
    return TensorStructInfo((*rows.dims[:-1], n), rows.dtype)


def _zeros_type(
    x: StructInfo,
    weight: StructInfo,
    scales: StructInfo,
    zeros: StructInfo,
    bits: int,
    block: int,
    activation_bits: int,
) -> TensorStructInfo:
    if tensor(zeros).dims != tensor(scales).dims:
        raise ShapeError(f"zero points {tensor(zeros)!r} for scales {tensor(scales)!r}")
    if tensor(zeros).dtype not in ZERO_TYPES:
        raise InvalidTypeError(f"zero points of {tensor(zeros).dtype}", hint=f"use one of {', '.join(ZERO_TYPES)}")
    return _type(x, weight, scales, bits, block, activation_bits)


def dequantize_nbits(weight: Array, scales: Array, zeros: Array | None, bits: int, block: int) -> Array:
    """The weight as float32 [N, K]: (integer - zero) * scale, the subtraction and the product each rounded once."""
    shifts = np.arange(0, WORD_BITS, bits, dtype=np.uint32)
    whole = (weight[..., None] >> shifts & np.uint32((1 << bits) - 1)).reshape(weight.shape[0], -1, block)
    zero = np.float32(1 << bits - 1) if zeros is None else zeros.astype(np.float32)[..., None]
    real = (whole.astype(np.float32) - zero) * scales.astype(np.float32)[..., None]
    return real.reshape(weight.shape[0], -1)


def _reference(
    x: Array, weight: Array, scales: Array, zeros: Array | None, bits: int, block: int, activation_bits: int
) -> Array:
    real = dequantize_nbits(weight, scales, zeros, bits, block)
    return (x.astype(np.float64) @ real.T.astype(np.float64)).astype(x.dtype)


def _compute(
    x: Tensor, weight: Tensor, scales: Tensor, zeros: Tensor | None, bits: int, block: int, activation_bits: int
) -> Tensor:
    made = topi.matmul_nbits(x, weight, scales, zeros, bits, block, activation_bits)
    return made if x.dtype == "float32" else topi.cast(made, x.dtype)


def _sample(m: int, n: int, k: int, bits: int, block: int, *more: object) -> Sample:
    types: list[object] = [(m, k), ((n, k * bits // WORD_BITS), "uint32"), (n, k // block), *more]
    return sample(*types, low=0, high=2, bits=bits, block=block)


_plain = define_op(
    "nn.matmul_nbits",
    inputs=("x", "weight", "scales"),
    attributes={"bits": 4, "block": 32, "activation_bits": 32},
    infer_type=_type,
    compute=lambda x, weight, scales, **more: _compute(x, weight, scales, None, **more),
    reference=lambda x, weight, scales, **more: _reference(x, weight, scales, None, **more),
    samples=[_sample(1, 5, 64, 4, 32), _sample(7, 5, 32, 8, 16)],
)
_with_zeros = define_op(
    "nn.matmul_nbits_zeros",
    inputs=("x", "weight", "scales", "zeros"),
    attributes={"bits": 4, "block": 32, "activation_bits": 32},
    infer_type=_zeros_type,
    compute=_compute,
    reference=_reference,
    legal_name="matmul_nbits",
    samples=[_sample(2, 3, 64, 4, 32, (3, 2)), _sample(6, 3, 64, 2, 32, ((3, 2), "uint8"))],
)


def matmul_nbits(
    x: Expr, weight: Expr, scales: Expr, zeros: Expr | None = None, bits: int = 4, block: int = 32,
    activation_bits: int = 32,
) -> Call:  # fmt: skip
    """x times the transposed weight, which has integers of 2, 4 or 8 bits: (integer - zero) * scale of its group.

    x       [..., M, K], floats, which stay as they are; with activation_bits=8 the numbers of a block of a row may be
            rounded to multiples of a 127th of the largest one, which saves few rows two thirds of the work
    weight  uint32 [N, K * bits / 32], a row's integers one after the other from the lowest bits on
    scales  float32 or float16 [N, K / block]
    zeros   alike, uint8 or floats, in units of the integers; 2^(bits - 1) where there are none
    Raises ShapeError, InvalidTypeError, InvalidValueError
    """
    attrs = {"bits": bits, "block": block, "activation_bits": activation_bits}
    return _plain(x, weight, scales, **attrs) if zeros is None else _with_zeros(x, weight, scales, zeros, **attrs)


def _grouped_type(
    x: StructInfo, weight: StructInfo, scales: StructInfo, groups: StructInfo, bits: int
) -> TensorStructInfo:
    rows, packed, factors, chosen = float_same(x), tensor(weight), tensor(scales), tensor(groups)
    if bits not in BITS:
        raise InvalidValueError(f"weights of {bits} bits", hint=f"there are {', '.join(map(str, BITS))}")
    if packed.dtype != "uint32" or factors.dtype not in ("float16", "float32") or not chosen.dtype.startswith("int"):
        raise InvalidTypeError(f"{packed!r}, scales {factors!r}, groups {chosen!r}", hint="uint32, floats, integers")
    if (rows.ndim, packed.ndim, factors.ndim, chosen.ndim) != (2, 3, 3, 1) or not packed.dims[0]:
        raise ShapeError(f"{rows!r}, {packed!r}, {factors!r}, {chosen!r}", hint="[rows, K], [groups, ...], [rows]")
    depth, blocks = rows.dims[1], factors.dims[1]
    if packed.dims[1] * WORD_BITS // bits != depth or not isinstance(blocks, int) or not blocks or depth % blocks:
        raise ShapeError(f"{packed!r} with scales {factors!r} for {rows!r}")
    same = ((rows.dims[0], chosen.dims[0]), (packed.dims[0], factors.dims[0]), (packed.dims[2], factors.dims[2]))
    if not all(same_dim(a, b) for a, b in same):
        raise ShapeError(f"{packed!r} with scales {factors!r} and groups {chosen!r} for {rows!r}")
    return TensorStructInfo((rows.dims[0], packed.dims[2]), rows.dtype)


def _grouped_zeros_type(
    x: StructInfo, weight: StructInfo, scales: StructInfo, zeros: StructInfo, groups: StructInfo, bits: int
) -> TensorStructInfo:
    if tensor(zeros).dims != tensor(scales).dims or tensor(zeros).dtype not in ZERO_TYPES:
        raise ShapeError(f"zero points {tensor(zeros)!r} for scales {tensor(scales)!r}")
    return _grouped_type(x, weight, scales, groups, bits)


def _grouped_reference(x: Array, weight: Array, scales: Array, zeros: Array | None, groups: Array, bits: int) -> Array:
    out = np.empty((len(x), weight.shape[2]), x.dtype)
    for i, group in enumerate(np.clip(groups, 0, len(weight) - 1)):
        words, factors = weight[group].T, scales[group].T
        points = None if zeros is None else zeros[group].T
        real = dequantize_nbits(words, factors, points, bits, x.shape[1] // factors.shape[1])
        out[i] = real.astype(np.float64) @ x[i].astype(np.float64)
    return out


def _grouped_compute(
    x: Tensor, weight: Tensor, scales: Tensor, zeros: Tensor | None, groups: Tensor, bits: int
) -> Tensor:
    made = topi.grouped_matmul_nbits(x, weight, scales, zeros, groups, bits)
    return made if x.dtype == "float32" else topi.cast(made, x.dtype)


_grouped = define_op(
    "nn.grouped_matmul_nbits",
    inputs=("x", "weight", "scales", "groups"),
    attributes={"bits": 4},
    infer_type=_grouped_type,
    compute=lambda x, weight, scales, groups, bits: _grouped_compute(x, weight, scales, None, groups, bits),
    reference=lambda x, weight, scales, groups, bits: _grouped_reference(x, weight, scales, None, groups, bits),
    samples=[sample((3, 64), ((4, 8, 5), "uint32"), (4, 2, 5), ((3,), "int64"), low=0, high=5, bits=4)],
)
_grouped_with_zeros = define_op(
    "nn.grouped_matmul_nbits_zeros",
    inputs=("x", "weight", "scales", "zeros", "groups"),
    attributes={"bits": 4},
    infer_type=_grouped_zeros_type,
    compute=_grouped_compute,
    reference=_grouped_reference,
    legal_name="grouped_matmul_nbits",
    samples=[
        sample((2, 16), ((3, 4, 33), "uint32"), (3, 1, 33), ((3, 1, 33), "uint8"), ((2,), "int32"), low=0, bits=8),
    ],
)


def grouped_matmul_nbits(x: Expr, weight: Expr, scales: Expr, zeros: Expr | None, groups: Expr, bits: int = 4) -> Call:
    """[rows, N]: each row of x [rows, K] by the matrix that `groups` [rows] names, of integers as in `matmul_nbits`.

    weight  uint32 [groups, K * bits / 32, N]: the words of a column one below the other
    scales  float32 or float16 [groups, blocks, N], of blocks of K / blocks integers
    zeros   alike, uint8 or floats; 2^(bits - 1) where there are none
    Groups that are negative or beyond the last are the first and the last.
    Raises ShapeError, InvalidTypeError, InvalidValueError
    """
    if zeros is None:
        return _grouped(x, weight, scales, groups, bits=bits)
    return _grouped_with_zeros(x, weight, scales, zeros, groups, bits=bits)


__all__ = ["dequantize_nbits", "grouped_matmul_nbits", "matmul_nbits"]

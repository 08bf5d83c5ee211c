"""Matrices of integers of 4 bits that a `DequantizeLinear` gives: products take them packed, other nodes as floats."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from autosched.frontend.onnx.node import Held
from autosched.relax.expr import Constant
from autosched.relax.op.nbits import dequantize_nbits

TAKES_PACKED = ("MatMul", "Gemm", "Transpose")  # operators of ONNX
BITS, PER_WORD = 4, 8
LEAST = {"int4": -8, "uint4": 0}


@dataclass(frozen=True, eq=False, kw_only=True)
class PackedWeight(Held):
    """A matrix [K, N], (integer - zero) * scale in blocks along K, as `op.nn.matmul_nbits` takes its transpose.

    words      uint32 [N, K / 8]
    scales     [N, K / block]; zeros alike, uint8; None: 8
    is_turned  the value is the transpose of that matrix, [N, K]
    """

    words: Constant
    scales: Constant
    zeros: Constant | None
    block: int
    is_turned: bool

    @property
    def dtype(self) -> str:
        return str(self.scales.data.dtype)

    @cached_property
    def tensor(self) -> Constant:
        """The value in the scales' dtype."""
        zeros = None if self.zeros is None else self.zeros.data
        real = dequantize_nbits(self.words.data, self.scales.data, zeros, BITS, self.block)
        return Constant(np.ascontiguousarray(real if self.is_turned else real.T).astype(self.dtype))

    def as_tensor(self) -> Constant:
        return self.tensor

    def transposed(self) -> PackedWeight:
        return dataclasses.replace(self, is_turned=not self.is_turned)


def packed_weight(
    values: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None, axis: int, block: int
) -> PackedWeight | None:
    """Of a matrix with a scale for each block along an axis, or for each row or column (block 0); None: as floats."""
    kind = str(values.dtype)
    if kind not in LEAST or values.ndim != 2 or str(scales.dtype) not in ("float16", "float32"):
        return None
    is_turned = axis % 2 == 1  # sums run along the blocks
    if not block and scales.ndim == 1:
        is_turned, block = not is_turned, values.shape[1 - axis % 2]
        scales, zeros = scales.reshape(1, -1), None if zeros is None else zeros.reshape(1, -1)
        if is_turned:
            scales, zeros = scales.T, None if zeros is None else zeros.T
    if zeros is not None and (zeros.shape, zeros.dtype) != (scales.shape, values.dtype):
        return None
    if not is_turned:
        values, scales, zeros = values.T, scales.T, None if zeros is None else zeros.T
    n, k = values.shape
    if block < 1 or block % PER_WORD or k % block or scales.shape != (n, k // block) or not np.isfinite(scales).all():
        return None
    raised = (values.astype(np.int8) - LEAST[kind]).astype(np.uint8)
    words = np.ascontiguousarray(raised[:, ::2] | raised[:, 1::2] << BITS).view("<u4")
    points = None
    if zeros is not None or kind == "uint4":
        whole = np.zeros(scales.shape, np.int8) if zeros is None else zeros.astype(np.int8)
        points = Constant(np.ascontiguousarray((whole - LEAST[kind]).astype(np.uint8)))
    factors = Constant(np.ascontiguousarray(scales))
    return PackedWeight(
        None, True, words=Constant(words), scales=factors, zeros=points, block=block, is_turned=is_turned
    )

"""Matrices of integers of 4 bits that a `DequantizeLinear` gives: products take them packed, other nodes as floats."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from autosched.frontend.onnx.node import Held
from autosched.relax.expr import Constant
from autosched.relax.op.nbits import dequantize_nbits

BITS, PER_WORD = 4, 8
LEAST = {"int4": -8, "uint4": 0}


@dataclass(frozen=True, eq=False, kw_only=True)
class PackedWeight(Held):
    """A matrix [K, N], (integer - zero) * scale in blocks along K, as `op.nn.matmul_nbits` takes its transpose.

    words   uint32 [N, K / 8]
    scales  [N, K / block]; zeros alike, uint8; None: 8
    """

    words: Constant
    scales: Constant
    zeros: Constant | None
    block: int

    @property
    def dtype(self) -> str:
        return str(self.scales.data.dtype)

    @cached_property
    def tensor(self) -> Constant:
        """The matrix [K, N] in the scales' dtype."""
        zeros = None if self.zeros is None else self.zeros.data
        real = dequantize_nbits(self.words.data, self.scales.data, zeros, BITS, self.block)
        return Constant(np.ascontiguousarray(real.T).astype(self.dtype))

    def as_tensor(self) -> Constant:
        return self.tensor


def packed_weight(
    values: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None, axis: int, block: int
) -> PackedWeight | None:
    """Of a matrix with a scale for each block along axis 0, or for each column (block 0); None: as floats."""
    kind = str(values.dtype)
    if kind not in LEAST or values.ndim != 2 or str(scales.dtype) not in ("float16", "float32"):
        return None
    (k, n), along = values.shape, axis % 2
    if not block and along == 1 and scales.ndim == 1:
        scales, block, along = scales.reshape(1, -1), k, 0
        zeros = None if zeros is None else zeros.reshape(1, -1)
    if along or block < 1 or block % PER_WORD or k % block or scales.shape != (k // block, n):
        return None
    if not np.isfinite(scales).all() or (
        zeros is not None and (zeros.shape, zeros.dtype) != (scales.shape, values.dtype)
    ):
        return None
    raised = (values.astype(np.int8) - LEAST[kind]).astype(np.uint8).T
    words = np.ascontiguousarray(raised[:, ::2] | raised[:, 1::2] << BITS).view("<u4")
    points = None
    if zeros is not None or kind == "uint4":
        whole = np.zeros(scales.shape, np.int8) if zeros is None else zeros.astype(np.int8)
        points = Constant(np.ascontiguousarray((whole - LEAST[kind]).astype(np.uint8).T))
    factors = Constant(np.ascontiguousarray(scales.T))
    return PackedWeight(None, True, words=Constant(words), scales=factors, zeros=points, block=block)

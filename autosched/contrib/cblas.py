"""TVM's `contrib.cblas`: matrix products by a library, here NumPy's."""

from __future__ import annotations

from autosched.errors import InvalidValueError
from autosched.te import Tensor, extern
from autosched.tir import call_packed


def matmul(lhs: Tensor, rhs: Tensor, transa: bool = False, transb: bool = False, **kwargs: str) -> Tensor:
    """lhs [M, K] times rhs [K, N], either given transposed. Raises ValueError for tensors of other ranks."""
    if lhs.ndim != 2 or rhs.ndim != 2:
        raise InvalidValueError(f"matmul takes two matrices, got {lhs.ndim} and {rhs.ndim} dimensions")
    shape = (lhs.shape[1] if transa else lhs.shape[0], rhs.shape[0] if transb else rhs.shape[1])
    return extern(
        shape, [lhs, rhs],
        lambda ins, outs: call_packed("tvm.contrib.cblas.matmul", ins[0], ins[1], outs[0], transa, transb),
        name=kwargs.get("name", "C"), dtype=lhs.dtype,
    )  # fmt: skip


def batch_matmul(
    lhs: Tensor, rhs: Tensor, transa: bool = False, transb: bool = False, iterative: bool = False, **kwargs: str
) -> Tensor:
    """lhs [B, M, K] times rhs [B, K, N], either given transposed. Raises ValueError for tensors of other ranks."""
    if lhs.ndim != 3 or rhs.ndim != 3:
        raise InvalidValueError(f"batch_matmul takes tensors of three dimensions, got {lhs.ndim} and {rhs.ndim}")
    shape = (lhs.shape[0], lhs.shape[2] if transa else lhs.shape[1], rhs.shape[1] if transb else rhs.shape[2])
    return extern(
        shape, [lhs, rhs],
        lambda ins, outs: call_packed("tvm.contrib.cblas.batch_matmul", ins[0], ins[1], outs[0], transa, transb),
        name=kwargs.get("name", "C"), dtype=lhs.dtype,
    )  # fmt: skip

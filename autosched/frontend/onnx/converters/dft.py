"""Discrete Fourier transforms as products with a constant matrix."""

from __future__ import annotations

import numpy as np

from autosched.frontend.onnx.node import Node
from autosched.frontend.onnx.registry import converter
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, ShapeExpr

MOST_ELEMENTS = 1 << 22  # of a matrix: 1024 complex values; beyond, a library's n log n is less work


@converter("DFT")
def dft(node: Node) -> Expr:
    """Along an axis of [..., n, ..., 1 or 2], whose last dimension are real and imaginary parts; padded or cut."""
    shape, dtype = node.shape(0), node.info(0).dtype
    inverse, onesided = bool(node.attr("inverse", 0)), bool(node.attr("onesided", 0))
    if dtype not in ("float32", "float64") or len(shape) < 2 or shape[-1] not in (1, 2) or 0 in shape:
        raise node.no_kernel(f"of {dtype} {list(shape)}")
    given = node.attr("axis", 1) if node.opset < 20 else node.integers(2)[0] if node.has(2) else -2
    axis, last = node.axis(given), len(shape) - 1
    if axis == last or (onesided and (inverse or shape[-1] == 2)):
        raise node.no_kernel("the axis of parts, or one side of it")
    length = node.integers(1)[0] if node.has(1) else shape[axis]
    wanted = length // 2 + 1 if onesided else length
    if not 0 < length <= MOST_ELEMENTS or shape[axis] * shape[-1] * wanted * 2 > MOST_ELEMENTS:
        raise node.no_kernel(f"a transform of {length} values")
    matrix = Constant(_matrix(shape[axis], shape[-1], length, wanted, inverse).astype(dtype))
    order = [*(d for d in range(last) if d != axis), axis, last]
    turned = node.input(0) if order == [*range(last + 1)] else node.emit(op.permute_dims(node.input(0), axes=order))
    lead = [shape[d] for d in order[:-2]]
    flat = node.emit(op.reshape(turned, ShapeExpr((*lead, shape[axis] * shape[-1]))))
    made = node.emit(op.reshape(node.emit(op.matmul(flat, matrix)), ShapeExpr((*lead, wanted, 2))))
    back = [order.index(d) for d in range(last + 1)]
    return made if back == [*range(last + 1)] else op.permute_dims(made, axes=back)


def _matrix(size: int, parts: int, length: int, wanted: int, inverse: bool) -> np.ndarray:
    """[size * parts, wanted * 2]: what each part contributes to each part; values past a length to none."""
    j, k = np.arange(size), np.arange(wanted)
    angle = 2 * np.pi / length * (np.outer(j, k) % length)  # whole turns taken off as integers, which is exact
    real, imaginary = np.cos(angle), np.sin(angle) if inverse else -np.sin(angle)
    rows = [np.stack([real, imaginary], axis=-1), np.stack([-imaginary, real], axis=-1)][:parts]
    matrix = np.stack(rows, axis=1) / (length if inverse else 1)  # [size, parts, wanted, 2]
    matrix[length:] = 0
    return np.ascontiguousarray(matrix.reshape(size * parts, wanted * 2))

"""Discrete Fourier transforms, of whole signals and of their frames, as products with a constant matrix."""

from __future__ import annotations

import dataclasses

import numpy as np

from autosched.frontend.fourier import MOST_ELEMENTS, dft_matrix
from autosched.frontend.onnx.node import Node, info_of
from autosched.frontend.onnx.registry import converter
from autosched.frontend.size_arithmetic import is_empty
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, ShapeExpr, Tuple


@converter("DFT")
def dft(node: Node) -> Expr:
    """Along an axis of [..., n, ..., 1 or 2], whose last dimension are real and imaginary parts; padded or cut."""
    shape, dtype = node.info(0).dims, node.info(0).dtype
    inverse, onesided = bool(node.attr("inverse", 0)), bool(node.attr("onesided", 0))
    parts = shape[-1] if len(shape) > 1 and not is_empty(node.input(0)) else None
    if dtype not in ("float32", "float64") or not isinstance(parts, int) or parts not in (1, 2):
        raise node.no_kernel(f"of {dtype} {list(shape)}")
    given = node.attr("axis", 1) if node.opset < 20 else node.integers(2)[0] if node.has(2) else -2
    axis, last = node.axis(given), len(shape) - 1
    if axis == last or (onesided and (inverse or parts == 2)):
        raise node.no_kernel("the axis of parts, or one side of it")
    size = shape[axis]
    length = node.integers(1)[0] if node.has(1) else size
    if not isinstance(size, int) or not isinstance(length, int):
        raise node.fail(f"a transform along the dimension '{size}' whose size is not known")
    wanted = length // 2 + 1 if onesided else length
    if not 0 < length <= MOST_ELEMENTS or size * parts * wanted * 2 > MOST_ELEMENTS:
        raise node.no_kernel(f"a transform of {length} values")
    rows = size * parts
    weights = dft_matrix(size, length, wanted, inverse)[:, :parts].reshape(rows, wanted * 2)
    matrix = Constant((weights / (length if inverse else 1)).astype(dtype))
    order = [*(d for d in range(last) if d != axis), axis, last]
    turned = node.input(0) if order == [*range(last + 1)] else node.emit(op.permute_dims(node.input(0), axes=order))
    lead = [shape[d] for d in order[:-2]]
    flat = node.emit(op.reshape(turned, ShapeExpr((*lead, rows))))
    made = node.emit(op.reshape(node.emit(op.matmul(flat, matrix)), ShapeExpr((*lead, wanted, 2))))
    back = [order.index(d) for d in range(last + 1)]
    return made if back == [*range(last + 1)] else op.permute_dims(made, axes=back)


def _rows(node: Node) -> tuple[Expr, str]:
    """The input of a transform of com.microsoft in float32 or float64, and its own dtype. Raises ImportModelError."""
    asked = [node.attr("signal_ndim", 1), node.attr("normalized", 0), node.attr("onesided", 1)]
    if asked != [1, 0, 1]:
        raise node.fail("signal_ndim={}, normalized={}, onesided={}".format(*asked), hint="1, 0 and 1 are possible")
    x, dtype = node.input(0), node.info(0).dtype
    return (node.emit(op.astype(x, "float32")) if dtype == "float16" else x), dtype


@converter("com.microsoft.Rfft")
def rfft(node: Node) -> Expr:
    """Real signals [..., n] as the half [..., n // 2 + 1, 2] of their frequencies."""
    x, dtype = _rows(node)
    wide = node.emit(op.expand_dims(x, axis=[info_of(x).ndim]))
    result = dft(dataclasses.replace(node, inputs=[wide], attrs={"onesided": 1}, opset=20))
    return result if dtype != "float16" else op.astype(node.emit(result), dtype)


@converter("com.microsoft.Irfft")
def irfft(node: Node) -> Expr:
    """The real signals [..., 2 * (m - 1)] of such halves [..., m, 2]."""
    x, dtype = _rows(node)
    *lead, m, parts = info_of(x).dims
    if not isinstance(m, int) or parts != 2 or m < 2:
        raise node.fail(f"frequencies of shape {list(info_of(x).dims)}")
    n = 2 * (m - 1)
    if 2 * m * n > MOST_ELEMENTS:
        raise node.fail(f"a transform of {n} values")
    matrix = dft_matrix(m, n, n, inverse=True)[..., 0] / n
    matrix[1:-1] *= 2  # the other half is what these are, mirrored
    flat = node.emit(op.reshape(x, ShapeExpr((*lead, 2 * m))))
    result = op.matmul(flat, Constant(matrix.reshape(2 * m, n).astype(info_of(x).dtype)))
    return result if dtype != "float16" else op.astype(node.emit(result), dtype)


@converter("com.microsoft.ComplexMul", "com.microsoft.ComplexMulConj")
def complex_product(node: Node) -> Expr:
    """A times B, or the conjugate of B; the last dimension are real and imaginary parts."""
    sides = []
    for i in (0, 1):
        rank = node.info(i).ndim
        if not rank or node.info(i).dims[-1] != 2:
            raise node.fail(f"input {i} is {list(node.info(i).dims)}, without two parts")
        cuts = ({"begin": (p,), "end": (p + 1,)} for p in (0, 1))
        sides.append([node.emit(op.strided_slice(node.input(i), axes=(rank - 1,), strides=(1,), **c)) for c in cuts])
    (a, b), (c, d) = sides
    plus, minus = (op.subtract, op.add) if node.op_type.endswith("Conj") else (op.add, op.subtract)
    real = node.emit(minus(op.multiply(a, c), op.multiply(b, d)))
    imaginary = node.emit(plus(op.multiply(b, c), op.multiply(a, d)))
    return op.concat(Tuple((real, imaginary)), axis=info_of(real).ndim - 1)


@converter("STFT")
def stft(node: Node) -> Expr:
    """Transforms of frames of signals [B, L, 1 or 2], each times a window: [B, frames, frequencies, 2].

    Real signals may be [B, L], as ONNX Runtime takes them.

    A convolution over the signal, whose stride is the distance of frames, and whose weights are the matrix of the
    transform times the window.
    """
    signal, dims = node.input(0), node.info(0).dims
    if len(dims) == 2:
        signal, dims = node.emit(op.expand_dims(signal, axis=[2])), (*dims, 1)
    if len(dims) != 3:
        raise node.fail(f"signals of {len(dims)} dimensions")
    batch, size, parts = dims
    dtype, onesided = node.info(0).dtype, bool(node.attr("onesided", 1))
    if dtype not in ("float32", "float64") or not isinstance(parts, int) or (onesided and parts == 2):
        raise node.no_kernel(f"of {dtype} {[batch, size, parts]}")
    step, window = node.integers(1)[0], node.array(2) if node.has(2) else None
    length = node.integers(3)[0] if node.has(3) else size if window is None else window.size
    if not isinstance(length, int) or (window is not None and window.shape != (length,)):
        raise node.no_kernel(f"frames of {length} values and a window of {None if window is None else window.shape}")
    wanted = length // 2 + 1 if onesided else length
    if step < 1 or not 0 < length <= MOST_ELEMENTS or length * parts * wanted * 2 > MOST_ELEMENTS:
        raise node.no_kernel(f"frames of {length} values, {step} apart")
    if isinstance(size, int) and size < length:
        raise node.no_kernel(f"a signal of {size} values, shorter than a frame of {length}")
    matrix = dft_matrix(length, length, wanted, inverse=False)[:, :parts].reshape(length, parts, wanted * 2)
    if window is not None:
        matrix = matrix * window.astype("float64")[:, None, None]
    weights = Constant(np.ascontiguousarray(matrix.transpose(2, 1, 0)).astype(dtype))
    turned = node.emit(op.permute_dims(signal, axes=(0, 2, 1)))
    made = node.emit(op.permute_dims(node.emit(op.nn.conv1d(turned, weights, strides=step)), axes=(0, 2, 1)))
    frames = info_of(made).dims[1]
    return op.reshape(made, ShapeExpr((batch, frames, wanted, 2)))

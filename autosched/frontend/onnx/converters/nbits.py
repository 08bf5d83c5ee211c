"""`MatMulNBits`: a product with constant weights of 2, 4 or 8 bits in blocks, each with a scale and a zero point."""

from __future__ import annotations

import numpy as np

from autosched.frontend.onnx.converters.contrib import DOMAIN, only
from autosched.frontend.onnx.node import Node, constant, info_of
from autosched.frontend.onnx.registry import converter
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, ShapeExpr
from autosched.relax.op.nbits import BITS, dequantize_nbits

Array = np.ndarray
WORD_BYTES = 4
BYTES_LEVEL = 4  # of accuracy: activations may be rounded to bytes, block by block


@converter(DOMAIN + "MatMulNBits")
def matmul_n_bits(node: Node) -> Expr:
    """A times weights that stay packed and are unpacked in the product.

    With accuracy_level 4 activations may be bytes in the product; at other levels they stay what they are.
    Those whose blocks are no whole words, or do not divide K, become floats at import.
    """
    only(node, [0, 1, 2, 3, 5], ["K", "N", "bits", "block_size"])
    activations = 8 if node.attr("accuracy_level", 0) == BYTES_LEVEL else 32
    k, n, bits, block = (node.attr(name) for name in ("K", "N", "bits", "block_size"))
    bits = 4 if bits is None else bits
    if bits not in BITS or not block or block < 1 or not k or not n or min(k, n) < 1:
        raise node.fail(f"{bits} bits in blocks of {block} for K={k}, N={n}")
    blocks = -(-k // block)
    packed = _checked(node, 1, "weights", n * blocks * -(-block * bits // 8)).view(np.uint8).reshape(n, -1)
    scales = _checked(node, 2, "scales", n * blocks).reshape(n, blocks)
    zeros = _zeros(node, n, blocks, bits) if node.has(3) else None
    for what, values in (("scale", scales), ("zero point", zeros)):
        if values is not None and not np.isfinite(values).all():
            raise node.fail(f"a {what} is not finite")
    x, dtype = node.input(0), node.info(0).dtype
    if scales.dtype not in (np.float16, np.float32):
        scales = scales.astype(np.float32)
    whole_words = block * bits % (8 * WORD_BYTES) == 0
    if whole_words and blocks * block == k:
        words = np.ascontiguousarray(packed).view("<u4")
        points = None if zeros is None else Constant(zeros)
        product = op.nn.matmul_nbits(
            x, Constant(words), Constant(scales), points, bits=bits, block=block, activation_bits=activations
        )
        result = node.emit(product)
    else:
        node.require_small(4 * n * blocks * block)
        real = _real(packed.reshape(n * blocks, -1), scales, zeros, bits, block).reshape(n, -1)[:, :k]
        result = node.emit(op.matmul(x, Constant(np.ascontiguousarray(real.T).astype(dtype))))
    return op.add(result, node.input(5)) if node.has(5) else result


FP4 = (0.0, 5.208333333e-03, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)
NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip


@converter(DOMAIN + "MatMulBnb4")
def matmul_bnb4(node: Node) -> Expr:
    """A times weights that are bytes of two entries of a table each, times one scale for a block; floats at import."""
    only(node, range(3), ["K", "N", "block_size", "quant_type", "transB", "training_mode"])
    if not node.attr("transB", 1):
        raise node.fail("transB=0, of a backward pass, is not supported")
    k, n, block, kind = (node.attr(name) for name in ("K", "N", "block_size", "quant_type"))
    if kind not in (0, 1) or min(k, n, block) < 1:
        raise node.fail(f"quant_type {kind} in blocks of {block} for K={k}, N={n}")
    count, dtype = k * n, node.info(0).dtype
    node.require_small(4 * count)
    packed = _checked(node, 1, "bytes of weights", -(-count // 2)).reshape(-1)
    scales = _checked(node, 2, "scales", -(-count // block)).reshape(-1)
    table = np.asarray(NF4 if kind else (*FP4, *(-x for x in FP4)), np.float32)
    fields = np.stack([packed >> 4, packed & 15], axis=-1).reshape(-1)[:count]
    real = table[fields] * np.repeat(scales.astype(np.float32), block)[:count]
    return op.matmul(node.input(0), Constant(np.ascontiguousarray(real.reshape(n, k).T).astype(dtype)))


@converter(DOMAIN + "GatherBlockQuantized")
def gather_block_quantized(node: Node) -> Expr:
    """Rows of a table of packed integers, in blocks along them with a scale and a zero point each, as floats."""
    only(node, range(4), ["bits", "block_size", "gather_axis", "quantize_axis"])
    bits, block = node.attr("bits", 4), node.attr("block_size", 128)
    rows, width_bytes = node.sizes_from(0, 0) if node.info(0).ndim == 2 else (0, 0)
    if not rows or node.attr("gather_axis", 0) != 0 or node.attr("quantize_axis", 1) not in (1, -1):
        raise node.fail("other than rows of a matrix, quantised along these, is not supported")
    if node.info(0).dtype != "uint8" or bits not in BITS:
        raise node.fail(f"{bits} bits in {node.info(0).dtype} are not supported")
    width, dtype = width_bytes * 8 // bits, node.info(2).dtype
    blocks = -(-width // block)
    if node.info(2).dims != (rows, blocks):
        raise node.fail(f"scales {list(node.info(2).dims)} for {rows} rows of {blocks} blocks")
    at, outer = node.input(1), node.info(1).dims
    values = _fields(node, node.emit(op.take(node.input(0), at, axis=0)), bits)
    zero: Expr = constant(float(1 << bits - 1), dtype)
    if node.has(3):
        points = _fields(node, node.emit(op.take(node.input(3), at, axis=0)), bits)
        points = node.emit(op.strided_slice(points, axes=(-1,), begin=(0,), end=(blocks,), strides=(1,)))
        zero = _spread(node, node.emit(op.astype(points, dtype)), block, width)
    scale = _spread(node, node.emit(op.take(node.input(2), at, axis=0)), block, width)
    real = node.emit(op.subtract(op.astype(values, dtype), zero))
    return op.reshape(op.multiply(real, scale), ShapeExpr((*outer, width)))


def _fields(node: Node, packed: Expr, bits: int) -> Expr:
    """The integers in bytes, the first in the lowest bits: [..., B] -> [..., B * 8 / bits]."""
    *outer, count = info_of(packed).dims
    if bits == 8:
        return packed
    steps = Constant(np.arange(0, 8, bits, dtype=np.uint8))
    wide = node.emit(op.right_shift(node.emit(op.expand_dims(packed, axis=len(outer) + 1)), steps))
    fields = node.emit(op.bitwise_and(wide, constant((1 << bits) - 1, "uint8")))
    return node.emit(op.reshape(fields, ShapeExpr((*outer, count * (8 // bits)))))


def _spread(node: Node, x: Expr, block: int, width: int) -> Expr:
    """Each element for the `block` ones that it is of: [..., blocks] -> [..., width]."""
    wide = node.emit(op.repeat(x, block, axis=info_of(x).ndim - 1))
    if info_of(wide).dims[-1] == width:
        return wide
    return node.emit(op.strided_slice(wide, axes=(-1,), begin=(0,), end=(width,), strides=(1,)))


def _checked(node: Node, index: int, what: str, size: int) -> Array:
    """A constant input, which has so many elements. Raises ImportModelError."""
    found = node.array(index)
    if found.size != size:
        raise node.fail(f"{found.size} {what} where the attributes ask for {size}")
    return np.ascontiguousarray(found)


def _zeros(node: Node, n: int, blocks: int, bits: int) -> Array:
    """Zero points [N, blocks]: uint8 where they are packed as the weights are, else floats as given."""
    given = node.array(3)
    if given.dtype != np.uint8:
        return _checked(node, 3, "zero points", n * blocks).reshape(n, blocks)
    rows = _checked(node, 3, "bytes of zero points", n * -(-blocks * bits // 8)).reshape(n, -1)
    return np.ascontiguousarray(unpacked(rows, bits)[:, :blocks])


def unpacked(values: Array, bits: int) -> Array:
    """The integers in bytes, the first in the lowest bits: [..., B] -> [..., B * 8 / bits]."""
    parts = [(values >> bits * i) & ((1 << bits) - 1) for i in range(8 // bits)]
    return np.stack(parts, axis=-1).reshape(*values.shape[:-1], -1)


def _real(packed: Array, scales: Array, zeros: Array | None, bits: int, block: int) -> Array:
    """The weights as floats, [N * blocks, block], of blocks of any size."""
    width = -(-packed.shape[1] // WORD_BYTES) * WORD_BYTES
    words = np.ascontiguousarray(np.pad(packed, ((0, 0), (0, width - packed.shape[1])))).view("<u4")
    one = None if zeros is None else zeros.reshape(-1, 1)
    return dequantize_nbits(words, scales.reshape(-1, 1), one, bits, width * 8 // bits)[:, :block]

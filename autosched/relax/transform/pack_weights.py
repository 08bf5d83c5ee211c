"""Constant weights of products as integers of 4 or 8 bits in groups, each rounded to the nearest: what is fastest to
read where a model meets few rows at once. Models that were quantised with data keep their own integers (`MatMulNBits`).

Before:  matmul(x, w)                                                 float32 [K, N]
After:   nn.matmul_nbits(x, words, scales, bits=4, block=32)          uint32 [N, K / 8], float32 [N, K / 32]
"""

from __future__ import annotations

import numpy as np

from autosched.errors import InvalidValueError
from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import Call, Constant, Expr, Function, Var
from autosched.relax.op.nbits import ACTIVATION_BITS
from autosched.relax.op.registry import definition_of
from autosched.relax.rewrite import Rewriter, bindings_of, map_functions
from autosched.relax.struct_info import TensorStructInfo

Array = np.ndarray
BITS = (4, 8)
WORD_BITS = 32


def quantize_nbits(weight: Array, bits: int, block: int) -> tuple[Array, Array]:
    """(words, scales) of a float weight [N, K], the zero point in the middle; the inverse is `dequantize_nbits`.

    A group's value of the largest size becomes the least integer, so that all of them are used.
    """
    n, depth = weight.shape
    groups = weight.astype(np.float32).reshape(n, depth // block, block)
    zero = 1 << bits - 1
    largest = np.take_along_axis(groups, np.abs(groups).argmax(axis=2, keepdims=True), axis=2)
    scales = (largest / np.float32(-zero)).astype(np.float32)
    safe = np.where(scales == 0, np.float32(1), scales)
    whole = np.clip(np.rint(groups / safe) + zero, 0, 2 * zero - 1).astype(np.uint32).reshape(n, -1, WORD_BITS // bits)
    shifts = np.arange(0, WORD_BITS, bits, dtype=np.uint32)
    return np.bitwise_or.reduce(whole << shifts, axis=2), scales[:, :, 0]


class _Packer(Rewriter):
    def __init__(self, constants: dict[Var, Constant], bits: int, block: int, activation_bits: int):
        super().__init__()
        self.constants, self.bits, self.block = constants, bits, block
        self.activation_bits = activation_bits

    def call(self, call: Call, var: Var) -> Expr:
        definition = definition_of(call)
        if definition is None or definition.name != "matmul":
            return call
        x, given = call.args
        weight = self.constants.get(given) if isinstance(given, Var) else given
        info = x.struct_info
        if not isinstance(weight, Constant) or not isinstance(info, TensorStructInfo) or info.ndim < 2:
            return call
        data = weight.data
        if data.ndim != 2 or data.dtype != np.float32 or data.shape[0] % self.block or not np.isfinite(data).all():
            return call
        words, scales = quantize_nbits(np.ascontiguousarray(data.T), self.bits, self.block)
        return op.nn.matmul_nbits(
            x, Constant(words), Constant(scales),
            bits=self.bits, block=self.block, activation_bits=self.activation_bits,
        )  # fmt: skip


def pack_weights(module: IRModule, bits: int = 4, block: int = 32, activation_bits: int = 32) -> IRModule:
    """See above; `activation_bits` as of `nn.matmul_nbits`.

    Products whose depth is no multiple of a group, and weights that are not finite, stay as they are.
    """

    def convert(function: Function) -> Function:
        known = {b.var: b.value for b in bindings_of(function.body) if isinstance(b.value, Constant)}
        return _Packer(known, bits, block, activation_bits).rewrite(function)

    return map_functions(module, convert)


def PackWeights(bits: int = 4, block: int = 32, activation_bits: int = 32) -> Pass:  # noqa: N802
    """See `pack_weights`. Raises InvalidValueError for other sizes of integers and groups than there are."""
    if bits not in BITS:
        raise InvalidValueError(f"PackWeights: {bits} bits", hint=f"use one of {', '.join(map(str, BITS))}")
    if block < WORD_BITS // bits or block % (WORD_BITS // bits):
        raise InvalidValueError(f"PackWeights: groups of {block}", hint=f"a multiple of {WORD_BITS // bits}")
    if activation_bits not in ACTIVATION_BITS:
        hint = f"use {' or '.join(map(str, ACTIVATION_BITS))}"
        raise InvalidValueError(f"PackWeights: activations of {activation_bits} bits", hint=hint)
    return graph_pass("PackWeights")(lambda module: pack_weights(module, bits, block, activation_bits))


__all__ = ["PackWeights", "pack_weights", "quantize_nbits"]

"""What layouts cost: measured times where somebody knows them, an estimate otherwise.

The estimates are nanoseconds on one core of a Zen 3 with 8 lanes. Only their proportions matter: how much a change of
layout costs beside what a pool or a depthwise convolution loses in plain layout.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

from autosched.relax.expr import Call
from autosched.relax.op.registry import definition_of
from autosched.relax.transform.blocked import shape_of
from autosched.relax.transform.layout_rules import (
    FEW_CHANNELS,
    IN_WORD,
    NO_TILES,
    PLAIN,
    data_arguments,
    is_convolution,
    is_dense,
    is_pool,
    is_resize,
    is_shuffle,
    shape_of_result,
    words_of,
)  # fmt: skip

CALL_NS = 100.0  # of one more kernel
CHANGE_NS = 0.14  # an element: 112x112x64 to blocks 106 us, 56x56x64 back 26 us
SMALL_CHANGE_NS = 0.4  # of images with rows shorter than two vectors: 7x7x2048 50 us
FLOPS_PER_NS = 70.0
# Where bytes, or half as fast bfloat16, may be multiplied in tile registers: there, of blocks that fill them, and
# elsewhere; and what follows the products of an element, which takes longer than those where they are few (Granite
# Rapids: 2,500 and 800 operations a ns, 0.11 and 0.08 ns, as proportions of 200 in float32).
TILE_OPS_PER_NS, BYTE_OPS_PER_NS = 12 * FLOPS_PER_NS, 4 * FLOPS_PER_NS
AFTER_TILE_NS, AFTER_BYTE_NS = 0.3, 0.22
DEPTHWISE_NS = 0.012  # an element of the window: 112x112x32, 3x3 45 us
PLAIN_GROUPED = 0.35  # more in plain layout: 512 channels of 14x14 in 32 groups 158 us, in blocks 122 (Zen 5)
PLAIN_DEPTHWISE_NS = 0.2  # more for a result in plain layout with stride 1; above, windows are gathered as in pools
POOL_NS = 0.03  # an element of the window in blocks: 3x3 over 56x56x64 67 us
PLAIN_POOL_NS = (0.09, 0.31)  # with stride 1 (3x3 over 28x28x192 125 us), above (3x3 over 56x56x64 563 us)
PLAIN_MEAN_NS = 0.15  # an element of a whole image in plain layout
# An element of a new size, by the four around or the nearest: of pixels next to each other, which are gathered one by
# one, and of channels next to each other (Zen 5: 19 x 257 x 193 1.3 ms of two threads, 32 x 192 x 160 0.46 and 0.08).
RESIZE_NS = {"linear": (2.0, 0.25), "nearest_neighbor": (1.0, 0.16), "cubic": (8.0, 1.0)}
# An element of rows whose pixels are each the nearest of equally many, and are repeated in registers (Emerald Rapids:
# 4 x 64 x 56 x 56 0.15 ms, by blocks with both changes of layout 0.27).
REPEATED_NS = 0.18
# An element of phases that become pixels in plain layout, read from blocks or from rows, and in blocks (Emerald Rapids:
# 4 x 32 x 28 x 28 in 0.144 ms from blocks, in blocks in 0.013).
SHUFFLE_NS, PLAIN_SHUFFLE_NS = 0.14, (0.14, 1.3)
LARGER_BLOCK = 1.02  # of a convolution whose blocks have twice as many channels
# Of one whose blocks fill half a vector, where units are no wider: products load twice as much (Zen 4, 1x1 convolutions
# of 56x56: 215 GFLOP/s on two threads with 24 outputs, 192 with 96; 230 with whole vectors; depthwise 3x3 take 1.2 to
# 1.3 of the time).
HALF_VECTOR = 1.2
EARLY_NS = 1.0  # of a change before an element-wise call: of equal ways, that which stays for longer is taken


class LayoutOracle(Protocol):
    """Says how long a convolution took that somebody has tuned."""

    def seconds(self, call: Call, has: int, result: int) -> float | None:
        """The time of a call, its data in layout `has`, its result in `result` (0 plain, else channels in a block)."""


class LayoutCosts:
    """Costs of calls and of changes of layout, in nanoseconds.

    change_weight  how many times as much as estimated a change of layout is taken to cost
    """

    def __init__(
        self,
        blocks: Sequence[int],
        oracle: LayoutOracle | None = None,
        tile_blocks: Mapping[str, int] = NO_TILES,
        change_weight: float = 1.0,
    ):
        self.vector = vector_block(blocks)
        self.oracle, self.tile_blocks, self.change_weight = oracle, tile_blocks, change_weight

    def change(self, shape: Sequence[int], old: int, new: int) -> float:
        """The cost of a change of layout of an image [N, C, H, W]."""
        if old == new:
            return 0.0
        n, c, h, w = shape
        block = max(old, new)
        if h == w == 1 and PLAIN in (old, new) and c % block == 0:
            return 0.0  # the order in memory is the same
        each = SMALL_CHANGE_NS if w < 2 * self.vector else CHANGE_NS
        return self.change_weight * (CALL_NS + each * n * h * w * _stored(c, block))

    def calls(self, call: Call, combinations: Sequence[tuple[int, int]]) -> Mapping[tuple[int, int], float]:
        """The costs of a call for (layout of its data, layout of its result).

        Measured times count where they tell results in several layouts apart, and the estimates of the others are
        scaled as the measured ones' have to be. One alone says nothing about layouts: a model that has been tuned keeps
        those that it was tuned in.
        """
        guessed = {c: self.estimate(call, *c) for c in combinations}
        if self.oracle is None or not is_convolution(call):
            return guessed
        measured = {c: s * 1e9 for c in combinations if (s := self.oracle.seconds(call, *c)) is not None}
        if len({result for _, result in measured}) < 2:
            return guessed
        scale = math.exp(sum(math.log(measured[c] / guessed[c]) for c in measured) / len(measured))
        return {c: measured.get(c, guessed[c] * scale) for c in combinations}

    def estimate(self, call: Call, has: int, result: int) -> float:
        """What a call takes; element-wise calls join others and cost nothing of their own."""
        definition, shape = definition_of(call), shape_of_result(call)
        if definition is None or len(shape) != 4:
            return 0.0
        if is_convolution(call):
            return self._convolution(call, shape, has if has and is_dense(call) else result, result)
        if is_pool(call):
            return self._pool(call, shape, result)
        if is_resize(call):
            n, c, h, w = shape
            method, row = call.attrs["method"], shape_of(data_arguments(call)[0])[3:]
            each = RESIZE_NS[method][result != PLAIN]
            if method == "nearest_neighbor" and result == PLAIN and row and row[0] and w % row[0] == 0:
                each = REPEATED_NS
            return CALL_NS + each * n * h * w * (_stored(c, result) if result else c)
        if is_shuffle(call):
            return CALL_NS + (SHUFFLE_NS if result else PLAIN_SHUFFLE_NS[has != PLAIN]) * math.prod(shape)
        return EARLY_NS if has != result else EARLY_NS / 100 if result == PLAIN else 0.0

    def _convolution(self, call: Call, shape: Sequence[int], data: int, result: int) -> float:
        """A convolution that reads its data in blocks of `data` channels, or in plain layout."""
        n, c, h, w = shape
        _, per_group, kh, kw = shape_of(call.args[1])
        points = n * h * w * (_stored(c, result) if result else c)
        words = words_of(call)
        if result and words in self.tile_blocks:
            is_first = per_group <= FEW_CHANNELS
            fast = is_first or data == result == self.tile_blocks[words]
            channels = FEW_CHANNELS if is_first else _stored(per_group, data)
            rate, after = (TILE_OPS_PER_NS, AFTER_TILE_NS) if fast else (BYTE_OPS_PER_NS, AFTER_BYTE_NS)
            rate *= IN_WORD[words] / IN_WORD["uint8"]
            return points * (2 * channels * kh * kw / rate + after) + CALL_NS
        if is_dense(call):
            channels = _stored(per_group, data) if data and per_group > FEW_CHANNELS else per_group
            return 2 * points * channels * kh * kw / FLOPS_PER_NS * self._block(result) + CALL_NS
        strided = call.attrs["strides"] != (1, 1)
        each = kh * kw * max(DEPTHWISE_NS, 2 * per_group / FLOPS_PER_NS if per_group > 1 else 0.0)
        small = SMALL_CHANGE_NS / CHANGE_NS if w < 2 * self.vector else 1.0
        plain = PLAIN_DEPTHWISE_NS * small if per_group == 1 else PLAIN_GROUPED * each
        if strided:
            plain = PLAIN_POOL_NS[1] * kh * kw * per_group
        return points * (each * self._half(result) + (0.0 if result else plain)) + CALL_NS

    def _half(self, result: int) -> float:
        return HALF_VECTOR if 0 < result < self.vector else 1.0

    def _block(self, result: int) -> float:
        """How many times as long as with whole vectors a convolution takes whose result has such blocks."""
        larger: float = LARGER_BLOCK ** math.log2(max(result, self.vector) / self.vector)
        return larger * self._half(result)

    def _pool(self, call: Call, shape: Sequence[int], result: int) -> float:
        n, c, h, w = shape
        (data,) = data_arguments(call)[:1]
        if "pool_size" not in call.attrs:  # adaptive: every element of the image once
            in_h, in_w = shape_of(data)[2:4]
            each = POOL_NS * 2 if result else PLAIN_MEAN_NS if h == w == 1 else PLAIN_POOL_NS[1]
            return CALL_NS + each * n * (_stored(c, result) if result else c) * in_h * in_w
        strided: bool = tuple(call.attrs["strides"]) != (1, 1)
        window: int = math.prod(call.attrs["pool_size"])
        each = POOL_NS * self._half(result) if result else PLAIN_POOL_NS[strided]
        return CALL_NS + each * window * n * h * w * (_stored(c, result) if result else c)


def vector_block(blocks: Sequence[int]) -> int:
    """The channels in a block that a vector holds, where there are blocks of one, two, and perhaps half a vector."""
    return sorted(blocks)[-2] if len(blocks) > 1 else max(blocks, default=1)


def _stored(channels: int, block: int) -> int:
    return -(-channels // block) * block


__all__ = ["LayoutCosts", "LayoutOracle", "vector_block"]

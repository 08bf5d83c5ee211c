"""Decision trees: where rows get to in them.

A node is a word, (child << (bits + 1)) | (feature << 1) | tracks, and a split. A row whose feature is at most (or
below) the split goes to `child`, else to the next one; NaN goes to `child` where `tracks` is 1. A leaf follows itself:
its split is NaN, its child is the node before it.

levels  how many nodes on
strict  below the split, not at most
tracks  whether nodes may track NaN: none does without
Positions and features beyond the last are the last.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autosched import te
from autosched.errors import InvalidTypeError, InvalidValueError, ShapeError
from autosched.relax.op.registry import define_op, sample
from autosched.relax.op.types import tensor
from autosched.relax.struct_info import StructInfo, TensorStructInfo
from autosched.te import Tensor
from autosched.tir import expr as E
from autosched.tir.expr import PrimExpr
from autosched.topi.shapes import compute_over, extent_of

Array = np.ndarray
WORD = "int32"


def feature_bits(n_columns: int) -> int:
    """How many bits of a node's word say the column."""
    return max(1, (n_columns - 1).bit_length())


def most_nodes(n_columns: int) -> int:
    """How many nodes have positions that fit their words."""
    return 1 << (30 - feature_bits(n_columns))


def _type(
    place: StructInfo, data: StructInfo, nodes: StructInfo, splits: StructInfo, levels: int, strict: bool, tracks: bool
) -> TensorStructInfo:
    at, x, words, limits = map(tensor, (place, data, nodes, splits))
    if at.dtype != WORD or words.dtype != WORD or x.dtype != limits.dtype:
        raise InvalidTypeError(f"{at!r}, {x!r}, {words!r}, {limits!r}", hint="places and nodes are int32")
    if at.ndim != 2 or x.ndim != 2 or at.dims[1] != x.dims[0] or words.dims != limits.dims or words.ndim != 1:
        raise ShapeError(f"{at!r}, {x!r}, {words!r}, {limits!r}", hint="[trees, rows], [rows, columns], [nodes] twice")
    if levels < 1:
        raise InvalidValueError(f"{levels} levels")
    return at


def _compute_levels(
    place: Tensor, data: Tensor, nodes: Tensor, splits: Tensor, levels: int, strict: bool, tracks: bool
) -> Tensor:
    n_nodes, n_columns = extent_of(nodes, 0), extent_of(data, 1)
    bits = feature_bits(n_columns)

    def word(value: int) -> PrimExpr:
        return E.const(value, WORD)

    def clipped(i: PrimExpr, size: int) -> PrimExpr:
        within = E.select(E.compare(E.GT, i, word(size - 1)), word(size - 1), i)
        return E.cast("int64", E.select(E.compare(E.LT, i, word(0)), word(0), within))

    def step(before: Tensor) -> Tensor:
        def element(tree: PrimExpr, row: PrimExpr) -> PrimExpr:
            at = clipped(before(tree, row), n_nodes)
            node = nodes(at)
            feature = E.bitwise("bitwise_and", E.bitwise("shift_right", node, word(1)), word((1 << bits) - 1))
            value = data(row, clipped(feature, n_columns) if n_columns < 1 << bits else E.cast("int64", feature))
            holds = E.compare(E.LT if strict else E.LE, value, splits(at))
            if tracks:
                own = E.compare(E.NE, E.bitwise("bitwise_and", node, word(1)), word(0))
                holds = te.any(holds, te.all(E.compare(E.NE, value, value), own))
            child = E.bitwise("shift_right", node, word(bits + 1))
            return E.add(child, E.select(holds, word(0), word(1)))

        return compute_over(before.shape, element, "T_level")

    for _ in range(levels):
        place = step(place)
    return place


def _reference(
    place: Array, data: Array, nodes: Array, splits: Array, levels: int, strict: bool, tracks: bool
) -> Array:
    bits, rows = feature_bits(data.shape[1]), np.arange(len(data))
    for _ in range(levels):
        at = np.clip(place, 0, len(nodes) - 1)
        value = data[rows, np.minimum(nodes[at] >> 1 & (1 << bits) - 1, data.shape[1] - 1)]
        with np.errstate(invalid="ignore"):
            below = value < splits[at] if strict else value <= splits[at]
            holds = below | (np.isnan(value) & (nodes[at] & 1 != 0) & tracks)
        place = (nodes[at] >> bits + 1) + ~holds
    return place.astype(np.int32)


_ARGUMENTS: Sequence[object] = (((3, 5), WORD), (5, 4), ((7,), WORD), (7,))
tree_levels = define_op(
    "tree_levels",
    inputs=("place", "data", "nodes", "splits"),
    attributes={"levels": 1, "strict": False, "tracks": True},
    infer_type=_type,
    compute=_compute_levels,
    reference=_reference,
    samples=[
        sample(*_ARGUMENTS, low=0, high=40),
        sample(*_ARGUMENTS, low=0, high=40, levels=5, strict=True),
        sample(*_ARGUMENTS, low=0, high=40, levels=3, tracks=False),
    ],
)

"""Sequences of tensors, whose length is known at import: tuples here."""

from __future__ import annotations

from typing import Any

import numpy as np

from autosched.frontend.onnx.node import Node, info_of
from autosched.frontend.onnx.registry import converter
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, Tuple


def _items(node: Node, index: int = 0) -> list[Expr]:
    value = node.input(index)
    if not isinstance(value, Tuple):
        raise node.no_kernel(f"input {index} is no sequence that is made in the model")
    return list(value.fields)


def _position(node: Node, index: int, size: int, default: int) -> int:
    """A position in a sequence of `size`; negative ones count from the end."""
    at = int(node.integers(index)[0]) if node.has(index) else default
    if not -size <= at <= size:
        raise node.fail(f"position {at} in a sequence of {size}")
    return at + size if at < 0 else at


@converter("SequenceEmpty")
def sequence_empty(node: Node) -> Expr:
    return Tuple(())


@converter("SequenceConstruct")
def sequence_construct(node: Node) -> Expr:
    return Tuple(tuple(node.input(i) for i in range(len(node.inputs))))


@converter("SequenceAt")
def sequence_at(node: Node) -> Expr:
    items = _items(node)
    at = _position(node, 1, len(items), 0)
    if at >= len(items):
        raise node.fail(f"position {at} in a sequence of {len(items)}")
    return items[at]


@converter("SequenceInsert")
def sequence_insert(node: Node) -> Expr:
    items = _items(node)
    items.insert(_position(node, 2, len(items), len(items)), node.input(1))
    return Tuple(tuple(items))


@converter("SequenceErase")
def sequence_erase(node: Node) -> Expr:
    items = _items(node)
    at = _position(node, 1, len(items), len(items) - 1)
    return Tuple((*items[:at], *items[at + 1 :]))


@converter("SequenceLength")
def sequence_length(node: Node) -> Expr:
    return Constant(np.asarray(len(_items(node)), np.int64))


@converter("ConcatFromSequence")
def concat_from_sequence(node: Node) -> Expr:
    items, axis = Tuple(tuple(_items(node))), node.attr("axis")
    return op.stack(items, axis=axis) if node.attr("new_axis", 0) else op.concat(items, axis=axis)


@converter("SplitToSequence")
def split_to_sequence(node: Node) -> Expr:
    axis = node.attr("axis", 0)
    axis = axis + info_of(node.input(0)).ndim if axis < 0 else axis
    size, keep = node.info(0).dims[axis], True
    if not isinstance(size, int):
        raise node.fail(f"pieces of an open size '{size}'")
    if not node.has(1):
        sizes, keep = [1] * size, bool(node.attr("keepdims", 1))
    elif node.info(1).ndim == 0:
        step = int(node.integers(1)[0])
        sizes = [min(step, size - i) for i in range(0, size, step)]
    else:
        sizes = list(node.integers(1))
    if sum(sizes) != size or min(sizes, default=1) < 0:
        raise node.fail(f"pieces of {sizes} do not make up {size}")
    parts: list[Any] = []
    start = 0
    for length in sizes:
        part: Expr = op.strided_slice(node.input(0), axes=(axis,), begin=(start,), end=(start + length,), strides=(1,))
        parts.append(node.emit(part if keep else op.squeeze(node.emit(part), axis=(axis,))))
        start += length
    return Tuple(tuple(parts))


@converter("SequenceMap")
def sequence_map(node: Node) -> tuple[Expr, ...]:
    """The body for each item of the first sequence, and of those others that are sequences."""
    count = len(_items(node))
    sources = [node.input(i) for i in range(len(node.inputs))]
    if any(isinstance(x, Tuple) and len(x.fields) != count for x in sources):
        raise node.fail("its sequences are not equally long")
    steps = [
        node.subgraph("body", [x.fields[i] if isinstance(x, Tuple) else x for x in sources], i) for i in range(count)
    ]
    return tuple(Tuple(tuple(step[k] for step in steps)) for k in range(node.num_outputs))


@converter("Optional")
def optional(node: Node) -> tuple[Expr | None]:
    """The value, or nothing."""
    return (node.input(0) if node.has(0) else None,)


@converter("OptionalGetElement")
def optional_get_element(node: Node) -> Expr:
    return node.input(0)


@converter("OptionalHasElement")
def optional_has_element(node: Node) -> Expr:
    return Constant(np.asarray(node.has(0)))

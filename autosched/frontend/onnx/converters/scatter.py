"""Elements put at positions, and matrices made from positions."""

from __future__ import annotations

import math

import numpy as np

from autosched.frontend.onnx.node import Node, constant, info_of
from autosched.frontend.onnx.registry import converter
from autosched.frontend.size_arithmetic import is_same
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, ShapeExpr

REDUCTIONS = {"none": "update", "add": "add", "mul": "mul", "max": "max", "min": "min"}


@converter("ScatterElements", "Scatter")
def scatter_elements(node: Node) -> Expr:
    how = REDUCTIONS[node.attr("reduction", "none")]
    if node.is_empty(1) or node.is_empty(2):
        return node.input(0)
    return op.scatter_elements(*(node.input(i) for i in range(3)), axis=node.attr("axis", 0), reduction=how)


@converter("ScatterND")
def scatter_nd(node: Node) -> Expr:
    """Slices put at positions; none where there are no positions."""
    data, indices, updates = (node.input(i) for i in range(3))
    if node.is_empty(1) or node.is_empty(2):
        return data
    return op.scatter_nd(data, indices, updates, reduction=REDUCTIONS[node.attr("reduction", "none")])


@converter("MaxUnpool")
def max_unpool(node: Node) -> Expr:
    """Elements put at their numbers in the flattened image that was pooled; zero elsewhere, and behind it."""
    shape, kernel = node.shape(0), list(node.attr("kernel_shape"))
    rank = len(shape) - 2
    strides, pads = node.attr("strides", [1] * rank), node.attr("pads", [0] * 2 * rank)
    if len(kernel) != rank or len(strides) != rank or len(pads) != 2 * rank or node.shape(1) != shape:
        raise node.fail(f"a window of {kernel} over {list(shape)}, places {list(node.shape(1))}")
    both = [before + after for before, after in zip(pads[:rank], pads[rank:], strict=True)]
    pooled = [*shape[:2], *((n - 1) * s - p + k for n, s, p, k in zip(shape[2:], strides, both, kernel, strict=True))]
    wanted = [*node.integers(2)] if node.has(2) else pooled
    if min(pooled) < 0 or len(wanted) != rank + 2 or any(n > m for n, m in zip(pooled, wanted, strict=True)):
        raise node.fail(f"an output of {wanted}, where {list(shape)} were pooled from {pooled}")
    flat = node.emit(op.zeros(ShapeExpr((math.prod(pooled),)), node.info(0).dtype))
    if 0 not in shape:
        places, values = (node.emit(op.reshape(node.input(i), ShapeExpr((math.prod(shape),)))) for i in (1, 0))
        flat = node.emit(op.scatter_elements(flat, places, values, axis=0, mode="positive"))
    result = op.reshape(flat, ShapeExpr(tuple(pooled)))
    if wanted == pooled:
        return result
    behind = [(0, m - n) for n, m in zip(pooled, wanted, strict=True)]
    return op.nn.pad(node.emit(result), pad_width=tuple(w for pair in behind for w in pair))


@converter("TensorScatter")
def tensor_scatter(node: Node) -> Expr:
    """A cache [batch, ..., length, ...] whose elements from a batch entry's index on are those of an update."""
    mode, dims, new = node.attr("mode", "linear"), node.info(0).dims, node.info(1).dims
    axis = node.axis(node.attr("axis", -2))
    if mode not in ("linear", "circular") or axis == 0:
        raise node.fail(f"mode '{mode}' along axis {axis}")
    length, count = dims[axis], new[axis]
    others = [pair for d, pair in enumerate(zip(dims, new, strict=True)) if d != axis]
    if not all(is_same(*pair) for pair in others) or (
        isinstance(length, int) and isinstance(count, int) and count > length
    ):
        raise node.fail(f"an update of {list(new)} for a cache of {list(dims)}")
    if 0 in new:
        return node.input(0)
    starts = node.input(2) if node.has(2) else node.emit(op.zeros(ShapeExpr(tuple(dims[:1])), "int64"))
    how = "wrap" if mode == "circular" else "positive"
    return op.write_at(node.input(0), node.input(1), starts, axis=axis, mode=how)


@converter("OneHot")
def one_hot(node: Node) -> Expr:
    """`values[1]` at the positions, `values[0]` elsewhere; positions out of range give no one."""
    depth, off_on = int(node.number(1)), node.input(2)
    index = node.input(0)
    rank = node.info(0).ndim
    axis = node.axis(node.attr("axis", -1), rank + 1)
    if depth < 1:
        raise node.fail(f"a depth of {depth}")
    node.require_small(8 * depth)
    if not node.info(0).dtype.startswith(("int", "uint")):
        index = node.emit(op.astype(index, "int64"))
    dtype = info_of(index).dtype
    if dtype.startswith("int"):
        negative = op.less(index, constant(0, dtype))
        index = node.emit(op.where(negative, op.add(index, constant(depth, dtype)), index))
    places = np.arange(depth, dtype=dtype).reshape([-1 if i == axis else 1 for i in range(rank + 1)])
    hit = node.emit(op.equal(op.expand_dims(index, axis=axis), Constant(places)))
    off, on = (op.take(off_on, constant(i, "int64"), axis=0) for i in (0, 1))
    return op.where(hit, on, off)


@converter("EyeLike")
def eye_like(node: Node) -> Expr:
    from onnx import helper

    kind = node.attr("dtype")
    dtype = np.dtype(node.info(0).dtype) if kind is None else helper.tensor_dtype_to_np_dtype(kind)
    if node.info(0).ndim != 2:
        raise node.fail(f"a diagonal of {node.info(0).ndim} dimensions")
    rows, columns = node.info(0).dims
    k = node.attr("k", 0)
    if isinstance(rows, int) and isinstance(columns, int):
        return Constant(np.eye(rows, columns, k=k, dtype=dtype))
    row, column = (node.emit(op.size_range(ShapeExpr((first, n)))) for first, n in ((k, rows), (0, columns)))
    return op.astype(node.emit(op.equal(node.emit(op.expand_dims(row, axis=1)), column)), str(dtype))


@converter("ReverseSequence")
def reverse_sequence(node: Node) -> Expr:
    """The first `length` steps of each batch entry in the other order."""
    batch, time = node.attr("batch_axis", 1), node.attr("time_axis", 0)
    shape = node.info(0).dims
    rank = len(shape)
    steps = node.counted(shape[time], time, rank)
    own = ShapeExpr(tuple(shape[batch] if i == batch else 1 for i in range(rank)))
    lengths = node.emit(op.reshape(node.input(1), own))
    mirrored = op.subtract(op.subtract(lengths, constant(1, "int64")), steps)
    at = node.emit(op.where(op.less(steps, lengths), mirrored, steps))
    return op.gather_elements(node.input(0), node.emit(op.broadcast_to(at, ShapeExpr(shape))), axis=time)

"""Shapes and constants: what is known at import becomes a constant at once."""

from __future__ import annotations

import math

import numpy as np

from autosched.frontend.onnx.contents import array_of, check_size
from autosched.frontend.onnx.node import KERNEL_DTYPES, Held, Node
from autosched.frontend.onnx.registry import converter
from autosched.frontend.onnx.sizes import expanded, reshaped, sizes
from autosched.frontend.size_arithmetic import product_of
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, ShapeExpr


@converter("Constant")
def constant(node: Node) -> Expr | Held:
    if "value" in node.attrs:
        array = array_of(node.attrs["value"], f"the value of node '{node.name}'")
        return Constant(array) if str(array.dtype) in KERNEL_DTYPES else Held(array, is_known=True)
    for name in [n for n in ("value_string", "value_strings") if n in node.attrs]:
        return Held(np.asarray(_texts(node.attrs[name]), object), is_known=True)
    for name, dtype in (
        ("value_float", "float32"),
        ("value_floats", "float32"),
        ("value_int", "int64"),
        ("value_ints", "int64"),
    ):
        if name in node.attrs:
            return Constant(np.asarray(node.attrs[name], dtype))
    raise node.no_kernel(f"a constant of kind {sorted(node.attrs)} is not supported")


def _texts(value: object) -> object:
    return (
        value.decode() if isinstance(value, bytes) else list(map(_texts, value)) if isinstance(value, list) else value
    )


@converter("ConstantOfShape")
def constant_of_shape(node: Node) -> Expr:
    value = np.zeros(1, np.float32)
    if "value" in node.attrs:
        value = array_of(node.attrs["value"], f"the value of node '{node.name}'")
    if value.size != 1:
        raise node.fail(f"its value has {value.size} elements, not one")
    sizes = node.integers(0)
    check_size(sizes, "its result")
    node.require_small(math.prod(sizes) * value.itemsize)
    return Constant(np.full(sizes, value.reshape(-1)[0], value.dtype))


@converter("Shape")
def shape(node: Node) -> Expr | Held:
    dims = node.info(0).dims
    return sizes(dims[slice(node.attr("start", 0), node.attr("end", len(dims)))])


@converter("Size")
def size(node: Node) -> Expr | Held:
    return sizes([product_of(node.info(0).dims)], is_scalar=True)


@converter("Range")
def make_range(node: Node) -> Expr:
    start, stop, step = (node.array(i) for i in range(3))
    if not step or not all(np.isfinite(x) for x in (start, stop, step)):
        raise node.fail(f"from {start} to {stop} in steps of {step}")
    node.require_small(math.ceil((stop.item() - start.item()) / step.item()) * start.itemsize)
    return Constant(np.arange(start.item(), stop.item(), step.item(), dtype=start.dtype))


@converter("Reshape")
def reshape(node: Node) -> Expr:
    """A size of 0 is the old one at that place, unless `allowzero`."""
    target = list(node.integers(1)) if len(node.inputs) > 1 else list(node.attr("shape"))
    info = node.info(0)
    if not info.is_static:
        return node.seen(reshaped(node, target), f"{list(info.dims)} as {target}")
    old = info.static_shape
    if not node.attr("allowzero", 0):
        target = [old[i] if d == 0 and i < len(old) else d for i, d in enumerate(target)]
    return op.reshape(node.input(0), ShapeExpr(tuple(target)))


@converter("Flatten")
def flatten(node: Node) -> Expr:
    dims = node.info(0).dims
    axis = node.attr("axis", 1)
    if not -len(dims) <= axis <= len(dims):
        raise node.fail(f"axis {axis} of {len(dims)} dimensions")
    axis = axis + len(dims) if axis < 0 else axis
    return op.reshape(node.input(0), ShapeExpr((product_of(dims[:axis]), product_of(dims[axis:]))))


def _axes(node: Node) -> tuple[int, ...] | None:
    if node.has(1):
        return node.integers(1)
    axes = node.attr("axes")
    return None if axes is None else tuple(axes)


@converter("Unsqueeze")
def unsqueeze(node: Node) -> Expr:
    return op.expand_dims(node.input(0), axis=_axes(node))


@converter("Squeeze")
def squeeze(node: Node) -> Expr:
    return op.squeeze(node.input(0), axis=_axes(node))


@converter("Expand")
def expand(node: Node) -> Expr:
    info, target = node.info(0), node.sizes_of(1)
    if not info.is_static or not all(isinstance(d, int) for d in target):
        return node.seen(expanded(node, target), f"{list(info.dims)} as {list(map(str, target))}")
    return op.broadcast_to(node.input(0), ShapeExpr(np.broadcast_shapes(info.static_shape, node.integers(1))))

"""Images and other tensors of another size, and elements at any places of images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from autosched.frontend.onnx.node import Node, constant, info_of
from autosched.frontend.onnx.registry import converter
from autosched.frontend.size_arithmetic import is_same, plain
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, ShapeExpr
from autosched.relax.struct_info import Dim
from autosched.topi.image import NARROW_INTEGERS

MOST_PARTS = 64  # that a scale of an open dimension has: such products of sizes are exact in float32
Array = np.ndarray
HOW = (
    "half_pixel", "half_pixel_symmetric", "align_corners", "asymmetric", "pytorch_half_pixel", "tf_half_pixel_for_nn",
)  # fmt: skip
LAYOUTS = "NCHW", "NHWC", "NCW"
BY_KERNEL = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")


@dataclass(frozen=True)
class _Axis:
    """One dimension: `size` elements become `result`, `scale` times as many (not always a whole number).

    scale  None where only a call knows
    """

    size: Dim
    result: Dim
    scale: float | None

    @property
    def is_kept(self) -> bool:
        return is_same(self.size, self.result) and self.scale in (1, None)

    @property
    def is_exact(self) -> bool:
        """Whether the scale is that of the sizes."""
        if self.scale is None:
            return True
        if isinstance(self.size, int) and isinstance(self.result, int):
            return abs(self.scale * self.size - self.result) < 1e-4
        return self.scale == int(self.scale)


def _axes(node: Node, shape: Sequence[Dim]) -> list[_Axis]:
    """What becomes of each dimension, from scales or sizes. Raises ImportModelError where neither fits."""
    position = 1 if node.op_type == "Upsample" or node.opset < 11 else 2
    rank = len(shape)
    chosen = [node.axis(a) for a in node.attr("axes") or range(rank)]
    scales = [float(s) for s in node.array(position)] if node.has(position) and node.array(position).size else None
    sizes = list(node.sizes_of(3)) or None if position == 2 and node.has(3) else None
    given = scales if scales is not None else sizes
    if given is None or len(given) != len(chosen):
        raise node.fail(f"neither scales nor sizes for {len(chosen)} dimensions of {list(shape)}")
    empty = [scales is None and shape[a] == 0 for a in chosen]
    if any(isinstance(n, int | float) and n <= 0 and not (none and n == 0) for n, none in zip(given, empty)):
        raise node.fail(f"{'sizes' if scales is None else 'scales'} of {given}", hint="they are positive")
    whole = [_Axis(n, n, 1.0) for n in shape]
    if scales is not None:
        for a, scale in zip(chosen, scales, strict=True):  # as ONNX Runtime rounds
            whole[a] = _Axis(shape[a], _scaled(node, shape[a], scale), scale)
    else:
        assert sizes is not None
        policy = node.attr("keep_aspect_ratio_policy", "stretch")
        pairs = [(shape[a], n) for a, n in zip(chosen, sizes, strict=True)]
        ratios = [n / (old or 1) if isinstance(old, int) and isinstance(n, int) else None for old, n in pairs]
        if policy != "stretch":
            known = [ratio for ratio in ratios if ratio is not None]
            if len(known) < len(ratios):
                raise node.fail(f"keep_aspect_ratio_policy '{policy}' of sizes that are not known")
            factor = min(known) if policy == "not_larger" else max(known)
            ratios = [factor] * len(pairs)
            sizes = [math.floor(old * factor + 0.5) for old, _ in pairs if isinstance(old, int)]
        for a, n, ratio in zip(chosen, sizes, ratios, strict=True):
            whole[a] = _Axis(shape[a], n, ratio)
    if any(axis.size == 0 and axis.result != 0 for axis in whole):
        raise node.fail(f"{list(shape)} to {[axis.result for axis in whole]}")
    return whole


def _scaled(node: Node, size: Dim, scale: float) -> Dim:
    """So many times a size, rounded as ONNX Runtime does: in float32, where fractions of a power of two are exact."""
    factor = np.float32(scale)
    if isinstance(size, int):
        return int(np.float32(size) * factor)
    exact = Fraction(float(factor))
    if exact.denominator > MOST_PARTS:
        raise node.fail(f"{scale} times a dimension whose size is not known")
    return plain(size * exact.numerator // exact.denominator)


def _places(axis: _Axis, how: str) -> Array:
    """Where each element of the result lies in the source."""
    size, result, scale = _numbers(axis)
    at = np.arange(result, dtype=np.float64)
    length = scale * size
    if how == "align_corners":
        return at * (size - 1) / (length - 1) if length != 1 else np.zeros(result)
    if how == "asymmetric":
        return at / scale
    if how == "tf_half_pixel_for_nn":  # of opset 11, which tf2onnx writes in later ones too
        return (at + 0.5) / scale
    places = (at + 0.5) / scale - 0.5
    if how == "pytorch_half_pixel" and length <= 1:
        return np.full(result, -0.5)
    if how == "half_pixel_symmetric":  # the middle stays where sizes were rounded
        return size / 2 * (1 - result / length) + places
    return places


def _numbers(axis: _Axis) -> tuple[int, int, float]:
    """(size, result, scale) of a dimension of known sizes."""
    assert isinstance(axis.size, int) and isinstance(axis.result, int) and axis.scale is not None, "sizes were checked"
    return axis.size, axis.result, axis.scale


def _cubic(distance: Array, a: float) -> Array:
    """Keys' kernel. Source: Keys 1981."""
    x = np.abs(distance)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = a * (((x - 5) * x + 8) * x - 4)
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def _weights(node: Node, axis: _Axis, how: str) -> Array:
    """[result, size]: what each element of the source adds to each of the result."""
    mode = node.attr("mode", "nearest")
    places = _places(axis, how)
    size, result, scale = _numbers(axis)
    shrink = min(scale, 1.0) if node.attr("antialias", 0) else 1.0
    reach = 2 if mode == "cubic" else 1
    start = math.floor(-reach / shrink) + 1
    offsets = np.arange(start, reach - start + 1 if mode == "cubic" else 2 - start)
    base = np.ceil(places).astype(np.int64) - 1
    distance = (offsets[None, :] - (places - base)[:, None]) * shrink
    share = (
        _cubic(distance, node.attr("cubic_coeff_a", -0.75)) if mode == "cubic" else np.clip(1 - np.abs(distance), 0, 1)
    )
    at = base[:, None] + offsets[None, :]
    if node.attr("exclude_outside", 0):
        share = np.where((at >= 0) & (at < size), share, 0)
    if node.attr("exclude_outside", 0) or shrink != 1.0:
        share = share / share.sum(axis=1, keepdims=True)
    weights = np.zeros((result, size))
    np.add.at(weights, (np.arange(result)[:, None], np.clip(at, 0, size - 1)), share)
    return weights


def _nearest(node: Node, axis: _Axis, how: str, rounding: str) -> Array:
    """The element of the source for each of the result."""
    places = _places(axis, how)
    rounded = {
        "round_prefer_floor": np.ceil(places - 0.5), "round_prefer_ceil": np.floor(places + 0.5),
        "floor": np.floor(places), "ceil": np.ceil(places),
    }  # fmt: skip
    if rounding not in rounded:
        raise node.fail(f"there is no nearest_mode '{rounding}'")
    return np.asarray(np.clip(rounded[rounding], 0, _numbers(axis)[0] - 1), np.int64)


@converter("Resize", "Upsample")
def resize(node: Node) -> Expr:
    """Each dimension by itself: elements chosen, or a product with a matrix; images by a kernel of their own."""
    x, dims, mode = node.input(0), node.info(0).dims, node.attr("mode", "nearest")
    since = 10 if node.op_type == "Resize" and node.opset >= 11 else 0
    how = node.attr("coordinate_transformation_mode", "half_pixel" if since else "asymmetric")
    rounding = node.attr("nearest_mode", "round_prefer_floor" if since else "floor")
    if mode not in ("nearest", "linear", "cubic"):
        raise node.fail(f"there is no mode '{mode}'")
    if (how, mode, rounding) == ("tf_half_pixel_for_nn", "nearest", "floor"):  # the same places, as kernels know them
        how, rounding = "half_pixel", "round_prefer_ceil"
    if how not in HOW:
        raise node.no_kernel(f"coordinate_transformation_mode '{how}'")
    axes = _axes(node, dims)
    if any(axis.result == 0 for axis in axes):
        return op.zeros(ShapeExpr(tuple(axis.result for axis in axes)), node.info(0).dtype)
    same = [axis.is_kept for axis in axes]
    exact = all(axis.is_exact for axis in axes)
    if mode != "cubic" and not (node.attr("antialias", 0) or node.attr("exclude_outside", 0)):
        layout = next((n for n in LAYOUTS if len(n) == len(dims) and all(same[n.index(c)] for c in "NC")), None)
        if layout is not None and how in BY_KERNEL and (exact or how != "align_corners"):
            return _images(node, layout, axes, how, rounding)
    if any(not isinstance(d, int) for a, s in zip(axes, same) if not s for d in (a.size, a.result)):
        raise node.fail("of a dimension whose size is not known")
    dtype = info_of(x).dtype
    real = mode == "nearest" or dtype in ("float32", "float64")
    value = x if real else node.emit(op.astype(x, "float32"))
    for n, axis in enumerate(axes):
        if same[n]:
            continue
        if mode == "nearest":
            value = node.emit(op.take(value, Constant(_nearest(node, axis, how, rounding)), axis=n))
            continue
        value = _weighted(node, value, n, _weights(node, axis, how))
    if not real and dtype in NARROW_INTEGERS:  # cubic weights give numbers beyond those of the image
        limits = np.iinfo(dtype)
        value = node.emit(op.clip(value, float(limits.min), float(limits.max)))
    return value if real else op.astype(value, dtype)


def _images(node: Node, layout: str, axes: Sequence[_Axis], how: str, rounding: str) -> Expr:
    """Images by a kernel of their own; lines are images of one row."""
    x, line = node.input(0), _Axis(1, 1, 1.0)
    if "H" not in layout:
        x = node.emit(op.expand_dims(x, axis=(2,)))
    high, wide = (axes[layout.index(c)] if c in layout else line for c in "HW")
    resized = op.image.resize2d(
        x, ShapeExpr((high.result, wide.result)), layout=layout if "H" in layout else "NCHW",
        method="nearest_neighbor" if node.attr("mode", "nearest") == "nearest" else "linear",
        coordinate_transformation_mode=how, rounding_method=rounding,
        scales=(high.scale, wide.scale),
    )  # fmt: skip
    return resized if "H" in layout else op.squeeze(node.emit(resized), axis=(2,))


def _weighted(node: Node, x: Expr, axis: int, weights: Array) -> Expr:
    """A dimension multiplied by [result, size]."""
    rank = info_of(x).ndim
    order = [*(i for i in range(rank) if i != axis), axis]
    turned = x if axis == rank - 1 else node.emit(op.permute_dims(x, axes=order))
    matrix = Constant(np.ascontiguousarray(weights.T.astype(info_of(x).dtype)))
    product = node.emit(op.matmul(turned, matrix))
    back = [order.index(i) for i in range(rank)]
    return product if axis == rank - 1 else node.emit(op.permute_dims(product, axes=back))


@converter("AffineGrid")
def affine_grid(node: Node) -> Expr:
    """Places of pixels, moved by a matrix for each image; ONNX's own definition loses the dimension of one image."""
    size = node.sizes_of(1)
    count = [d for d in size[2:] if isinstance(d, int)]
    rank = len(size) - 2
    if len(count) != rank or node.info(0).dims[1:] != (rank, rank + 1):
        raise node.fail(f"theta {node.info(0)!r} for images {list(size)}")
    at = [np.linspace(-1, 1, n) if node.attr("align_corners", 0) else (2 * np.arange(n) + 1) / n - 1 for n in count]
    places = np.stack([*reversed(np.meshgrid(*at, indexing="ij")), np.ones(count)], -1).reshape(-1, rank + 1)
    turned = node.emit(op.permute_dims(node.input(0), axes=(0, 2, 1)))
    grid = node.emit(op.matmul(Constant(places.astype(node.info(0).dtype)), turned))
    return op.reshape(grid, ShapeExpr((size[0], *count, rank)))


def _sampled(node: Node, mode: str, padding: str, corners: bool) -> Expr:
    """Elements of images or volumes, whose places are not rounded before the weights are known: all modes."""
    rank, method = node.info(0).ndim - 2, {"linear": "bilinear", "nearest": "nearest", "cubic": "bicubic"}.get(mode)
    if rank not in (2, 3) or method is None or (mode == "cubic" and rank != 2) or not node.info(0).is_static:
        raise node.no_kernel(f"mode '{mode}' with padding '{padding}' over {rank} dimensions")
    if 0 in node.shape(0) or node.is_empty(1) or node.info(0).dtype not in ("float32", "float64"):
        raise node.no_kernel(f"of {node.info(0)}")
    grid = (
        node.emit(op.astype(node.input(1), node.info(0).dtype))
        if node.info(1).dtype != node.info(0).dtype
        else node.input(1)
    )
    first = node.emit(op.permute_dims(grid, axes=(0, rank + 1, *range(1, rank + 1))))
    return op.image.grid_sample(
        node.input(0), first, method=method, layout="NCHW" if rank == 2 else "NCDHW", padding_mode=padding,
        align_corners=corners,
    )  # fmt: skip


@converter("GridSample")
def grid_sample(node: Node) -> Expr:
    """Elements of images [N, C, H, W] at the places [N, h, w, 2], given from -1 to 1 as (x, y)."""
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(node.attr("mode", "linear"), node.attr("mode", "linear"))
    padding, corners = node.attr("padding_mode", "zeros"), bool(node.attr("align_corners", 0))
    shape, dtype = node.info(0).dims, node.info(0).dtype
    if len(shape) != 4 or mode not in ("linear", "nearest") or padding not in ("zeros", "border") or 0 in shape:
        return _sampled(node, mode, padding, corners)
    n, c, h, w = shape
    rows, columns = node.info(1).dims[1:3]
    grid = node.emit(op.reshape(node.input(1), ShapeExpr((n, rows * columns, 2))))

    def number(d: Dim, dtype: str = dtype) -> Expr:
        if isinstance(d, int):
            return constant(d, dtype)
        return node.emit(op.size_values(ShapeExpr((plain(d),)), is_scalar=True, dtype=dtype))

    def held(x: Expr, size: Dim) -> Expr:
        """Places as they are inside of the image, else those of border pixels."""
        if isinstance(size, int):
            return op.clip(x, 0.0, size - 1.0)
        return op.maximum(op.minimum(x, number(size - 1)), constant(0, dtype))

    def places(i: int, size: Dim) -> Expr:
        """Along x or y, counted in elements."""
        cut = node.emit(op.strided_slice(grid, axes=(2,), begin=(i,), end=(i + 1,), strides=(1,)))
        at = node.emit(op.astype(op.reshape(cut, ShapeExpr((n, 1, rows * columns))), dtype))
        half, less = op.multiply(number(size - 1 if corners else size), constant(0.5, dtype)), 0.0 if corners else 0.5
        found: Expr = op.multiply(op.add(at, constant(1, dtype)), node.emit(half))
        found = node.emit(op.subtract(found, constant(less, dtype)) if less else found)
        return node.emit(held(found, size)) if padding == "border" else found

    x, y = places(0, w), places(1, h)
    flat = node.emit(op.reshape(node.input(0), ShapeExpr((n, c, h * w))))

    def at(row: Expr, column: Expr) -> Expr:
        """[N, C, h * w]: the elements there, zero outside."""
        inside = op.logical_and(
            op.logical_and(op.greater_equal(row, constant(0, dtype)), op.less_equal(row, number(h - 1))),
            op.logical_and(op.greater_equal(column, constant(0, dtype)), op.less_equal(column, number(w - 1))),
        )
        a, b = (op.astype(held(v, size), "int64") for v, size in ((row, h), (column, w)))
        line = number(w, "int64")
        place = node.emit(op.where(node.emit(inside), op.add(op.multiply(a, line), b), constant(0, "int64")))
        wide = node.emit(op.broadcast_to(place, ShapeExpr((n, c, rows * columns))))
        found = node.emit(op.gather_elements(flat, wide, axis=2, mode="clip"))
        return node.emit(op.where(inside, found, constant(0, dtype)))

    if mode == "nearest":
        result = at(node.emit(op.round(y)), node.emit(op.round(x)))
    else:
        top, left = node.emit(op.floor(y)), node.emit(op.floor(x))
        bottom, right = (node.emit(op.add(v, constant(1, dtype))) for v in (top, left))
        below, beside = node.emit(op.subtract(y, top)), node.emit(op.subtract(x, left))
        above, before = (node.emit(op.subtract(constant(1, dtype), v)) for v in (below, beside))
        parts = (
            (top, left, above, before),
            (top, right, above, beside),
            (bottom, left, below, before),
            (bottom, right, below, beside),
        )
        sums = [node.emit(op.multiply(at(r, k), op.multiply(a, b))) for r, k, a, b in parts]
        result = node.emit(op.add(op.add(sums[0], sums[1]), op.add(sums[2], sums[3])))
    return op.reshape(result, ShapeExpr((n, c, rows, columns)))

"""Operators that models seldom have."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper

from tests.frontend.random_onnx.kinds.arrange import with_size
from tests.frontend.random_onnx.kinds.base import NUMBERS, kind
from tests.frontend.random_onnx.maker import FLOATS, Maker, Size, Unfit, Value


@kind(("float32",))
def inverse_functions(m: Maker, x: Value) -> None:
    op = m.choose("Acos", "Asin", "Atanh", "Acosh")
    inside = m.node("Clip", x, *((m.scalar(1, x), None) if op == "Acosh" else (m.scalar(-0.9, x), m.scalar(0.9, x))))
    m.node(op, inside)


@kind(("uint8",))
def shifts(m: Maker, x: Value) -> None:
    m.node("BitShift", x, m.constant(m.random.randint(0, 7), "uint8"), direction=m.choose("LEFT", "RIGHT"))


@kind(("uint8", "int8", "int32", "int64"))
def bits_turned(m: Maker, x: Value) -> None:
    m.node("BitwiseNot", x)


@kind(("int32", "int64", "bool", "float32"))
def cast_like(m: Maker, x: Value) -> None:
    to = m.pick(lambda v: v.dtype in ("float32", "float64", "int32", "int64", "bool", "float16"))
    m.node("CastLike", x, to, dtype=to.dtype)


@kind(("float32", "float64"), least_rank=2)
def determinant(m: Maker, x: Value) -> None:
    k = m.choose(1, 2, 3, 4, 5)
    if min(x.shape[-2:]) < k or any(isinstance(d, Size) for d in x.shape[-2:]):
        raise Unfit
    axes = m.ints(x.rank - 2, x.rank - 1)
    square = m.node("Slice", x, m.ints(0, 0), m.ints(k, k), axes, shape=(*x.shape[:-2], k, k))
    m.node("Det", square, shape=x.shape[:-2])


@kind(("float32", "int32", "int64"), least_rank=2, most_rank=2, weight=3)
def identity_matrix(m: Maker, x: Value) -> None:
    m.node("EyeLike", m.node("Abs", x), k=m.random.randint(-3, 3))


@kind(("float32",), least_rank=3, most_rank=4, weight=0.3)
def global_lp_pool(m: Maker, x: Value) -> None:
    m.node("GlobalLpPool", x, shape=(*x.shape[:2], *(1 for _ in x.shape[2:])), p=m.choose(1, 2, 3))


@kind(("float32",), least_rank=4, most_rank=4, weight=3)
def pool_and_back(m: Maker, x: Value) -> None:
    """Places of largest elements, and those elements at these places again.

    Of even sizes: of others ONNX and ONNX Runtime number the places differently.
    """
    n, c, h, w = x.shape
    if not x.is_known or h % 2 or w % 2 or 0 in x.shape:
        raise Unfit
    shape = (n, c, h // 2, w // 2)
    values, places = m.results(
        "MaxPool", [x], [(shape, x.dtype), (shape, "int64")], kernel_shape=[2, 2], strides=[2, 2]
    )
    m.node(
        "MaxUnpool",
        values,
        places,
        m.ints(*x.shape) if m.chance(0.5) else None,
        shape=x.shape,
        kernel_shape=[2, 2],
        strides=[2, 2],
    )


@kind()
def size(m: Maker, x: Value) -> None:
    m.node("Size", x, shape=(), dtype="int64")


@kind(("float32",), least_rank=4, most_rank=4, weight=3)
def regions(m: Maker, x: Value) -> None:
    n, c, h, w = x.shape
    if not x.is_known or 0 in x.shape:
        raise Unfit
    boxes = m.random.randint(1, 5)
    corners = m.numbers.uniform(0, 1, (boxes, 2)) * [w, h]
    extents = m.numbers.uniform(0, 1, (boxes, 2)) * [w, h]
    rois = m.constant(np.concatenate([corners, corners + extents], 1), "float32")
    image = m.constant(m.numbers.integers(0, n, boxes), "int64")
    size = [m.choose(1, 2, 5) for _ in range(2)]
    m.node("RoiAlign", x, rois, image, shape=(boxes, c, *size), output_height=size[0], output_width=size[1],
           sampling_ratio=m.choose(0, 1, 2), spatial_scale=m.choose(1.0, 0.5), mode=m.choose("avg", "max"),
           coordinate_transformation_mode=m.choose("half_pixel", "output_half_pixel"))  # fmt: skip


@kind(("float32",), least_rank=4, most_rank=4, weight=3)
def affine_grid(m: Maker, x: Value) -> None:
    n, c, h, w = x.shape
    if not x.is_known or 0 in x.shape:
        raise Unfit
    theta = m.other((n, 2, 3), "float32")
    aligned, height, width = m.random.randint(0, 1), m.size(), m.size()
    if 1 in (height, width):
        aligned = 0  # ONNX Runtime places a single aligned row elsewhere than the standard
    grid = m.node("AffineGrid", theta, m.ints(n, c, height, width), shape=(n, height, width, 2), align_corners=aligned)
    m.node("GridSample", x, grid, shape=(n, c, height, width), align_corners=aligned, mode=m.choose("linear", "cubic"),
           padding_mode=m.choose("zeros", "border", "reflection"))  # fmt: skip


@kind(("float32",), least_rank=1)
def logarithm_of_sum(m: Maker, x: Value) -> None:
    axis, keep = m.axis(x), m.random.randint(0, 1)
    shape = [1 if n == axis else d for n, d in enumerate(x.shape) if keep or n != axis]
    m.node("ReduceLogSum", m.node("Abs", x), m.ints(axis), shape=shape, keepdims=keep)


@kind(("float32", "float64"), least_rank=2, most_rank=3)
def fourier(m: Maker, x: Value) -> None:
    """Of real numbers, along an axis."""
    axis = m.axis(x, known=True)
    size = x.shape[axis]
    if not x.is_known or not 1 <= size <= 64 or 0 in x.shape:
        raise Unfit
    one_sided = m.random.randint(0, 1)
    real = m.node("Unsqueeze", x, m.ints(x.rank), shape=(*x.shape, 1))
    shape = with_size((*x.shape, 2), axis, size // 2 + 1 if one_sided else size)
    made = m.node("DFT", real, None, m.constant(axis, "int64"), shape=shape, onesided=one_sided)
    m.values.remove(made)
    m.node("ReduceL2", made, m.ints(-1), shape=shape[:-1], keepdims=0)  # an imaginary part alone may be rounding alone


@kind((*NUMBERS, "bool"), least_rank=1)
def sequence(m: Maker, x: Value) -> None:
    """Cut into a sequence, changed, and joined or picked from."""
    axis = m.axis(x, known=True)
    size = x.shape[axis]
    part = m.choose(1, 2, 3, 4)
    if part > size or size // part > 12:
        raise Unfit
    parts = m.name("q")
    m.nodes.append(helper.make_node("SplitToSequence", [x.name, m.constant(part, "int64").name], [parts], axis=axis))
    count, last = -(-size // part), size % part or part
    held = Value(parts, (count,), "sequence")
    sizes = [part] * (count - 1) + [last]
    if m.chance(0.4):
        at = m.random.randrange(-count, count + 1)
        more = m.other(with_size(x.shape, axis, width := m.choose(1, part)), x.dtype)
        held = Value(m.name("q"), (), "sequence")
        m.nodes.append(
            helper.make_node("SequenceInsert", [parts, more.name, m.constant(at, "int64").name], [held.name])
        )
        sizes.insert(at, width)
    if m.chance(0.4) and len(sizes) > 1:
        at = m.random.randrange(-len(sizes), len(sizes))
        shorter = m.name("q")
        m.nodes.append(helper.make_node("SequenceErase", [held.name, m.constant(at, "int64").name], [shorter]))
        held = Value(shorter, (), "sequence")
        del sizes[at]
    if m.chance(0.5):
        at = m.random.randrange(-len(sizes), len(sizes))
        m.node("SequenceAt", held, m.constant(at, "int64"), shape=with_size(x.shape, axis, sizes[at]), dtype=x.dtype)
    else:
        m.node(
            "ConcatFromSequence",
            held,
            shape=with_size(x.shape, axis, sum(sizes)),
            dtype=x.dtype,
            axis=axis - m.choose(0, x.rank),
        )
    if m.chance(0.2):
        m.node("SequenceLength", held, shape=(), dtype="int64")


@kind(("float32",), least_rank=4, most_rank=4, weight=3)
def deformed_conv(m: Maker, x: Value) -> None:
    n, c, h, w = x.shape
    if not x.is_known or 0 in x.shape or not 1 <= c <= 16:
        raise Unfit
    k, out, groups = m.choose(1, 3), m.choose(1, 2, 8), m.choose(*(g for g in (1, 2) if c % g == 0))
    offsets = m.other((n, 2 * k * k * groups, h, w), x.dtype)
    weight = m.other((out, c, k, k), x.dtype, is_constant=True)
    more = [m.other((out,), x.dtype) if m.chance(0.5) else None]
    more += [m.other((n, k * k * groups, h, w), x.dtype)] if m.chance(0.5) else []
    m.node("DeformConv", x, weight, offsets, *more, shape=(n, out, h, w), kernel_shape=[k, k], pads=[k // 2] * 4,
           offset_group=groups)  # fmt: skip


@kind(FLOATS)
def dropout(m: Maker, x: Value) -> None:
    m.results("Dropout", [x], [(x.shape, x.dtype), (x.shape, "bool")] if m.chance(0.5) else [(x.shape, x.dtype)])


@kind(("int32", "int64"))
def wide_integers(m: Maker, x: Value) -> None:
    """Beyond 32 and 8 bits, where integers wrap."""
    wide = m.node("Cast", x, dtype="int64", to=TensorProto.INT64)
    large = m.node("Mul", wide, m.constant(m.choose(2**31, 2**33 + 7, 2**40, 3**37), "int64"), dtype="int64")
    to = m.choose("int32", "int8", "uint8", "int64")
    m.node("Cast", large, dtype=to, to=helper.np_dtype_to_tensor_dtype(np.dtype(to)))


@kind(("int8", "uint8", "int32", "int64"), least_rank=1)
def sums_of_integers(m: Maker, x: Value) -> None:
    wide = ("ReduceProd", "ReduceSum", "ReduceMean", "ReduceL1", "ReduceSumSquare")
    op = m.choose(*(("ReduceMax", "ReduceMin") if x.dtype in ("int8", "uint8") else wide))
    axis, keep = m.axis(x), m.random.randint(0, 1)
    shape = [1 if n == axis else d for n, d in enumerate(x.shape) if keep or n != axis]
    m.node(op, x, m.ints(axis - m.choose(0, x.rank)), shape=shape, keepdims=keep)


@kind(("int32", "int64", "int8", "uint8"))
def divide_any(m: Maker, x: Value) -> None:
    """Quotients and remainders of both signs by divisors that are not 0."""
    other = m.broadcast(x)
    one = m.scalar(1, x)
    odd = m.node("BitwiseOr", other, one, dtype=x.dtype)
    op = m.choose("Div", "Mod", "Mod")
    more: dict[str, Any] = {"fmod": m.random.randint(0, 1)} if op == "Mod" else {}
    m.node(op, x, odd, **more)


@kind(("float32", "float64", "float16"))
def float_remainder(m: Maker, x: Value) -> None:
    other = m.broadcast(x)
    m.node("Mod", x, m.node("Add", m.node("Abs", other), m.scalar(0.5, other)), fmod=1)

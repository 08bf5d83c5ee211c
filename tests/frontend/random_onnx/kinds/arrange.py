"""What moves elements and computes none."""

from __future__ import annotations

import math

import numpy as np

from tests.frontend.random_onnx.kinds.base import kind
from tests.frontend.random_onnx.maker import FLOATS, INTEGERS, Maker, Shape, Size, Unfit, Value

PADDED = ("float32", "float64", "int32", "int64")


def with_size(shape: Shape, axis: int, size: int) -> Shape:
    """A shape with another size at one axis."""
    axis %= len(shape)
    return (*shape[:axis], size, *shape[axis + 1 :])


@kind(weight=2)
def reshape(m: Maker, x: Value) -> None:
    if not x.is_known:
        return reshape_open(m, x)
    left, shape = math.prod(x.shape), []
    for factor in (2, 3, 4, 8):
        if left % factor == 0 and m.chance(0.5):
            shape.append(factor)
            left //= factor
    shape.append(left)
    m.random.shuffle(shape)
    m.node("Reshape", x, m.ints(*shape), shape=shape, allowzero=int(0 in shape))


def reshape_open(m: Maker, x: Value) -> None:
    """Neighbours joined, or one cut in two, where one size at most is open in what follows."""
    if x.rank > 1 and m.chance(0.5):
        n = m.random.randrange(x.rank - 1)
        shape = (*x.shape[:n], x.shape[n] * x.shape[n + 1], *x.shape[n + 2 :])
    else:
        n = m.axis(x, known=True)
        factor = m.choose(2, 3, 4)
        if x.shape[n] % factor:
            raise Unfit
        parts = m.random.sample((factor, x.shape[n] // factor), 2)
        shape = (*x.shape[:n], *parts, *x.shape[n + 1 :])
    shown = [0 if d == given else d for d, given in zip(shape, x.shape)] + list(shape[x.rank :])
    unknown = [k for k, d in enumerate(shown) if isinstance(d, Size)]
    if len(unknown) > 1:
        raise Unfit
    m.node("Reshape", x, m.ints(*(-1 if isinstance(d, Size) else d for d in shown)), shape=shape)


@kind(least_rank=1)
def flatten(m: Maker, x: Value) -> None:
    n = m.random.randint(0, x.rank)
    m.node("Flatten", x, shape=(math.prod(x.shape[:n]), math.prod(x.shape[n:])), axis=n)


@kind()
def unsqueeze(m: Maker, x: Value) -> None:
    if x.rank > 4:
        raise Unfit
    n = m.random.randint(0, x.rank)
    m.node("Unsqueeze", x, m.ints(n - m.choose(0, x.rank + 1)), shape=(*x.shape[:n], 1, *x.shape[n:]))


@kind(least_rank=1)
def squeeze(m: Maker, x: Value) -> None:
    axes = [n for n, d in enumerate(x.shape) if d == 1]
    if not axes:
        raise Unfit
    axes = sorted(m.random.sample(axes, m.random.randint(1, len(axes))))
    m.node("Squeeze", x, m.ints(*axes), shape=[d for n, d in enumerate(x.shape) if n not in axes])


@kind(least_rank=2, weight=2)
def transpose(m: Maker, x: Value) -> None:
    order = m.random.sample(range(x.rank), x.rank)
    m.node("Transpose", x, shape=[x.shape[n] for n in order], perm=order)


@kind(least_rank=1, weight=2)
def slices(m: Maker, x: Value) -> None:
    """Of all axes at known places; an open one from its begin or its end."""
    begins, ends, steps, shape = [], [], [], []
    for size in x.shape:
        if isinstance(size, Size):
            step, first, after = m.choose((1, 0, 10**6), (1, 1, 10**6), (1, 0, -1), (2, 0, 10**6), (-1, -1, -(10**6)))
            after_size = size if step * step == 1 and not (first == 1 or after == -1) else Size(max(1, size - 1))
        else:
            if not size:
                raise Unfit
            low = m.random.randrange(size)
            high, step = m.random.randint(low + 1, size), m.choose(1, 1, 2, 3)
            first, after, after_size = low, high, -(-(high - low) // step)
            if m.chance(0.2):
                first, after, step = high - 1, low - 1 if low else -(10**6), -step
        begins.append(first)
        ends.append(after)
        steps.append(step)
        shape.append(after_size)
    m.node("Slice", x, m.ints(*begins), m.ints(*ends), m.ints(*range(x.rank)), m.ints(*steps), shape=shape)


@kind(least_rank=1, weight=2)
def concat(m: Maker, x: Value) -> None:
    axis = m.axis(x)
    parts = [x]
    for _ in range(m.choose(1, 1, 2)):
        fitting = [v for v in m.values if v.dtype == x.dtype and v.rank == x.rank
                   and with_size(v.shape, axis, 0) == with_size(x.shape, axis, 0)]  # fmt: skip
        other = m.random.choice(fitting) if m.chance(0.4) else m.other(with_size(x.shape, axis, m.size()), x.dtype)
        parts.insert(m.random.randint(0, len(parts)), other)
    size = sum((p.shape[axis] for p in parts[1:]), parts[0].shape[axis])
    m.node("Concat", *parts, shape=with_size(x.shape, axis, size), axis=axis - m.choose(0, x.rank))


@kind(least_rank=1)
def split(m: Maker, x: Value) -> None:
    axis = m.axis(x, known=True)
    if x.shape[axis] < 2:
        raise Unfit
    first = m.random.randint(1, x.shape[axis] - 1)
    sizes = (first, x.shape[axis] - first)
    m.results("Split", [x, m.ints(*sizes)], [(with_size(x.shape, axis, s), x.dtype) for s in sizes], axis=axis)


@kind(PADDED, least_rank=1, weight=2)
def pad(m: Maker, x: Value) -> None:
    mode = m.choose("constant", "edge", "reflect", *(("wrap",) if x.is_known else ()))
    if mode != "constant" and (0 in x.shape or not x.is_known and mode == "reflect"):
        raise Unfit
    most = [3 if mode in ("constant", "edge") else max(0, min(3, d - 1)) for d in x.shape]
    before, after = ([m.random.randint(0, k) for k in most] for _ in range(2))
    value = m.scalar(2, x) if mode == "constant" and m.chance(0.7) else None
    m.node("Pad", x, m.ints(*before, *after), *((value,) if value else ()),
           shape=[d + b + a for d, b, a in zip(x.shape, before, after, strict=True)], mode=mode)  # fmt: skip


@kind()
def expand(m: Maker, x: Value) -> None:
    shape = [m.size() if d == 1 and m.chance(0.6) else d for d in x.shape]
    shown = [1 if isinstance(d, Size) else d for d in shape]
    if m.chance(0.3):
        shape.insert(0, more := m.choose(1, 2, 3))
        shown.insert(0, more)
    m.node("Expand", x, m.ints(*shown), shape=shape)


@kind(least_rank=1)
def tile(m: Maker, x: Value) -> None:
    times = [m.choose(1, 1, 2, 3) for _ in x.shape]
    m.node("Tile", x, m.ints(*times), shape=[d * t for d, t in zip(x.shape, times, strict=True)])


@kind(("float32", "float64"), least_rank=4, most_rank=4, weight=4)
def blocks(m: Maker, x: Value) -> None:
    """Pixels to channels and back."""
    n, c, h, w = x.shape
    b = m.choose(2, 3)
    if h % b == 0 and w % b == 0:
        m.node("SpaceToDepth", x, shape=(n, c * b * b, h // b, w // b), blocksize=b)
    elif c % (b * b) == 0:
        m.node("DepthToSpace", x, shape=(n, c // (b * b), h * b, w * b), blocksize=b, mode=m.choose("DCR", "CRD"))
    else:
        raise Unfit


@kind(("float32", "float64", "int64", "bool"), least_rank=2)
def triangle(m: Maker, x: Value) -> None:
    diagonal = [m.constant(np.int64(m.random.randint(-3, 3)))] if m.chance(0.6) else []
    m.node("Trilu", x, *diagonal, upper=m.random.randint(0, 1))


@kind((*FLOATS, *INTEGERS), least_rank=2)
def reverse_sequence(m: Maker, x: Value) -> None:
    batch = m.random.randint(0, 1)
    if isinstance(x.shape[batch], Size) or isinstance(x.shape[1 - batch], Size) or 0 in x.shape[:2]:
        raise Unfit
    lengths = m.input((x.shape[batch],), "int64", 1, x.shape[1 - batch] + 1)
    m.node("ReverseSequence", x, lengths, batch_axis=batch, time_axis=1 - batch)


@kind(("float32",), least_rank=3, most_rank=3, weight=4)
def columns_to_image(m: Maker, x: Value) -> None:
    n, rows, places = x.shape
    kernel = [m.choose(1, 2, 3) for _ in range(2)]
    if isinstance(rows, Size) or isinstance(places, Size) or rows % math.prod(kernel):
        raise Unfit
    height = m.choose(*(d for d in range(1, places + 1) if places % d == 0))
    strides = [m.choose(1, 2) for _ in range(2)]
    outer = [(p - 1) * s + k for p, s, k in zip((height, places // height), strides, kernel)]
    pads = [m.random.randint(0, (k - 1) // 2) for k in kernel]
    image = [o - 2 * p for o, p in zip(outer, pads)]
    if min(image) < 1:
        raise Unfit
    m.node("Col2Im", x, m.ints(*image), m.ints(*kernel), shape=(n, rows // math.prod(kernel), *image), strides=strides,
           pads=[*pads, *pads])  # fmt: skip

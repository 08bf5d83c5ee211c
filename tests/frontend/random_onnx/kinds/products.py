"""Sums of products."""

from __future__ import annotations

from tests.frontend.random_onnx.kinds.base import kind
from tests.frontend.random_onnx.maker import FLOATS, Maker, Size, Unfit, Value


@kind(FLOATS, least_rank=2, weight=4)
def matmul(m: Maker, x: Value) -> None:
    batch = x.shape[:-2] if m.chance(0.4) else ()
    other = m.other((*batch, x.shape[-1], m.size()), x.dtype)
    m.node("MatMul", x, other, shape=(*x.shape[:-1], other.shape[-1]))


@kind(FLOATS, least_rank=1, most_rank=3)
def matmul_vector(m: Maker, x: Value) -> None:
    m.node("MatMul", x, m.other((x.shape[-1],), x.dtype), shape=x.shape[:-1])


@kind(FLOATS, least_rank=3)
def matmul_broadcast(m: Maker, x: Value) -> None:
    """Both factors have batches of one matrix for all."""
    batch = [1 if m.chance(0.5) else d for d in x.shape[:-2]]
    other = m.other((*batch, x.shape[-1], m.size()), x.dtype)
    m.node("MatMul", x, other, shape=(*x.shape[:-1], other.shape[-1]))


@kind(FLOATS, least_rank=2, most_rank=3)
def squares(m: Maker, x: Value) -> None:
    """Each row times each."""
    order = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    turned = m.node("Transpose", x, perm=order, shape=[x.shape[n] for n in order])
    m.node("MatMul", x, turned, shape=(*x.shape[:-1], x.shape[-2]))


@kind(FLOATS, least_rank=2, most_rank=2, weight=2)
def gemm(m: Maker, x: Value) -> None:
    turned, other_turned = m.random.randint(0, 1), m.random.randint(0, 1)
    k, rows = x.shape if turned else x.shape[::-1]
    columns = m.size()
    other = m.other((columns, k) if other_turned else (k, columns), x.dtype)
    added = [m.other(m.choose((columns,), (1, columns), (rows, 1), (rows, columns), ()), x.dtype)]
    m.node("Gemm", x, other, *(added if m.chance(0.8) else []), shape=(rows, columns), transA=turned,
           transB=other_turned, alpha=m.choose(1.0, 0.5), beta=m.choose(1.0, 2.0))  # fmt: skip


@kind(("float32", "float64"), least_rank=3, most_rank=3)
def einsum(m: Maker, x: Value) -> None:
    b, i, j = x.shape
    k = m.size()
    equation, other, shape = m.choose(
        ("bij,bjk->bik", (b, j, k), (b, i, k)), ("bij,kj->bki", (k, j), (b, k, i)),
        ("bij,bkj->bik", (b, k, j), (b, i, k)),
        ("bij,bij->b", (b, i, j), (b,)), ("bij,kji->bk", (k, j, i), (b, k)), ("bij,bik->bjk", (b, i, k), (b, j, k)),
    )  # fmt: skip
    m.node("Einsum", x, m.other(other, x.dtype), shape=shape, equation=equation)


@kind(("uint8", "int8"), least_rank=2)
def matmul_integers(m: Maker, x: Value) -> None:
    other = m.other((x.shape[-1], m.size()), m.choose("int8", "uint8"))
    m.node("MatMulInteger", x, other, shape=(*x.shape[:-1], other.shape[-1]), dtype="int32")


@kind(("int32", "int64"), least_rank=2)
def matmul_of_integers(m: Maker, x: Value) -> None:
    other = m.other((x.shape[-1], m.size()), x.dtype)
    m.node("MatMul", x, other, shape=(*x.shape[:-1], other.shape[-1]))


def window(m: Maker, n: int) -> tuple[list[int], ...]:
    """Kernel, strides, dilations and pads of a random window over n axes."""
    kernel = [m.choose(1, 1, 3, 3, 2, 5, 7) for _ in range(n)]
    strides, dilations = [m.choose(1, 1, 2, 3) for _ in range(n)], [m.choose(1, 1, 1, 2) for _ in range(n)]
    pads = [[m.random.randint(0, (k - 1) * d) for k, d in zip(kernel, dilations)] for _ in range(2)]
    return kernel, strides, dilations, *pads


def _groups(m: Maker, channels: int) -> int:
    if isinstance(channels, Size) or not 1 <= channels <= 128:
        raise Unfit
    return m.random.choice((1, 1, 1, channels, *(g for g in (2, 4) if channels % g == 0)))


@kind(("float32",), least_rank=3, most_rank=5, weight=4)
def conv(m: Maker, x: Value) -> None:
    n, channels, *spatial = x.shape
    groups = _groups(m, channels)
    out = groups * m.choose(1, 2, 3, 8, 16) if groups > 1 else m.size()
    kernel, strides, dilations, before, after = window(m, len(spatial))
    sizes = [(d + b + a - (k - 1) * e - 1) // s + 1
             for d, s, k, e, b, a in zip(spatial, strides, kernel, dilations, before, after)]  # fmt: skip
    if min(sizes) < 1:
        raise Unfit
    weight = m.other((out, channels // groups, *kernel), x.dtype, is_constant=m.chance(0.9))
    bias = [m.other((out,), x.dtype)] if m.chance(0.6) else []
    m.node("Conv", x, weight, *bias, shape=(n, out, *sizes), group=groups, strides=strides, dilations=dilations,
           pads=before + after)  # fmt: skip


@kind(("float32",), least_rank=3, most_rank=4, weight=2)
def conv_transpose(m: Maker, x: Value) -> None:
    n, channels, *spatial = x.shape
    groups = _groups(m, channels)
    if 0 in x.shape:  # ONNX Runtime crashes
        raise Unfit
    out = m.choose(1, 2, 3, 8)
    kernel, strides, dilations, before, after = window(m, len(spatial))
    more = [m.random.randint(0, s - 1) if m.chance(0.3) else 0 for s in strides]
    sizes = [(d - 1) * s + (k - 1) * e + 1 - b - a + o
             for d, s, k, e, b, a, o in zip(spatial, strides, kernel, dilations, before, after, more)]  # fmt: skip
    if min(sizes) < 1:
        raise Unfit
    weight = m.other((channels, out, *kernel), x.dtype, is_constant=m.chance(0.9))
    bias = [m.other((out * groups,), x.dtype)] if m.chance(0.5) else []
    m.node("ConvTranspose", x, weight, *bias, shape=(n, out * groups, *sizes), group=groups, strides=strides,
           dilations=dilations, pads=before + after, output_padding=more)  # fmt: skip

"""A 3x3 convolution of stride 1 or 2, or a 2x2 one, as the stages of Winograd's algorithm, with all around it kept.

With tiles p = (n, th, tw) of m x m outputs, read from (m + 2) x (m + 2) inputs:

    T[p, cb, x, j, ci]      = Bᵀ of the tile's columns              (winograd_columns)
    V[x, y, p, c]           = B of its rows                         (winograd_inputs)
    M[x, y, p, o]           = sum over c of V * U                   (winograd_products: (m + 2)² matrix products)
    Z[p, ob, i, y, oi]      = Aᵀ of the products                    (winograd_half)
    out[n, ob, oh, ow, oi]  = A of these, at (oh % m, ow % m)       (named as the convolution was)

A dilation d makes d x d images of every d-th row and column, whose tiles these are then.

Stride 2 has 2 m + 1 inputs and products in each direction, see `StridedFilter`.

Of a convolution in groups, outputs are sums over the channels of their own group.

Padding is part of how T reads its inputs; a tile that reaches beyond the data reads zeros there.

Of bytes, F(2, 3) is exact: T, V and U are 16-bit integers (of at most 4 * 255 and 9 * 128). U is four times what it is
of floats, and so are M and Z, in int32; the last shift takes that off. Sums that leave int32 on their way come back.
"""

from __future__ import annotations

from functools import lru_cache

from autosched import te
from autosched.te import Tensor
from autosched.templates.winograd_form import Convolution, Read, Tiling, padded_reader, with_stages
from autosched.templates.winograd_pack import WinogradPack
from autosched.templates.winograd_transform import pick, transform_inputs, transform_outputs
from autosched.tir import PrimFunc, cast, const, floordiv, floormod
from autosched.tir.expr import PrimExpr, bitwise

TWICE_TWO = 2  # bits by which 2 G from both sides makes sums of whole numbers larger
COLUMNS, INPUTS, PRODUCTS, HALF = "winograd_columns", "winograd_inputs", "winograd_products", "winograd_half"


@lru_cache(maxsize=32)
def winograd_func(func: PrimFunc, conv: Convolution, pack: WinogradPack, block: int) -> PrimFunc:
    """`func` with the convolution, and what makes its padded data, replaced by the stages; the weight comes packed.

    block  tiles that are worked on together
    Remembered, as it takes more than half of a candidate's scheduling: neighbours in a search often share it.
    """
    tiling = Tiling(pack.filter, conv.out.const_shape(), block, conv.dilation)
    given = conv.given
    data = te.placeholder(given.const_shape(), given.dtype, name=given.name)
    dtype = pack.packed_dtype(conv.weight.dtype)
    weight = te.placeholder(pack.packed_shape, dtype, name=f"{conv.weight.name}_packed")
    read = padded_reader(conv, tiling, data)
    result_of = conv.result.name_hint, conv.out.dtype
    out = _stages(tiling, conv.data.const_shape(), read, weight, pack, result_of, conv.groups)
    return with_stages(func, conv, data, weight, out)


def _stages(
    tiling: Tiling,
    data_shape: tuple[int, ...],
    read: Read,
    weight: Tensor,
    pack: WinogradPack,
    result_of: tuple[str, str],
    groups: int,
) -> Tensor:
    name, out_dtype = result_of
    f, tiles = tiling.filter, tiling.filled
    size, m, d, out_block = f.inputs, f.outputs, tiling.dilation, tiling.shape[4]
    data_blocks, data_block = data_shape[1], data_shape[4]
    channels, outputs = data_blocks * data_block, tiling.shape[1] * out_block
    chunk = pack.width * pack.panels
    outputs = outputs if outputs <= chunk else -(-outputs // chunk) * chunk

    def columns(p: PrimExpr, cb: PrimExpr, x: PrimExpr, j: PrimExpr, ci: PrimExpr) -> PrimExpr:
        n, y0, x0 = tiling.place(p)
        terms = [cast(weight.dtype, read(n, cb, y0 + i * d, x0 + j * d, ci)) for i in range(size)]
        return pick(x, transform_inputs(f, terms))

    def inputs(x: PrimExpr, y: PrimExpr, p: PrimExpr, c: PrimExpr) -> PrimExpr:
        block, lane = floordiv(c, data_block), floormod(c, data_block)
        return pick(y, transform_inputs(f, [t[p, block, x, j, lane].as_expr() for j in range(size)]))

    def half(p: PrimExpr, ob: PrimExpr, i: PrimExpr, y: PrimExpr, oi: PrimExpr) -> PrimExpr:
        terms = [products[x, y, p, ob * out_block + oi].as_expr() for x in range(size)]
        return pick(i, transform_outputs(f, terms))

    def result(n: PrimExpr, ob: PrimExpr, oh: PrimExpr, ow: PrimExpr, oi: PrimExpr) -> PrimExpr:
        p = tiling.tile_of(n, oh, ow)
        terms = [z[p, ob, tiling.in_tile(oh), y, oi].as_expr() for y in range(size)]
        total = pick(tiling.in_tile(ow), transform_outputs(f, terms))
        return total if pack.group == 1 else bitwise("shift_right", total, const(TWICE_TWO, out_dtype))

    t = te.compute((tiles, data_blocks, size, size, data_block), columns, name=COLUMNS)
    v = te.compute((size, size, tiles, channels), inputs, name=INPUTS)
    per_group = channels // groups
    c = te.reduce_axis((0, per_group), "c")

    def channel(o: PrimExpr) -> PrimExpr:
        return c.var if groups == 1 else floordiv(o, outputs // groups) * per_group + c.var

    products = te.compute(
        (size, size, tiles, outputs),
        lambda x, y, p, o: te.sum(
            cast(out_dtype, v[x, y, p, channel(o)].as_expr())
            * cast(out_dtype, weight[pack.index(o, c.var, x, y)].as_expr()),
            axis=c,
        ),
        name=PRODUCTS,
    )
    z = te.compute((tiles, tiling.shape[1], m, size, out_block), half, name=HALF)
    return te.compute(tiling.shape, result, name=name)


__all__ = ["COLUMNS", "HALF", "INPUTS", "PRODUCTS", "winograd_func"]

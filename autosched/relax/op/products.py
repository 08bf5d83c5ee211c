"""Matrix products, and sums of products in general."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autosched import topi
from autosched.errors import InvalidTypeError, ShapeError
from autosched.relax.expr import Call
from autosched.relax.op.binary import add
from autosched.relax.op.manipulate import permute_dims
from autosched.relax.op.registry import define_op, sample
from autosched.relax.op.types import broadcast_dims, common_dtype, tensor
from autosched.relax.struct_info import Expr, StructInfo, TensorStructInfo, TupleStructInfo, same_dim
from autosched.te import Tensor
from autosched.topi import linear as products
from autosched.topi.einsum import einsum as te_einsum
from autosched.topi.einsum import letter_sizes, parse


def _matmul_type(x1: StructInfo, x2: StructInfo, out_dtype: str | None) -> TensorStructInfo:
    a, b = tensor(x1), tensor(x2)
    if a.ndim < 1 or b.ndim < 1:
        raise ShapeError("a scalar has no rows")
    rows, columns = (a.dims[-2:-1] if a.ndim > 1 else ()), (b.dims[-1:] if b.ndim > 1 else ())
    inner = b.dims[-2] if b.ndim > 1 else b.dims[0]
    if not same_dim(a.dims[-1], inner):
        raise ShapeError(f"{a!r} has {a.dims[-1]} columns, {b!r} has {inner} rows")
    batch = broadcast_dims(a.dims[:-2], b.dims[:-2])
    return TensorStructInfo((*batch, *rows, *columns), out_dtype or common_dtype(a, b))


def _matmul_reference(x: np.ndarray, y: np.ndarray, out_dtype: str | None) -> np.ndarray:
    dtype = np.dtype(out_dtype or x.dtype)
    kind = np.dtype(np.float32) if str(dtype) == "bfloat16" else dtype  # NumPy has no product of bfloat16
    product: np.ndarray = np.matmul(x.astype(kind, copy=False), y.astype(kind, copy=False), dtype=kind)
    return product.astype(dtype, copy=False)


def keeps_dtype(product: Call) -> bool:
    """Whether the result of a product has the type of both factors, said or not."""
    infos = [x.struct_info for x in (product, *product.args)]
    return len({i.dtype for i in infos if isinstance(i, TensorStructInfo)}) == 1


matmul = define_op(
    "matmul", inputs=("x1", "x2"), attributes={"out_dtype": None}, infer_type=_matmul_type, compute=products.matmul,
    canonical=lambda a: {**a, "out_dtype": None if a["out_dtype"] in ("void", "") else a["out_dtype"]},
    reference=_matmul_reference,
    samples=[
        sample((3, 5), (5, 4)), sample((2, 3, 5), (5, 4)), sample((2, 1, 3, 5), (4, 5, 2)), sample((5,), (5, 4)),
        sample((2, 3, 5), (5,)), sample((5,), (5,)),
    ],
)  # fmt: skip


def _distance_type(x: StructInfo, points: StructInfo) -> TensorStructInfo:
    a, b = tensor(x), tensor(points)
    if a.ndim != 2 or b.ndim != 2 or not same_dim(a.dims[1], b.dims[0]):
        raise ShapeError(f"{a!r} and {b!r}", hint="[rows, features], [features, points]")
    return TensorStructInfo((a.dims[0], b.dims[1]), common_dtype(a, b))


def _distance_reference(x: np.ndarray, points: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.square(x[:, :, None].astype(np.float64) - points[None]).sum(1)
    return found.astype(x.dtype)


squared_distance = define_op(
    "squared_distance", inputs=("x", "points"), infer_type=_distance_type, compute=topi.squared_distance,
    reference=_distance_reference, samples=[sample((3, 5), (5, 4)), sample((1, 2), (2, 33))],
)  # fmt: skip


def _grouped_type(x: StructInfo, weight: StructInfo, groups: StructInfo) -> TensorStructInfo:
    a, w, g = tensor(x), tensor(weight), tensor(groups)
    if a.ndim != 2 or w.ndim != 3 or g.ndim != 1 or not same_dim(a.dims[1], w.dims[1]):
        raise ShapeError(f"{a!r}, {w!r}, {g!r}", hint="[rows, K], [groups, K, N], [rows]")
    if not same_dim(a.dims[0], g.dims[0]) or w.dims[0] == 0:
        raise ShapeError(f"{g!r} for the rows of {a!r} and the groups of {w!r}")
    if not g.dtype.startswith("int"):
        raise InvalidTypeError(f"groups of {g.dtype}")
    return TensorStructInfo((a.dims[0], w.dims[2]), common_dtype(a, w))


def _grouped_reference(x: np.ndarray, weight: np.ndarray, groups: np.ndarray) -> np.ndarray:
    chosen = weight[np.clip(groups, 0, len(weight) - 1)].astype(np.float64)
    found: np.ndarray = (x[:, None].astype(np.float64) @ chosen)[:, 0]
    return found.astype(x.dtype)


grouped_matmul = define_op(
    "grouped_matmul", inputs=("x", "weight", "groups"), infer_type=_grouped_type, compute=topi.grouped_matmul,
    reference=_grouped_reference,
    samples=[sample((5, 4), (3, 4, 6), ((5,), "int32"), low=0, high=4), sample((1, 3), (2, 3, 33), ((1,), "int64"))],
)  # fmt: skip


def linear(data: Expr, weight: Expr, bias: Expr | None = None, out_dtype: str | None = None) -> Expr:
    """data @ weight^T + bias, for a weight [out, in]; data [..., in]."""
    product = matmul(data, permute_dims(weight), out_dtype)
    return product if bias is None else add(product, bias)


def _einsum_type(operands: StructInfo, subscripts: str) -> TensorStructInfo:
    if not isinstance(operands, TupleStructInfo):
        raise InvalidTypeError("takes a tuple of tensors")
    given = [tensor(f) for f in operands.fields]
    letters, result = parse(subscripts, [t.ndim for t in given])
    sizes = letter_sizes(letters, [t.dims for t in given])
    return TensorStructInfo([sizes[c] for c in result], common_dtype(*given))


def _einsum_compute(operands: Sequence[Tensor], subscripts: str) -> Tensor:
    return te_einsum(subscripts, *operands)


def _einsum_reference(operands: Sequence[np.ndarray], subscripts: str) -> np.ndarray:
    kind = operands[0].dtype
    wide = [x.astype(np.float64) if kind.kind == "f" else x for x in operands]
    return np.asarray(np.einsum(subscripts, *wide)).astype(kind)


einsum = define_op(
    "einsum", inputs=("operands",), attributes={"subscripts": ""}, infer_type=_einsum_type, compute=_einsum_compute,
    reference=_einsum_reference,
    samples=[
        sample([(3, 4), (4, 5)], subscripts="ij,jk->ik"), sample([(3, 3)], subscripts="ii"),
        sample([(2, 3, 4), (1, 4, 5)], subscripts="...ij,...jk->...ik"), sample([(4, 4)], subscripts="ii->i"),
        sample([(2, 3), (3, 4), (4, 2)], subscripts="ij,jk,kl -> li"), sample([(3,), (3,)], subscripts="i,i"),
        sample([((2, 3), "int32"), ((4,), "int32")], subscripts="ba,c"),
    ],
)  # fmt: skip

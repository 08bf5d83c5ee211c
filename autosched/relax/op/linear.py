"""Matrix products."""

from __future__ import annotations

import numpy as np

from autosched import topi
from autosched.errors import ShapeError
from autosched.relax.op.registry import define_op, sample
from autosched.relax.op.types import broadcast_dims, common_dtype, tensor
from autosched.relax.struct_info import StructInfo, TensorStructInfo, same_dim


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


matmul = define_op(
    "matmul", inputs=("x1", "x2"), attributes={"out_dtype": None}, infer_type=_matmul_type, compute=topi.matmul,
    canonical=lambda a: {**a, "out_dtype": None if a["out_dtype"] in ("void", "") else a["out_dtype"]},
    reference=lambda x, y, out_dtype: np.matmul(x, y, dtype=out_dtype or x.dtype),
    samples=[
        sample((3, 5), (5, 4)), sample((2, 3, 5), (5, 4)), sample((2, 1, 3, 5), (4, 5, 2)), sample((5,), (5, 4)),
        sample((2, 3, 5), (5,)), sample((5,), (5,)),
    ],
)  # fmt: skip

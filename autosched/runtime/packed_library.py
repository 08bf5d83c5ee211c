"""The registered functions that TVM's contrib modules call, in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def _matmul(a: Any, b: Any, c: Any, transa: Any = False, transb: Any = False, *_: Any) -> None:
    x, y = (np.asarray(t.numpy() if hasattr(t, "numpy") else t) for t in (a, b))
    x = np.swapaxes(x, -1, -2) if transa else x
    y = np.swapaxes(y, -1, -2) if transb else y
    c.copyfrom(np.matmul(x, y).astype(str(c.dtype), copy=False))


def _sort(data: Any, out: Any, *_: Any) -> None:
    out.copyfrom(np.sort(data.numpy(), axis=-1))


def _argsort(data: Any, out: Any, *_: Any) -> None:
    out.copyfrom(np.argsort(data.numpy(), axis=-1, kind="stable").astype(str(out.dtype)))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{f"tvm.contrib.{name}.matmul": _matmul for name in ("cblas", "mkl", "dnnl", "cublas")},
    **{f"tvm.contrib.{name}.batch_matmul": _matmul for name in ("cblas", "mkl", "cublas")},
    "tvm.contrib.sort.sort": _sort, "tvm.contrib.sort.argsort": _argsort,
}  # fmt: skip

"""Models use one thread: their matrices are small, and the other cores belong to those who build and measure."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any


@cache
def _controller() -> Any:
    import scipy.linalg  # noqa: F401 - its BLAS must be loaded before the controller looks for libraries
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]  # comes with scikit-learn

    return ThreadpoolController()


def one_thread() -> AbstractContextManager[Any]:
    """A context in which NumPy's and SciPy's linear algebra runs on one thread."""
    context: AbstractContextManager[Any] = _controller().limit(limits=1)
    return context

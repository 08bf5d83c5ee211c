"""What models learn, and how their predictions become a wish to measure."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np


@cache
def _controller() -> Any:
    import scipy.linalg  # noqa: F401 - its BLAS must be loaded before the controller looks for libraries
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]  # comes with scikit-learn

    return ThreadpoolController()


def one_thread() -> AbstractContextManager[Any]:
    """A context in which NumPy's and SciPy's linear algebra runs on one thread."""
    context: AbstractContextManager[Any] = _controller().limit(limits=1)
    return context


CLIP_QUANTILE = 0.5  # slower configurations all count as equally slow: their differences teach nothing


@dataclass(frozen=True, slots=True)
class Clipping:
    """How logarithmic times become the target of models: values above `limit` set to it, shifted and scaled."""

    limit: float
    mean: float
    deviation: float

    @staticmethod
    def of(log_s: np.ndarray, quantile: float = CLIP_QUANTILE) -> Clipping:
        """The clipping at a quantile of these times, with which they have mean 0 and deviation 1."""
        limit = float(np.quantile(log_s, quantile))
        clipped = np.minimum(log_s, limit)
        deviation = float(clipped.std())
        return Clipping(limit, float(clipped.mean()), deviation if deviation > 0 else 1.0)

    def __call__(self, log_s: np.ndarray) -> np.ndarray:
        """Targets for logarithmic times."""
        return np.asarray((np.minimum(log_s, self.limit) - self.mean) / self.deviation)


def clip_log_times(log_s: np.ndarray, quantile: float = CLIP_QUANTILE) -> np.ndarray:
    """Logarithmic times, those above the quantile set to it, shifted and scaled to mean 0 and deviation 1."""
    return Clipping.of(log_s, quantile)(log_s)


def expected_improvement(mean: np.ndarray, deviation: np.ndarray, best: float) -> np.ndarray:
    """How much lower than `best` a normal value is expected to be, counting 0 where it is higher; [n]."""
    from scipy.special import ndtr

    deviation = np.maximum(deviation, 1e-9)
    z = (best - mean) / deviation
    density = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    return np.asarray(deviation * (z * ndtr(z) + density))

"""The least value of a smooth function of few variables within bounds, by a quasi-Newton method.

Sources: Bertsekas 1982, Projected Newton methods for optimization problems with simple constraints; Nocedal, Wright
2006, section 6.1 (BFGS).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

_DECREASE = 1e-4  # of what the slope promises, that a step has to give
_HALVINGS = 20
_FLAT = 1e-5  # largest component of a gradient that counts as none
_SMALL_GAIN = 2e-9  # relative decrease below which the search ends


def minimise(
    loss: Callable[[np.ndarray], tuple[float, np.ndarray]],
    start: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    iterations: int,
) -> tuple[np.ndarray, float]:
    """Lower `loss`, which gives value and gradient, from `start`; the best point [n] found and its value."""
    point = np.clip(start, low, high)
    value, gradient = loss(point)
    inverse = np.eye(len(point))  # of the second derivatives
    is_scaled = False
    for _ in range(iterations):
        held = ((point <= low) & (gradient > 0)) | ((point >= high) & (gradient < 0))
        free = ~held
        if not np.isfinite(value) or not free.any() or np.abs(gradient[free]).max() < _FLAT:
            break
        direction = np.zeros_like(point)
        direction[free] = -inverse[np.ix_(free, free)] @ gradient[free]
        if not is_scaled:
            direction /= max(1.0, float(np.linalg.norm(direction)))
        length = 1.0
        for _ in range(_HALVINGS):
            tried = np.clip(point + length * direction, low, high)
            tried_value, tried_gradient = loss(tried)
            if tried_value <= value + _DECREASE * float(gradient @ (tried - point)):
                break
            length /= 2
        else:
            break
        step, change = tried - point, tried_gradient - gradient
        curvature = float(step @ change)
        if curvature > 1e-10 * float(change @ change):
            if not is_scaled:
                inverse *= curvature / float(change @ change)
                is_scaled = True
            shift = np.eye(len(point)) - np.outer(step, change) / curvature
            inverse = shift @ inverse @ shift.T + np.outer(step, step) / curvature
        gain = value - tried_value
        point, value, gradient = tried, tried_value, tried_gradient
        if gain <= _SMALL_GAIN * max(abs(value), 1.0):
            break
    return point, float(value)

"""Mathematical functions that NumPy lacks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_erf = np.frompyfunc(math.erf, 1, 1)


def erf(x: Any) -> np.ndarray[Any, Any]:
    """The error function, in the argument's dtype; SciPy's where it is installed, else the C library's, slowly."""
    array = np.asarray(x)
    try:
        from scipy.special import erf as fast
    except ImportError:
        return np.asarray(_erf(array), dtype=np.float64).astype(array.dtype)
    return np.asarray(fast(array), dtype=array.dtype)

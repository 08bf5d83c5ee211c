"""Reports early that Numba is switched to compile nothing."""

from __future__ import annotations

from autosched.env import NUMBA_DISABLE_JIT
from autosched.errors import UsageError


def check_numba() -> None:
    """See that Numba may compile. Raises UsageError where NUMBA_DISABLE_JIT forbids it."""
    if NUMBA_DISABLE_JIT.get():
        raise UsageError(
            "NUMBA_DISABLE_JIT is set, so that Numba compiles nothing and no kernel can be built", hint="unset it"
        )

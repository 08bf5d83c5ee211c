"""Operations of TVM's te that this compiler does not have: they say so, and what to write instead."""

from __future__ import annotations

from typing import Any, NoReturn

from autosched.errors import TVMError


def extern(*args: Any, **kwargs: Any) -> NoReturn:
    """Refused: kernels call no code from outside. Raises TVMError always."""
    raise TVMError(
        "te.extern is not available: kernels call no code from outside of the compiler",
        hint="write the computation with te.compute, or call the library between two kernels",
    )


def scan(*args: Any, **kwargs: Any) -> NoReturn:
    """Refused: a te compute has no order of its iterations. Raises TVMError always."""
    raise TVMError(
        "te.scan is not available: a te compute has no order of its iterations",
        hint="write the recurrence as a PrimFunc in TVMScript",
    )

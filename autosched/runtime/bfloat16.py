"""NumPy's type of bfloat16, which the package ml_dtypes has."""

from __future__ import annotations

from autosched.errors import InvalidTypeError

NAME = "bfloat16"


def know_dtype(name: str) -> None:
    """See that NumPy knows a dtype by its name. Raises InvalidTypeError for bfloat16 where ml_dtypes is missing."""
    if name == NAME:
        try:
            import ml_dtypes  # noqa: F401  (importing it tells NumPy)
        except ImportError:
            raise InvalidTypeError(
                "arrays of bfloat16 take the package ml_dtypes", hint="pip install ml_dtypes"
            ) from None

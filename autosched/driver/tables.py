"""Reports as tables: for pandas, and as notebooks show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from autosched.errors import UsageError

if TYPE_CHECKING:
    import pandas


def frame(rows: Sequence[Mapping[str, object]]) -> pandas.DataFrame:
    """Rows as a frame of pandas. Raises UsageError where pandas is not installed."""
    try:
        import pandas
    except ModuleNotFoundError:
        raise UsageError("a frame needs pandas, which is not installed", hint="pip install pandas") from None
    return pandas.DataFrame([dict(row) for row in rows])

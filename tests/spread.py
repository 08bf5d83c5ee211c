"""A spread of a test's cases for every day; `make test-all` runs them all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def spread(step: int, names: str, cases: Iterable[Any], ids: Any = None, first: int = 0) -> pytest.MarkDecorator:
    """Parametrise as pytest does; each `step`-th case from the `first` on runs every day, the others are slow."""

    def marked(case: Any) -> Any:
        if hasattr(case, "marks"):  # pytest's own form of a case
            return pytest.param(*case.values, marks=(*case.marks, pytest.mark.slow), id=case.id)
        return pytest.param(*(case if "," in names else (case,)), marks=pytest.mark.slow)

    chosen = [case if n % step == first else marked(case) for n, case in enumerate(cases)]
    return pytest.mark.parametrize(names, chosen, ids=ids)

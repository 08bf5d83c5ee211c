"""Some of a test's many cases for every day; `make test-all` runs them all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, product
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


def cover(*axes: tuple[str, Sequence[Any]], together: int = 2) -> pytest.MarkDecorator:
    """Parametrise by all combinations of the values of some axes; a covering array of them runs every day.

    axes      names of parameters as pytest takes them, and the values that they take
    together  so many axes have all combinations of their values in the cases of every day; 1: each value is in one
    """
    cases = [*product(*(range(len(values)) for _, values in axes))]
    parts = {case: frozenset(combinations(enumerate(case), together)) for case in cases}
    chosen = min((_covering(cases, parts, by_use) for by_use in (True, False)), key=len)
    made = []
    for case in cases:
        values = [(name, given[n]) for (name, given), n in zip(axes, case)]
        flat = [value for name, given in values for value in (given if "," in name else (given,))]
        made.append(pytest.param(*flat, marks=() if case in chosen else pytest.mark.slow))
    return pytest.mark.parametrize(", ".join(name for name, _ in axes), made)


def _covering(
    cases: Sequence[tuple[int, ...]], parts: Mapping[tuple[int, ...], frozenset[Any]], by_use: bool
) -> set[tuple[int, ...]]:
    """Cases that have all parts, each that which has most of what is left: those with values used least, or the first.

    Neither order always gives fewer cases.
    """
    left, used, chosen = frozenset().union(*parts.values()), Counter[tuple[int, int]](), set[tuple[int, ...]]()
    while left:
        best = max(
            cases, key=lambda case: (len(parts[case] & left), -sum(used[v] for v in enumerate(case)) if by_use else 0)
        )
        left -= parts[best]
        used.update(enumerate(best))
        chosen.add(best)
    return chosen

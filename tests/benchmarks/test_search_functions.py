import numpy as np
import pytest

from benchmarks.search_functions import Function, functions

ALL = functions()


@pytest.mark.parametrize("function", ALL, ids=lambda function: function.name)
def test_the_optimum_is_known_valid_and_hard_to_find(function: Function) -> None:
    space = function.space
    assert space.count() >= 10**7 and 8 <= len(space.knobs) <= 12 and space.constraints
    sample = space.sample_rows(np.random.default_rng(0), 500)
    times = np.array([1 + function.penalty(row) for row in sample])
    assert times.min() > 1.0 and np.median(times) > 1.3
    assert space.valid_rows(function.best[None, :])[0]
    assert function.measure(space.to_config(function.best)).median_s == pytest.approx(1e-3)


def test_half_are_separable() -> None:
    assert [f.is_separable for f in ALL] == [True] * 5 + [False] * 5
    for function in ALL[:5]:  # what one knob costs does not depend on the others
        rows = function.space.sample_rows(np.random.default_rng(1), 2)
        a, b = rows[0].copy(), rows[1].copy()
        for row in (a, b):
            row[0] = 0
        moved_a, moved_b = a.copy(), b.copy()
        moved_a[0] = moved_b[0] = 3
        change = [function.penalty(moved) - function.penalty(row) for moved, row in ((moved_a, a), (moved_b, b))]
        assert change[0] == pytest.approx(change[1])

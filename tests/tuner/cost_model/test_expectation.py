import numpy as np
import pytest

from autosched.tuner.cost_model import Clipping, Expectation


def spread_of(hinted: np.ndarray) -> tuple[np.ndarray, float]:
    return hinted.std(axis=0), float(np.ptp(hinted, axis=0).max(initial=0.0))


def test_without_hints_it_is_the_clipping(rng: np.random.Generator) -> None:
    log_s, none = rng.normal(size=20), np.zeros((20, 0))
    expectation = Expectation.of(log_s, none, np.zeros(0), 0.0)
    assert np.array_equal(expectation.targets(log_s, none), Clipping.of(log_s)(log_s))
    assert np.array_equal(expectation.expected(none), np.zeros(20))


def test_a_right_hint_leaves_nothing_to_explain(rng: np.random.Generator) -> None:
    hinted = rng.uniform(0, 0.7, (40, 1))
    log_s = hinted[:, 0] - 7.0
    expectation = Expectation.of(log_s, hinted, *spread_of(hinted))
    assert expectation.weights == pytest.approx([1.0])
    assert np.abs(expectation.targets(log_s, hinted)).max() < 1e-9


def test_few_trials_believe_and_many_correct(rng: np.random.Generator) -> None:
    space = rng.uniform(0, 0.7, (500, 1))
    wrong = -space[:, 0]  # what is said to be slow is fast
    few, many = (Expectation.of(wrong[:n], space[:n], *spread_of(space)) for n in (2, 100))
    assert few.weights[0] > 0 > many.weights[0] and many.weights[0] == pytest.approx(-1.0, abs=0.15)


def test_times_within_reach_are_not_clipped() -> None:
    hinted = np.linspace(0, 0.7, 9)[:, None]
    log_s = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.1, 0.5, 0.6, 5.0])
    assert Expectation.of(log_s, hinted, *spread_of(hinted)).clipping.limit == pytest.approx(0.7)

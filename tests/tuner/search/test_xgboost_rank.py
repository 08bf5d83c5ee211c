import numpy as np

from autosched.space import ConfigSpace
from autosched.testing.search import SearchSuite, measure_with_failures, run
from autosched.testing.tasks import bowl_space
from autosched.tuner.search.random import RandomSearch
from autosched.tuner.search.surrogate import pick_apart
from autosched.tuner.search.xgboost_rank import XGBoostSearch


class TestXGBoost(SearchSuite):
    def make(self, space: ConfigSpace, seed: int) -> XGBoostSearch:
        return XGBoostSearch(space, seed=seed)


def test_finds_better_ones_than_random() -> None:
    space = bowl_space((12, 12, 12), "")
    guided, blind = (
        np.mean([min(t.median_s for t in run(kind(space, seed=seed), 48)) for seed in range(3)])
        for kind in (XGBoostSearch, RandomSearch)
    )
    assert guided < blind


def test_avoids_what_failed() -> None:
    trials = run(XGBoostSearch(bowl_space((8, 8, 8), ""), seed=0), 80, measure=measure_with_failures)
    failed = [not trial.is_ok for trial in trials]
    assert np.mean(failed[:16]) > 0.3 and np.mean(failed[40:]) < 0.15


def test_pick_apart_does_not_take_twins() -> None:
    numbers = np.array([[0.0], [0.01], [5.0]])
    assert pick_apart(np.array([1.0, 0.9, 0.5]), numbers, 2) == [0, 2]
    assert sorted(pick_apart(np.array([1.0, 0.9, 0.5]), numbers, 5)) == [0, 1, 2]

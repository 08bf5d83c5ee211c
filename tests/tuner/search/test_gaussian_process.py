import numpy as np

from autosched.space import ConfigSpace
from autosched.testing.search import SearchSuite, measure_with_failures, run
from autosched.testing.tasks import bowl_space
from autosched.tuner.search.gaussian_process import GaussianProcessSearch
from autosched.tuner.search.random import RandomSearch


class TestGaussianProcess(SearchSuite):
    def make(self, space: ConfigSpace, seed: int) -> GaussianProcessSearch:
        return GaussianProcessSearch(space, seed=seed)


def test_finds_better_ones_than_random() -> None:
    space = bowl_space((12, 12, 12), "")
    guided, blind = (
        np.mean([min(t.median_s for t in run(kind(space, seed=seed), 40)) for seed in range(3)])
        for kind in (GaussianProcessSearch, RandomSearch)
    )
    assert guided < 1.2e-3 < blind


def test_avoids_what_failed() -> None:
    trials = run(GaussianProcessSearch(bowl_space((8, 8, 8), ""), seed=0), 80, measure=measure_with_failures)
    failed = [not trial.is_ok for trial in trials]
    assert any(failed[:8]) and np.mean(failed[8:]) < 0.15 and np.mean(failed[40:]) < 0.1

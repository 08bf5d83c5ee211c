import numpy as np

from autosched.space import ConfigSpace
from autosched.testing.search import SearchSuite, run
from autosched.testing.tasks import bowl_space
from autosched.tuner.search.forest import ForestSearch
from autosched.tuner.search.random import RandomSearch


class TestForest(SearchSuite):
    def make(self, space: ConfigSpace, seed: int) -> ForestSearch:
        return ForestSearch(space, seed=seed)


def test_finds_better_ones_than_random() -> None:
    space = bowl_space((12, 12, 12), "")
    guided, blind = (
        np.mean([min(t.median_s for t in run(kind(space, seed=seed), 64)) for seed in range(4)])
        for kind in (ForestSearch, RandomSearch)
    )
    assert guided < blind

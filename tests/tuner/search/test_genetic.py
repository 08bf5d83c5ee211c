import numpy as np

from autosched.space import ConfigSpace
from autosched.testing.search import SearchSuite, run
from autosched.testing.tasks import bowl_space
from autosched.tuner.search.genetic import GeneticSearch
from autosched.tuner.search.random import RandomSearch


class TestGenetic(SearchSuite):
    def make(self, space: ConfigSpace, seed: int) -> GeneticSearch:
        return GeneticSearch(space, seed=seed)


def test_finds_better_ones_than_random() -> None:
    space = bowl_space((12, 12, 12), "")
    guided, blind = (
        np.mean([min(t.median_s for t in run(kind(space, seed=seed), 64)) for seed in range(4)])
        for kind in (GeneticSearch, RandomSearch)
    )
    assert guided < blind

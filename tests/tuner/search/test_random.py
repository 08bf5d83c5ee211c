from collections import Counter

from autosched.space import ConfigSpace
from autosched.testing.search import SearchSuite, configs_of, run
from autosched.testing.tasks import bowl_space
from autosched.tuner.search.random import RandomSearch


class TestRandom(SearchSuite):
    def make(self, space: ConfigSpace, seed: int) -> RandomSearch:
        return RandomSearch(space, seed=seed)


def test_proposals_are_uniform() -> None:
    space = bowl_space((4, 3), "")
    counts = Counter(c for seed in range(600) for c in configs_of(run(RandomSearch(space, seed=seed), 4))[1:])
    del counts[space.default]
    mean = 600 * 3 / 11
    assert len(counts) == 11 and sum((n - mean) ** 2 / mean for n in counts.values()) < 30  # chi square, 10 degrees

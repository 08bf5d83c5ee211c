import itertools

from autosched.space import ConfigSpace
from autosched.testing.search import SearchSuite, configs_of, run
from autosched.testing.tasks import bowl_space
from autosched.tuner.search.grid import GridSearch


class TestGrid(SearchSuite):
    seed_matters = False

    def make(self, space: ConfigSpace, seed: int) -> GridSearch:
        return GridSearch(space, seed=seed)


def test_goes_through_the_space_in_its_order() -> None:
    space = bowl_space((3, 4), "a * b <= 8")
    assert configs_of(run(GridSearch(space), 100, batch=3)) == list(space)


def test_a_huge_space_is_not_listed() -> None:
    space = bowl_space((30,) * 8, "a * b <= 64")
    asked = configs_of(run(GridSearch(space), 40))
    assert asked == list(itertools.islice(space, 40))

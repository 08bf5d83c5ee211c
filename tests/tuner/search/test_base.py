import numpy as np
import pytest

from autosched.errors import InvalidValueError
from autosched.space import ConfigSpace
from autosched.task import Measurement, Status, Trial
from autosched.testing.search import run
from autosched.testing.tasks import bowl_space
from autosched.tuner.search import STRATEGIES, make_search
from autosched.tuner.search.base import HINTED, LOOKED_AT, BaseSearch
from autosched.tuner.search.random import RandomSearch


def test_names() -> None:
    for name in ("auto", *STRATEGIES):
        search = make_search(name, bowl_space(), seed=1)
        assert isinstance(search, BaseSearch) and len(search.ask(3)) == 3
    with pytest.raises(InvalidValueError, match="there are auto, random"):
        make_search("best", bowl_space())


def test_expected_gain_falls_when_nothing_improves() -> None:
    def told(times: list[float]) -> RandomSearch:
        search = RandomSearch(bowl_space(), seed=0)
        search.tell([Trial(c, Measurement(Status.OK, (t,))) for c, t in zip(bowl_space().sample(0, len(times)), times)])
        return search

    improving = told([2.0 - 0.05 * i for i in range(20)])
    stale = told([1.0] + [1.5] * 19)
    assert improving.expected_gain(10) > 0.1
    assert stale.expected_gain(10) < 0.01


def test_history_keeps_failures_apart() -> None:
    search = RandomSearch(bowl_space(), seed=0)
    trials = run(search, 8)
    failed = search.ask(1)[0]
    search.tell([Trial(failed, Measurement(Status.TIMEOUT))])
    assert len(search.history) == 9 and search.history.ok.sum() == 8
    best = min(trials, key=lambda t: t.median_s)
    assert search.space.to_configs(search.history.best_rows(1)) == [best.config]


class Pointing:
    """A hint that calls small `a` good, and at a closer look those with the largest `b`."""

    is_telling = True

    def scores(self, space: ConfigSpace, rows: np.ndarray) -> np.ndarray:
        return np.array([float(c["a"]) for c in space.to_configs(rows)])

    def closer(self, space: ConfigSpace, rows: np.ndarray) -> np.ndarray:
        assert len(rows) <= LOOKED_AT
        return np.array([-float(c["b"]) for c in space.to_configs(rows)])

    def known(self, space: ConfigSpace, n: int) -> tuple[np.ndarray, np.ndarray]:
        return space.to_rows(()), np.zeros(0)


def test_the_first_ones_are_looked_at_closer() -> None:
    space = bowl_space((8, 3, 2), "")
    first = RandomSearch(space, seed=0, hints=(Pointing(),)).ask(1 + HINTED)[1:]
    assert {c["b"] for c in first} == {2, 3} and {c["a"] for c in first} == {1}

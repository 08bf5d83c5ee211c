import numpy as np
import pytest

from autosched.space import ConfigSpace, choice
from autosched.testing.search import SearchSuite, measure_bowl, measure_with_failures, run
from autosched.testing.tasks import bowl_space
from autosched.tuner.cost_model import GaussianProcess, JointKernel, Points
from autosched.tuner.search.base import History
from autosched.tuner.search.gaussian_process import SHARE, STALLED, Belief, GaussianProcessSearch, Variation
from autosched.tuner.search.pool import Pool
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


def test_a_small_gain_at_hand_is_worth_more_than_what_is_merely_unknown() -> None:
    """One candidate beside the trial, expected to be a little better, and one far away, expected to be no worse."""
    model = GaussianProcess(JointKernel([np.array([[0.0], [0.02], [1e6]])]))
    at = Points(np.array([[0], [1], [2]]), np.zeros((3, 0)))
    posterior = model.condition(at[:1], at)
    near, far = np.sqrt(posterior.variance[1:])
    assert near < 0.05 and 0.95 < far < 1.05
    gain = Belief(posterior, np.array([0.0, -0.35, 0.0]), best=0.0).gain(np.arange(3))
    assert gain[1] > gain[2] > 0.2  # expected improvement by the whole deviation has .35 and .40


@pytest.mark.parametrize("size", [12, 32])  # listed whole, and not
def test_what_is_in_flight_counts_as_picked(size: int) -> None:
    at_once, in_parts = (GaussianProcessSearch(bowl_space((size, size, size), ""), seed=0) for _ in range(2))
    assert at_once.pool.is_listed == (size == 12)
    run(at_once, 16)
    run(in_parts, 16)
    assert not len(in_parts.in_flight)
    whole, first, rest = at_once.ask(8), in_parts.ask(2), in_parts.ask(6)
    assert [config.key for config in in_parts.space.to_configs(in_parts.in_flight)] == [c.key for c in rest]
    assert len({*first, *rest}) == 8
    if size == 12:  # of a large space candidates are drawn anew
        assert [*first, *rest] == list(whole)
    in_parts.tell([measure_bowl(config) for config in [*first, *rest[:5]]])
    assert len(in_parts.in_flight) == 1 and not {*in_parts.ask(8)} & {*first, *rest}


@pytest.mark.parametrize("picked_from", [8, 100])
def test_a_batch_is_the_same_whatever_it_is_picked_from(picked_from: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking at few candidates first saves time: where others may have higher gains, all are looked at."""
    whole, some = (GaussianProcessSearch(bowl_space((12, 12, 12), ""), seed=1) for _ in range(2))
    for _ in range(6):
        monkeypatch.setattr("autosched.tuner.search.gaussian_process.PICKED_FROM", 1_000_000)
        expected = whole.ask(8)
        monkeypatch.setattr("autosched.tuner.search.gaussian_process.PICKED_FROM", picked_from)
        assert some.ask(8) == expected
        for search in (whole, some):
            search.tell([measure_with_failures(config) for config in expected[:6]])  # two are in flight


SPACE = ConfigSpace("s", [choice("a", range(1, 9)), choice("b", range(1, 9)), choice("c", range(1, 9))])


def stalled(n: int) -> tuple[Variation, History, Pool]:
    """The best is all zeros, and `n` trials that are no better follow; of `a` only 3 was tried, of `b` only 5."""
    pool = Pool(SPACE, np.random.default_rng(0), listed=0)
    history = History(pool)
    rows = np.array([[0, 0, 0], *([[3, 5, i % 8] for i in range(n)])], dtype=np.int32)
    history.add(rows, [0.0] + [1.0] * n)
    pool.take(rows)
    return Variation(pool, history), history, pool


def test_a_search_that_gets_on_is_left_alone() -> None:
    variation, history, _ = stalled(STALLED - 1)
    assert not len(variation.rows(8))
    history.add(np.array([[1, 1, 1]], dtype=np.int32), [-1.0])
    assert not len(variation.rows(8)) and variation.rows(8).shape == (0, 3)
    pool = Pool(SPACE, np.random.default_rng(0), listed=0)
    assert not len(Variation(pool, History(pool)).rows(8))  # nothing was measured


def test_a_stalled_one_goes_round_the_best_where_least_was_tried() -> None:
    variation, history, pool = stalled(STALLED)
    seen: set[bytes] = set()
    for _ in range(6):
        rows = variation.rows(8)
        assert len(rows) == 8 * SHARE
        for row in rows:
            (changed,) = np.flatnonzero(row)
            assert (history.rows[:, changed] == row[changed]).sum() == 0 and changed != 2
            assert row.tobytes() not in seen
            seen.add(row.tobytes())
        history.add(rows, [1.0] * len(rows))
        pool.take(rows)
    assert len(seen) == 12  # six other values of a, six of b


def test_one_at_a_time_it_has_its_share_of_the_turns() -> None:
    variation, *_ = stalled(STALLED)
    assert sum(len(variation.rows(1)) for _ in range(40)) == 40 * SHARE

import sys

import numpy as np
import pytest

from autosched.errors import UsageError
from autosched.space import ConfigSpace, choice
from autosched.task import Trial
from autosched.testing.search import SearchSuite, configs_of, measure_bowl, run
from autosched.testing.tasks import bowl_space
from autosched.tuner.search.optuna_samplers import CmaEsSearch, OptunaGpSearch, TpeSearch
from autosched.tuner.search.random import RandomSearch


class TestTpe(SearchSuite):
    def make(self, space: ConfigSpace, seed: int) -> TpeSearch:
        return TpeSearch(space, seed=seed)


class TestCmaEs(SearchSuite):
    def make(self, space: ConfigSpace, seed: int) -> CmaEsSearch:
        pytest.importorskip("cmaes")
        return CmaEsSearch(space, seed=seed)


@pytest.mark.slow
class TestOptunaGp(SearchSuite):
    def make(self, space: ConfigSpace, seed: int) -> OptunaGpSearch:
        pytest.importorskip("torch")
        return OptunaGpSearch(space, seed=seed)


def test_tpe_finds_better_ones_than_random() -> None:
    space = bowl_space((12, 12, 12), "")
    guided, blind = (
        np.mean([min(t.median_s for t in run(kind(space, seed=seed), 64)) for seed in range(4)])
        for kind in (TpeSearch, RandomSearch)
    )
    assert guided < blind


def test_the_sampler_is_told_what_was_measured() -> None:
    space = bowl_space((8, 8), "a * b <= 8")
    search = TpeSearch(space, seed=0)
    first: list[Trial] = [measure_bowl(config) for config in RandomSearch(space, seed=1).ask(5)]
    search.tell(first)
    trials = first + run(search, 15)
    told = search._study.trials
    assert len([t for t in told if t.state.is_finished()]) == 20
    assert min(t.value for t in told if t.value is not None) == pytest.approx(np.log(min(t.median_s for t in trials)))


def test_texts_splits_and_bools_are_categories() -> None:
    knobs = [choice("a", ["x", "y"]), choice("b", [(1, 8), (2, 4), (4, 2)]), choice("c", [False, True])]
    space = ConfigSpace("bowl", knobs, ["c or b[0] > 1"])
    assert set(configs_of(run(TpeSearch(space, seed=0), 20))) == set(space)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, package in ((CmaEsSearch, "cmaes"), (OptunaGpSearch, "torch")):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(UsageError, match=package):
            kind(bowl_space())

"""The tests that every search strategy passes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from autosched.space import Config, ConfigSpace, choice, union
from autosched.task import Measurement, Status, Trial
from autosched.testing.tasks import bowl_space, bowl_time_s
from autosched.tuner.search import Search

Measure = Callable[[Config], Trial]


def measure_bowl(config: Config) -> Trial:
    """Every configuration runs; the best is where each knob is 4."""
    return Trial(config, Measurement(Status.OK, (bowl_time_s(config),)))


def measure_with_failures(config: Config) -> Trial:
    """Configurations with an odd `a` crash."""
    if config["a"] % 2:
        return Trial(config, Measurement(Status.CRASH, error="signal 11"))
    return measure_bowl(config)


def run(search: Search, n: int, batch: int = 8, measure: Measure = measure_bowl) -> list[Trial]:
    """Ask and tell until `n` trials are done or the search ends."""
    trials: list[Trial] = []
    while len(trials) < n:
        configs = search.ask(min(batch, n - len(trials)))
        if not configs:
            break
        batch_trials = [measure(config) for config in configs]
        search.tell(batch_trials)
        trials += batch_trials
    return trials


def configs_of(trials: Sequence[Trial]) -> list[Config]:
    """The configurations of trials."""
    return [trial.config for trial in trials]


class SearchSuite(ABC):
    """Derive a test class from it and give `make`; `seed_matters` is False where nothing is drawn."""

    seed_matters = True

    @abstractmethod
    def make(self, space: ConfigSpace, seed: int) -> Search:
        """A new search over the space."""

    def test_stays_in_the_space_and_repeats_nothing(self) -> None:
        space = bowl_space()
        asked = configs_of(run(self.make(space, 0), 60))
        assert len(asked) == len(set(asked)) == 60
        assert all(config in space for config in asked)

    def test_the_default_comes_first(self) -> None:
        space = bowl_space().with_default(Config("bowl", {"a": 3, "b": 5, "c": 2}))
        assert self.make(space, 0).ask(4)[0] == space.default
        assert self.make(space, 0).ask(1) == [space.default]

    def test_the_same_seed_gives_the_same_trials(self) -> None:
        first, second = (configs_of(run(self.make(bowl_space(), 3), 48)) for _ in range(2))
        assert first == second
        assert not self.seed_matters or first != configs_of(run(self.make(bowl_space(), 4), 48))

    def test_ends_when_a_small_space_is_used_up(self) -> None:
        space = bowl_space((3, 2), "a * b <= 4")
        search = self.make(space, 0)
        trials = run(search, 100, batch=4)
        assert len(trials) == space.count() == 5
        assert list(search.ask(3)) == [] and search.expected_gain(10) == 0.0

    def test_an_empty_space_ends_at_once(self) -> None:
        search = self.make(ConfigSpace("t", [choice("a", [1])], ["a > 1"]), 0)
        assert list(search.ask(3)) == [] and list(search.ask(0)) == []

    def test_batches_without_answers_do_not_repeat(self) -> None:
        search = self.make(bowl_space(), 0)
        asked = [config for _ in range(6) for config in search.ask(5)]
        assert len(set(asked)) == 30

    def test_failures_do_not_stop_it(self) -> None:
        trials = run(self.make(bowl_space(), 0), 60, measure=measure_with_failures)
        assert len(set(configs_of(trials))) == 60
        assert min(trial.median_s for trial in trials) <= 2e-3

    def test_nothing_but_failures(self) -> None:
        def crash(config: Config) -> Trial:
            return Trial(config, Measurement(Status.CRASH))

        assert len(set(configs_of(run(self.make(bowl_space(), 0), 48, measure=crash)))) == 48

    def test_equal_times_are_no_problem(self) -> None:
        def same(config: Config) -> Trial:
            return Trial(config, Measurement(Status.OK, (1e-3,)))

        assert len(set(configs_of(run(self.make(bowl_space(), 0), 48, measure=same)))) == 48

    def test_resumes_from_trials_of_before(self) -> None:
        space = bowl_space()
        before = run(self.make(space, 0), 40)
        search = self.make(space, 1)
        search.tell(before)
        search.tell(before[:3])  # what it knows already changes nothing
        after = configs_of(run(search, 24))
        assert len(set(after)) == 24 and not set(after) & set(configs_of(before))

    def test_trials_of_another_space_are_passed_over(self) -> None:
        search = self.make(bowl_space(), 0)
        search.tell([Trial(Config("other", {"a": 1}), Measurement(Status.OK, (1.0,)))])
        search.tell([Trial(Config("bowl", {"a": 99, "b": 1, "c": 1}), Measurement(Status.OK, (1.0,)))])
        assert len(search.ask(8)) == 8

    def test_a_lost_trial_is_asked_for_once_more(self) -> None:
        space = bowl_space((2, 2), "")
        search = self.make(space, 0)
        asked: list[Config] = []
        while configs := search.ask(4):
            asked += configs
            search.tell([Trial(config, Measurement(Status.LOST)) for config in configs])
        assert sorted(asked.count(config) for config in space) == [2, 2, 2, 2]

    def test_union_of_templates(self) -> None:
        other = ConfigSpace("flat", [choice("a", range(1, 9)), choice("z", ["x", "y"])])
        space = union([bowl_space((6, 6), "a * b <= 16"), other])
        trials = run(self.make(space, 0), 50)
        assert {config.template for config in configs_of(trials)} == {"bowl", "flat"}
        assert len(set(configs_of(trials))) == min(50, space.count())

    def test_a_space_too_large_to_list(self) -> None:
        space = bowl_space((16,) * 6, "a * b <= 64")
        trials = run(self.make(space, 0), 48)
        assert len(set(configs_of(trials))) == 48 and all(c in space for c in configs_of(trials))

    def test_expected_gain_is_a_share_and_grows_with_the_trials(self) -> None:
        search = self.make(bowl_space(), 0)
        assert 0 < search.expected_gain(8) <= 1
        run(search, 40)
        assert 0 <= search.expected_gain(1) <= search.expected_gain(50) <= 1

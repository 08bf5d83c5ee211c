"""Candidates that are hopeless once they are compiled are not measured, and nothing is taken for a trial of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import autosched
from autosched.codegen.cpu.instructions import COUNTS
from autosched.driver import TuneOptions
from autosched.driver.tune.foresight import LEAST, Foresight
from autosched.records import make_record, open_store
from autosched.records.record import current_versions
from autosched.space import Config
from autosched.target import Target
from autosched.task import Measurement, Status, Task, Trial
from autosched.testing.tasks import matmul_task
from autosched.tuner.cost_model import FEATURES
from autosched.tuner.measure import Built, Candidate, ForeseeingMeasurer, MeasureOptions
from autosched.tuner.measure import Foresight as ForesightProtocol
from autosched.tuner.measure.base import Compared
from autosched.tuner.measure.local import LocalMeasurer
from autosched.tuner.measure.sampling import judge
from autosched.tuner.scheduler import Turn
from tests.driver.programs import matmul

LOOPS = [float(i) for i in range(len(FEATURES))]


def known(fmas: int, spills: int) -> dict[str, Any]:
    """What is noted of a kernel whose hot loop has so many multiply-adds and stack accesses."""
    counts = dict.fromkeys(COUNTS, 0) | {"hot_fmas": fmas, "hot_loads": fmas // 2 + 2, "hot_spills": spills}
    return {"loops": LOOPS, "instructions": [counts[name] for name in COUNTS]}


def time_s(fmas: int, spills: int) -> float:
    return 1e-3 * (1 + 2 / fmas + 3 * spills / fmas)


def config(fmas: int, spills: int) -> Config:
    return Config("test", {"fmas": fmas, "spills": spills})


class Known:
    """A tuning of one task with trials."""

    def __init__(self, n: int, **how: Any):
        self.store: Any = None
        self.source: Any = None
        self.target: Any = None
        self.threads = 1
        rng = np.random.default_rng(0)
        pairs = [(4, 0), *((int(f), int(f * s)) for f, s in zip(rng.integers(2, 25, n), rng.choice([0, 0, 1, 2], n)))]
        trials = [
            Trial(config(*pair), Measurement(Status.OK, (time_s(*pair),), how=known(*pair) | how)) for pair in pairs
        ]
        known_trials = {trial.config: trial for trial in trials}
        self.task: Any = SimpleNamespace(
            task=object(), default=config(4, 0), trials=known_trials, default_s=time_s(4, 0)
        )
        self.tasks = [self.task]
        self.options = SimpleNamespace(hints=False)

    def built(self, fmas: int, spills: int, **features: Any) -> Built:
        return Built(Candidate(self.task.task, config(fmas, spills)), None, features=known(fmas, spills) | features)


def foresight(tuning: Known, n: int = 8) -> Foresight:
    made = Foresight(tuning)  # type: ignore[arg-type]
    made.begin(Turn(0, n))
    return made


def test_what_spills_in_its_hot_loop_is_hopeless_where_that_was_slow() -> None:
    tuning, best_s = Known(60), 1.1e-3
    found = foresight(tuning)
    assert found.is_hopeless(tuning.built(20, 39), best_s) and not found.is_hopeless(tuning.built(20, 0), best_s)
    assert (found.n_skipped, found.n_in_turn) == (1, 1)


def test_what_is_slow_but_not_twice_as_slow_is_measured() -> None:
    tuning = Known(60)
    assert not foresight(tuning).is_hopeless(tuning.built(2, 0), 1.1e-3)
    assert not foresight(tuning).is_hopeless(tuning.built(20, 39), 4e-3)


def test_nothing_is_hopeless_without_trials_times_or_features() -> None:
    tuning = Known(60)
    assert not foresight(tuning).is_hopeless(tuning.built(20, 39), None)
    assert not foresight(tuning).is_hopeless(tuning.built(20, 39, instructions=()), 1.1e-3)
    few = Known(LEAST // 2)
    assert not foresight(few).is_hopeless(few.built(20, 39), 1.1e-3)
    old = Known(60, instructions=None)
    assert not foresight(old).is_hopeless(old.built(20, 39), 1.1e-3)


def test_at_least_half_of_a_turn_is_measured_and_the_default_always() -> None:
    tuning = Known(60)
    found = foresight(tuning, 4)
    said = [found.is_hopeless(tuning.built(fmas, 2 * fmas), 1.1e-3) for fmas in (16, 17, 18, 19)]
    assert said == [True, True, False, False]
    found.begin(Turn(0, 4))
    assert found.n_in_turn == 0 and found.n_skipped == 2
    tuning.task.default = config(20, 39)
    assert not found.is_hopeless(tuning.built(20, 39), 1.1e-3)


def test_records_of_other_workloads_are_learned_from(tmp_path: Path) -> None:
    one, other = matmul_task(), matmul_task(64, 64, 64)
    here, (trials, default) = Known(0), (Known(60).task.trials, Known(60).task.default)
    here.task.task, here.threads, here.target = one, one.threads, one.target
    here.options.hints, here.source = True, SimpleNamespace(versions={})
    with open_store(tmp_path / "r.db") as store:
        here.store = store
        assert not foresight(here).is_hopeless(here.built(20, 39), 1.1e-3)
        store.add([
            make_record(other, trial, is_default=config == default, versions={**current_versions(), "template": "1"})
            for config, trial in trials.items()
        ])  # fmt: skip
        assert foresight(here).is_hopeless(here.built(20, 39), 1.1e-3)
        assert not foresight(here).is_hopeless(here.built(20, 0), 1.1e-3)
        here.options.hints = False
        assert not foresight(here).is_hopeless(here.built(20, 39), 1.1e-3)


class Passing:
    """Measures everything but each third candidate, which it passes over as hopeless."""

    foresight: ForesightProtocol | None = None
    passed: list[Config] = []

    def __init__(self, target: Target, options: MeasureOptions):
        self.passed.clear()

    def __enter__(self) -> Passing:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def measure(self, task: Task, configs: Sequence[Any], best_s: float | None = None) -> Iterator[Trial]:
        assert isinstance(self.foresight, Foresight)
        for n, one in enumerate(configs):
            if n % 3 == 2:
                self.foresight.n_in_turn += 1
                self.passed.append(one)
            else:
                yield Trial(one, Measurement(Status.OK, (1e-3 * (1 + n),), how={"cache": "warm"}))

    def compare(self, task: Task, configs: Sequence[Any]) -> Sequence[Compared]:
        times = [[1e-3] * 6 for _ in configs]
        return judge(list(configs), times, times[0], [{"cache": "warm"}] * len(configs))


def test_what_is_passed_over_is_no_trial_and_the_task_goes_on(tmp_path: Path) -> None:
    options = TuneOptions(trials=30, threads=1, strategy="random", until=0)
    report = autosched.tune(matmul(), "cpu", records=tmp_path / "r.db", options=options, measurer=Passing)
    assert report.n_trials == 30 and len(Passing.passed) >= 8
    with open_store(tmp_path / "r.db", write=False) as store:
        recorded = {record.config for record in store.records()}
    assert len(recorded) == 30 and not recorded & set(Passing.passed)


def test_the_local_measurer_asks_what_is_expected() -> None:
    assert isinstance(Passing(Target("cpu"), MeasureOptions()), ForeseeingMeasurer)
    assert "foresight" in LocalMeasurer.__init__.__code__.co_names

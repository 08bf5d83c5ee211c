"""The next turn is decided, and its candidates are built, while those of the turn before are measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import autosched
from autosched.driver import TuneOptions
from autosched.records import open_store
from autosched.space import Config
from autosched.target import Target
from autosched.task import Measurement, Status, Task, Trial
from autosched.tuner.measure import AheadMeasurer, MeasureOptions
from autosched.tuner.measure.base import Ahead, Compared
from autosched.tuner.measure.local import LocalMeasurer
from autosched.tuner.measure.remote.measurer import RemoteMeasurer
from autosched.tuner.measure.sampling import judge
from autosched.tuner.search.random import RandomSearch
from tests.driver.programs import matmul

pytestmark = pytest.mark.host(runs=True)


class Planner:
    """Measures nothing; asks for what comes next when so many candidates of a turn are at work."""

    made: list[Planner] = []
    at_work = 1

    def __init__(self, target: Target, options: MeasureOptions):
        self.turns: list[tuple[str, list[Config]]] = []
        self.planned: dict[int, tuple[str, list[Config]]] = {}  # by the number of the turn that it is for
        self.rested = 0
        self.made.append(self)

    def __enter__(self) -> Planner:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def measure(
        self, task: Task, configs: Sequence[Any], best_s: float | None = None, *, ahead: Ahead | None = None
    ) -> Iterator[Trial]:
        assert not self.rested
        self.turns.append((task.key, list(configs)))
        for n, config in enumerate(configs):
            if n == max(0, len(configs) - self.at_work) and ahead is not None and (plan := ahead()) is not None:
                self.planned[len(self.turns)] = plan[0].key, list(plan[1])
            yield Trial(config, Measurement(Status.OK, (1e-3 * (1 + n),), how={"cache": "warm"}))

    def rest(self) -> None:
        self.rested += 1

    def count_builders(self) -> int:
        return 12

    def compare(self, task: Task, configs: Sequence[Any]) -> Sequence[Compared]:
        times = [[1e-3] * 6 for _ in configs]
        return judge(list(configs), times, times[0], [{"cache": "warm"}] * len(configs))


@pytest.fixture
def module() -> autosched.IRModule:
    return autosched.IRModule({"a": matmul(), "b": matmul(48, 64, 96), "c": matmul(1, 96, 64)})


def test_what_was_planned_is_what_comes_next(module: autosched.IRModule, tmp_path: Path) -> None:
    options = TuneOptions(trials=30, threads=1, strategy="random", until=0)
    report = autosched.tune(module, "cpu", records=tmp_path / "r.db", options=options, measurer=Planner)
    (measurer,) = Planner.made[-1:]
    assert isinstance(measurer, AheadMeasurer) and measurer.rested == 1
    taken = dict(enumerate(measurer.turns))
    assert measurer.planned and {n: taken[n] for n in measurer.planned} == measurer.planned
    tried = [(key, config) for key, configs in measurer.turns for config in configs]
    assert len(tried) == len(set(tried)) == report.n_trials == 30
    with open_store(tmp_path / "r.db", write=False) as store:
        assert len([r for r in store.records() if "interleaved" not in r.measurement.how]) == 30


@pytest.mark.parametrize(("at_work", "is_planned"), [(1, True), (2, True), (3, False), (8, False)])
def test_a_turn_of_the_same_task_is_decided_without_two_outcomes_of_the_one_before(
    at_work: int, is_planned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Recorder(RandomSearch):
        """Writes down how many outcomes it knows whenever it is asked, and what it is told."""

        asked: list[int] = []
        told: list[Config] = []

        def ask(self, n: int) -> Sequence[Config]:
            self.asked.append(len(self.history))
            return super().ask(n)

        def tell(self, trials: Sequence[Trial]) -> None:
            self.told.extend(trial.config for trial in trials)
            super().tell(trials)

    Recorder.asked, Recorder.told = [], []
    monkeypatch.setattr("autosched.tuner.search.random.RandomSearch", Recorder)
    monkeypatch.setattr(Planner, "at_work", at_work)
    options = TuneOptions(trials=24, threads=1, strategy="random", until=0)
    report = autosched.tune(matmul(), "cpu", records=tmp_path / "r.db", options=options, measurer=Planner)
    (measurer,) = Planner.made[-1:]
    assert [len(configs) for _, configs in measurer.turns] == [8, 8, 8] and report.n_trials == 24
    assert Recorder.asked == ([0, 8 - at_work, 16 - at_work] if is_planned else [0, 8, 16])
    assert Recorder.told == [config for _, configs in measurer.turns for config in configs]  # each outcome once
    assert {n: measurer.turns[n] for n in measurer.planned} == measurer.planned and bool(measurer.planned) == is_planned


def test_of_a_gpu_the_same_task_is_begun_by_builders_with_nothing_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Planner, "at_work", 8)
    options = TuneOptions(trials=30, threads=1, strategy="random", until=0)
    report = autosched.tune(
        matmul(), "nvidia/nvidia-h200", records=tmp_path / "r.db", options=options, measurer=Planner
    )
    (measurer,) = Planner.made[-1:]
    taken = dict(enumerate(measurer.turns))
    assert measurer.planned and {n: taken[n] for n in measurer.planned} == measurer.planned
    assert all(len(configs) + len(measurer.turns[n - 1][1]) <= 12 for n, (_, configs) in measurer.planned.items())
    tried = [config for _, configs in measurer.turns for config in configs]
    assert len(tried) == len(set(tried)) == report.n_trials == 30


def test_other_measurers_are_not_asked_to_look_ahead(tmp_path: Path) -> None:
    class Plain(Planner):
        rest = None  # type: ignore[assignment]

        def measure(self, task: Task, configs: Sequence[Any], best_s: float | None = None) -> Iterator[Trial]:  # type: ignore[override]
            return super().measure(task, configs, best_s)

    module = autosched.IRModule({"a": matmul(), "b": matmul(48, 64, 96)})
    options = TuneOptions(trials=8, threads=1, strategy="random", until=0)
    report = autosched.tune(module, "cpu", records=tmp_path / "r.db", options=options, measurer=Plain)
    assert report.n_trials == 8 and not Planner.made[-1].planned


def test_the_local_one_looks_ahead() -> None:
    assert issubclass(LocalMeasurer, AheadMeasurer) and issubclass(RemoteMeasurer, AheadMeasurer)

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
from tests.driver.programs import matmul

pytestmark = pytest.mark.host(runs=True)


class Planner:
    """Measures nothing; asks for what comes next when the last candidate of a turn is at work."""

    made: list[Planner] = []

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
            if n == len(configs) - 1 and ahead is not None and (plan := ahead()) is not None:
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
    for n, (after, _) in measurer.planned.items():
        assert measurer.turns[n - 1][0] != after  # a turn of the same task hangs on the outcome
    with open_store(tmp_path / "r.db", write=False) as store:
        assert len([r for r in store.records() if "interleaved" not in r.measurement.how]) == 30


def test_one_task_is_not_decided_ahead(tmp_path: Path) -> None:
    options = TuneOptions(trials=20, threads=1, strategy="random", until=0)
    autosched.tune(matmul(), "cpu", records=tmp_path / "r.db", options=options, measurer=Planner)
    assert not Planner.made[-1].planned and len(Planner.made[-1].turns) > 1


def test_of_a_gpu_the_same_task_is_begun_by_builders_with_nothing_to_do(tmp_path: Path) -> None:
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

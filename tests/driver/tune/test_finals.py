"""The end of a tuning: what is named a winner has beaten the default twice."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from autosched.driver import TuneOptions
from autosched.driver.build.choose import make_task
from autosched.driver.tune.finals import Finals, best_of
from autosched.driver.tune.tuning import Tuning
from autosched.records import Trust, open_store
from autosched.space import Config
from autosched.target import Target
from autosched.task import Measurement, Status
from autosched.tuner.measure import Compared, Measurer
from tests.driver.programs import matmul

DEFAULT, GOOD, LUCKY = (Config("t", {"n": n}) for n in range(3))


def compared(config: Config, ratio: float, status: Status = Status.OK) -> Compared:
    times = (1e-3 * ratio,) if status is Status.OK else ()
    return Compared(config, Measurement(status, times), ratio, ratio - 0.02, ratio + 0.02)


class Second:
    """Compares for the second time: what each configuration's ratio is then; it notes who was asked for."""

    def __init__(self, ratios: dict[Config, Compared]):
        self.ratios, self.asked = ratios, list[Config]()

    def compare(self, task: Any, configs: Sequence[Config]) -> Sequence[Compared]:
        default, config = configs
        assert default == DEFAULT
        self.asked.append(config)
        return compared(DEFAULT, 1.0), self.ratios[config]


def winner(first: Sequence[Compared], second: Second) -> Config:
    tuning = cast(Tuning, SimpleNamespace(tasks=[SimpleNamespace(task="task", named=None)]))
    finals = Finals(tuning, cast(Measurer, second), lambda *_: None, is_complete=True)
    results = finals._confirmed(0, first)
    return cast(Config, results[best_of(results)].config)


def test_what_was_lucky_once_is_no_winner() -> None:
    first = [compared(DEFAULT, 1.0), compared(GOOD, 0.9), compared(LUCKY, 0.8)]
    second = Second({GOOD: compared(GOOD, 0.91), LUCKY: compared(LUCKY, 1.0)})
    assert winner(first, second) == GOOD and second.asked == [LUCKY, GOOD]


def test_the_default_wins_where_nothing_is_confirmed() -> None:
    first = [compared(DEFAULT, 1.0), compared(GOOD, 0.9), compared(LUCKY, 0.8)]
    second = Second({GOOD: compared(GOOD, 0.99), LUCKY: compared(LUCKY, 1.0, Status.WRONG_RESULT)})
    assert winner(first, second) == DEFAULT
    assert winner([compared(DEFAULT, 1.0), compared(GOOD, 1.0)], Second({})) == DEFAULT  # none to confirm


def test_where_the_default_fails_there_is_nothing_to_beat() -> None:
    first = [compared(DEFAULT, 1.0, Status.CRASH), compared(GOOD, 1.0)]
    assert winner(first, Second({})) == GOOD


def test_winners_named_under_noise_are_said_and_recorded_so(tmp_path: Path) -> None:
    found = {}
    for half, name in ((0.02, "quiet"), (0.09, "busy")):
        store = open_store(tmp_path / f"{name}.db")
        task = make_task(matmul(), Target("cpu"), name="main", cache="warm")
        tuning = Tuning([task], task.target, 1, store, TuneOptions(trials=8), {})
        default, other = tuning.tasks[0].default, next(c for c in tuning.tasks[0].space if c != tuning.tasks[0].default)

        def times(config: Config, ratio: float, half: float = half) -> Compared:
            return Compared(config, Measurement(Status.OK, (1e-3 * ratio,)), ratio, ratio - half, ratio + half)

        finals = Finals(tuning, cast(Measurer, None), lambda *_: None, is_complete=True)
        store.add([tuning.record(0, times(default, 1.0).trial)])
        finals._decide(0, [times(default, 1.0), times(other, 0.8)])
        finals.say_noise()
        trust = store.best(task).trust
        again = Tuning([task], task.target, 1, store, TuneOptions(trials=8), {})
        found[name] = trust, tuning.report.notes, again.tasks[0].is_settled
        store.close()
    assert found["quiet"] == (Trust.HERE, [], True)
    trust, notes, is_settled = found["busy"]
    assert trust is Trust.NOISY and not is_settled
    assert notes == [
        "1 winner named under noise, up to ± 11%: used, but not counted as verified; run the same command again when "
        "nothing else runs"
    ]


def test_what_was_clearly_slower_than_the_default_does_not_meet_it_again(tmp_path: Path) -> None:
    asked: list[Sequence[Config]] = []

    class First:
        def compare(self, task: Any, configs: Sequence[Config]) -> Sequence[Compared]:
            asked.append(configs)
            return [compared(config, 1.0) for config in configs]

    task = make_task(matmul(), Target("cpu"), name="main", cache="warm")
    with open_store(tmp_path / "r.db") as store:
        tuning = Tuning([task], task.target, 1, store, TuneOptions(trials=8), {})
        default = tuning.tasks[0].default
        near, far = [c for c in tuning.tasks[0].space if c != default][:2]
        for config, ratio in ((default, 1.0), (near, 1.05), (far, 1.2)):
            tuning.remember(0, compared(config, ratio).trial)
        Finals(tuning, cast(Measurer, First()), lambda *_: None, is_complete=True).name_winners()
        assert asked == [[default, near]]
        (winner,) = [record for record in store.trials(task) if record.is_winner]
        assert winner.is_default

import dataclasses
from collections import Counter
from collections.abc import Sequence

import pytest

from autosched.errors import InvalidValueError
from autosched.space import Config
from autosched.task import Status, Trial
from autosched.testing.tasks import trial
from autosched.tuner.scheduler import GUESSED_GAIN, SchedulerOptions, Stop, StopReason, TaskScheduler, TaskState, Turn


@dataclasses.dataclass
class FixedSearch:
    """Expects the same gain of every trial, whatever happens."""

    gain: float

    def ask(self, n: int) -> Sequence[Config]:
        return ()

    def tell(self, trials: Sequence[Trial]) -> None:
        pass

    def expected_gain(self, n: int) -> float:
        return min(1.0, self.gain * n / 32)


def scheduler(*tasks: tuple[int, float, float], **options: object) -> TaskScheduler:
    """Tasks as (weight, time in s, expected gain); all have had their first trials."""
    states = [
        TaskState(f"t{i}", weight, FixedSearch(gain), default_s=time_s, best_s=time_s, n_trials=16, spent_s=4.0)
        for i, (weight, time_s, gain) in enumerate(tasks)
    ]
    return TaskScheduler(states, SchedulerOptions(**options))  # type: ignore[arg-type]


def test_the_next_batch_goes_where_it_saves_most() -> None:
    assert scheduler((1, 1e-3, 0.1), (1, 3e-3, 0.1)).next_turn() == Turn(1, 8)
    assert scheduler((4, 1e-3, 0.1), (1, 3e-3, 0.1)).next_turn() == Turn(0, 8)
    assert scheduler((4, 1e-3, 0.05), (1, 3e-3, 0.1)).next_turn() == Turn(1, 8)
    slow_to_measure = scheduler((1, 1e-3, 0.1), (1, 1.5e-3, 0.1))
    slow_to_measure.tasks[1].spent_s = 40.0
    assert slow_to_measure.next_turn() == Turn(0, 8)


def test_every_task_is_tried_before_gains_are_compared() -> None:
    states = [TaskState(f"t{i}", 1, FixedSearch(0.5)) for i in range(3)]
    run = TaskScheduler(states, SchedulerOptions(trials=100))
    turns: list[int] = []
    for _ in range(6):
        turn = run.next_turn()
        assert isinstance(turn, Turn)
        turns.append(turn.task)
        run.report(turn, [trial(i) for i in range(1, turn.n + 1)], 1.0, default_s=1e-3)
    assert sorted(turns[:3]) == [0, 1, 2] and Counter(turns) == {0: 2, 1: 2, 2: 2}


def test_a_small_trial_budget_reaches_all_tasks() -> None:
    states = [TaskState(f"t{i}", 1, FixedSearch(0.5)) for i in range(5)]
    run = TaskScheduler(states, SchedulerOptions(trials=12))
    while isinstance(turn := run.next_turn(), Turn):
        run.report(turn, [trial(i) for i in range(1, turn.n + 1)], 0.5)
    assert run.n_trials == 12 and all(task.n_trials >= 2 for task in states)
    assert turn.reason is StopReason.TRIALS


def test_trials_of_before_count_as_warm_up_and_not_for_the_budget() -> None:
    old = TaskState("old", 1, FixedSearch(0.001), default_s=1.0, best_s=1.0, n_known=50)
    stop = TaskScheduler([old], SchedulerOptions(trials=20)).next_turn()
    assert isinstance(stop, Stop) and stop.reason is StopReason.CONVERGED
    new = TaskState("new", 1, FixedSearch(0.001))
    run = TaskScheduler([old, new], SchedulerOptions(trials=20))
    assert run.next_turn() == Turn(1, 8)


def test_stops_when_time_is_up() -> None:
    run = scheduler((1, 1e-3, 0.4), budget_s=10.0)
    assert isinstance(run.next_turn(9.9), Turn)
    stop = run.next_turn(10.0)
    assert isinstance(stop, Stop) and stop.reason is StopReason.TIME
    assert str(stop) == "the time budget is used up: 32 more trials, about 0:08, would buy about 40.0 %"


def test_stops_when_little_gain_is_expected() -> None:
    stop = scheduler((1, 1e-3, 0.002), (1, 9e-3, 0.004)).next_turn()
    assert isinstance(stop, Stop) and stop.reason is StopReason.CONVERGED and 0 < stop.expected_gain < 0.01
    assert str(stop).startswith("the expected further gain of the model is below 1 %: 64 more trials, about 0:16")
    assert isinstance(scheduler((1, 1e-3, 0.002), (1, 9e-3, 0.02)).next_turn(), Turn)
    assert isinstance(scheduler((1, 1e-3, 0.006), until=0.0).next_turn(), Turn)


def test_a_task_that_is_hardly_known_is_expected_to_save_what_the_others_did() -> None:
    run = scheduler(*[(1, 1e-3, 0.02)] * 9, (1, 1e-3, 0.9))
    run.tasks[-1].n_trials = 2
    usual = (GUESSED_GAIN + 9 * 0.02) / (1 + 9 + 2 / 16)
    assert run.expected_gain() == pytest.approx((9 * 0.02 + usual) / 10)
    run.tasks[0].default_s = 2e-3  # half of it is saved already: so may be the new one's
    usual = (GUESSED_GAIN + 8 * 0.02 + 1 - 0.5 * 0.98) / (1 + 9 + 2 / 16)
    assert run.expected_gain() == pytest.approx((9 * 0.02 + usual) / 10)
    run.tasks[-1].n_trials = 16
    assert run.expected_gain() == pytest.approx((9 * 0.02 + 0.9) / 10)


def test_what_was_not_measured_costs_what_its_work_takes_at_the_pace_of_the_others() -> None:
    run = scheduler((2, 1e-3, 0.1), (1, 1.0, 0.1))
    run.tasks[0].work, run.tasks[1].work = 100.0, 50.0
    run.tasks[1].best_s = run.tasks[1].default_s = None
    assert run.costs_s() == pytest.approx([2e-3, 1e-3])
    run.tasks[0].best_s = None
    assert run.costs_s() == [0.0, 0.0]


def test_a_task_without_gain_gets_no_more() -> None:
    run = scheduler((1, 100.0, 0.004), (1, 1.0, 0.9), until=0.001)
    assert run.next_turn() == Turn(1, 8)


def test_a_space_that_is_used_up_ends_its_task() -> None:
    run = scheduler((1, 1e-3, 0.5))
    turn = run.next_turn()
    assert isinstance(turn, Turn)
    run.report(turn, [trial(1), trial(2, status=Status.CRASH)], 1.0)
    assert run.tasks[0].is_exhausted and run.tasks[0].n_failed == 1
    stop = run.next_turn()
    assert isinstance(stop, Stop) and stop.reason is StopReason.EXHAUSTED and "would buy" not in str(stop)


def test_best_is_never_worse_than_the_default() -> None:
    run = scheduler((2, 1e-3, 0.5), (1, 4e-3, 0.5))
    run.report(Turn(0, 1), [trial(1, time_s=2e-3)], 1.0)
    assert run.tasks[0].best_s == 1e-3
    run.report(Turn(0, 1), [trial(1, time_s=5e-4)], 1.0)
    assert run.tasks[0].weighted_s == pytest.approx(1e-3)


@pytest.mark.parametrize(
    "bad", [{"budget_s": 0.0}, {"budget_s": float("nan")}, {"trials": 0}, {"batch": 0}, {"until": 1.0}]
)
def test_refuses_options(bad: dict[str, float]) -> None:
    with pytest.raises(InvalidValueError):
        SchedulerOptions(**bad)  # type: ignore[arg-type]


def test_the_following_turn_is_that_of_another_task() -> None:
    run = scheduler((1, 1e-3, 0.1), (1, 3e-3, 0.1))
    assert run.following(Turn(0, 8)) == Turn(1, 8)
    assert run.following(Turn(1, 8)) is None  # the same one again: that hangs on what comes out
    assert [task.n_trials for task in run.tasks] == [16, 16] and run.n_trials == 0


def test_idle_builders_begin_with_the_same_task() -> None:
    run = scheduler((1, 1e-3, 0.1), (1, 3e-3, 0.1))
    assert run.following(Turn(1, 8), most=8) == Turn(1, 8)
    assert run.following(Turn(1, 8), most=3) == Turn(1, 3)
    assert run.following(Turn(1, 8), most=1) is None and run.following(Turn(1, 8), most=-4) is None
    assert run.following(Turn(0, 8), most=3) == Turn(1, 8)  # another task's


def test_nothing_follows_the_last_turn() -> None:
    run = scheduler((1, 1e-3, 0.1), (1, 3e-3, 0.1), trials=12)
    assert run.following(Turn(0, 8)) == Turn(1, 4)
    assert run.following(Turn(0, 12)) is None


def test_the_largest_task_is_the_first_and_first_turns_are_short() -> None:
    states = [TaskState(f"t{i}", 1, FixedSearch(0.5), work) for i, work in enumerate((2.0, 9.0, 5.0))]
    run = TaskScheduler(states, SchedulerOptions(budget_s=600.0))
    turns = []
    for _ in range(4):
        turn = run.next_turn()
        assert isinstance(turn, Turn)
        turns.append(turn)
        time_s = 1e-3 * states[turn.task].work
        run.report(turn, [trial(i, time_s) for i in range(1, turn.n + 1)], 1.0, default_s=time_s)
    assert turns == [Turn(1, 6), Turn(2, 6), Turn(1, 8), Turn(0, 8)]  # the last of the new ones keeps nobody waiting


def test_short_of_time_a_turn_is_the_default_and_one_more() -> None:
    states = [TaskState(f"t{i}", 1, FixedSearch(0.5)) for i in range(20)]
    assert TaskScheduler(states, SchedulerOptions(budget_s=2.0)).next_turn() == Turn(0, 2)


def fresh(*works: float, **options: object) -> TaskScheduler:
    """Tasks of which only their work is known, by which a unit takes a millisecond."""
    states = [TaskState(f"t{i}", 1, FixedSearch(0.5), work) for i, work in enumerate(works)]
    return TaskScheduler(states, SchedulerOptions(**options))  # type: ignore[arg-type]


def take(run: TaskScheduler, n: int) -> list[Turn]:
    """The next turns; nothing is better than the defaults."""
    turns = []
    for _ in range(n):
        turn = run.next_turn()
        assert isinstance(turn, Turn)
        turns.append(turn)
        time_s = 1e-3 * run.tasks[turn.task].work
        run.report(turn, [trial(i, time_s) for i in range(1, turn.n + 1)], 0.25 * turn.n, default_s=time_s)
    return turns


def test_a_task_that_costs_the_model_little_waits() -> None:
    run = fresh(1.0, 100.0, 60.0)
    assert [turn.task for turn in take(run, 4)] == [1, 2, 1, 2]
    run = fresh(50.0, 100.0, 60.0)
    assert [turn.task for turn in take(run, 3)] == [1, 2, 0]


def test_what_is_known_to_be_promising_is_tried_first() -> None:
    run = fresh(100.0, 30.0, 40.0)
    run.tasks[1].promising = run.tasks[2].promising = 1
    assert take(run, 4) == [Turn(0, 6), Turn(2, 2), Turn(1, 8), Turn(0, 8)]  # the last of the new ones is in no hurry


def test_no_task_is_left_without_a_trial() -> None:
    run = fresh(1000.0, 1.0, until=0.9)
    assert [turn.task for turn in take(run, 2)] == [0, 1]
    assert isinstance(stop := run.next_turn(), Stop) and stop.reason is StopReason.CONVERGED


def test_a_task_that_nothing_ran_of_is_taken_for_what_its_work_costs() -> None:
    run = fresh(4.0, 2.0)
    take(run, 1)
    run.report(Turn(1, 2), [trial(i, status=Status.CRASH) for i in (1, 2)], 0.5)
    assert run.tasks[1].best_s is None
    assert {turn.task for turn in take(run, 3)} == {0, 1}


@pytest.mark.parametrize("options", [{"trials": 40}, {"budget_s": 40.0}])
def test_the_last_of_a_budget_is_for_tasks_without_a_trial(options: dict[str, float]) -> None:
    """However little a task costs its model, a build finds a record of it."""
    states = [TaskState(f"t{i}", 1, FixedSearch(0.9), work=1e9 if i == 0 else 1.0) for i in range(4)]
    run = TaskScheduler(states, SchedulerOptions(until=0.0, **options))  # type: ignore[arg-type]
    while isinstance(turn := run.next_turn(), Turn):
        time_s = 1e-2 if turn.task == 0 else 1e-8
        run.report(turn, [trial(i, time_s) for i in range(1, turn.n + 1)], float(turn.n), default_s=time_s)
    assert [state.n_trials > 0 for state in states] == [True] * 4
    assert states[0].n_trials > 20

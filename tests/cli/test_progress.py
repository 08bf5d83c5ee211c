"""What a tuning shows elsewhere than on a terminal, and the live table on one."""

from __future__ import annotations

import io
from dataclasses import dataclass, field

from autosched.cli.progress import TuneDisplay, model_times, status_line


@dataclass
class Task:
    name: str = "conv2d 64x56x56 k3"
    weight: int = 4
    share: float | None = 0.31
    default_s: float | None = 1.92e-3
    best_s: float | None = 1.31e-3
    n_trials: int = 64
    n_failed: int = 2
    state: str = "searching"


@dataclass
class State:
    tasks: list[Task] = field(default_factory=lambda: [Task()])
    elapsed_s: float = 42.0
    left_s: float | None = 250.0
    n_trials: int = 64
    n_failed: int = 2
    expected_gain_s: float | None = 0.6e-3
    interrupted: bool = False
    reason: str = ""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_ctrl_c_is_answered_once() -> None:
    out, terminal = io.StringIO(), Terminal()
    with TuneDisplay(out=out, every_s=1000) as display, TuneDisplay(out=terminal) as live:
        for _ in range(3):
            display(State(interrupted=True))
            live(State(interrupted=True))
    assert out.getvalue().count("Ctrl-C again ends it at once") == 1 and "Ctrl-C again" in terminal.getvalue()
    with TuneDisplay(out=(late := io.StringIO()), every_s=1000) as display:
        display(State(interrupted=True, reason="interrupted before all winners were named"))
    assert "Ctrl-C" not in late.getvalue()


def test_a_line_for_each_step_where_there_is_no_terminal() -> None:
    out = io.StringIO()
    with TuneDisplay(out=out, every_s=1000) as display:
        state = State()
        display(state)
        display(state)  # nothing new: nothing said
        state.tasks[0].state = "done: 1.47× faster"
        display(state)
        display(state)
    assert out.getvalue().splitlines() == [
        "[0:42] 1/1 conv2d 64x56x56 k3: default 1.92 ms, best 1.31 ms (1.47×), 64 trials, 2 failed; searching",
        "[0:42] 1/1 conv2d 64x56x56 k3: default 1.92 ms, best 1.31 ms (1.47×), 64 trials, 2 failed; done: 1.47× faster",
    ]


def test_a_long_silence_ends_with_a_line_about_all() -> None:
    out = io.StringIO()
    with TuneDisplay(out=out, every_s=0) as display:
        display(State([Task(state="searching"), Task(name="softmax", state="verifying")]))
    first, *rest = out.getvalue().splitlines()
    assert first.startswith("[0:42] 1/2 conv2d")
    assert rest == [f"[0:42] {status_line(State([Task(), Task()]))}"]


def test_a_task_that_waits_says_nothing() -> None:
    out = io.StringIO()
    with TuneDisplay(out=out) as display:
        display(State([Task(n_trials=0, default_s=None, best_s=None, state="waiting")]))
    assert not out.getvalue()


def test_a_table_on_a_terminal() -> None:
    out = Terminal()
    with TuneDisplay(out=out) as display:
        display(State())
    assert "conv2d" in out.getvalue()
    assert "left 4:10" in out.getvalue()


def test_quiet_is_quiet() -> None:
    out = Terminal()
    with TuneDisplay(out=out, quiet=True) as display:
        display(State())
    assert not out.getvalue()


def test_model_times_wait_for_every_task() -> None:
    assert model_times([]) is None
    assert model_times([Task(), Task(default_s=None)]) is None
    assert model_times([Task(weight=2, default_s=1.0, best_s=0.5), Task(weight=1, default_s=1.0, best_s=None)]) == (
        3,
        2,
    )


def test_status_line() -> None:
    assert status_line(State()) == (
        "model 7.68 → 5.24 ms (estimate)   64 trials, 1.5/s, 2 failed   expected further gain 0.600 ms   left 4:10"
    )

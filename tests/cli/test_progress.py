"""What a tuning shows elsewhere than on a terminal, and the live table on one."""

from __future__ import annotations

import io
import json
import time
from dataclasses import dataclass, field

import pytest

from autosched.cli.progress import TuneDisplay, head_line, model_times, status_line
from autosched.cli.terminal import cells_wide


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
    failures: dict[str, int] = field(default_factory=dict)
    n_skipped: int = 0
    expected_gain_s: float | None = 0.6e-3
    interrupted: bool = False
    reason: str = ""
    notes: list[str] = field(default_factory=list)
    noise: float | None = None
    budget_s: float | None = 600.0
    n_known: int = 0
    device: str = "AMD, 256-bit vectors"
    threads: int = 2


HEAD = "[0:42] AMD, 256-bit vectors  2 threads  1 task  budget 10 min"


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


def test_a_line_for_each_task_that_ends_where_there_is_no_terminal() -> None:
    out = io.StringIO()
    with TuneDisplay(out=out, every_s=1000) as display:
        state = State()
        display(state)
        display(state)  # nothing new: nothing said
        state.tasks[0].state = "done: default is best"
        display(state)
        display(state)
    end = "1/1 conv2d 64x56x56 k3: default 1.92 ms, best 1.31 ms (1.47×), 64 trials, 2 failed; done: default is best"
    assert out.getvalue().splitlines() == [HEAD, f"[0:42] {end}"]


def test_a_line_every_ten_seconds_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    out = io.StringIO()
    with TuneDisplay(out=out) as display:
        for _ in range(60):  # one minute, a state each second
            display(State([Task(state="searching"), Task(name="softmax", state="waiting")]))
            now[0] += 1
    _, *rest = out.getvalue().splitlines()
    assert rest == [f"[0:42] {status_line(State([Task(), Task()]))}"] * 5


def test_notes_are_told_once() -> None:
    out, state = io.StringIO(), State()
    with TuneDisplay(out=out) as display:
        display(state)
        state.notes.append("the machine's speed has drifted")
        display(state)
        display(state)
    assert out.getvalue().splitlines() == [HEAD, "[0:42] the machine's speed has drifted"]


def test_lines_of_json() -> None:
    out = io.StringIO()
    with TuneDisplay(out=out, form="json", name="m.onnx") as display:
        display(State([Task(state="done")]))
        display(State([Task(state="done")], notes=["watch out"]))
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["begin", "task", "note"]
    assert lines[0]["text"].startswith("m.onnx  AMD") and lines[2]["text"] == "watch out"
    assert lines[1]["name"] == "conv2d 64x56x56 k3" and lines[1]["best_s"] == 1.31e-3 and lines[1]["left_s"] == 250.0


def test_the_head_says_what_is_known() -> None:
    state = State([Task(), Task()], n_known=1, noise=0.011, budget_s=None, threads=1)
    assert head_line(state, "m.onnx") == "m.onnx  AMD, 256-bit vectors  1 thread  2 tasks (1 tuned before)  noise 1.1 %"


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
    kinds = status_line(State(failures={"wrong_result": 2, "timeout": 9}, n_failed=11))
    assert "11 failed (9 timeout, 2 wrong result)   expected" in kinds
    assert "2 failed, 3 not run: predicted too slow   expected" in status_line(State(n_skipped=3))


def test_silence_is_broken_without_a_new_state() -> None:
    out, state = io.StringIO(), State()
    with TuneDisplay(out=out, every_s=0.02) as display:
        display(state)
        deadline = time.monotonic() + 10
        while out.getvalue().count(status_line(state)) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert out.getvalue().count(status_line(state)) >= 2


def test_the_status_is_one_line_on_narrow_terminals_and_says_what_is_left() -> None:
    assert status_line(State(), 200) == status_line(State())
    for width in (100, 80, 60, 40, 20):
        line = status_line(State(), width)
        assert len(line) <= width and line.endswith("   left 4:10"), width
    assert status_line(State(), 80) == "model 7.68 → 5.24 ms   64 trials, 2 failed   gain to come 0.600 ms   left 4:10"
    assert "64 trials, 2 failed" in status_line(State(), 60) and "…" in status_line(State(), 60)


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (60, 24), (40, 16)])
def test_the_live_table_fits(columns: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", str(rows))
    names = [f"fused_conv2d{i}_add{i}_relu{i}_" + "中文" * 12 for i in range(40)]
    tasks = [Task(name=name, share=i / 780, state="done: default is best") for i, name in enumerate(names)]
    state = State(tasks, notes=["n" * 200] * 9, failures={"build error": 3, "timeout": 1}, n_skipped=12)
    terminal = Terminal()
    with TuneDisplay(out=terminal, name="a_model_of_some_length.onnx") as display:
        display(state)
        display(state)
        drawn = terminal.getvalue()
    first, second = drawn.split("\x1b[J")[1:]
    lines = second.splitlines()
    assert second == first[: first.rindex("\n") + 1]
    assert f"\x1b[{len(lines)}A" in first.splitlines()[-1]  # the second drawing begins where the first did
    assert len(lines) < rows and all(cells_wide(line) < columns for line in lines)
    assert "left 4:10" in " ".join(lines[-4:])
    heaviest = next(line for line in lines if line.startswith("fused_"))
    assert heaviest.startswith("fused_conv2d39"[: min(14, columns // 5)]) and "…" in heaviest and "1.31" in heaviest
    assert any(line.startswith("… ") and line.endswith("more") for line in lines)
    assert terminal.getvalue().count("fused_conv2d0_"[:8]) > 40  # at the end all are there

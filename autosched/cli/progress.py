"""What a tuning shows while it runs: a live table on a terminal, elsewhere a line every ten seconds; on stderr."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO, Protocol, TypeVar

from autosched.cli.output import Column, Row, Table, clock, factor, milliseconds, percent
from autosched.cli.terminal import Live, cells_wide, cut, fit
from autosched.durations import with_unit
from autosched.printable import printable


class TaskState(Protocol):
    """How far one task is; times are None until they are measured, `share` is of the model's time
    (guessed from the task's arithmetic before it is measured)."""

    @property
    def name(self) -> str: ...
    @property
    def weight(self) -> int: ...
    @property
    def share(self) -> float | None: ...
    @property
    def default_s(self) -> float | None: ...
    @property
    def best_s(self) -> float | None: ...
    @property
    def n_trials(self) -> int: ...
    @property
    def n_failed(self) -> int: ...
    @property
    def state(self) -> str: ...


T = TypeVar("T", bound=TaskState)


class TuneState(Protocol):
    """How far a tuning is; the expected gain is of one run of the model."""

    @property
    def tasks(self) -> Sequence[TaskState]: ...
    @property
    def elapsed_s(self) -> float: ...
    @property
    def left_s(self) -> float | None: ...
    @property
    def n_trials(self) -> int: ...
    @property
    def n_failed(self) -> int: ...
    @property
    def failures(self) -> Mapping[str, int]: ...
    @property
    def n_skipped(self) -> int: ...
    @property
    def expected_gain_s(self) -> float | None: ...
    @property
    def interrupted(self) -> bool: ...
    @property
    def reason(self) -> str: ...
    @property
    def notes(self) -> Sequence[str]: ...
    @property
    def noise(self) -> float | None: ...
    @property
    def budget_s(self) -> float | None: ...
    @property
    def n_known(self) -> int: ...
    @property
    def device(self) -> str: ...
    @property
    def threads(self) -> int: ...


COLUMNS = (
    Column("name", "task", shrinks=16),
    Column("weight", "×", right=True, leaves=4),
    Column("share", "share", percent, right=True),
    Column("default_s", "default ms", milliseconds, right=True, leaves=2),
    Column("best_s", "best ms", milliseconds, right=True),
    Column("gain", "gain", factor, right=True),
    Column("n_trials", "trials", right=True, leaves=1),
    Column("n_failed", "failed", right=True, leaves=3),
    Column("state", "state", shrinks=9),
)


def task_row(task: TaskState) -> Row:
    """Give one task as a table's row."""
    gain = max(1.0, task.default_s / task.best_s) if task.default_s and task.best_s else None  # as records say it
    return {
        "name": task.name,
        "weight": task.weight,
        "share": task.share,
        "default_s": task.default_s,
        "best_s": task.best_s,
        "gain": gain,
        "n_trials": task.n_trials,
        "n_failed": task.n_failed,
        "state": task.state,
    }


def heaviest_first(tasks: Sequence[T]) -> list[T]:
    """Order tasks by their share of the model's time; equal ones stay as they are."""
    return sorted(tasks, key=lambda task: -(task.share or 0.0))


def model_times(tasks: Sequence[TaskState]) -> tuple[float, float] | None:
    """Estimate the model's time (default, best) from its tasks; None until each has been measured."""
    pairs = [(task.default_s, task.best_s or task.default_s, task.weight) for task in tasks]
    if not pairs or not all(default_s for default_s, _, _ in pairs):
        return None
    return sum(a * n for a, _, n in pairs if a), sum(b * n for _, b, n in pairs if b)


def status_line(state: TuneState, width: int | None = None) -> str:
    """Say in one line how the whole tuning stands; in fewer words where `width` cells have no place for all."""
    line = "   ".join(_status(state, is_short=False))
    if width is None or cells_wide(line) <= width:
        return line
    *parts, last = _status(state, is_short=True)
    before = "   ".join(parts)
    return cut(f"{cut(before, max(1, width - cells_wide(last) - 3))}   {last}" if before else last, width)


def _status(state: TuneState, is_short: bool) -> list[str]:
    """The parts of the status line; the last one stays whole the longest."""
    parts = []
    if times := model_times(state.tasks):
        parts.append(
            f"model {milliseconds(times[0])} → {milliseconds(times[1])} ms" + ("" if is_short else " (estimate)")
        )
    rate = f", {state.n_trials / state.elapsed_s:.1f}/s" if state.elapsed_s > 1 else ""
    kinds = ", ".join(f"{n} {status.replace('_', ' ')}" for status, n in sorted(state.failures.items()))
    skipped = f", {state.n_skipped} not run: predicted too slow" if state.n_skipped else ""
    more = "" if is_short else (f" ({kinds})" if kinds else "") + skipped
    parts.append(f"{state.n_trials} trials{'' if is_short else rate}, {state.n_failed} failed{more}")
    if state.expected_gain_s is not None:
        parts.append(
            f"{'gain to come' if is_short else 'expected further gain'} {milliseconds(state.expected_gain_s)} ms"
        )
    if state.left_s is not None:
        parts.append(f"left {clock(state.left_s)}")
    return parts


def head_line(state: TuneState, name: str = "") -> str:
    """Say in one line what is tuned, and for what."""
    parts = [name] if name else []
    parts += [state.device, f"{state.threads} thread{'s' if state.threads != 1 else ''}"]
    known = f" ({state.n_known} tuned before)" if state.n_known else ""
    parts.append(f"{len(state.tasks)} task{'s' if len(state.tasks) != 1 else ''}{known}")
    if state.budget_s is not None:
        parts.append(f"budget {with_unit(state.budget_s)}")
    if state.noise is not None:
        parts.append(f"noise {100 * state.noise:.1f} %")
    return "  ".join(parts)


STOPPING = "finishing this batch and naming winners; Ctrl-C again ends it at once"


def is_stopping(state: TuneState) -> bool:
    """Tell whether the user has had enough and the tuning has not ended yet."""
    return state.interrupted and not state.reason


# states that are worth a line: a task has come to its end
ENDS = ("done", "all tried", "nothing worked", "failed at the end")


class TuneDisplay:
    """Shows the states that it is called with; use it in a `with` block.

    name     of what is tuned, for the first line
    quiet    show nothing
    form     "json": each line is an object, `{"event": …}`
    every_s  elsewhere than on a terminal, the longest silence: a line about the whole tuning ends it
    """

    def __init__(
        self,
        *,
        name: str = "",
        quiet: bool = False,
        form: str = "table",
        out: IO[str] | None = None,
        every_s: float = 10.0,
    ):
        self.out = out or sys.stderr
        self.name, self.quiet, self.form, self.every_s = name, quiet, form, every_s
        self._live: Live | None = None
        self._clock: threading.Thread | None = None
        self._ended, self._lock = threading.Event(), threading.Lock()
        self._last: TuneState | None = None
        self._taken = time.monotonic()  # when the last state was
        self._shown: dict[str, str] = {}  # task -> the state in its last line
        self._when = time.monotonic()  # of the last line
        self._told_stopping = self._told_head = False
        self._told_notes = 0

    def __enter__(self) -> TuneDisplay:
        if not self.quiet and self.form != "json" and self.out.isatty():
            self._live = Live(self.out).__enter__()
        elif not self.quiet:
            self._clock = threading.Thread(target=self._break_silence, daemon=True)
            self._clock.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._clock is not None:
            self._clock.join()
        if self._live is not None:
            if self._last is not None:
                self._show_live(self._live, self._last, is_last=True)
            self._live.__exit__()

    def __call__(self, state: TuneState) -> None:
        """Show a state."""
        if self.quiet:
            return
        if self._live is not None:
            self._last = state
            self._show_live(self._live, state)
            return
        with self._lock:
            self._last, self._taken = state, time.monotonic()
            self._show_lines(state)

    def _break_silence(self) -> None:
        """Say how the tuning stands whenever nothing was said for `every_s`, whatever it is busy with."""
        while not self._ended.wait(max(0.01, self._when + self.every_s - time.monotonic())):
            with self._lock:
                if self._last is not None and time.monotonic() - self._when >= self.every_s:
                    self._say(self._last, "progress", status_line(self._last))
                elif self._last is None:
                    self._when = time.monotonic()

    def _show_lines(self, state: TuneState) -> None:
        if not self._told_head:
            self._told_head = True
            self._say(state, "begin", head_line(state, self.name))
        for note in state.notes[self._told_notes :]:
            self._say(state, "note", note)
        self._told_notes = len(state.notes)
        if is_stopping(state) and not self._told_stopping:
            self._told_stopping = True
            self._say(state, "stopping", STOPPING)
        for number, task in enumerate(state.tasks, start=1):
            is_end = task.state.startswith(ENDS)
            if is_end and task.state != self._shown.get(task.name, ""):
                self._shown[task.name] = task.state
                row = {"index": number - 1, **task_row(task)}
                self._say(state, "task", f"{number}/{len(state.tasks)} {task_line(task)}", row)
        if time.monotonic() - self._when >= self.every_s:
            self._say(state, "progress", status_line(state))

    def _show_live(self, live: Live, state: TuneState, *, is_last: bool = False) -> None:
        """The head, the heaviest tasks as far as there is place, how all stands, and what was noted last.

        All of them where nothing is drawn over it any more.
        """
        width, height = live.size
        notes = [printable(note) for note in [*state.notes, *([STOPPING] if is_stopping(state) else [])]]
        notes = notes if is_last else notes[-max(1, height // 6) :]
        status = status_line(state, width)
        tasks = heaviest_first(state.tasks)
        room = None if is_last else height - 2 - len(notes)
        table = fit(Table(COLUMNS, [task_row(task) for task in tasks]), width, room)
        live.show([printable(head_line(state, self.name)), *table, status, *notes], is_last=is_last)

    def _say(self, state: TuneState, event: str, text: str, row: Row | None = None) -> None:
        self._when = time.monotonic()
        if self.form != "json":
            print(f"[{clock(state.elapsed_s + self._when - self._taken)}] {printable(text)}", file=self.out, flush=True)
            return
        times = model_times(state.tasks) or (None, None)
        facts = {"event": event, "text": text, "elapsed_s": round(state.elapsed_s, 2), "left_s": state.left_s}
        facts |= {"n_trials": state.n_trials, "n_failed": state.n_failed, "failures": dict(state.failures)}
        facts |= {"n_skipped": state.n_skipped}
        facts |= {"model_default_s": times[0]}
        facts |= {"model_best_s": times[1], "expected_gain_s": state.expected_gain_s}
        print(json.dumps({**facts, **(row or {})}), file=self.out, flush=True)


def task_line(task: TaskState) -> str:
    """Say in one line how a task stands."""
    parts = []
    if task.default_s:
        parts.append(f"default {milliseconds(task.default_s)} ms")
    if task.best_s:
        gain = f" ({factor(task.default_s / task.best_s)})" if task.default_s else ""
        parts.append(f"best {milliseconds(task.best_s)} ms{gain}")
    parts.append(f"{task.n_trials} trials, {task.n_failed} failed")
    return f"{task.name}: {', '.join(parts)}; {task.state}"

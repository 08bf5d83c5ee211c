"""What a tuning says of itself, while it runs and at its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from autosched.driver.tables import frame
from autosched.printable import html_table, printable
from autosched.runtime.profiling import layout

if TYPE_CHECKING:
    import pandas


@dataclass
class TaskReport:
    """How far one task is; times in seconds, None until measured.

    border      knobs whose best value is the last one of their candidates, in words
    metrics     what it was tuned for: the name, the default's value, the winner's
    importance  knobs with the share of the times' variance that each explains, the largest first; empty: too few trials
    """

    name: str
    weight: int
    share: float | None = None
    default_s: float | None = None
    best_s: float | None = None
    n_trials: int = 0
    n_failed: int = 0
    state: str = "waiting"
    config: str = ""
    border: tuple[str, ...] = ()
    metrics: tuple[tuple[str, float, float], ...] = ()
    importance: tuple[tuple[str, float], ...] = ()

    @property
    def gain(self) -> float | None:
        """How many times faster than the default the best is, None until both are measured.

        At least 1, but where something else than the time decides.
        """
        if not self.default_s or not self.best_s:
            return None
        return max(0.0 if self.metrics else 1.0, self.default_s / self.best_s)

    def row(self) -> dict[str, object]:
        """What it says, by the names of its columns; times in seconds."""
        names = ("name", "weight", "share", "default_s", "best_s", "gain", "n_trials", "n_failed", "state", "config")
        return {name: getattr(self, name) for name in names}

    def words(self) -> dict[str, str]:
        """What lines of text say of it, by their headings."""
        times = {f"{what} ms": "–" if t is None else f"{1e3 * t:.4g}" for what, t in
                 (("default", self.default_s), ("best", self.best_s))}  # fmt: skip
        metrics = {name: f"{before:.4g} → {after:.4g}" for name, before, after in self.metrics}
        gain = "–" if self.gain is None else f"{self.gain:.2f}×"
        return {
            "task": self.name, **times, "gain": gain, **metrics, "trials": str(self.n_trials),
            "failed": str(self.n_failed), "state": self.state, "configuration": self.config,
        }  # fmt: skip


@dataclass
class ModelTimes:
    """Whole runs of the built model with what a build would have used before the tuning, and with what it uses now.

    low, high  95 % interval of after_s / before_s; None where nothing has changed
    reverted   tasks whose winner lost inside the model, and swapped in: "task: configuration"
    """

    before_s: float
    after_s: float
    low: float | None = None
    high: float | None = None
    reverted: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The finding in words: "checked in the model: 25.8 → 19.6 ms (−24.0 %, ± 0.2)"."""
        before, after = 1e3 * self.before_s, 1e3 * self.after_s
        if self.low is None or self.high is None:
            return f"checked in the model: {before:.4g} ms, which nothing found makes faster"
        change, half = 100 * (after / before - 1), 50 * (self.high - self.low)
        text = f"checked in the model: {before:.4g} → {after:.4g} ms ({change:+.1f} %, ± {half:.1f})".replace("-", "−")
        return text + (f"; changed there: {', '.join(self.reverted)}" if self.reverted else "")


@dataclass
class PeakShare:
    """How near a function of the user's comes to what this machine can do.

    share  of the peak;  bound  the peak that it is of: "arithmetic", or the memory that its data lie in
    flops, size_bytes  of a call, None where not known;  time_s  of a call;  threads  that the peak is of
    """

    share: float
    bound: str
    flops: int | None
    size_bytes: int | None
    time_s: float
    threads: int

    @property
    def text(self) -> str:
        """In words: "at 3 % of this machine's peak on 1 thread: 1.2 GFLOP/s"."""
        amount, unit = (self.flops, "GFLOP/s") if self.bound == "arithmetic" else (self.size_bytes, "GB/s")
        share = f"{100 * self.share:.0f}" if self.share >= 0.095 else f"{100 * self.share:.2g}"
        peak = "peak" if self.bound == "arithmetic" else f"reading from {self.bound}"
        threads = f"{self.threads} thread{'s' if self.threads != 1 else ''}"
        return f"at {share} % of this machine's {peak} on {threads}: {(amount or 0) / self.time_s / 1e9:.3g} {unit}"


@dataclass
class TuneReport:
    """How far a tuning is, and at its end what came of it.

    left_s     of the time budget;   n_before  trials of the same budget that earlier runs have spent
    noise      the usual half width of a median's 95 % interval, as a share;  drift  of the machine since the beginning
    failures   how many trials failed, by their status
    n_skipped  candidates that were built and then not measured: their code says that they are slow
    notes      what the user should know, in the order in which it was found
    peak       of an own function, how near the winner comes to what the machine can do; None where that is not known
    model      the judgement inside the built model; None before it, and where there is no model
    """

    tasks: list[TaskReport] = field(default_factory=list)
    elapsed_s: float = 0.0
    left_s: float | None = None
    budget_s: float | None = None
    n_trials: int = 0
    n_failed: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    n_skipped: int = 0
    n_before: int = 0
    n_known: int = 0
    expected_gain_s: float | None = None
    noise: float | None = None
    drift: float = 0.0
    reason: str = ""
    database: str = ""
    device: str = ""
    threads: int = 1
    notes: list[str] = field(default_factory=list)
    model: ModelTimes | None = None
    peak: PeakShare | None = None
    interrupted: bool = False  # Ctrl-C was pressed; as long as `reason` is empty, what must be is being finished

    def to_frame(self) -> pandas.DataFrame:
        """The tasks as a frame of pandas, a row each; times in seconds. Raises UsageError without pandas."""
        return frame([task.row() for task in self.tasks])

    def __str__(self) -> str:
        """The tasks as lines, what they came to in the model, and why the tuning ended."""
        rows = [task.words() for task in self.tasks]
        columns = list(rows[0]) if rows else []
        table = [layout(columns, [[printable(row.get(c, "")) for c in columns] for row in rows])] if rows else []
        return "\n".join([*table, *([self.model.text] if self.model is not None else []), self._end])

    def _repr_html_(self) -> str:
        """What notebooks show: the tasks, and why the tuning ended."""
        return html_table([{**task.row(), "config": task.config or None} for task in self.tasks], self._end)

    @property
    def _end(self) -> str:
        return f"{self.n_trials} trials, {self.n_failed} failed; {self.reason or 'not ended'}"

"""What a tuning is asked to do."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from autosched.durations import parse_duration
from autosched.errors import UsageError
from autosched.target.threads import ThreadLimits, thread_limits

CACHES = ("auto", "cold", "warm")
VERIFY = ("model", "task")
RUN_AS = ("latency", "throughput")


@dataclass(frozen=True)
class TuneOptions:
    """How to tune.

    budget    time limit: "90s", "10m", "1h30m", or seconds
    trials    limit of measurements, all tasks together
    until     stop when the expected further gain of the whole model is below this share; 0: only at a limit
    threads   threads that the kernels may use
    strategy  how to search: "auto", "xgboost", "random", …
    tasks     indices of `list_tasks` to tune; None for all
    spaces    a folder of search spaces that come before the project's own
    cache     state of the weights when a kernel is timed: "cold" as in a model, "warm" as in a loop of calls,
              "auto": cold for models, warm for everything else
    hints     learn from the records of other workloads, devices and versions
    fresh     start a new budget, even if an earlier tuning of these tasks was killed before its budget was spent
    session   prefix of the session's name; "": a random word
    verify    "model": judge winners inside the built model as well; "task": judge each alone
    run_as    "latency": measure one instance alone, on all threads; "throughput": measure on one thread by default,
              while other instances run on the other cores, and judge winners each alone
    graph     search how the graph is built too, by runs of the model: in a quarter of the budget of time, or a minute
    precision  of a model's products, as `build` takes it: "bf16" tunes the kernels of build(…, precision="bf16")
    Raises    UsageError for an impossible value.
    """

    budget: str | float | None = None
    trials: int | None = None
    until: float = 0.01
    threads: int | None = None
    strategy: str = "auto"
    seed: int = 0
    tasks: tuple[int, ...] | None = None
    spaces: Path | None = None
    cache: Literal["auto", "cold", "warm"] = "auto"
    hints: bool = True
    fresh: bool = False
    session: str = ""
    verify: Literal["model", "task"] = "model"
    run_as: Literal["latency", "throughput"] = "latency"
    graph: bool = False
    precision: str | None = None

    @property
    def budget_s(self) -> float | None:
        """The time limit in seconds."""
        found = self.budget
        return found if found is None or isinstance(found, float | int) else parse_duration(str(found))

    def companions(self, threads: int) -> int | None:
        """How many instances run beside the one that is measured: one for each core that it leaves free."""
        if self.run_as == "latency":
            return None
        limits = thread_limits()
        return max(0, ThreadLimits(limits.affinity, limits.quota, None, None).threads() // threads - 1)

    def for_run_as(self) -> TuneOptions:
        """The options with what follows from `run_as`."""
        if self.run_as == "latency":
            return self
        return dataclasses.replace(self, threads=self.threads or 1, verify="task")

    def __post_init__(self) -> None:
        if self.trials is not None and self.trials < 1:
            raise UsageError(f"{self.trials} trials", hint="give at least 1")
        try:
            is_fit = self.budget_s is None or 0 < self.budget_s < math.inf
        except ValueError as error:
            raise UsageError(f"budget: {error}") from None
        if not is_fit:
            raise UsageError(f"a budget of {self.budget_s} s", hint="give a positive time")
        if not 0 <= self.until < 1:
            raise UsageError(f"until an expected gain of {self.until}", hint="give a share such as 0.01, or 1%")
        if self.cache not in CACHES:
            raise UsageError(f"cache '{self.cache}'", hint=f"use one of {', '.join(CACHES)}")
        if self.run_as not in RUN_AS:
            raise UsageError(f"run_as '{self.run_as}'", hint=f"use one of {', '.join(RUN_AS)}")
        if self.verify not in VERIFY:
            raise UsageError(f"verify '{self.verify}'", hint=f"use one of {', '.join(VERIFY)}")


def with_budget(options: TuneOptions, budget: str | float | None) -> TuneOptions:
    """Options with a budget: "10m", or seconds. Raises UsageError for no duration, or where the options have one."""
    if budget is None:
        return options
    if options.budget is not None:
        raise UsageError("a budget, and another in the options", hint="give one of them")
    return dataclasses.replace(options, budget=budget)

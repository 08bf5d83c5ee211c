"""What a tuning is asked to do."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from autosched.errors import UsageError

CACHES = ("auto", "cold", "warm")
VERIFY = ("model", "task")


@dataclass(frozen=True)
class TuneOptions:
    """How to tune.

    budget_s  seconds in all;   trials  measurements in all;   neither: until little gain is expected
    until     stop when the expected further gain of the whole model is below this share; 0: never for that reason
    threads   threads that the kernels may use
    strategy  how to search: "auto", "xgboost", "random", …
    tasks     indices of `list_tasks` to tune; None for all
    spaces    a folder of search spaces that come before the project's own
    cache     "cold": weights as cold as a model finds them; "warm": as kernels find them that are called in a loop;
              "auto": cold for models, warm for everything else
    hints     learn from the records of other workloads, devices and versions
    fresh     begin a new budget, even if an earlier tuning of these tasks was killed before its own was spent
    session   what the name of the session begins with; "": a random word
    verify    "model": winners are judged inside the built model as well; "task": each alone
    Raises    UsageError for an impossible value.
    """

    budget_s: float | None = None
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

    def __post_init__(self) -> None:
        if self.trials is not None and self.trials < 1:
            raise UsageError(f"{self.trials} trials", hint="give at least 1")
        if self.budget_s is not None and not 0 < self.budget_s < math.inf:
            raise UsageError(f"a budget of {self.budget_s} s", hint="give a positive time")
        if not 0 <= self.until < 1:
            raise UsageError(f"until an expected gain of {self.until}", hint="give a share such as 0.01, or 1%")
        if self.cache not in CACHES:
            raise UsageError(f"cache '{self.cache}'", hint=f"use one of {', '.join(CACHES)}")
        if self.verify not in VERIFY:
            raise UsageError(f"verify '{self.verify}'", hint=f"use one of {', '.join(VERIFY)}")

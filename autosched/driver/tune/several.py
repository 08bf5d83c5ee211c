"""Tuning several models as one run: what became of each of them if the run was killed before its last.

Nothing is stored for it: a session's name begins with those of its run and its model, and its records say the rest.
"""

from __future__ import annotations

import dataclasses
import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from autosched.driver.options import TuneOptions
from autosched.driver.tune.session import COMPLETE, SPENT, is_running
from autosched.errors import RecordError
from autosched.records import RecordFilter, open_store
from autosched.records.places import Place
from autosched.records.where import Comparison

if TYPE_CHECKING:
    from autosched.records.record import Record


@dataclass(frozen=True)
class Part:
    """What a run has spent on one model; is_complete: its tuning came to its end."""

    spent_s: float = 0.0
    n_trials: int = 0
    is_complete: bool = False


@dataclass(frozen=True)
class Run:
    """A run over several models; `parts` by the models' names holds those that it was at before it was killed."""

    name: str = field(default_factory=lambda: f"all-{uuid.uuid4().hex[:6]}")
    parts: dict[str, Part] = field(default_factory=dict)

    def part(self, model: str) -> Part:
        """What was spent on a model."""
        return self.parts.get(model, Part())

    def session(self, model: str) -> str:
        """What the name of a model's session begins with."""
        return f"{self.name}-{hashlib.sha256(model.encode()).hexdigest()[:8]}"


def killed_run(where: str | Path | Place, models: Sequence[str]) -> Run | None:
    """The run over models that was the last to write to a database, if it did not come to its end.

    where  path or URL of the database; models  their names, in order
    """
    try:
        with open_store(where, write=False) as store:
            last = store.last_session()
            if last is None or not last[0].startswith("all-") or is_running(last[0]):
                return None
            run = Run("-".join(last[0].split("-")[:2]))
            sessions: dict[str, list[Record]] = {}
            for record in store.records(RecordFilter(where=Comparison("session", "~", f"{run.name}-"))):
                sessions.setdefault(record.session.partition(".")[0], []).append(record)
    except RecordError:  # none there yet, or one that tuning itself will speak of
        return None
    found = {model: _part(sessions[name]) for model in models if (name := run.session(model)) in sessions}
    if all(model in found and found[model].is_complete for model in models):
        return None
    return Run(run.name, found)


def _part(records: Sequence[Record]) -> Part:
    hows = [record.measurement.how for record in records]
    spent = [float(how[SPENT]) for how in hows if isinstance(how.get(SPENT), int | float)]
    n_trials = sum("interleaved" not in how for how in hows)
    return Part(max(spent, default=0.0), n_trials, any(how.get(COMPLETE) for how in hows))


def share(options: TuneOptions, spent_s: float, n_trials: int, n_models: int) -> TuneOptions:
    """The budget of the next of so many models: an equal part of what is left."""
    budget_s, trials = options.budget_s, options.trials
    if budget_s is not None:
        budget_s = max((budget_s - spent_s) / n_models, 1.0)
    if trials is not None:
        trials = max(-(-(trials - n_trials) // n_models), 1)
    return dataclasses.replace(options, budget=budget_s, trials=trials)

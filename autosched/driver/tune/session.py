"""The budget of a tuning over several runs: one that was killed leaves a rest, which the same command spends.

Nothing is stored beside the records: their session names the process that wrote them, `session_s` in `how` is the time
that it had spent, and `complete` marks the winners of a tuning that ended by itself.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from autosched.driver.options import TuneOptions
from autosched.records import Record
from autosched.records.record import host_id

SPENT, COMPLETE = "session_s", "complete"
LEAST_S = 1.0  # a rest of the time budget that is worth spending
LATE_S = 60.0  # records from so far in the future are worth a word


@dataclass
class Session:
    """One budget: its name, and what runs before this one have spent of it.

    first_time  not before it may a new record be: a clock that was set back would make new winners older than old ones
    """

    name: str
    spent_s: float = 0.0
    n_trials: int = 0
    first_time: float = 0.0

    def __post_init__(self) -> None:
        self._start = time.monotonic()
        self._wall = max(time.time(), self.first_time)

    @property
    def elapsed_s(self) -> float:
        """Seconds since this run began, whatever happens to the machine's clock."""
        return time.monotonic() - self._start

    @property
    def total_s(self) -> float:
        """Seconds that were spent of the budget, those of earlier runs included."""
        return self.spent_s + self.elapsed_s

    def now(self) -> float:
        """Seconds since 1970 by a clock that never jumps and never stands before the newest record."""
        return round(self._wall + self.elapsed_s, 3)

    @property
    def clock_note(self) -> str:
        """What to say of a clock that stands before the newest record; "" where it does not."""
        late = self.first_time - time.time()
        if late < LATE_S:
            return ""
        return f"the clock was set back: the newest record is {late / 60:.0f} min ahead; new ones are dated after it"


def begin_session(records: Sequence[Sequence[Record]], options: TuneOptions) -> Session:
    """The session that was not finished, else a new one.

    records  per task what the database holds of it
    """
    latest = max((r.time for part in records for r in part), default=0.0)
    first_time = latest + 0.001 if latest else 0.0
    name = max(
        (r for part in records for r in part if r.session and SPENT in r.measurement.how),
        key=lambda r: r.time,
        default=None,
    )
    if name is not None and not options.fresh and not is_running(name.session):
        own = [r for part in records for r in part if r.session == name.session]
        found = _rest(name.session, own, first_time)
        if found is not None and _has_rest(found, options):
            return found
    begin = options.session or uuid.uuid4().hex[:12]
    return Session(f"{begin}.{host_id()}.{os.getpid()}", first_time=first_time)


def _rest(name: str, records: Iterable[Record], first_time: float) -> Session | None:
    """What was spent of a session; None if it ended by itself."""
    spent, n = 0.0, 0
    for record in records:
        how = record.measurement.how
        if how.get(COMPLETE):
            return None
        noted = how.get(SPENT, 0.0)
        spent = max(spent, float(noted) if isinstance(noted, int | float) else 0.0)
        n += "interleaved" not in how
    return Session(name, spent, n, first_time)


def _has_rest(session: Session, options: TuneOptions) -> bool:
    """Whether some of the budget is left. Without a budget there is nothing that could be left."""
    if options.trials is None and options.budget_s is None:
        return False
    has_trials = options.trials is None or session.n_trials < options.trials
    return has_trials and (options.budget_s is None or session.spent_s + LEAST_S < options.budget_s)


def is_running(session: str) -> bool:
    """Whether the process that a session was begun by runs on this machine now: its budget is its own."""
    _, _, rest = session.partition(".")
    host, _, number = rest.partition(".")
    if host != host_id() or not number.isdigit():
        return bool(rest) and host != host_id()  # of another machine nobody here knows
    if int(number) == os.getpid():
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return _state(int(number)) != "Z"


def _state(pid: int) -> str:
    """The state of a process as the system's letter; "" where nobody tells."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""

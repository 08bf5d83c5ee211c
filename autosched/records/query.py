"""What to select from a store, and the summary of a task, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from autosched.records.record import Record
from autosched.records.where import Condition
from autosched.target import Fingerprint
from autosched.task import Status

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Which records: every field that is set must hold.

    workload  the exact key;  since_s  seconds since 1970;  uid  the first digits of one record's uid
    where     a condition from `parse_where`
    """

    op: str = ""
    workload: str = ""
    template: str = ""
    status: Status | None = None
    session: str = ""
    since_s: float | None = None
    winners_only: bool = False
    uid: str = ""
    where: Condition | None = None
    limit: int | None = None


COMPARED = "compared"  # in place of a status: a winner's comparison with the default


@dataclass(frozen=True, slots=True)
class Coded:
    """Many words of few: the distinct ones, and for each place the number of its word (an array of ints)."""

    names: tuple[str, ...]
    codes: np.ndarray

    def __len__(self) -> int:
        return len(self.codes)


# Of trials by task, then time: index of the task, time, status, is_default, median_s; () where there are none.
TrialColumns: TypeAlias = "tuple[np.ndarray, np.ndarray, Coded, np.ndarray, np.ndarray] | tuple[()]"


@dataclass(frozen=True, slots=True)
class TaskKey:
    """A workload on a device with a number of threads: what has one winner."""

    workload: str
    device: Fingerprint
    threads: int


@dataclass(frozen=True, slots=True)
class Won:
    """What a winner's comparison with the default has said: both times, and how many times faster it was."""

    default_s: float | None
    best_s: float | None
    gain: float | None


@dataclass(frozen=True, slots=True)
class TaskSummary:
    """What is known of one workload on one device with one number of threads; times are medians, None if unknown.

    best_s, default_s  of the winner's comparison with the default; without a winner the least of single trials
    """

    workload: str
    device: Fingerprint
    threads: int
    n_trials: int
    n_failed: int
    best_s: float | None
    default_s: float | None
    last_time: float
    winner: Record | None

    @property
    def gain(self) -> float | None:
        """How much faster the winner is than the default was in the same comparison; 1 where the default won.

        None without a winner, or where that comparison is not noted: times of different days say nothing.
        """
        return None if self.winner is None else self.winner.gain

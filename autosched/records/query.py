"""What to select from a store, and the summary of a task, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

from autosched.records.record import Record
from autosched.target import Fingerprint
from autosched.task import Status


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Which records: every field that is set must hold.

    workload  the exact key;  since_s  seconds since 1970;  uid  the first digits of one record's uid
    """

    op: str = ""
    workload: str = ""
    template: str = ""
    status: Status | None = None
    session: str = ""
    since_s: float | None = None
    winners_only: bool = False
    uid: str = ""
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class TaskSummary:
    """What is known of one workload on one device with one number of threads; times are medians, None if unknown."""

    workload: str
    device: Fingerprint
    threads: int
    n_trials: int
    n_failed: int
    best_s: float | None
    default_s: float | None
    last_time: float
    winner: Record | None

"""What a look-up gives, and the interfaces of everything that can be looked up in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from autosched.records.record import Record
from autosched.space import Config
from autosched.space.config import THREADS
from autosched.task import Task

Validator = Callable[[Config], str]  # why a configuration cannot be used; "" if it can; see also `objection_to`


class Trust(StrEnum):
    """How far the evidence for a configuration holds for this machine, best first; of PINNED the user is all."""

    HERE = "verified here"
    SAME_DEVICE = "verified same device type"
    ELSEWHERE = "verified elsewhere"
    NOISY = "measured under noise"
    NEAR = "near shape"
    PINNED = "pinned"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Found:
    """The configuration for a task, where it came from and why; a miss has no configuration and a reason.

    origin      "project database /path", "shipped x86-64-v3", "given", …
    reason      for a miss, why; for a hit, what limits its trust ("" if nothing)
    is_default  tuning found nothing faster than the default
    expected_s  the time that was measured for it, None if unknown
    record      where it was read from, None for what is no record
    rule        the rule of the look-up that found it, or that ended it
    """

    config: Config | None
    origin: str
    trust: Trust = Trust.DEFAULT
    reason: str = ""
    is_default: bool = False
    expected_s: float | None = None
    record: Record | None = field(default=None, repr=False, compare=False)
    rule: str = field(default="", compare=False)

    def __bool__(self) -> bool:
        return self.config is not None


def objection_to(record: Record, task: Task, valid: Validator | None, *, is_wanted: bool = False) -> str:
    """Why a winner cannot be used for a task, "" if it can.

    is_wanted  whether the user has asked for it, whatever it was compared with
    """
    if reason := outdated(record, task, valid, is_wanted=is_wanted):
        return reason
    is_own = record.is_default and getattr(valid, "default", None) is not None  # what the task gets anyway
    return "" if is_own or valid is None else valid(record.config)


def outdated(record: Record, task: Task, valid: Validator | None, *, is_wanted: bool = False) -> str:
    """Why a winner's comparison is none with what the task gets without any record, "" if it is.

    Its template is another one now, or it was compared with another default than the task has. A validator may have
    `versions`, the current version of each template, and `default`, the task's own.
    """
    template, made = record.config.template, record.template_version
    now = getattr(valid, "versions", {}).get(template, made)
    if now != made:
        return f"recorded with version {made} of template '{template}', which is at {now}"
    default: Config | None = None if is_wanted else getattr(valid, "default", None)
    return "" if default is None else _other_default(record, default, task)


def _other_default(record: Record, default: Config, task: Task) -> str:
    """Why a winner says nothing about a default, "" if it does: it has beaten that, or is that.

    One for another number of threads is compared without the knob `threads`. What was compared with nothing, as a
    record from elsewhere, is somebody's wish.
    """
    beaten, used = record.default, record.config
    if beaten is None and record.baseline_s is None:
        return ""
    if record.threads != task.threads:
        default, used = default.without(THREADS), used.without(THREADS)
        beaten = beaten and beaten.without(THREADS)
    if default in (used, beaten):
        return ""
    if record.is_default:
        return f"the default was best, {record.config}, and is another one here: {default}"
    if beaten is None:
        return "it does not say which default it was faster than"
    return f"it was faster than the default {beaten}, and here that is {default}"


def miss(origin: str, reason: str) -> Found:
    """A look-up that found nothing usable."""
    return Found(None, origin, Trust.DEFAULT, reason)


def with_defaults(winners: Iterable[Record], trials: Callable[[], Iterable[Record]]) -> list[Record]:
    """Winners; those that do not say what they were compared with, with what their tuning's trials say.

    trials  their tasks' trials of defaults, in the order they were measured; asked for only where a winner needs them
    """
    found = list(winners)
    if all(record.default is not None or record.baseline_s is None for record in found):
        return found
    known: dict[str, list[Record]] = {}
    for trial in trials():
        if trial.is_default:
            known.setdefault(trial.workload.key, []).append(trial)

    def completed(record: Record) -> Record:
        alike, here = known.get(record.workload.key, ()), (record.device, record.threads)
        own = (t for t in alike if (t.device, t.threads) == here and t.time <= record.time)
        beaten = None if record.default is not None else next(reversed([trial.config for trial in own]), None)
        return record if beaten is None else record.having_beaten(beaten)

    return [completed(record) for record in found]


class RecordReader(Protocol):
    """Anything that knows good configurations."""

    def best(self, task: Task, valid: Validator | None = None) -> Found:
        """The configuration to use; one that `valid` objects to is a miss with that reason."""
        ...


class WinnerSource:
    """Base of readers that show their winners, so that a look-up can rank them itself.

    by_family  whether a device of the same family is near enough (shipped records)
    """

    origin: str = ""
    by_family: bool = False

    def origin_for(self, task: Task) -> str:
        """What reports call it."""
        return self.origin

    def winners_of(self, task: Task) -> Iterable[Record]:
        """The winners of the task's workload, of all devices."""
        raise NotImplementedError

    def winners_of_op(self, task: Task, op: str) -> Iterable[Record]:
        """The winners of all workloads of an operator."""
        raise NotImplementedError


class RecordStore(RecordReader, Protocol):
    """A reader that can also be written to."""

    def add(self, records: Sequence[Record]) -> int:
        """Store the records, all or none, and give how many were new."""
        ...

    def trials(self, task: Task) -> Iterator[Record]:
        """All records of the task on this device and with its threads, in the order they were measured."""
        ...

    def claim(self, task: Task, configs: Sequence[Config], lease_s: float) -> Sequence[Config]:
        """Lease configurations for so many seconds, and give those that this store may measure now.

        Not granted is what another store of the same database holds a lease of, and what has been measured. A lease
        that has expired goes to whom asks first; asking again prolongs one's own.
        """
        ...

    def release(self, task: Task | None = None) -> None:
        """Give this store's leases back, of one task or of all, for others to take."""
        ...

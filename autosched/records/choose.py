"""The one rule by which a winner is chosen from records of a task."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from autosched.records.found import Found, Trust, Validator, miss
from autosched.records.record import Record, host_id
from autosched.target import Fingerprint
from autosched.task import Task


@dataclass(frozen=True, slots=True)
class Match:
    """How near a record's device is: `level` 0 is the nearest; trust None means that it is foreign."""

    level: int
    trust: Trust | None


def match_device(record: Record, here: Fingerprint, by_family: bool) -> Match:
    """Same machine, same kind of machine (the number of cores aside), same family where that is enough, or foreign."""
    if record.device == here:
        return Match(0, Trust.HERE) if record.host == host_id() else Match(1, Trust.SAME_DEVICE)
    if replace(record.device, cores=here.cores) == here:
        return Match(2, Trust.SAME_DEVICE)
    if by_family and record.device.family == here.family:
        return Match(3, Trust.ELSEWHERE)
    return Match(9, None)


def choose(
    records: Iterable[Record], task: Task, origin: str, *, valid: Validator | None = None, by_family: bool = False
) -> Found:
    """The nearest, then latest winner for the task that `valid` has nothing against.

    Of several, one that was measured with the threads and the cache state that the task will run with comes first.

    records    of any workload, device and status; only winners of the task's workload count
    by_family  whether a device of the same family is near enough (shipped records)
    """
    here = task.target.fingerprint()
    foreign: set[str] = set()
    ranked: list[tuple[tuple[int, int, bool, float, str], Trust, Record]] = []
    for record in records:
        if not record.is_winner or record.workload != task.workload:
            continue
        match = match_device(record, here, by_family)
        if match.trust is None:
            foreign.add(record.device.model_name)
            continue
        other_cache = bool(task.cache) and record.measurement.how.get("cache", task.cache) != task.cache
        rank = (match.level, abs(record.threads - task.threads), other_cache, -record.time, record.uid)
        ranked.append((rank, match.trust, record))
    refusals: list[str] = []
    for _, trust, record in sorted(ranked, key=lambda entry: entry[0]):
        if valid is not None and (objection := valid(record.config)):
            refusals.append(f"invalid record: {objection}")
            continue
        return _hit(record, task, origin, trust)
    if refusals:
        return miss(origin, refusals[0])
    if foreign:
        return miss(origin, f"tuned on another device only ({', '.join(sorted(foreign))})")
    return miss(origin, "no record")


def _hit(record: Record, task: Task, origin: str, trust: Trust) -> Found:
    reason = ""
    if record.threads != task.threads:
        reason, trust = f"tuned with {record.threads} threads, not {task.threads}", max_trust(trust, Trust.NEAR)
    return Found(record.config, origin, trust, reason, record.is_default, record.measurement.median_s)


def max_trust(a: Trust, b: Trust) -> Trust:
    """The weaker one of two levels."""
    order = list(Trust)
    return max(a, b, key=order.index)

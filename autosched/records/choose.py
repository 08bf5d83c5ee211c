"""The one rule by which a winner is chosen from records of a task."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from autosched.records.found import Found, Trust, Validator, miss, objection_to
from autosched.records.record import Record, host_id
from autosched.space import Config
from autosched.target import Fingerprint
from autosched.task import Task


@dataclass(frozen=True, slots=True)
class Match:
    """A rung of the ladder from this device down: `level` 0 is the nearest; trust None means that it is foreign.

    reason  what a step down means, "" on the two top rungs
    """

    level: int
    trust: Trust | None
    reason: str = ""

    @property
    def is_wanted(self) -> bool:
        """Whether such devices are near enough only because the user says so."""
        return self.level == LIKE


LIKE = 5
FOREIGN = Match(9, None)
LATENCY, THROUGHPUT = "latency", "throughput"
Rank: TypeAlias = "tuple[int, int, bool, bool, float, str]"


def match_device(record: Record, here: Fingerprint, by_family: bool, like: str = "") -> Match:
    """How near the record's device is: this machine, its kind, its architecture and resources, its family, or foreign.

    by_family  whether a device of the same family and generation is near enough (shipped records): what is fastest
               on Zen 4 is slower than the default on Intel's AVX-512 and on Zen 5's (ResNet-18 takes 1.12 times as
               long, on two threads 1.2), whose units are twice as wide
    like       a family or a part of a device's name: such devices are near enough too
    """
    there = record.device
    if there == here:
        return Match(0, Trust.HERE) if record.host == host_id() else Match(1, Trust.SAME_DEVICE)
    if there.kind != here.kind:
        return FOREIGN
    if difference := there.difference(here):
        return Match(2, Trust.SAME_DEVICE, difference)
    if there.resources == here.resources:
        return Match(3, Trust.ELSEWHERE, f"tuned on {there.name}: same architecture and resources")
    is_known = bool(there.generation and here.generation)
    if by_family and there.family == here.family and (there.generation == here.generation or not is_known):
        return Match(4, Trust.ELSEWHERE, f"tuned on {there.name}: same family {there.family}")
    if like and (like == there.family or like.lower() in there.name.lower()):
        return Match(LIKE, Trust.ELSEWHERE, f"tuned on {there.name}, {there.family}: used as like {like}")
    return FOREIGN


def choose(
    records: Iterable[Record], task: Task, origin: str, *, valid: Validator | None = None, by_family: bool = False,
    like: str = "",
) -> Found:  # fmt: skip
    """The nearest, then latest winner for the task that nothing speaks against (`objection_to`); ties go by content.

    A winner that was the default stands for what is the default here.
    Of several, one that was measured with the threads, the use of the machine and the cache state that the task will
    run with comes first.

    records          of any workload, device and status; only winners of the task's workload count
    by_family, like  see `match_device`
    """
    here = task.target.fingerprint()
    foreign: set[str] = set()
    ranked: list[tuple[Rank, Match, Record]] = []
    for record in records:
        if not record.is_winner or record.workload != task.workload:
            continue
        match = match_device(record, here, by_family, like)
        if match.trust is None:
            foreign.add(record.device.name)
        else:
            ranked.append((rank_of(match, record, task), match, record))
    refusals: list[str] = []
    for _, match, record in sorted(ranked, key=lambda entry: entry[0]):
        if objection := objection_to(record, task, valid, is_wanted=match.is_wanted):
            refusals.append(f"invalid record: {objection}")
            continue
        return _hit(record, task, origin, match, valid)
    if refusals:
        return miss(origin, refusals[0])
    if foreign:
        return miss(origin, f"tuned on another device only ({', '.join(sorted(foreign))})")
    return miss(origin, "no record")


def rank_of(match: Match, record: Record, task: Task) -> Rank:
    """The order in which winners are tried: nearest device, nearest number of threads, what runs beside it, cache
    state, the latest.

    The rank ends with the record's content, so that the order in which records are stored never decides.
    """
    other_cache = bool(task.cache) and record.measurement.how.get("cache", task.cache) != task.cache
    other_use = measured_as(record) != (task.run_as or LATENCY)
    return match.level, abs(record.threads - task.threads), other_use, other_cache, -record.time, record.uid


def measured_as(record: Record) -> str:
    """What a record's time is: "throughput", beside other instances, or the "latency" of one alone."""
    return str(record.measurement.how.get("as", LATENCY))


def _hit(record: Record, task: Task, origin: str, match: Match, valid: Validator | None) -> Found:
    trust, reasons = match.trust or Trust.DEFAULT, [match.reason] if match.reason else []
    if record.is_noisy:
        reasons.append(
            f"its comparison with the default was uncertain by {record.noise:.0%}: tune again when nothing runs beside"
        )
        trust = max_trust(trust, Trust.NOISY)
    if record.threads != task.threads:
        reasons.append(f"tuned with {record.threads} threads, not {task.threads}")
        trust = max_trust(trust, Trust.NEAR)
    reason, seconds = "; ".join(reasons), record.measurement.median_s
    default: Config | None = getattr(valid, "default", None) if record.is_default else None
    return Found(default or record.config, origin, trust, reason, record.is_default, seconds, record)


def max_trust(a: Trust, b: Trust) -> Trust:
    """The weaker one of two levels."""
    order = list(Trust)
    return max(a, b, key=order.index)

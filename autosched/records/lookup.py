"""The look-up of a build: a list of named rules, asked in order; each may answer instead of those before it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from autosched.errors import AutoschedError, RecordError
from autosched.records.choose import choose, match_device
from autosched.records.found import Found, RecordReader, Trust, Validator, WinnerSource, miss, objection_to
from autosched.records.near import covers, distance_between
from autosched.records.record import Record
from autosched.target import Target
from autosched.task import Task
from autosched.version import __version__

Predictor = Callable[[Task, Record, float], float]  # task, a neighbour's winner, distance -> expected speed-up
TRUST_DISTANCE = 1.0  # one size twice or half as large, or several a little
LEAST_GAIN = 1.05  # expected over the default
MOST_NEIGHBOURS = 5


class Lookup:
    """What is known for the tasks of a build; `rules` says in which order it is looked for.

    reader     the sources of records, asked in their order
    like       use records of such devices where there are none of this one's: a family ("x86-64-v4"), a part of a
               device's name ("EPYC 9"), or a target, which stands for its family; "": only of devices like this one
    predict    how many times faster than the default a neighbour's configuration is expected to be; None: neighbours
               are not asked
    run_as     "throughput" or "latency": winners that were measured as the model will run come first; "": as tasks say
    is_strict  whether the build refuses what is not trusted
    """

    def __init__(
        self,
        reader: RecordReader,
        *,
        like: str = "",
        predict: Predictor | None = None,
        run_as: str = "",
        is_strict: bool = False,
    ):
        self.readers: tuple[RecordReader, ...] = (reader,)
        self.like = family_of(like) if like else ""
        self.predict, self.run_as, self.is_strict = predict, run_as, is_strict
        self.rules = tuple(rule for rule in RULES if rule.is_needed(self))
        self._winners: dict[tuple[int, str], list[Record]] = {}

    def best(self, task: Task, valid: Validator | None = None) -> Found:
        """The answer of the last rule that has one; it says by which rule it was found."""
        if self.run_as:
            task = dataclasses.replace(task, run_as=self.run_as)
        found = miss("", "no record")
        for rule in self.rules:
            answer = rule.find(self, task, valid, found)
            if answer is not None:
                is_nothing = not answer and answer.reason == "no record"
                found = answer if is_nothing else dataclasses.replace(answer, rule=rule.name)
        return found

    def winners_of_op(self, place: int, source: WinnerSource, task: Task) -> Sequence[Record]:
        """The winners of a source for the task's operator, asked for once."""
        key = place, task.workload.op
        if key not in self._winners:
            try:
                self._winners[key] = list(source.winners_of_op(task, task.workload.op))
            except RecordError:  # a neighbour is never needed; a damaged database has been reported before
                self._winners[key] = []
        return self._winners[key]


@dataclass(frozen=True)
class Rule:
    """One way to a configuration.

    find       gives the answer instead of the one so far; None where the rule has none
    is_needed  whether a look-up uses the rule
    """

    name: str
    find: Callable[[Lookup, Task, Validator | None, Found], Found | None]
    is_needed: Callable[[Lookup], bool] = lambda lookup: True


def _recorded(lookup: Lookup, task: Task, valid: Validator | None, found: Found) -> Found | None:
    """The winner for this very workload on this device, or on one that the source counts as such."""
    return lookup.readers[0].best(task, valid)


def _like_device(lookup: Lookup, task: Task, valid: Validator | None, found: Found) -> Found | None:
    """The winner on a device that the user has named as like this one."""
    for source in sources(lookup) if not found else ():
        winners, origin = source.winners_of(task), source.origin_for(task)
        foreign = choose(winners, task, origin, valid=valid, by_family=source.by_family, like=lookup.like)
        if foreign:
            return foreign
    return None


def _other_threads(lookup: Lookup, task: Task, valid: Validator | None, found: Found) -> Found | None:
    """No winner for another number of threads where the default is expected to be as fast with this one."""
    record = found.record
    if record is None or record.threads == task.threads or record.is_default or record.gain is None:
        return None
    assert lookup.predict is not None
    if lookup.predict(task, record, abs(math.log2(record.threads / task.threads))) >= LEAST_GAIN:
        return None
    return miss(found.origin, f"{found.reason}: no faster than the default is expected")


def _in_range(lookup: Lookup, task: Task, valid: Validator | None, found: Found) -> Found | None:
    """Where a range of sizes was tuned that the workload lies in: what the nearest of the sizes measured says."""
    if found or found.reason != "no record":
        return None
    refusals: list[Found] = []
    for _, origin, record in _neighbours(lookup, task, lambda record, _: covers(record, task.workload)):
        reason = f"tuned for a range of sizes that holds this one, here as at {record.workload}"
        if record.is_default:
            return Found(None, origin, Trust.NEAR, f"{reason}: the default is best", is_default=True)
        objection = objection_to(record, task, valid, is_wanted=_is_far_ahead(record))
        if not objection:
            return Found(record.config, origin, Trust.NEAR, reason, record=record)
        refusals.append(miss(origin, f"{reason}: {objection}"))
    return refusals[0] if refusals else None


def _is_far_ahead(record: Record) -> bool:
    """Whether a winner of this version was so far ahead of its default that another one nearby matters less."""
    is_current = record.versions.get("autosched") == __version__
    return is_current and record.default is not None and (record.gain or 1.0) >= LEAST_GAIN


def _near_shape(lookup: Lookup, task: Task, valid: Validator | None, found: Found) -> Found | None:
    """The nearest neighbour's winner that is expected to be worth it, for a workload without any record."""
    if found or found.reason != "no record":
        return None
    assert lookup.predict is not None
    for distance, origin, record in _neighbours(lookup, task, lambda _, distance: distance <= TRUST_DISTANCE):
        gain = lookup.predict(task, record, distance)
        if gain >= LEAST_GAIN and not objection_to(record, task, valid):
            reason = f"tuned for {record.workload}; {gain:.2f} times faster than the default is expected"
            return Found(record.config, origin, Trust.NEAR, reason, record=record)
    return None


def _asks_neighbours(lookup: Lookup) -> bool:
    return lookup.predict is not None


RULES = (
    Rule("its own record", _recorded),
    Rule("a device named as like this one", _like_device, lambda lookup: bool(lookup.like)),
    Rule("other threads", _other_threads, _asks_neighbours),
    Rule("a range of sizes", _in_range, _asks_neighbours),
    Rule("a near shape", _near_shape, _asks_neighbours),
)


def _neighbours(
    lookup: Lookup, task: Task, is_wanted: Callable[[Record, float], bool]
) -> list[tuple[float, str, Record]]:
    """(distance, origin, record) of the nearest winners of other sizes on as many threads, nearest device first."""
    here = task.target.fingerprint()
    ranked: list[tuple[tuple[object, ...], float, str, Record]] = []
    for place, source in enumerate(sources(lookup)):
        for record in lookup.winners_of_op(place, source, task):
            if record.threads != task.threads:
                continue
            distance = distance_between(task.workload, record.workload)
            if not 0 < distance < math.inf:
                continue
            match = match_device(record, here, source.by_family, lookup.like)
            if match.trust is not None and is_wanted(record, distance):
                rank = (distance, match.level, -record.time, record.uid)
                ranked.append((rank, distance, source.origin_for(task), record))
    return [entry[1:] for entry in sorted(ranked, key=lambda entry: entry[0])[:MOST_NEIGHBOURS]]


def family_of(like: str) -> str:
    """The family of a target's text; any other text as it is."""
    try:
        return Target(like).fingerprint().family
    except AutoschedError:
        return like


def parts(reader: object) -> Iterator[Any]:
    """A reader and all readers below it, in the order in which they are asked."""
    yield reader
    for part in getattr(reader, "readers", ()):
        yield from parts(part)


def sources(reader: object) -> Iterator[WinnerSource]:
    """The readers below a reader that show their winners."""
    return (part for part in parts(reader) if isinstance(part, WinnerSource))

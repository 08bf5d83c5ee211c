"""A neighbour's configuration for a shape that nobody has tuned, where more speed than the default's is expected."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autosched.errors import RecordError
from autosched.records.choose import match_device
from autosched.records.found import Found, RecordReader, Trust, Validator, miss, objection_to
from autosched.records.like import leaves
from autosched.records.record import Record
from autosched.task import Task, Workload

Predictor = Callable[[Task, Record, float], float]  # task, a neighbour's winner, distance -> expected speed-up
TRUST_DISTANCE = 1.0  # one size twice or half as large, or several a little
LEAST_GAIN = 1.05  # expected over the default
MOST_NEIGHBOURS = 5
RANGE = "range"  # in a winner's `how`: the least and largest sizes that it was chosen for, among those it was tuned at


class NearReader:
    """Another reader's answers; for a workload without any record, that of its nearest neighbour that is worth it.

    Where a range of sizes was tuned that the workload lies in, the nearest of the sizes measured says what is used.

    predict  what the driver expects of a neighbour's configuration: how many times faster than the default
    """

    def __init__(self, reader: RecordReader, predict: Predictor):
        self.reader, self.predict = reader, predict
        self._winners: dict[tuple[int, str], list[Record]] = {}

    @property
    def readers(self) -> tuple[RecordReader, ...]:
        """The readers below, for those who explain a look-up."""
        return tuple(getattr(self.reader, "readers", (self.reader,)))

    @property
    def like(self) -> str:
        """Which devices are taken for this one, "" for none."""
        return str(getattr(self.reader, "like", ""))

    def best(self, task: Task, valid: Validator | None = None) -> Found:
        """See `RecordReader`."""
        found = self.reader.best(task, valid)
        if found.record is not None and found.record.threads != task.threads:
            return self._for_other_threads(task, found, found.record)
        if found or found.reason != "no record":
            return found
        nearest = self._nearest(task, valid)
        return found if nearest is None else nearest

    def _for_other_threads(self, task: Task, found: Found, record: Record) -> Found:
        """The winner for another number of threads, unless the default is expected to be as fast with this one."""
        if record.is_default or record.gain is None:
            return found
        gain = self.predict(task, record, abs(math.log2(record.threads / task.threads)))
        if gain >= LEAST_GAIN:
            return found
        return miss(found.origin, f"{found.reason}: no faster than the default is expected")

    def _nearest(self, task: Task, valid: Validator | None) -> Found | None:
        here = task.target.fingerprint()
        ranked: list[tuple[tuple[Any, ...], float, str, Record]] = []
        in_range: list[tuple[tuple[Any, ...], str, Record]] = []
        for place, leaf in enumerate(leaves(self.reader)):
            origin = leaf.origin_for(task) if hasattr(leaf, "origin_for") else leaf.origin
            for record in self._winners_of(place, leaf, task):
                distance = distance_between(task.workload, record.workload)
                match = match_device(record, here, getattr(leaf, "by_family", False), self.like)
                if not 0 < distance < math.inf or match.trust is None or record.threads != task.threads:
                    continue
                rank = (distance, match.level, -record.time, record.uid)
                if covers(record, task.workload):
                    in_range.append((rank, origin, record))
                if distance <= TRUST_DISTANCE:
                    ranked.append((rank, distance, origin, record))
        for _, origin, record in sorted(in_range, key=lambda entry: entry[0])[:MOST_NEIGHBOURS]:
            reason = f"tuned for a range of sizes that holds this one, here as at {record.workload}"
            if record.is_default:
                return Found(None, origin, Trust.NEAR, f"{reason}: the default is best", is_default=True)
            if not objection_to(record, valid):
                return Found(record.config, origin, Trust.NEAR, reason)
        for _, distance, origin, record in sorted(ranked, key=lambda entry: entry[0])[:MOST_NEIGHBOURS]:
            gain = self.predict(task, record, distance)
            if gain >= LEAST_GAIN and not objection_to(record, valid):
                reason = f"tuned for {record.workload}; {gain:.2f} times faster than the default is expected"
                return Found(record.config, origin, Trust.NEAR, reason)
        return None

    def _winners_of(self, place: int, leaf: Any, task: Task) -> Sequence[Record]:
        """The winners of a reader for the task's operator, asked for once."""
        op = task.workload.op
        if (place, op) not in self._winners:
            try:
                found = list(leaf.winners_of_op(task, op)) if hasattr(leaf, "winners_of_op") else []
            except RecordError:  # a neighbour is never needed; a damaged database has been told of before
                found = []
            self._winners[place, op] = found
        return self._winners[place, op]


def distance_between(a: Workload, b: Workload) -> float:
    """How far apart two workloads are: the sizes' ratios as powers of two, summed; infinite if other things differ."""
    rest_a, sizes_a = _split(a)
    rest_b, sizes_b = _split(b)
    if rest_a != rest_b or len(sizes_a) != len(sizes_b):
        return math.inf
    pairs = [(x, y) for x, y in zip(sizes_a, sizes_b, strict=True) if x != y]
    if any(x < 1 or y < 1 for x, y in pairs):
        return math.inf
    return sum(abs(math.log2(x / y)) for x, y in pairs)


def covers(record: Record, workload: Workload) -> bool:
    """Whether a workload's sizes lie in the range that a winner was chosen for."""
    noted = record.measurement.how.get(RANGE)
    if not isinstance(noted, Mapping) or what_must_agree(record.workload) != what_must_agree(workload):
        return False
    low, high = noted.get("low"), noted.get("high")
    sizes = sizes_of(workload)
    if not isinstance(low, list | tuple) or not isinstance(high, list | tuple):
        return False
    bounds = [*low, *high]
    if not len(low) == len(high) == len(sizes) or any(type(bound) is not int for bound in bounds):
        return False
    return all(a <= size <= b for a, size, b in zip(low, sizes, high, strict=True))


def sizes_of(workload: Workload) -> tuple[int, ...]:
    """The sizes that may differ between neighbours."""
    return _split(workload)[1]


def what_must_agree(workload: Workload) -> tuple[Any, ...]:
    """All but the sizes."""
    return _split(workload)[0]


def _split(workload: Workload) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """What must be equal, and the sizes that may differ: the anchor's where it has some, else all of the shapes."""
    attrs = dict(workload.attrs)
    sizes = attrs.pop("sizes", None)
    ranks = tuple(len(shape) for shape in workload.shapes)
    rest = (workload.op, workload.dtypes, workload.epilogue, ranks, tuple(sorted(attrs.items())))
    if isinstance(sizes, tuple) and all(type(size) is int for size in sizes):
        return rest, tuple(int(size) for size in sizes if isinstance(size, int))
    return rest, tuple(extent for shape in workload.shapes for extent in shape)

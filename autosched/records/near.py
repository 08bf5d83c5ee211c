"""How near workloads are to each other, and which lie in the range of sizes that a winner was chosen for."""

from __future__ import annotations

import math
from collections.abc import Mapping

from autosched.records.record import Record
from autosched.task import Workload

RANGE = "range"  # in a winner's `how`: the least and largest sizes that it was chosen for, among those it was tuned at


def distance_between(a: Workload, b: Workload) -> float:
    """How far apart two workloads are: the sizes' ratios as powers of two, summed; infinite if other things differ."""
    if a.op != b.op or a.dtypes != b.dtypes or a.epilogue != b.epilogue:
        return math.inf
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


def what_must_agree(workload: Workload) -> tuple[object, ...]:
    """All but the sizes."""
    return _split(workload)[0]


def _split(workload: Workload) -> tuple[tuple[object, ...], tuple[int, ...]]:
    """What must be equal, and the sizes that may differ: the anchor's where it has some, else all of the shapes."""
    attrs = dict(workload.attrs)
    sizes = attrs.pop("sizes", None)
    ranks = tuple(len(shape) for shape in workload.shapes)
    rest = (workload.op, workload.dtypes, workload.epilogue, ranks, tuple(sorted(attrs.items())))
    if isinstance(sizes, tuple) and all(type(size) is int for size in sizes):
        return rest, tuple(int(size) for size in sizes if isinstance(size, int))
    return rest, tuple(extent for shape in workload.shapes for extent in shape)

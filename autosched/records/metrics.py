"""What a trial was measured by besides its time, and which trials no other one beats in everything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from autosched.records.record import Record
from autosched.task import Measurement
from autosched.task.trial import METRICS


def metrics_of(measurement: Measurement) -> Mapping[str, float]:
    """The numbers by name; none where none were measured."""
    found = measurement.how.get(METRICS)
    return found if isinstance(found, Mapping) else {}


def pareto(records: Iterable[Record]) -> list[Record]:
    """Of good records with metrics, the last one of each configuration, those that no other beats in everything.

    One record beats another that is nowhere better: neither in the median time nor in a metric that both have. The
    fastest one comes first. All records should be of one task.
    """
    last = {record.config: record for record in records if record.measurement.is_ok and metrics_of(record.measurement)}
    found = [one for one in last.values() if not any(_beats(other, one) for other in last.values())]
    return sorted(found, key=lambda record: record.measurement.median_s)


def _beats(one: Record, other: Record) -> bool:
    ours, theirs = ({"": record.measurement.median_s, **metrics_of(record.measurement)} for record in (one, other))
    pairs = [(ours[name], theirs[name]) for name in ours if name in theirs]
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)

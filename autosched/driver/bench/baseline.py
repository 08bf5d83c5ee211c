"""Compares a `bench` with an earlier one that was written to a file: the gate of a continuous integration."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autosched.driver.bench.entry import BenchReport
from autosched.errors import UsageError

if TYPE_CHECKING:
    from autosched.json_types import Json

KEYS = ("name", "threads", "batch")


@dataclass(frozen=True)
class Change:
    """How many times longer a row takes than it did; `interval` is that of both measurements together."""

    label: str
    ratio: float
    interval: float

    @property
    def text(self) -> str:
        percent = 100 * (self.ratio - 1)
        if abs(self.ratio - 1) <= self.interval:
            return f"{self.label}: no change found at ± {100 * self.interval:.1f} % ({percent:+.1f} %)"
        return f"{self.label}: {percent:+.1f} ± {100 * self.interval:.1f} %"

    def is_worse(self, limit: float) -> bool:
        """Whether it takes longer by more than a share, and by more than its interval."""
        return self.ratio - 1 > limit and self.ratio - 1 > self.interval


def read_baseline(path: Path) -> Mapping[str, Json]:
    """A report that `--export-json` or `-f json` wrote. Raises UsageError for anything else."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        rows = document["rows"]
        if not rows or not all(_is_usable(row) for row in rows):
            raise KeyError("rows")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UsageError(f"{path} holds no measurements", hint="write it with bench --export-json") from None
    found: Mapping[str, Json] = document
    return found


def _is_usable(row: Mapping[str, Json]) -> bool:
    times = (row["median_s"], row["interval_s"])
    return "name" in row and all(isinstance(t, int | float) and math.isfinite(t) for t in times) and times[0] > 0


def compare_with_baseline(report: BenchReport, baseline: Mapping[str, Json]) -> tuple[list[Change], list[str]]:
    """(changes of the rows that both have, warnings). Raises UsageError where they share no row."""
    before = {_key(row): row for row in baseline["rows"]}
    shared = [row for row in report.rows if _key(row) in before]
    if not shared:
        raise UsageError("the baseline has none of these programs", hint=f"it has {', '.join(_labels(before))}")
    warnings = []
    if baseline.get("environment") != report.environment:
        warnings.append(f"the baseline is from another machine: {baseline.get('environment')}")
    if missing := [_label(row) for row in report.rows if _key(row) not in before]:
        warnings.append(f"not in the baseline: {', '.join(missing)}")
    return [_change(row, before[_key(row)]) for row in shared], warnings


def _change(now: Mapping[str, Json], before: Mapping[str, Json]) -> Change:
    relative = math.hypot(now["interval_s"] / now["median_s"], before["interval_s"] / before["median_s"])
    ratio = now["median_s"] / before["median_s"]
    return Change(_label(now), ratio, ratio * relative)


def _key(row: Mapping[str, object]) -> tuple[object, ...]:
    return tuple(row.get(key) for key in KEYS)


def _label(row: Mapping[str, object]) -> str:
    batch = f", batch {row['batch']}" if row.get("batch") is not None else ""
    threads = row.get("threads")
    return f"{row['name']} ({threads} thread{'s' if threads != 1 else ''}{batch})"


def _labels(rows: Mapping[tuple[object, ...], Mapping[str, object]]) -> Sequence[str]:
    return [_label(row) for row in rows.values()]

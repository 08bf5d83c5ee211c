"""A task's trials by columns, each value once: ten thousand trials take some hundred kilobytes in the page."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from autosched.records.record import Record

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def trial_columns(trials: Sequence[tuple[int, Record]]) -> dict[str, Any]:
    """Numbers and times in ms (None for a failure) in the trials' order, and coded columns.

    n  None where the numbers are 1, 2, 3, …
    A coded column is {name, values, codes}: trial i has values[codes[i]], None where it has none. The codes are a list,
    or a text with a digit to the base 36 for each trial; without them all trials have the first value.
    """
    records, numbers = [record for _, record in trials], [number for number, _ in trials]
    names = list(dict.fromkeys(name for record in records for name in record.config.knobs))
    return {
        "n": None if numbers == list(range(1, len(numbers) + 1)) else numbers,
        "ms": [_ms(record) for record in records],
        "status": _coded("status", (str(record.measurement.status) for record in records)),
        "mark": _coded("mark", map(_mark, records)),
        "knobs": [
            _coded("template", (record.config.template for record in records)),
            *(_coded(name, (_plain(record.config.knobs.get(name)) for record in records)) for name in names),
        ],
    }


def _coded(name: str, values: Iterable[Any]) -> dict[str, Any]:
    """Distinct values in their order of appearance, and each trial's number among them."""
    numbers: dict[tuple[type, Any], int] = {}  # 1 and True are two values
    codes = [numbers.setdefault((type(value), value), len(numbers)) for value in values]
    found: dict[str, Any] = {"name": name, "values": [value for _, value in numbers]}
    if len(numbers) > 1:
        found["codes"] = "".join(map(DIGITS.__getitem__, codes)) if len(numbers) <= len(DIGITS) else codes
    return found


def _ms(record: Record) -> float | None:
    measurement = record.measurement
    return float(f"{measurement.median_s * 1e3:.4g}") if measurement.is_ok else None


def _mark(record: Record) -> str:
    return "winner" if record.is_winner else "default" if record.is_default else ""


def _plain(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, bool | tuple) else value

"""A task's trials by columns, each value once: ten thousand trials take some hundred kilobytes in the page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from autosched.records.record import Record

if TYPE_CHECKING:
    from autosched.json_types import Json, JsonObject

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def trial_columns(trials: Sequence[tuple[int, Record]], passed: Callable[[float], float]) -> JsonObject:
    """Numbers and times in ms (None for a failure) in the trials' order, and coded columns.

    passed  from a record's time to the seconds of tuning until then, which are the column `s`
    n  None where the numbers are 1, 2, 3, …
    A coded column is {name, values, codes}: trial i has values[codes[i]], None where it has none. The codes are a list,
    or a text with a digit to the base 36 for each trial; without them all trials have the first value.
    """
    records, numbers = [record for _, record in trials], [number for number, _ in trials]
    names = list(dict.fromkeys(name for record in records for name in record.config.knobs))
    return {
        "n": None if numbers == list(range(1, len(numbers) + 1)) else numbers,
        "ms": [_ms(record) for record in records],
        "s": [round(passed(record.time), 1) for record in records],
        "status": _coded("status", (str(record.measurement.status) for record in records)),
        "mark": _coded("mark", map(_mark, records)),
        "knobs": [
            _coded("template", (record.config.template for record in records)),
            *(_coded(name, (_plain(record.config.knobs.get(name)) for record in records)) for name in names),
        ],
    }


def _coded(name: str, values: Iterable[object]) -> JsonObject:
    """Distinct values in order, and each trial's number among them."""
    typed = [(type(value).__name__, value) for value in values]  # 1 and True are two values
    numbers = {value: number for number, value in enumerate(sorted(set(typed), key=_order))}
    codes = [numbers[value] for value in typed]
    found: JsonObject = {"name": name, "values": [value for _, value in numbers]}
    if len(numbers) > 1:
        found["codes"] = "".join(map(DIGITS.__getitem__, codes)) if len(numbers) <= len(DIGITS) else codes
    return found


def _order(typed: tuple[str, object]) -> tuple[object, ...]:
    kind, value = typed
    return (kind,) if value is None else (kind, value)


def pooled(document: JsonObject) -> JsonObject:
    """The document with each name and list of values of a coded column once, in `columns`: many tasks share them.

    A coded column becomes [its place in `columns`, its codes], the codes left out where it has none.
    """
    places: dict[str, int] = {}

    def pool(column: JsonObject) -> list[Json]:
        text = json.dumps([column["name"], column["values"]])
        return [places.setdefault(text, len(places)), *([column["codes"]] if "codes" in column else [])]

    def pool_task(task: JsonObject) -> JsonObject:
        trials = task["trials"]
        coded = {name: pool(trials[name]) for name in ("status", "mark")}
        return task | {"trials": trials | coded | {"knobs": list(map(pool, trials["knobs"]))}}

    tasks = list(map(pool_task, document["tasks"]))
    return document | {"tasks": tasks, "columns": list(map(json.loads, places))}


def fitted(document: JsonObject, most_bytes: int) -> JsonObject:
    """A pooled document whose lightest tasks have lost their trials where it was larger than so many bytes.

    Sources count too, and stay: somebody has asked for them.
    """
    tasks, excess = list(document["tasks"]), len(plain_json(document)) - most_bytes
    for place in range(len(tasks) - 1, 0, -1):  # the heaviest one keeps its trials whatever they take
        if excess <= 0:
            break
        excess -= len(plain_json(tasks[place]["trials"])) - len("null")
        tasks[place] = tasks[place] | {"trials": None}
    return document | {"tasks": tasks}


def plain_json(document: object) -> str:
    """JSON text as short as it gets."""
    return json.dumps(document, separators=(",", ":"), allow_nan=False)


def _ms(record: Record) -> float | None:
    measurement = record.measurement
    return float(f"{measurement.median_s * 1e3:.4g}") if measurement.is_ok else None


def _mark(record: Record) -> str:
    return "winner" if record.is_winner else "default" if record.is_default else ""


def _plain(value: object) -> object:
    return json.dumps(value) if isinstance(value, bool | tuple) else value

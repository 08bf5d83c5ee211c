"""Kernel Tuner's cache files as records of a foreign device: kept and shown, never used by a build; and written.

Source  Kernel Tuner 1.x, `doc/source/cache_files.rst`: one JSON object with device_name, kernel_name, problem_size,
        tune_params_keys and "cache": {"32,4": {the parameters, "time": ms or the name of an error, "times": [ms, …]}}.
        A run that still goes on, or was killed, leaves the closing braces out.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autosched.errors import AutoschedError, RecordError
from autosched.records.autotvm_log import foreign_device
from autosched.records.jsonl import LineError, ReadReport
from autosched.records.record import Record, check_plain
from autosched.space import Config
from autosched.task import Measurement, Status, Workload

if TYPE_CHECKING:
    from autosched.json_types import Json, JsonObject

LARGEST_BYTES = 1 << 29
STATUSES = {
    "InvalidConfig": Status.INVALID,
    "CompilationFailedConfig": Status.BUILD_ERROR,
    "RuntimeFailedConfig": Status.RUN_ERROR,
}


ERRORS = {
    Status.INVALID: "InvalidConfig",
    Status.BUILD_ERROR: "CompilationFailedConfig",
    Status.BUILD_TIMEOUT: "CompilationFailedConfig",
}


def is_kernel_tuner(head: bytes) -> bool:
    """Whether a file begins like a cache file of Kernel Tuner's."""
    return b'"device_name"' in head and b'"kernel_name"' in head


def read_cache(path: Path, report: ReadReport) -> Iterator[Record]:
    """The records of a cache file; entries that are refused go into the report, numbered from 1.

    Raises  RecordError if the file cannot be read or is no cache file.
    """
    document = _decode(whole_text(path, "cache file"), path)
    for number, (key, entry) in enumerate(document["cache"].items(), start=1):
        report.read += 1
        try:
            yield _record(document, entry)
        except AutoschedError as error:
            report.refused.append(LineError(number, f"'{key[:40]}': {error}"))
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            report.refused.append(LineError(number, f"'{key[:40]}': {type(error).__name__} {error}"))


def whole_text(path: Path, what: str) -> str:
    """The text of a file that is read in one piece. Raises RecordError that calls it `what`."""
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise RecordError(f"a {what} of more than {LARGEST_BYTES >> 20} MiB", where=str(path))
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise RecordError(f"cannot read the {what}: {error.strerror}", where=str(path)) from None
    except UnicodeDecodeError:
        raise RecordError(f"the {what} is not text in UTF-8", where=str(path)) from None


def _decode(text: str, path: Path) -> JsonObject:
    for tail in ("", "}}", "}"):  # a cache that was not closed ends with a comma
        try:
            document = json.loads((text.rstrip().rstrip(",") if tail else text) + tail)
        except (ValueError, RecursionError):
            continue
        names = ("device_name", "kernel_name")
        if not isinstance(document, dict) or not all(isinstance(document.get(name), str) for name in names):
            break
        if not isinstance(document.get("cache"), dict) or not isinstance(document.get("tune_params_keys"), list):
            break
        return document
    raise RecordError("not a cache file of Kernel Tuner's", where=str(path))


def _record(document: Mapping[str, Json], entry: Json) -> Record:
    check_plain(entry)
    size = document.get("problem_size", [])
    sizes = size if isinstance(size, list) else [size]
    attrs = {"problem_size": tuple(n if isinstance(n, int) else str(n) for n in sizes)}
    knobs = {str(name): read_knob(entry[name]) for name in document["tune_params_keys"]}
    return Record(
        Workload(document["kernel_name"], (), (), attrs),
        Config(f"kernel_tuner {document['kernel_name']}", knobs),
        _measurement(entry),
        foreign_device("kernel_tuner", document["device_name"]),
        time=moment(entry.get("timestamp")),
    )


def read_knob(value: object) -> int | str | bool:
    """A parameter's value as a knob's: what is neither number nor text becomes its JSON text."""
    return value if isinstance(value, int | str) else json.dumps(value)


def _measurement(entry: Mapping[str, Json]) -> Measurement:
    how = {"source": "Kernel Tuner", "entry": json.dumps(entry, separators=(",", ":"), allow_nan=False)}
    time_ms = entry["time"]
    if isinstance(time_ms, str):
        name = entry.get("__error__", time_ms)
        return Measurement(STATUSES.get(str(name), Status.RUN_ERROR), error=str(name), how=how)
    times = entry.get("times") or [time_ms]
    if not all(isinstance(t, int | float) and not isinstance(t, bool) for t in times):
        raise RecordError("times that are no numbers")
    return Measurement(Status.OK, tuple(t / 1e3 for t in times), how=how)


def moment(text: Json) -> float:
    """The seconds since 1970 of a time as text, 0 where there is none that can be read."""
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except (ValueError, TypeError, OverflowError, OSError):
        return 0.0  # older versions wrote none


def timestamp(seconds: float) -> str:
    """A time as the text that other tuners write."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat()


def shown_knobs(config: Config) -> dict[str, int | str | bool]:
    """A configuration as parameters, its template's name among them; a tuple becomes text."""
    knobs = {n: "x".join(map(str, v)) if isinstance(v, tuple) else v for n, v in config.knobs.items()}
    return {"template_name": config.template, **knobs}


def to_cache(records: Sequence[Record]) -> JsonObject:
    """The cache file of one task's records, one of each configuration; a knob that a template lacks is "" there."""
    rows = [(shown_knobs(record.config), record) for record in records]
    names = list(dict.fromkeys(name for knobs, _ in rows for name in knobs))
    full = [({name: knobs.get(name, "") for name in names}, record) for knobs, record in rows]
    first = records[0]
    sizes = [extent for shape in first.workload.shapes for extent in shape]
    return {
        "schema_version": "1.0.0",
        "device_name": f"{first.device.name}, {first.threads} threads",
        "kernel_name": str(first.workload),
        "problem_size": sizes,
        "tune_params_keys": names,
        "tune_params": {name: sorted({knobs[name] for knobs, _ in full}, key=_order) for name in names},
        "objective": "time",
        "cache": {",".join(str(v) for v in knobs.values()): {**knobs, **_outcome(record)} for knobs, record in full},
    }


def _order(value: int | str | bool) -> tuple[bool, int, str]:
    return (True, 0, value) if isinstance(value, str) else (False, value, "")


def _outcome(record: Record) -> JsonObject:
    """How a configuration fared, with the fields that every entry of a cache has; times in ms."""
    measured = record.measurement
    others = dict.fromkeys(("verification_time", "benchmark_time", "strategy_time", "framework_time"), 0.0)
    return {
        "time": 1e3 * measured.median_s if measured.is_ok else ERRORS.get(measured.status, "RuntimeFailedConfig"),
        "times": [1e3 * t for t in measured.times_s],
        "compile_time": 1e3 * float(measured.how.get("build_s", 0.0)),
        **others,
        "timestamp": timestamp(record.time),
    }

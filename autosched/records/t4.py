"""Result files in the T4 format, which several tuners write: read as records of a foreign device, and written.

Source  T4 results schema 1.0.0 (TuningSchema) as Kernel Tuner's `store_output_file` writes it: {"schema_version": …,
        "results": [{"timestamp", "configuration": {name: value}, "invalidity": "correct", "timeout", "compile",
        "runtime", "correctness" or "constraints", "measurements": [{"name", "value", "unit"}], "objectives": [name],
        "times": {"compilation": ms, "runtimes": [ms, …], …}}]}. It names neither kernel nor device: the file does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autosched.errors import AutoschedError, RecordError
from autosched.records.autotvm_log import foreign_device
from autosched.records.jsonl import LineError, ReadReport
from autosched.records.kernel_tuner import moment, read_knob, shown_knobs, timestamp, whole_text
from autosched.records.record import Record, check_plain
from autosched.space import Config
from autosched.task import Measurement, Status, Workload

if TYPE_CHECKING:
    from autosched.json_types import Json, JsonObject

VERSION = "1.0.0"
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
STATUSES = {
    "timeout": Status.TIMEOUT,
    "compile": Status.BUILD_ERROR,
    "runtime": Status.RUN_ERROR,
    "correctness": Status.WRONG_RESULT,
    "constraints": Status.INVALID,
}
INVALIDITIES = {status: name for name, status in STATUSES.items()} | {
    Status.OK: "correct",
    Status.NON_FINITE: "correctness",
    Status.BUILD_TIMEOUT: "compile",
}


def is_t4(head: bytes) -> bool:
    """Whether a file begins like a T4 result file."""
    return b'"results"' in head and b'"configuration"' in head


def read_t4(path: Path, report: ReadReport) -> Iterator[Record]:
    """The records of a result file; results that are refused go into the report, numbered from 1.

    Raises  RecordError if the file cannot be read or is no result file.
    """
    text = whole_text(path, "T4 file")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or not isinstance(document.get("results"), list):
        raise RecordError("not a result file of T4", where=str(path))
    name = path.stem.encode("utf-8", "replace").decode("utf-8")
    for number, result in enumerate(document["results"], start=1):
        report.read += 1
        try:
            yield _record(name, result)
        except AutoschedError as error:
            report.refused.append(LineError(number, str(error)))
        except (ValueError, TypeError, KeyError, IndexError, OverflowError, AttributeError) as error:
            report.refused.append(LineError(number, f"{type(error).__name__} {error}"))


def _record(name: str, result: Json) -> Record:
    check_plain(result)
    knobs = {str(knob): read_knob(value) for knob, value in result["configuration"].items()}
    return Record(
        Workload(name, (), ()),
        Config(f"t4 {name}", knobs),
        _measurement(result),
        foreign_device("t4", "unknown device"),
        time=moment(result.get("timestamp")),
    )


def _measurement(result: Mapping[str, Json]) -> Measurement:
    how = {"source": "T4", "entry": json.dumps(result, separators=(",", ":"), allow_nan=False)}
    invalidity = result["invalidity"]
    if invalidity != "correct":
        return Measurement(STATUSES.get(str(invalidity), Status.RUN_ERROR), error=str(invalidity), how=how)
    objective = result["objectives"][0]
    found = next((m for m in result["measurements"] if m["name"] == objective), None)
    if found is None or found.get("unit") not in SECONDS or type(found["value"]) not in (int, float):
        raise RecordError(f"the objective {objective!r:.40} is no time")
    return Measurement(Status.OK, (found["value"] * SECONDS[found["unit"]],), how=how)


def to_t4(records: Sequence[Record]) -> JsonObject:
    """The result file of one task's records, one of each configuration."""
    return {"schema_version": VERSION, "results": [_result(record) for record in records]}


def _result(record: Record) -> JsonObject:
    measured = record.measurement
    times_ms = [1e3 * t for t in measured.times_s]
    time_ms = [{"name": "time", "value": 1e3 * measured.median_s, "unit": "ms"}] if measured.is_ok else []
    return {
        "timestamp": timestamp(record.time),
        "configuration": shown_knobs(record.config),
        "times": {
            "compilation": 1e3 * float(measured.how.get("build_s", 0.0)),
            "benchmark": sum(times_ms),
            "framework": 0.0,
            "search_algorithm": 0.0,
            "validation": 0.0,
            "runtimes": times_ms,
        },
        "invalidity": INVALIDITIES.get(measured.status, "runtime"),
        "correctness": int(measured.status not in (Status.WRONG_RESULT, Status.NON_FINITE)),
        "measurements": time_ms,
        "objectives": ["time"],
    }

"""AutoTVM's log lines, version 0.2, as records of a foreign device: kept and shown, never used by a build.

Source  TVM 0.9, `autotvm/record.py`: {"input": [target, task, args, kwargs],
        "config": {"entity": [[name, kind, value]]}, "result": [costs, error number, seconds in all, time],
        "version": 0.2}
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from autosched.errors import AutoschedError, RecordError
from autosched.records.record import Record, check_plain
from autosched.space import Config
from autosched.target import CpuFingerprint, Fingerprint
from autosched.task import Measurement, Status, Workload

if TYPE_CHECKING:
    from autosched.json_types import Json, JsonObject

STATUSES = {
    0: Status.OK,
    1: Status.INVALID,
    2: Status.BUILD_ERROR,
    3: Status.BUILD_ERROR,
    4: Status.RUN_ERROR,
    5: Status.WRONG_RESULT,
    6: Status.BUILD_TIMEOUT,
    7: Status.TIMEOUT,
    8: Status.RUN_ERROR,
}


def is_autotvm(document: object) -> bool:
    """Whether a decoded line is one of AutoTVM's, of whatever version."""
    return isinstance(document, dict) and ("v" in document or {"input", "result"} <= document.keys())


def from_autotvm(document: JsonObject) -> Record:
    """The record of a decoded line; the line itself is kept in `how`. Raises RecordError with the reason."""
    if document.get("version") != 0.2:
        version = document.get("version", document.get("v"))
        raise RecordError(f"AutoTVM's log version {version!r:.20}, not 0.2")
    check_plain(document)
    try:
        (target, task, args, _), (costs, error_no, _, when) = document["input"], document["result"]
        measurement = _measurement(costs, error_no, document)
        return Record(
            _workload(task, args),
            Config(f"autotvm {task}", dict(_knobs(document["config"]["entity"]))),
            measurement,
            foreign_device("autotvm", _text(target)),
            time=float(when),
            versions={"tvm": str(document.get("tvm_version", ""))},
        )
    except AutoschedError as error:
        raise RecordError(f"AutoTVM's line: {error}") from None
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, AttributeError) as error:
        raise RecordError(f"no line of AutoTVM's: {type(error).__name__} {error}") from None


def foreign_device(source: str, name: str) -> Fingerprint:
    """A device that another tuner has named and nothing else is known of: it equals no device of ours."""
    nothing = dict.fromkeys(("cpu_family", "vector_bits", "l1_bytes", "l2_bytes", "l3_bytes", "cores"), 0)
    return CpuFingerprint(vendor=source, model_name=name, isa_level=source, **nothing)


def _measurement(costs: Json, error_no: Json, document: JsonObject) -> Measurement:
    if type(error_no) is not int or error_no not in STATUSES:
        raise RecordError(f"error number {error_no!r:.20}")
    how = {"source": "AutoTVM 0.2", "line": json.dumps(document, separators=(",", ":"), allow_nan=False)}
    status = STATUSES[error_no]
    if status is not Status.OK:
        return Measurement(status, error=f"AutoTVM's error number {error_no}", how=how)
    if not all(isinstance(cost, float | int) and not isinstance(cost, bool) for cost in costs):
        raise RecordError("costs that are no numbers")
    return Measurement(status, tuple(costs), how=how)


def _workload(task: object, args: Sequence[object]) -> Workload:
    """Tensors give shapes and types, in order; other arguments are attributes named by their place."""
    dtypes: list[str] = []
    shapes: list[tuple[int, ...]] = []
    attrs: JsonObject = {}
    for place, arg in enumerate(args):
        if isinstance(arg, list) and len(arg) == 3 and arg[0] == "TENSOR":
            shapes.append(tuple(map(_extent, arg[1])))
            dtypes.append(_text(arg[2]))
        else:
            attrs[f"arg{place}"] = arg
    return Workload(_text(task), tuple(dtypes), tuple(shapes), attrs)


def _knobs(entities: Sequence[Json]) -> Iterator[tuple[str, Json]]:
    for name, kind, value in entities:
        if kind in ("sp", "re"):
            yield _text(name), tuple(map(_whole, value))
        elif kind == "an":
            yield _text(name), ",".join(map(_text, value))
        elif kind == "ot":
            yield _text(name), value if isinstance(value, str | int) else json.dumps(value)
        else:
            raise RecordError(f"an entity of kind {kind!r:.20}")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise RecordError(f"text was expected, not {value!r:.20}")
    return value


def _whole(value: object) -> int:
    if type(value) is not int:
        raise RecordError(f"a whole number was expected, not {value!r:.20}")
    return value


def _extent(value: Json) -> int:
    if _whole(value) < 0:
        raise RecordError(f"a size of {value}")
    return int(value)

"""AutoTVM's log lines: one measurement a line, in JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from io import TextIOBase
from pathlib import Path
from typing import Any

import numpy as np

from autosched.autotvm.measure.types import MeasureInput, MeasureResult
from autosched.autotvm.task.space import ConfigEntity
from autosched.autotvm.task.task import Task
from autosched.errors import InvalidValueError, RecordError
from autosched.lazy_names import lazy_names
from autosched.target import Target

AUTOTVM_LOG_VERSION = 0.2
TVM_VERSION = "0.9.0"  # whose lines these are
ERROR_COST = 1e9
logger = logging.getLogger("autotvm")
_old_version_warning = True
__getattr__, __dir__ = lazy_names(__name__)


def measure_str_key(inp: MeasureInput, include_config: bool = True) -> str:
    """A text that is the same for the same measurement."""
    config = str(inp.config) if include_config else ""
    return "".join([str(inp.target), str(inp.task.name), str(inp.task.args), str(inp.task.kwargs), config])


def encode(inp: MeasureInput, result: MeasureResult, protocol: str = "json") -> str:
    """A measurement as a line. Raises InvalidValueError for another protocol than "json"."""
    if protocol != "json":
        raise InvalidValueError(f"Invalid log protocol: {protocol}", hint='lines are "json"')
    costs = result.costs if result.error_no == 0 else (ERROR_COST,)
    line = {
        "input": [str(inp.target), inp.task.name, inp.task.args, inp.task.kwargs],
        "config": inp.config.to_json_dict(),
        "result": [list(costs), int(result.error_no), result.all_cost, result.timestamp],
        "version": AUTOTVM_LOG_VERSION,
        "tvm_version": TVM_VERSION,
    }
    return json.dumps(line)


def _tuples(value: object) -> Any:
    return tuple(_tuples(x) for x in value) if isinstance(value, list) else value


def decode(row: str, protocol: str = "json") -> tuple[MeasureInput, MeasureResult] | None:
    """A line's measurement; None for a line of version 0.1. Raises RecordError for a malformed line."""
    global _old_version_warning
    if protocol != "json":
        raise InvalidValueError(f"Invalid log protocol: {protocol}", hint='lines are "json"')
    try:
        content = json.loads(row)
        if content.get("v") == 0.1:
            if _old_version_warning:
                logger.warning("AutoTVM log version 0.1 is no longer supported.")
                _old_version_warning = False
            return None
        target, name, args, kwargs = content["input"]
        config = ConfigEntity.from_json_dict(content["config"])
        costs, error_no, all_cost, timestamp = content["result"]
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise RecordError(f"malformed AutoTVM log line ({error})", where=row[:80]) from None
    chosen = Target(str(target))
    task = Task(str(name), _tuples(args))
    task.kwargs, task.target = dict(kwargs), chosen
    config.cost = float(np.mean(costs))
    result = MeasureResult(tuple(_tuples(c) for c in costs), int(error_no), float(all_cost), float(timestamp))
    return MeasureInput(chosen, task, config), result


def load_from_file(filepath: str | Path | TextIOBase) -> Iterator[tuple[MeasureInput, MeasureResult]]:
    """The measurements of a log; comments and empty lines are passed over. Raises InvalidValueError without file."""
    if isinstance(filepath, TextIOBase) or hasattr(filepath, "readline"):
        yield from _rows(filepath)  # type: ignore[arg-type]
        return
    if not Path(filepath).is_file():  # type: ignore[arg-type]
        raise InvalidValueError(f"file {filepath} does not exist")
    with open(filepath) as file:  # type: ignore[arg-type]
        yield from _rows(file)


def _rows(lines: Iterable[str]) -> Iterator[tuple[MeasureInput, MeasureResult]]:
    for row in lines:
        if row.strip() and not row.startswith("#"):
            found = decode(row)
            if found is not None:
                yield found


def is_log(path: str | Path) -> bool:
    """Whether a file is a log of AutoTVM: its first line that is no comment says so. A missing file is."""
    try:
        with open(path) as file:
            for row in file:
                if row.strip() and not row.startswith("#"):
                    content = json.loads(row)
                    return isinstance(content, dict) and "input" in content and "config" in content
    except FileNotFoundError:
        return True
    except (OSError, ValueError, RecursionError):
        return False
    return True


def split_workload(in_file: str, clean: bool = True) -> None:
    """Write a log's lines to one file per workload, beside it; `clean` leaves out measurements that occur twice."""
    groups: dict[str, list[tuple[MeasureInput, MeasureResult]]] = {}
    for inp, res in load_from_file(in_file):
        groups.setdefault(measure_str_key(inp, include_config=False), []).append((inp, res))
    for number, pairs in enumerate(groups.values()):
        seen: set[str] = set()
        with open(f"{in_file}.{number:03d}.wkl", "w") as file:
            for inp, res in pairs:
                key = measure_str_key(inp)
                if not (clean and key in seen):
                    file.write(encode(inp, res) + "\n")
                seen.add(key)

"""The quick way to read a line that `Record.line` has written: part by part, as most parts are the same in many lines.

Each part is proved to be canonical JSON text of what belongs there, so a line that is taken here is one that the
thorough way (`from_document`) takes too, with the same record; any other line is left to that.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from autosched.errors import AutoschedError
from autosched.records.record import (
    DUMP,
    MOST_NESTED,
    MOST_THREADS,
    Record,
    check_plain,
    details_text,
    device_text,
    is_small,
    read_fingerprint,
    read_workload,
)  # fmt: skip
from autosched.space import Config
from autosched.target import Fingerprint
from autosched.task import Measurement, Status, Workload

# What stands between the parts, in order
MARKS = (
    ',"config":', ',"device":', ',"error":', ',"host":', ',"how":', ',"is_default":', ',"is_winner":',
    ',"schema":1,"session":', ',"status":', ',"threads":', ',"time":', ',"times_s":', ',"versions":', ',"workload":',
)  # fmt: skip
START = '{"checked_against":'


def _refuse(text: str) -> float:
    raise ValueError(text)


_DECODE = json.JSONDecoder(parse_constant=_refuse).decode  # once: json.loads makes one each time
LONGEST_PART = 20_000  # what is kept in memory for the next line
FLAGS = {"true": True, "false": False}
STATUSES = {f'"{status}"': status for status in Status}


def read_canonical(text: str) -> Record | None:
    """The record of a canonical line; None for any other text."""
    parts = _split(text)
    if parts is None:
        return None
    try:
        (
            checked,
            config,
            device,
            error,
            host,
            how,
            default,
            winner,
            session,
            status,
            threads,
            time,
            times,
            versions,
            workload,
        ) = parts
        measurement = Measurement(STATUSES[status], _times(times), _word(checked), _word(error), dict(_object(how)))
        record = Record(
            _workload(workload), _config(config), measurement, _device(device), threads=_threads(threads),
            time=_float(time), host=_name(host), session=_name(session), versions=_versions(versions),
            is_default=FLAGS[default], is_winner=FLAGS[winner],
        )  # fmt: skip
    except (AutoschedError, ValueError, KeyError, RecursionError):
        return None
    record.__dict__["line"] = text
    record.__dict__["details"] = details_text(times, checked, error, how, versions)
    return record


def _split(text: str) -> list[str] | None:
    """The texts of the parts. A mark may also stand inside a part: then that part is no JSON, and is refused later."""
    if not (text.startswith(START) and text.endswith("}")):
        return None
    parts, position = [], len(START)
    for mark in MARKS:
        end = text.find(mark, position)
        if end < 0 or end - position > LONGEST_PART:
            return None
        parts.append(text[position:end])
        position = end + len(mark)
    parts.append(text[position:-1])
    return parts if len(parts[-1]) <= LONGEST_PART else None


def _load(text: str) -> Any:
    """A JSON value whose canonical text this is. Raises ValueError, RecordError, RecursionError."""
    value = _DECODE(text)
    check_plain(value, MOST_NESTED - 1)
    if DUMP(value) != text:
        raise ValueError("not canonical")
    return value


@lru_cache(maxsize=1024)
def _word(text: str) -> str:
    value = _load(text)
    if type(value) is not str:
        raise ValueError("no text")
    return value


@lru_cache(maxsize=1024)
def _name(text: str) -> str:
    if "\\u0000" in text:
        raise ValueError("left to the thorough way")
    return _word(text)


@lru_cache(maxsize=1024)
def _object(text: str) -> Mapping[str, Any]:
    value = _load(text)
    if type(value) is not dict:
        raise ValueError("no object")
    return value


@lru_cache(maxsize=256)
def _versions(text: str) -> Mapping[str, str]:
    versions = _object(text)
    if not all(type(version) is str for version in versions.values()):
        raise ValueError("versions that are no text")
    return versions


@lru_cache(maxsize=256)
def _device(text: str) -> Fingerprint:
    device = read_fingerprint(_object(text))
    if device_text(device) != text:
        raise ValueError("not canonical")
    return device


@lru_cache(maxsize=4096)
def _workload(text: str) -> Workload:
    workload = read_workload(text)
    if workload.key != text or "\\u0000" in text:
        raise ValueError("not canonical")
    if text.count("[") + text.count("{") >= MOST_NESTED or not is_small(text):  # it may be nested too deeply
        check_plain(_DECODE(text), MOST_NESTED - 1)
    return workload


@lru_cache(maxsize=1 << 14)
def _config(text: str) -> Config:
    config = Config.from_json(_DECODE(text))  # whose knobs are plain already: no depth to look at
    if config.key != text or not is_small(text):
        raise ValueError("not canonical")
    return config


@lru_cache(maxsize=64)
def _threads(text: str) -> int:
    threads = int(text)
    if str(threads) != text or not 1 <= threads <= MOST_THREADS:
        raise ValueError("left to the thorough way")
    return threads


def _times(text: str) -> tuple[float, ...]:
    if text == "[]":
        return ()
    if not (text.startswith("[") and text.endswith("]")):
        raise ValueError("no list")
    return tuple(map(_float, text[1:-1].split(",")))


def _float(text: str) -> float:
    value = float(text)
    if repr(value) != text or not math.isfinite(value):
        raise ValueError("not canonical")
    return value

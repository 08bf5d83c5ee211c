"""The quick way to read a line that `Record.line` has written: part by part, as most parts are the same in many lines.

Each part is proved to be canonical JSON text of what belongs there, so a line that is taken here is one that the
thorough way (`from_document`) takes too, with the same record; any other line is left to that.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

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
from autosched.records.rows import Row
from autosched.space import Config
from autosched.target import Fingerprint
from autosched.task import Measurement, Status, Workload

if TYPE_CHECKING:
    from autosched.json_types import Json

# What stands between the parts, in order
MARKS = (
    ',"config":', ',"device":', ',"error":', ',"host":', ',"how":', ',"is_default":', ',"is_winner":',
    ',"schema":1,"session":', ',"status":', ',"threads":', ',"time":', ',"times_s":', ',"versions":', ',"workload":',
)  # fmt: skip
START = '{"checked_against":'
COARSE = tuple(MARKS[i] for i in (0, 1, 4, 5, 10, 11, 12))  # around what differs from line to line


def _refuse(text: str) -> float:
    raise ValueError(text)


_DECODE = json.JSONDecoder(parse_constant=_refuse).decode  # once: json.loads makes one each time
LONGEST = 20_000  # of a line: parts of it are kept in memory for the next ones
FLAGS = {"true": True, "false": False}
STATUSES = {f'"{status}"': status for status in Status}

# Knobs and templates that need no escapes, behind the quotation mark of the name
CONFIG_START = '{"knobs":{"'
_WHOLE, _TEXT = r"(?:0|-?[1-9]\d{0,14})", "[ !#-\\[\\]-~]*"
_LIST = rf"\[(?:{_WHOLE}(?:,{_WHOLE})*)?\]"
PLAIN_KNOB = re.compile(rf'(\w+)":(?:{_WHOLE}|true|false|"{_TEXT}"|{_LIST})', re.ASCII)
PLAIN_TEMPLATE = re.compile(rf'template":"({_TEXT})"}}', re.ASCII)


class Parts(NamedTuple):
    """The JSON texts that stand between a line's marks."""

    checked: str
    config: str
    device: str
    error: str
    host: str
    how: str
    is_default: str
    is_winner: str
    session: str
    status: str
    threads: str
    time: str
    times: str
    versions: str
    workload: str

    @property
    def details(self) -> str:
        """See `Record.details`."""
        return details_text(self.times, self.checked, self.error, self.how, self.versions)


def read_canonical(text: str) -> Record | None:
    """The record of a canonical line; None for any other text."""
    p = _split(text)
    if p is None:
        return None
    try:
        record = Record(
            _workload(p.workload),
            _config(p.config),
            Measurement(STATUSES[p.status], _times(p.times), _word(p.checked), _word(p.error), dict(_object(p.how))),
            _device(p.device),
            threads=_threads(p.threads),
            time=_float(p.time),
            host=_name(p.host),
            session=_name(p.session),
            versions=_versions(p.versions),
            is_default=FLAGS[p.is_default],
            is_winner=FLAGS[p.is_winner],
        )
    except (AutoschedError, ValueError, KeyError, RecursionError):
        return None
    record.__dict__["line"], record.__dict__["details"] = text, p.details
    return record


def read_row(text: str) -> Row | None:
    """The row of a canonical line, without its record, which takes longer to make than all the rest.

    None for any other text, and for the lines of winners, which are few.
    """
    try:
        checked, config, origin, how, facts, time, times, subject = _cut(_inside(text), COARSE)
        device, error, host = _origin(origin)
        is_default, session, status, threads = _facts(facts)
        versions, workload = _subject(subject)
        _word(checked), _object(how)
        times_s = _times(times)
        if (status is Status.OK) is not bool(times_s) or (times_s and min(times_s) <= 0):
            return None  # as Measurement would
        uid, template = hashlib.sha256(text.encode()).hexdigest()[:32], _template(config)
        details = details_text(times, checked, error, how, versions)
        return Row(
            uid, workload, device, threads, template, config, status.value, _median(times_s), None, is_default, False,
            _float(time), host, session, details, text,
        )  # fmt: skip
    except (AutoschedError, ValueError, KeyError, RecursionError):
        return None


def _split(text: str) -> Parts | None:
    """The texts of the parts; None where marks are missing."""
    try:
        return Parts._make(_cut(_inside(text), MARKS))
    except ValueError:
        return None


def _inside(text: str) -> str:
    if not (text.startswith(START) and text.endswith("}")) or len(text) > LONGEST:
        raise ValueError("left to the thorough way")
    return text[len(START) : -1]


def _cut(text: str, marks: Sequence[str]) -> list[str]:
    """What stands between marks. One may also stand inside a part: then that part is no JSON, and is refused later.

    Raises ValueError where a mark is missing.
    """
    parts, position = [], 0
    for mark in marks:
        end = text.index(mark, position)
        parts.append(text[position:end])
        position = end + len(mark)
    parts.append(text[position:])
    return parts


@lru_cache(maxsize=1024)
def _origin(text: str) -> tuple[str, str, str]:
    """Texts of device and error, and the host."""
    device, error, host = _cut(text, MARKS[2:4])
    _device(device), _word(error)
    return device, error, _name(host)


@lru_cache(maxsize=1024)
def _facts(text: str) -> tuple[bool, str, Status, int]:
    """Whether it was the default, session, status, threads. Raises ValueError for a winner."""
    default, winner, session, status, threads = _cut(text, MARKS[6:10])
    if winner != "false":
        raise ValueError("left to the thorough way")
    return FLAGS[default], _name(session), STATUSES[status], _threads(threads)


@lru_cache(maxsize=1024)
def _subject(text: str) -> tuple[str, str]:
    """Texts of versions and workload."""
    versions, workload = _cut(text, MARKS[13:])
    _versions(versions), _workload(workload)
    return versions, workload


def _load(text: str) -> Json:
    """A JSON value whose canonical text this is. Raises ValueError, RecordError, RecursionError."""
    value = _DECODE(text)
    if (check_plain(value, MOST_NESTED - 1) or DUMP(value)) != text:
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
def _object(text: str) -> Mapping[str, Json]:
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
    if config.key != text or not is_small(text) or "\\u0000" in text:
        raise ValueError("not canonical")
    return config


def _template(text: str) -> str:
    """The template that a configuration's canonical text names; most are proved knob by knob, as most knobs recur."""
    *knobs, template = text.removeprefix(CONFIG_START).split(',"')
    if not (knobs and text.startswith(CONFIG_START) and knobs[-1].endswith("}")):
        return _config(text).template
    knobs[-1] = knobs[-1][:-1]
    found = _plain_template(template)
    if found is None or not _is_sorted(tuple(map(_plain_knob, knobs))):
        return _config(text).template
    return found


@lru_cache(maxsize=1 << 14)
def _plain_knob(text: str) -> str:
    """The name in `name":value`; "" where the value is not seen at once to be canonical."""
    found = PLAIN_KNOB.fullmatch(text)
    return found[1] if found is not None else ""


@lru_cache(maxsize=1024)
def _plain_template(text: str) -> str | None:
    found = PLAIN_TEMPLATE.fullmatch(text)
    return found[1] if found is not None else None


@lru_cache(maxsize=1024)
def _is_sorted(names: tuple[str, ...]) -> bool:
    """Whether names are in order, and none is "" or stands there twice."""
    return all(before < after for before, after in itertools.pairwise(("", *names)))


@lru_cache(maxsize=64)
def _threads(text: str) -> int:
    threads = int(text)
    if str(threads) != text or not 1 <= threads <= MOST_THREADS:
        raise ValueError("left to the thorough way")
    return threads


def _times(text: str) -> tuple[float, ...]:
    if not (text.startswith("[") and text.endswith("]")):
        raise ValueError("no list")
    values = [float(part) for part in text[1:-1].split(",")] if text != "[]" else []
    if repr(values).replace(" ", "") != text or not math.isfinite(sum(values)):
        raise ValueError("not canonical")
    return tuple(values)


def _median(values: Sequence[float]) -> float | None:
    """What `statistics.median` gives, which takes as long as all times together; None for no values."""
    if not values:
        return None
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _float(text: str) -> float:
    value = float(text)
    if repr(value) != text or not math.isfinite(value):
        raise ValueError("not canonical")
    return value

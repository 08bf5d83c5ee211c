"""One record: a configuration that was measured, and everything needed to judge and reuse that evidence."""

from __future__ import annotations

import hashlib
import json
import math
import platform
import re
import time as clock
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property, lru_cache
from importlib import metadata
from typing import TYPE_CHECKING

from autosched.errors import AutoschedError, RecordError
from autosched.space import Config
from autosched.target import Fingerprint
from autosched.target.fingerprint import fingerprint_class
from autosched.task import Measurement, Status, Task, Trial, Workload
from autosched.task.trial import METRICS
from autosched.version import __version__

if TYPE_CHECKING:
    from autosched.json_types import Json, JsonObject

SCHEMA_VERSION = 1
KERNEL = "kernel"  # the name in `how` of what the model calls the kernel
DEFAULT = "default"  # the name in a winner's `how` of the default's configuration, which it was compared with
MOST_NOISE = 0.05  # half of the interval of a comparison, above which its winner does not count as verified
DUMP = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


@dataclass(frozen=True)
class Record:
    """A trial of a workload on a device.

    threads     the thread budget that it was measured with
    time        seconds since 1970 when it was measured
    host        which machine, as a short hash; machines with equal fingerprints differ in it
    session     which tuning run
    versions    of autosched, python, numba, …, and of the configuration's "template"
    is_default  the configuration was the untuned default
    is_winner   it won the last, interleaved comparison with the default: only such records are used at build
    Raises      RecordError for a winner that has no time.
    """

    workload: Workload
    config: Config
    measurement: Measurement
    device: Fingerprint
    threads: int = 1
    time: float = 0.0
    host: str = ""
    session: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    is_default: bool = False
    is_winner: bool = False

    def __post_init__(self) -> None:
        if self.is_winner and not self.measurement.is_ok:
            raise RecordError(f"a winner needs a time, and its status is '{self.measurement.status}'")

    @cached_property
    def line(self) -> str:
        """Canonical JSON text of the whole record, one line."""
        m = self.measurement
        dump = DUMP  # workload, configuration and device hold their canonical text already
        return (
            f'{{"checked_against":{dump(m.checked_against)},"config":{self.config.key},"device":{device_text(self.device)},'
            f'"error":{dump(m.error)},"host":{dump(self.host)},"how":{dump(dict(m.how))},'
            f'"is_default":{dump(self.is_default)},"is_winner":{dump(self.is_winner)},"schema":{SCHEMA_VERSION},'
            f'"session":{dump(self.session)},"status":{dump(str(m.status))},"threads":{dump(self.threads)},'
            f'"time":{dump(self.time)},"times_s":{dump(m.times_s)},"versions":{dump(dict(self.versions))},'
            f'"workload":{self.workload.key}}}'
        )

    @cached_property
    def details(self) -> str:
        """JSON text of what a database keeps in no column of its own."""
        m = self.measurement
        parts = (m.times_s, m.checked_against, m.error, dict(m.how), dict(self.versions))
        return details_text(*map(DUMP, parts))

    @cached_property
    def uid(self) -> str:
        """32 hexadecimal digits of the record's content: the same evidence is stored once."""
        return hashlib.sha256(self.line.encode()).hexdigest()[:32]

    @property
    def trial(self) -> Trial:
        """The record as the search sees it."""
        return Trial(self.config, self.measurement)

    @property
    def template_version(self) -> str:
        """The version of the configuration's template; records from before that was noted are of the first."""
        return self.versions.get("template", "1")

    @property
    def kernel_name(self) -> str | None:
        """What the model that it was measured for calls the kernel; None if nobody noted it."""
        name = self.measurement.how.get(KERNEL)
        return name if isinstance(name, str) else None

    @property
    def baseline_s(self) -> float | None:
        """The default's median time in the comparison that this record has won; None if nobody noted it."""
        noted = self.measurement.how.get("baseline_s")
        is_time = isinstance(noted, int | float) and not isinstance(noted, bool) and noted > 0
        return float(noted) if is_time and noted is not None else None

    @cached_property
    def default(self) -> Config | None:
        """The default of the task when this was measured; None if nobody noted it."""
        if self.is_default:
            return self.config
        try:
            return Config.from_json(self.measurement.how.get(DEFAULT, ""))
        except AutoschedError:
            return None

    def having_beaten(self, default: Config) -> Record:
        """The same record, of which is known elsewhere what the default was."""
        made = replace(self)
        made.__dict__["default"] = default
        return made

    @property
    def noise(self) -> float:
        """Half the 95 % interval of its ratio to the default in the comparison that it won; 0 if nobody noted it."""
        noted = self.measurement.how.get("noise")
        return float(noted) if isinstance(noted, int | float) and noted > 0 else 0.0

    @property
    def is_noisy(self) -> bool:
        """Tell whether a winner was named while the machine's noise was too large to call it verified."""
        return self.is_winner and not self.is_default and self.noise > MOST_NOISE

    @property
    def default_s(self) -> float | None:
        """The default's confirmed time, of a winner: in the comparison that it has won; None if nobody noted it."""
        return self.measurement.median_s if self.is_default else self.baseline_s

    @property
    def gain(self) -> float | None:
        """How many times faster a winner was than the default in the comparison that it won; 1 for the default itself.

        A winner's rounds have beaten the default's beyond doubt, so where its median over all rounds is not the lower
        one (the machine drifted between them), the gain is not known to be more than none: 1. What won by another
        metric may take longer: below 1.
        """
        if not self.is_winner:
            return None
        if METRICS in self.measurement.how and self.baseline_s and not self.is_default:
            return self.baseline_s / self.measurement.median_s
        return gain_of(self.is_default, self.baseline_s, self.measurement.median_s)

    def to_document(self) -> JsonObject:
        """The record as plain data, the form of a JSON line."""
        m = self.measurement
        return {
            "schema": SCHEMA_VERSION,
            "workload": json.loads(self.workload.key),
            "config": json.loads(self.config.key),
            "status": str(m.status),
            "times_s": list(m.times_s),
            "checked_against": m.checked_against,
            "error": m.error,
            "how": dict(m.how),
            "device": json.loads(device_text(self.device)),
            "threads": self.threads,
            "time": self.time,
            "host": self.host,
            "session": self.session,
            "versions": dict(self.versions),
            "is_default": self.is_default,
            "is_winner": self.is_winner,
        }


def gain_of(is_default: bool, baseline_s: float | None, median_s: float | None) -> float | None:
    """See `Record.gain`, of a winner."""
    if is_default:
        return 1.0
    return max(1.0, baseline_s / median_s) if baseline_s and median_s else None


def make_record(
    task: Task,
    trial: Trial,
    *,
    session: str = "",
    is_default: bool = False,
    is_winner: bool = False,
    versions: Mapping[str, str] | None = None,
    default: Config | None = None,
) -> Record:
    """The record of a trial that was just measured for the task's target and threads, here or where `how` says.

    default  what a winner that is another configuration was compared with: it counts while that is the task's default
    What the model calls the kernel is noted in `how`, for people: no look-up reads it.
    """
    measurement = trial.measurement
    if default is not None and is_winner and not is_default:
        measurement = replace(measurement, how={**measurement.how, DEFAULT: json.loads(default.key)})
    if task.name:
        measurement = replace(measurement, how={KERNEL: task.name, **measurement.how})
    return Record(
        task.workload,
        trial.config,
        measurement,
        task.target.fingerprint(),
        threads=task.threads,
        time=round(clock.time(), 3),
        host=str(trial.measurement.how.get("host", host_id())),
        session=session,
        versions=dict(versions if versions is not None else current_versions()),
        is_default=is_default,
        is_winner=is_winner,
    )


def details_text(times_s: str, checked_against: str, error: str, how: str, versions: str) -> str:
    """One JSON object of parts that are JSON text."""
    return (
        f'{{"times_s":{times_s},"checked_against":{checked_against},"error":{error},"how":{how},"versions":{versions}}}'
    )


@lru_cache(maxsize=256)
def device_text(device: Fingerprint) -> str:
    """The fingerprint's JSON text; there are few devices and many records."""
    return device.to_json()


@cache
def host_id() -> str:
    """A short hash of this machine's name: tells machines apart and names none."""
    return hashlib.sha256(f"autosched {platform.node()}".encode()).hexdigest()[:12]


@cache
def current_versions() -> Mapping[str, str]:
    """The versions that a kernel's speed depends on."""
    versions = {"autosched": __version__, "python": platform.python_version()}
    for package in ("numba", "llvmlite"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


FIELDS: Mapping[str, type | tuple[type, ...]] = {
    "workload": dict,
    "config": dict,
    "status": str,
    "times_s": list,
    "checked_against": str,
    "error": str,
    "how": dict,
    "device": dict,
    "threads": int,
    "time": (int, float),
    "host": str,
    "session": str,
    "versions": dict,
    "is_default": bool,
    "is_winner": bool,
}
LINE_FIELDS = {"schema", *FIELDS}
REQUIRED = ("workload", "config", "status", "device")
MOST_NESTED = 16  # levels of lists and objects in a record; ours have four
SUSPICIOUS = re.compile(r"(?:^|[:,\[])-?\d{16}")  # a large number, or text that looks like one
MOST_THREADS = 1 << 20
LARGEST_INT = 2**53  # what every reader of JSON, and every database, holds exactly


def check_plain(value: object, most_nested: int = MOST_NESTED) -> str:
    """Refuse what JSON text can hold and a database cannot; gives the value's canonical text, "" if it was not needed.

    most_nested  levels of lists and objects that the value may have
    Raises  RecordError.
    """
    try:  # nothing in the text looks suspicious: much faster than to look at every part
        text = DUMP(value)
        if is_small(text) and _depth(value, most_nested) >= 0:
            return text
    except (ValueError, RecursionError, TypeError):
        pass  # the slow way finds the place and the reason
    _check_part(value, most_nested)
    return ""


def is_small(text: str) -> bool:
    """Whether JSON text has no large number and no half of a character; False where it only may have."""
    return "\\ud" not in text and SUSPICIOUS.search(text) is None


def _depth(value: Json, left: int) -> int:
    """How many levels are left below the value; negative where there are too many."""
    parts = value.values() if type(value) is dict else value
    if left == 0:
        return -1
    inner = [_depth(part, left - 1) for part in parts if type(part) is dict or type(part) is list]
    return min(inner, default=left - 1)


def _check_part(value: Json, left: int) -> None:
    kind = type(value)
    if kind is str:
        if not value.isascii():
            try:
                value.encode("utf-8")
            except UnicodeEncodeError:
                raise RecordError("text that is not Unicode") from None
    elif kind is float:
        if not math.isfinite(value):
            raise RecordError("a number that is not finite")
    elif kind is int:
        if not -LARGEST_INT <= value <= LARGEST_INT:
            raise RecordError("a number beyond 2**53")
    elif kind is dict or kind is list:
        if left == 0:
            raise RecordError(f"more than {MOST_NESTED} levels of lists and objects")
        if kind is dict:
            for key in value:
                _check_part(key, left - 1)
            value = value.values()
        for part in value:
            if type(part) is not bool:
                _check_part(part, left - 1)


def from_document(document: object) -> Record:
    """Read what `to_document` wrote; fields that this version does not know are ignored.

    Raises  RecordError with the reason for anything that is no record of this schema.
    """
    if not isinstance(document, dict):
        raise RecordError("not a JSON object")
    schema = document.get("schema")
    if type(schema) is not int or schema != SCHEMA_VERSION:
        raise RecordError("no schema version" if schema is None else f"schema version {schema!r:.20}, not 1")
    for name, kind in FIELDS.items():
        if name not in document and name in REQUIRED:
            raise RecordError(f"no field '{name}'")
        value = document.get(name)
        wrong = not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)
        if name in document and wrong:
            raise RecordError(f"field '{name}' is a {type(value).__name__}")
    text = check_plain(document)
    _check_parts(document)
    try:
        record = _build(document)
        if _is_line(text, document, record):
            record.__dict__["line"] = text
        return record
    except AutoschedError as error:
        raise RecordError(str(error)) from None
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise RecordError(f"malformed: {error}") from None


def _is_line(text: str, document: JsonObject, record: Record) -> bool:
    """Whether a document's canonical text is the record's own line: no field more or less, no value of another form."""
    times = (document.get("time"), *document.get("times_s", ()))
    is_same = document.keys() == LINE_FIELDS and all(type(t) is float for t in times)
    checked = DUMP(record.measurement.checked_against)
    start = f'{{"checked_against":{checked},"config":{record.config.key},"device":{device_text(record.device)},"error":'
    return is_same and text.startswith(start) and text.endswith(f',"workload":{record.workload.key}}}')


def _check_parts(document: Mapping[str, Json]) -> None:
    """Refuse parts of another type, which would be turned into the right one without a word. Raises RecordError."""
    if not all(isinstance(t, int | float) and not isinstance(t, bool) for t in document.get("times_s", ())):
        raise RecordError("field 'times_s' holds something else than numbers")
    if not all(isinstance(version, str) for version in document.get("versions", {}).values()):
        raise RecordError("field 'versions' holds something else than text")


@lru_cache(maxsize=4096)
def read_workload(text: str) -> Workload:
    """The workload of a JSON text: many records share one. Raises AutoschedError."""
    workload = json.loads(text)
    if not isinstance(workload, dict):
        raise RecordError("workload: no JSON object")
    dtypes, shapes = workload.get("dtypes", []), workload.get("shapes", [])
    if not (isinstance(dtypes, list) and all(isinstance(dtype, str) for dtype in dtypes)):
        raise RecordError("workload: 'dtypes' is no list of text")
    if not (isinstance(shapes, list) and all(map(_is_shape, shapes))):
        raise RecordError("workload: 'shapes' is no list of shapes")
    if not isinstance(workload.get("epilogue", ""), str):
        raise RecordError("workload: 'epilogue' is no text")
    return Workload.from_json(workload)


def _is_shape(value: object) -> bool:
    return isinstance(value, list) and all(type(extent) is int and extent >= 0 for extent in value)


def _build(document: JsonObject) -> Record:
    measurement = Measurement(
        Status(document["status"]),
        tuple(document.get("times_s", ())),
        document.get("checked_against", ""),
        document.get("error", ""),
        document.get("how", {}),
    )
    optional = {
        name: document[name]
        for name in ("threads", "host", "session", "versions", "is_default", "is_winner")
        if name in document
    }
    if not 1 <= optional.get("threads", 1) <= MOST_THREADS:
        raise RecordError(f"{optional['threads']} threads")
    words = (optional.get("host", ""), optional.get("session", ""), document["workload"].get("op"))
    if any("\0" in word for word in words if isinstance(word, str)):
        raise RecordError("a word with a NUL character, which no database holds")
    return Record(
        read_workload(DUMP(document["workload"])),
        Config.from_json(document["config"]),
        measurement,
        read_fingerprint(document["device"]),
        time=float(document.get("time", 0.0)),
        **optional,
    )


def read_fingerprint(document: Mapping[str, object]) -> Fingerprint:
    """A fingerprint from plain data. Raises RecordError if a field is missing or of another type."""
    try:
        names = ("kind", *(part.name for part in fields(fingerprint_class(document))))
        return _fingerprint(tuple((n, type(document[n]), document[n]) for n in names if n in document))
    except (TypeError, ValueError):  # a field is no plain value, or the kind unknown: the full check says which
        return _check_fingerprint(document)


@lru_cache(maxsize=256)
def _fingerprint(parts: tuple[tuple[str, type, object], ...]) -> Fingerprint:
    return _check_fingerprint({name: value for name, _, value in parts})


def _check_fingerprint(document: Mapping[str, Json]) -> Fingerprint:
    try:
        kind = fingerprint_class(document)
    except ValueError as error:
        raise RecordError(f"device: {error}") from None
    for part in fields(kind):
        name, expected = part.name, int if part.type in (int, "int") else str
        if name not in document or not isinstance(document[name], expected) or isinstance(document[name], bool):
            raise RecordError(f"device: field '{name}' is missing or not {expected.__name__}")
        if expected is int and document[name] < 0:
            raise RecordError(f"device: field '{name}' is negative")
    return Fingerprint.from_json(document)

"""Why a build uses the record that it uses: everything it looks at, with what becomes of each."""

from __future__ import annotations

from dataclasses import dataclass

from autosched.records.choose import Match, match_device, rank_of
from autosched.records.found import Found, RecordReader, Trust, Validator, WinnerSource, objection_to
from autosched.records.lookup import Lookup, sources
from autosched.records.record import Record
from autosched.task import Task


@dataclass(frozen=True, slots=True)
class Considered:
    """One winner that a look-up met, in the order of look-up.

    verdict  "used", "not needed" (a nearer or later one is used), "foreign" or "invalid"
    """

    origin: str
    record: Record
    verdict: str
    trust: Trust | None
    reason: str


class Explaining:
    """A reader that answers as another one does, and remembers what it looked at for each task."""

    def __init__(self, reader: RecordReader):
        self.reader = reader
        self.considered: dict[str, list[Considered]] = {}

    def best(self, task: Task, valid: Validator | None = None) -> Found:
        """See `RecordReader`."""
        found = self.reader.best(task, valid)
        self.considered[task.key] = consider(self.reader, task, found, valid)
        return found


def consider(reader: RecordReader, task: Task, found: Found, valid: Validator | None = None) -> list[Considered]:
    """Everything a reader's look-up meets for a task; readers that do not show their winners give nothing."""
    like = reader.like if isinstance(reader, Lookup) else ""
    result: list[Considered] = []
    is_used = False
    for part in sources(reader):
        origin = part.origin_for(task)
        for record, match in _ranked(part, task, like):
            verdict, reason = _judge(record, match, task, valid)
            if verdict == "not needed" and not is_used and origin == found.origin and _is_of(record, found):
                verdict, is_used = "used", True
            result.append(Considered(origin, record, verdict, match.trust, reason))
    return result


def _is_of(record: Record, found: Found) -> bool:
    """Whether a look-up found this record."""
    return record.config == found.config if found.record is None else record.uid == found.record.uid


def _ranked(reader: WinnerSource, task: Task, like: str) -> list[tuple[Record, Match]]:
    """The reader's winners in the order in which `choose` tries them, foreign ones last."""
    here = task.target.fingerprint()
    ranked = []
    for record in reader.winners_of(task):
        match = match_device(record, here, reader.by_family, like)
        ranked.append((rank_of(match, record, task), record, match))
    return [(record, match) for _, record, match in sorted(ranked, key=lambda entry: entry[0])]


def _judge(record: Record, match: Match, task: Task, valid: Validator | None) -> tuple[str, str]:
    if match.trust is None:
        return "foreign", f"tuned on {record.device.name}"
    if objection := objection_to(record, task, valid, is_wanted=match.is_wanted):
        return "invalid", objection
    if record.threads != task.threads:
        return "not needed", f"tuned with {record.threads} threads, not {task.threads}"
    return "not needed", ""

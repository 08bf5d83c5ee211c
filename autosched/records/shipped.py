"""Best configurations that come with the package: `tuning_logs/<target family>/<operator>.jsonl`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from autosched.records.found import Found, Validator, WinnerSource, miss
from autosched.records.jsonl import JsonlReader
from autosched.records.record import Record
from autosched.space.location import tuning_logs_folder
from autosched.task import Task

SAFE_NAME = re.compile(r"[A-Za-z0-9_.-]+")


def shipped_families() -> tuple[str, ...]:
    """The target families that configurations are shipped for, sorted; none where there are no logs."""
    folder = tuning_logs_folder()
    try:
        return tuple(sorted({log.parent.name for log in folder.glob("*/*.jsonl")})) if folder else ()
    except OSError:
        return ()


class ShippedReader(WinnerSource):
    """Look-ups in the shipped logs of the target's family; they count as "verified elsewhere" on other devices."""

    def __init__(self, folder: Path | None = None):
        self.folder = folder if folder is not None else tuning_logs_folder()
        self._readers: dict[Path, JsonlReader] = {}

    by_family = True

    def best(self, task: Task, valid: Validator | None = None) -> Found:
        """See `RecordReader`. Raises RecordError if a log that is there cannot be read."""
        reader = self._reader(task)
        return miss(self.origin_for(task), "no record") if reader is None else reader.best(task, valid)

    def winners_of(self, task: Task) -> Sequence[Record]:
        """The task's shipped winners."""
        reader = self._reader(task)
        return () if reader is None else reader.winners_of(task)

    def winners_of_op(self, task: Task, op: str) -> Iterator[Record]:
        """The shipped winners of the task's operator, which is the only one that is asked for."""
        reader = self._reader(task)
        return iter(()) if reader is None else reader.winners_of_op(task, op)

    def origin_for(self, task: Task) -> str:
        """What the logs for a task's target are called in reports."""
        return f"shipped {task.target.fingerprint().family}"

    def _reader(self, task: Task) -> JsonlReader | None:
        family, op = task.target.fingerprint().family, task.workload.op
        if self.folder is None or not (SAFE_NAME.fullmatch(family) and SAFE_NAME.fullmatch(op)):
            return None
        path = self.folder / family / f"{op}.jsonl"
        if path not in self._readers:
            if not path.is_file():
                return None
            self._readers[path] = JsonlReader(path, self.origin_for(task), by_family=True)
        return self._readers[path]

"""Best configurations that come with the package: `tuning_logs/<target family>/<operator>.jsonl`."""

from __future__ import annotations

import re
from pathlib import Path

from autosched.records.found import Found, Validator, miss
from autosched.records.jsonl import JsonlReader
from autosched.space.location import tuning_logs_folder
from autosched.task import Task

SAFE_NAME = re.compile(r"[A-Za-z0-9_.-]+")


class ShippedReader:
    """Look-ups in the shipped logs of the target's family; they count as "verified elsewhere" on other devices."""

    def __init__(self, folder: Path | None = None):
        self.folder = folder if folder is not None else tuning_logs_folder()
        self._readers: dict[Path, JsonlReader] = {}

    def best(self, task: Task, valid: Validator | None = None) -> Found:
        """See `RecordReader`. Raises RecordError if a log that is there cannot be read."""
        family, op = task.target.fingerprint().family, task.workload.op
        origin = f"shipped {family}"
        if self.folder is None or not (SAFE_NAME.fullmatch(family) and SAFE_NAME.fullmatch(op)):
            return miss(origin, "no record")
        path = self.folder / family / f"{op}.jsonl"
        if path not in self._readers:
            if not path.is_file():
                return miss(origin, "no record")
            self._readers[path] = JsonlReader(path, origin, by_family=True)
        return self._readers[path].best(task, valid)

"""Look-ups for a model of which many instances will run at once."""

from __future__ import annotations

import dataclasses

from autosched.records.found import Found, RecordReader, Validator
from autosched.task import Task


class RunAsReader:
    """Another reader's answers, for tasks that will run as it is said: as "throughput" or for "latency"."""

    def __init__(self, reader: RecordReader, run_as: str):
        self.reader, self.run_as = reader, run_as

    def best(self, task: Task, valid: Validator | None = None) -> Found:
        """See `RecordReader`."""
        return self.reader.best(dataclasses.replace(task, run_as=self.run_as), valid)

"""Which configurations a benchmark builds with: never those that happen to be in the user's own database."""

from __future__ import annotations

from pathlib import Path

from autosched.records import DispatchContext, FallbackContext, RecordReader, open_reader
from autosched.records.found import Found, Validator
from autosched.records.shipped import ShippedReader
from autosched.task import Task


class Only(FallbackContext):
    """Readers of a benchmark's own choice, below which nothing else is asked."""

    def __init__(self, *readers: RecordReader):
        self.readers = readers

    def own(self, task: Task, valid: Validator | None = None) -> Found:
        """The first reader's answer that is one, else the last miss."""
        found = super().own(task, valid)
        for reader in self.readers:
            found = reader.best(task, valid)
            if found:
                break
        return found


def records_for(database: Path | None = None, *, untuned: bool = False) -> DispatchContext:
    """A database and what is shipped with the package, or nothing at all."""
    if untuned:
        return Only()
    return Only(*([open_reader(database)] if database else []), ShippedReader())

"""Records of another device, used because somebody has said so: `--like`, AUTOSCHED_TARGET_AS."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autosched.errors import AutoschedError
from autosched.records.choose import choose
from autosched.records.found import Found, RecordReader, Validator
from autosched.target import Target
from autosched.task import Task


class LikeReader:
    """Another reader's answers; where it has none, the records of devices like the one that was named.

    like  a family ("x86-64-v4"), a part of a device's name ("EPYC 9"), or a target, which stands for its family
    """

    def __init__(self, reader: RecordReader, like: str):
        self.reader, self.like = reader, family_of(like)

    @property
    def readers(self) -> tuple[RecordReader, ...]:
        """The readers below, for those who explain a look-up."""
        return tuple(getattr(self.reader, "readers", (self.reader,)))

    def best(self, task: Task, valid: Validator | None = None) -> Found:
        """See `RecordReader`."""
        found = self.reader.best(task, valid)
        if found:
            return found
        for part in leaves(self.reader):
            origin = part.origin_for(task) if hasattr(part, "origin_for") else getattr(part, "origin", "")
            by_family = getattr(part, "by_family", False)
            foreign = choose(part.winners_of(task), task, origin, valid=valid, by_family=by_family, like=self.like)
            if foreign:
                return foreign
        return found


def family_of(like: str) -> str:
    """The family of a target's text; any other text as it is."""
    try:
        return Target(like).fingerprint().family
    except AutoschedError:
        return like


def leaves(reader: Any) -> Iterator[Any]:
    """The readers below a reader that tell their winners, in the order in which they are asked."""
    if hasattr(reader, "winners_of"):
        yield reader
    else:
        inner = getattr(reader, "reader", None)
        for part in getattr(reader, "readers", () if inner is None else (inner,)):
            yield from leaves(part)

"""Builds that refuse kernels without a record that can be trusted, and runs that refuse to compile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from autosched.env import AUTOSCHED_STRICT
from autosched.errors import UntrustedError, UsageError
from autosched.records import Found, RecordReader, Trust
from autosched.records.found import Validator
from autosched.task import Task

if TYPE_CHECKING:
    from autosched.driver.build.choose import Choice

TRUSTED = (Trust.HERE, Trust.SAME_DEVICE, Trust.ELSEWHERE)


class StrictReader:
    """Another reader's answers, for a build that refuses what it does not trust."""

    def __init__(self, reader: RecordReader):
        self.reader = reader

    def best(self, task: Task, valid: Validator | None = None) -> Found:
        """See `RecordReader`."""
        return self.reader.best(task, valid)


def refuse_untrusted(choices: Iterable[Choice]) -> None:
    """Raise UntrustedError that names the kernels whose configuration nobody has verified."""
    found = {choice.task.key: choice for choice in choices}
    weak = [choice for choice in found.values() if choice.found.trust not in TRUSTED]
    if weak:
        named = ", ".join(f"{choice.task.workload} ({choice.found.trust})" for choice in weak[:3])
        more = f" and {len(weak) - 3} more" if len(weak) > 3 else ""
        raise UntrustedError(
            f"{len(weak)} of {len(found)} kernels have no trusted record: {named}{more}",
            hint="tune the model, or see `autosched logs explain`",
        )


def refuse_to_compile(name: str, sizes: Mapping[str, int]) -> None:
    """Raise UsageError where AUTOSCHED_STRICT is set and a function would be compiled in the middle of a call."""
    if AUTOSCHED_STRICT.get():
        shown = ", ".join(f"{size}={value}" for size, value in sizes.items())
        raise UsageError(
            f"'{name}' was never called with {shown}, and AUTOSCHED_STRICT forbids to compile it now",
            hint="call it with these sizes before AUTOSCHED_STRICT is set, or build it for fixed ones",
        )

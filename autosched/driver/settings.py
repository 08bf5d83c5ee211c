"""What the surroundings say: targets, threads and records from arguments, contexts and settings.

Only this room reads TVM's ambient contexts (`with Target(…)`, `with ApplyHistoryBest(…)`); what they say is handed on
as arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autosched.errors import TargetError
from autosched.records import DispatchContext, FallbackContext, RecordReader, default_reader
from autosched.target import Target
from autosched.target.threads import choose_threads


def resolve_target(target: Any = None) -> Target:
    """The target given, else that of the `with` block, else this machine's CPU.

    Raises  TargetError for one that there is no code generator for yet.
    """
    chosen = Target(target) if target is not None else Target.current(allow_none=True) or Target("cpu")
    if chosen.kind.name != "llvm":
        raise TargetError(f"no code generator for target '{chosen.kind.name}'", hint="use target='cpu'")
    return chosen


def resolve_threads(threads: int | None) -> int:
    """The number of threads given, bounded by what this process may use; all of those where none is given."""
    return choose_threads(threads)


def resolve_records(records: Any = None, start: Path | None = None) -> RecordReader:
    """The reader of a build: what was given, else the `with` block's context, then the usual places below it.

    records  a reader, path, URL, or a list of those; a `FallbackContext` (nothing is looked up); None
    """
    context = DispatchContext.current
    if isinstance(records, FallbackContext):
        return records
    if records is None and not isinstance(context, FallbackContext):
        return context
    explicit = records
    if isinstance(records, Sequence) and not isinstance(records, str) and not records:
        explicit = None
    return default_reader(explicit, start=start)

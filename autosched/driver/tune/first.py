"""AUTOSCHED_TUNE=tune and =force: a model is tuned before it is built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autosched.driver.build.strict import TRUSTED
from autosched.driver.settings import resolve_records
from autosched.env import AUTOSCHED_TUNE
from autosched.ir import IRModule
from autosched.records import Trust, database_to_write
from autosched.target import Target


def tune_first(module: IRModule, target: Target, params: Any, records: Any, threads: int) -> None:
    """Tune what the settings say, into the database that was given or the usual one; nothing by default.

    AUTOSCHED_TUNE=tune: the tasks that have no trusted record; =force: all of them, whatever is known.
    """
    mode = AUTOSCHED_TUNE.get()
    given = records[0] if isinstance(records, list | tuple) and records else records
    if mode not in ("tune", "force") or not isinstance(given, str | Path | None):
        return  # a context or reader of the caller's own says which configurations are used
    from autosched.driver.build.choose import choose
    from autosched.driver.build.tuned_layouts import TunedLayouts
    from autosched.driver.tasks import extract_tasks
    from autosched.driver.tune.entry import TuneOptions, tune

    where = given or database_to_write().where
    indices = None
    if mode == "tune":
        reader = resolve_records(None if given is None or not _is_there(given) else [given])
        tasks = extract_tasks(
            module, target, threads=threads, params=params, layouts=TunedLayouts(reader, target, threads)
        )
        enough = (*TRUSTED, Trust.PINNED)
        indices = tuple(i for i, t in enumerate(tasks) if choose(t, reader, t.name).found.trust not in enough)
        if not indices:
            return
    options = TuneOptions(threads=threads, tasks=indices, fresh=mode == "force")
    tune(module, target, params=params, records=where, options=options)


def _is_there(where: str | Path) -> bool:
    return "://" in str(where) or Path(where).exists()

"""Tuning before a build, where the settings ask for it."""

from __future__ import annotations

from pathlib import Path

from autosched.driver.build.choose import TRUSTED, choose
from autosched.driver.build.tuned_layouts import TunedLayouts
from autosched.driver.options import TuneOptions
from autosched.driver.settings import resolve_records, resolve_target, resolve_threads
from autosched.driver.tasks import extract_tasks
from autosched.env import AUTOSCHED_TUNE
from autosched.ir import IRModule
from autosched.records import Trust, database_to_write


def tune_first(module: IRModule, target: object = None, *, records: object = None, threads: int | None = None) -> None:
    """Tune what the settings say, into the database that was given or the usual one; nothing by default.

    AUTOSCHED_TUNE=tune: the tasks that have no trusted record; =force: all of them, whatever is known. A context or
    reader as `records` says which configurations are used, so nothing is tuned.
    """
    mode = AUTOSCHED_TUNE.get()
    given = records[0] if isinstance(records, list | tuple) and records else records
    if mode not in ("tune", "force") or not isinstance(given, str | Path | None):
        return
    from autosched.driver.tune.entry import tune  # a build that tunes nothing starts faster without it

    chosen = resolve_target(target)
    n_threads = resolve_threads(threads, chosen)
    indices = None
    if mode == "tune":
        reader = resolve_records(None if given is None or not _is_there(given) else [given])
        tasks = extract_tasks(module, chosen, threads=n_threads, layouts=TunedLayouts(reader, chosen, n_threads))
        enough = (*TRUSTED, Trust.PINNED)
        indices = tuple(i for i, t in enumerate(tasks) if choose(t, reader, t.name).found.trust not in enough)
        if not indices:
            return
    options = TuneOptions(threads=n_threads, tasks=indices, fresh=mode == "force")
    tune(module, chosen, records=given or database_to_write().where, options=options, progress=lambda report: None)


def _is_there(where: str | Path) -> bool:
    return "://" in str(where) or Path(where).exists()

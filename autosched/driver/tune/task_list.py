"""What there is to tune in a model: its tasks, their share of its time, how near they are to its peaks."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from autosched.codegen.lower.flops import count_work
from autosched.driver.bench.peaks import Peaks, measure_peaks
from autosched.driver.build.precision import with_precision
from autosched.driver.build.tuned_layouts import TunedLayouts
from autosched.driver.model_files import open_model
from autosched.driver.settings import resolve_records, resolve_target, resolve_threads
from autosched.driver.task_space import default_of, space_of
from autosched.driver.tasks import extract_tasks
from autosched.errors import RecordError
from autosched.records import RecordFilter, database_to_write, open_store
from autosched.records.places import Place, is_url
from autosched.space import use_spaces
from autosched.target import Target
from autosched.target.target import TargetLike
from autosched.task import Task
from autosched.templates import templates_for
from autosched.tir.dtypes import item_bytes
from autosched.tuner.measure import MeasureOptions
from autosched.tuner.measure.local import LocalMeasurer

if TYPE_CHECKING:
    from autosched.driver.settings import Records
    from autosched.json_types import JsonObject

WITHIN_REACH = 0.85  # of the roofline: what the best kernels of this project and its peers come to


def list_tasks(
    what: object,
    target: TargetLike | None = None,
    *,
    threads: int | None = None,
    records: Records | None = None,
    spaces: Path | None = None,
    measure: bool = False,
    precision: str | None = None,
) -> list[JsonObject]:
    """A row for each task: index, name, weight, templates, number of configurations, what the records know.

    measure  also its share of the model's time, its default's time (from the records, else measured now) against the
             roofline, and the gain that tuning is expected to bring: by the records, what tuning has brought other
             tasks of the same operator; without such, up to what is within reach of the roofline
    precision  of a model's products, as `build` takes it
    """
    chosen = resolve_target(target)
    reader = resolve_records(None if _is_missing(records) else records)
    n_threads = resolve_threads(threads, chosen)
    module = with_precision(open_model(what), precision, chosen)
    with use_spaces(spaces):
        tasks = extract_tasks(module, chosen, threads=n_threads, layouts=TunedLayouts(reader, chosen, n_threads))
        rows: list[JsonObject] = []
        for index, task in enumerate(tasks):
            found = reader.best(task)
            rows.append(
                {
                    "index": index,
                    "name": f"{task.name}: {task.workload}",
                    "weight": task.weight,
                    "templates": [t.name for t, _ in templates_for(task.func, chosen)],
                    "configs": space_of(task).count(),
                    "record": str(found.trust) if found else "none",
                }
            )
    if measure:
        times = _known_times(tasks, records)
        _add_times(rows, tasks, times, measure_peaks(chosen, n_threads), chosen, n_threads)
    return rows


def _is_missing(records: object) -> bool:
    """Whether the one database that was named is a file that tuning has yet to make."""
    return isinstance(records, str | Path) and not is_url(records) and not Path(records).exists()


Known = Mapping[int, tuple[float, float]]  # task -> its default's time and that of the winner over it


def _add_times(
    rows: Sequence[dict[str, object]], tasks: Sequence[Task], known: Known, peaks: Peaks, target: Target, threads: int
) -> None:
    """Add what takes time to know."""
    defaults = {i: default_s for i, (default_s, _) in known.items()}
    defaults |= dict(_measured(tasks, [i for i in range(len(tasks)) if i not in defaults], target, threads))
    best = {i: known[i][1] if i in known else s for i, s in defaults.items()}
    total = sum(tasks[i].weight * s for i, s in best.items())
    gains: dict[str, list[float]] = {}
    for i, (default_s, best_s) in known.items():
        gains.setdefault(tasks[i].workload.op, []).append(1 - best_s / default_s)
    for i, (row, task) in enumerate(zip(rows, tasks, strict=True)):
        least_s = peaks.least_s(count_work(task.func), size_bytes(task))
        at_first = defaults.get(i)
        row["default_s"], row["roofline_s"] = at_first, least_s
        row["best_s"] = known[i][1] if i in known else None
        row["share"] = task.weight * best[i] / total if i in best and total else None
        row["peak_share"] = least_s / best[i] if i in best else None
        row["expected_gain"] = None if at_first is None else _expected_gain(i, task, known, gains, least_s / at_first)


def _expected_gain(i: int, task: Task, known: Known, gains: Mapping[str, Sequence[float]], peak_share: float) -> float:
    """The share of its time that tuning is expected to save; 0 for what is tuned."""
    if i in known:
        return 0.0
    if similar := gains.get(task.workload.op):
        return max(0.0, statistics.median(similar))
    return max(0.0, 1 - peak_share / WITHIN_REACH)


def size_bytes(task: Task) -> int:
    """The bytes of a task's arguments, each counted once."""
    return int(sum(math.prod(b.const_shape()) * item_bytes(b.dtype) for b in task.func.buffers))


def _known_times(tasks: Sequence[Task], records: Records | None) -> dict[int, tuple[float, float]]:
    """(default, winner) times of the last comparison of each task that has a winner in the database."""
    first = records[0] if isinstance(records, list | tuple) and records else records
    where = first if first is not None else database_to_write()
    if not isinstance(where, str | Path | Place):  # a reader has no such comparisons
        return {}
    found: dict[int, tuple[float, float]] = {}
    try:
        with open_store(where, write=False) as store:
            for i, task in enumerate(tasks):
                winners = [r for r in store.records(RecordFilter(workload=task.key, winners_only=True))]
                here = [r for r in winners if r.device == task.target.fingerprint() and r.threads == task.threads]
                if here and (baseline_s := here[-1].baseline_s):
                    found[i] = baseline_s, min(baseline_s, here[-1].measurement.median_s)
    except RecordError:  # there is no database yet
        return {}
    return found


def _measured(
    tasks: Sequence[Task], wanted: Sequence[int], target: Target, threads: int
) -> Iterator[tuple[int, float]]:
    """The default's time of each wanted task, measured now; tasks whose default fails are left out."""
    if not wanted:
        return
    cache: Literal["warm", "cold"] = "cold" if any(task.cache == "cold" for task in tasks) else "warm"
    with LocalMeasurer(target, MeasureOptions(threads=threads, cache=cache)) as measurer:
        for i in wanted:
            for trial in measurer.measure(tasks[i], [default_of(tasks[i])]):
                if trial.is_ok:
                    yield i, trial.median_s

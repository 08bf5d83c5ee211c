"""Tuning of tasks, each a module of one PrimFunc."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autosched.driver.build.choose import make_task
from autosched.driver.module_timer import ModuleTimer
from autosched.driver.options import TuneOptions
from autosched.driver.settings import resolve_target
from autosched.driver.tune.entry import tune
from autosched.errors import InvalidTypeError, InvalidValueError, UsageError, refuse
from autosched.ir import IRModule
from autosched.meta_schedule.database import FAILED_S, ArgsInfo, Database, JSONDatabase, PathOrNone, TuningRecord
from autosched.meta_schedule.options import RPCRunner, refuse_measuring, strategy_for
from autosched.meta_schedule.space_generator import ScheduleFn, annotated, create
from autosched.meta_schedule.workload import module_of
from autosched.records import open_store
from autosched.rpc.reach import Address
from autosched.target import Target
from autosched.target.target import TargetLike
from autosched.task import Measurement
from autosched.tir import PrimFunc
from autosched.tir.expr import as_int
from autosched.tuner.measure.remote.place import RemoteDevices

TIMEOUT_S = 60.0  # for a schedule of a function's, from building to the last repeat


@dataclass
class ExtractedTask:
    """A kernel of a model: how it is called there, its module, and how often it occurs."""

    task_name: str
    mod: IRModule
    target: Target
    dispatched: list[IRModule] = field(default_factory=list)
    weight: int = 1
    space_generator: object = None  # where it is not that of all tasks


def args_info(func: PrimFunc) -> ArgsInfo:
    """["TENSOR", dtype, shape] for each argument."""
    return [["TENSOR", b.dtype, [as_int(s) for s in b.shape]] for b in func.buffers]


def open_database(database: object, work_dir: PathOrNone, module_equality: str = "structural") -> Database:
    """The database to write to: one that is given, or of a kind. Raises ValueError for another kind."""
    if isinstance(database, Database):
        return database
    if database == "json":
        if work_dir is None:
            raise InvalidValueError("tuning into files needs work_dir")
        Path(work_dir).mkdir(parents=True, exist_ok=True)
        return JSONDatabase(work_dir=work_dir, module_equality=module_equality)
    return Database.create(database)


def tune_tasks(
    *, tasks: Sequence[Any], task_weights: Sequence[float] | None = None, work_dir: PathOrNone = None,
    max_trials_global: int, max_trials_per_task: int | None = None, num_trials_per_iter: int = 64,
    builder: object = "local", runner: object = "local", database: object = "json", cost_model: object = "xgb",
    measure_callbacks: object = "default", task_scheduler: object = "gradient", module_equality: str = "structural",
    post_optimization: bool = False, space: object = "post-order-apply", strategy: object = "evolutionary",
    seed: int | None = None,
) -> Database:  # fmt: skip
    """Tune tasks and write the best candidates to a database.

    tasks  TuneContexts or ExtractedTasks
    The trials are shared by `task_weights`, equally without; a task's measuring and batches are the tuner's own.
    Raises ValueError for no trials, for a CPU without `num-cores` and for callbacks, RPCError for a runner whose
    tracker cannot be reached.
    """
    refuse_measuring("tune_tasks", measure_callbacks, task_scheduler)
    refuse("tune_tasks", post_optimization=post_optimization)
    if isinstance(max_trials_global, bool) or not hasattr(max_trials_global, "__index__"):
        raise InvalidTypeError(f"tune_tir: max_trials_global is a {type(max_trials_global).__name__}, expected an int")
    if max_trials_global < 1:
        raise InvalidValueError(f"tune_tir: max_trials_global is {max_trials_global}", hint="give at least 1")
    there = None
    if isinstance(runner, RPCRunner):
        config = runner.rpc_config
        there = RemoteDevices([Address(config.tracker_host, config.tracker_port, config.tracker_key)])
    for task in tasks:
        _require_cores(resolve_target(task.target))
    found = open_database(database, work_dir, module_equality)
    weights = [1.0] * len(tasks) if task_weights is None else [float(w) for w in task_weights]
    if len(weights) != len(tasks):
        raise InvalidValueError(f"tune_tasks: {len(weights)} weights for {len(tasks)} tasks")
    for task, weight in zip(tasks, weights, strict=True):
        share = max(1, int(max_trials_global * weight / (sum(weights) or 1)))
        trials = share if max_trials_per_task is None else min(share, max_trials_per_task)
        generator = create(getattr(task, "space_generator", None) or space)
        target = resolve_target(task.target)
        if isinstance(generator, ScheduleFn):
            refuse("tune_tasks", hint="leave out the function of a schedule", runner=there is not None)
            _replay(task.mod, target, generator, trials, found, seed or 0)
        else:
            _tune(task.mod, target, trials, found, work_dir, strategy_for(strategy, cost_model), seed or 0, there)
    return found


def _require_cores(target: Target) -> None:
    """See that a CPU's target says how many cores the schedules are for, as TVM does."""
    if "cpu" in target.keys and "num-cores" not in target.attrs:
        raise UsageError(
            'Target does not have attribute "num-cores", physical core number must be defined',
            where=f"target {target}",
            hint=f'for this machine the target is "{target.kind.name} -num-cores={target.num_cores}"',
        )  # fmt: skip


def _tune(
    mod: IRModule, target: Target, trials: int, database: Database, work_dir: PathOrNone, strategy: str, seed: int,
    there: RemoteDevices | None,
) -> None:  # fmt: skip
    """Tune with the templates; the database gets a record of each configuration that ran."""
    module = module_of(mod)
    workload = database.commit_workload(module)
    task = make_task(module["main"], target, name="main", threads=target.num_cores or 1)
    where = Path(work_dir) / "autosched.db" if work_dir is not None else Path(os.devnull)
    options = TuneOptions(trials=trials, strategy=strategy, seed=seed, threads=task.threads)
    if work_dir is None:
        raise InvalidValueError("tuning needs work_dir, where measurements are kept")
    measurer = None if there is None else there.measurer
    tune(task, target, records=where, options=options, measurer=measurer)
    with open_store(where) as store:
        for record in store.trials(task):
            seconds = _seconds(record.measurement)
            trace = annotated(module, record.config).trace
            database.commit_tuning_record(TuningRecord(trace, workload, seconds, target, args_info(module["main"])))


def _replay(mod: IRModule, target: Target, generator: ScheduleFn, trials: int, database: Database, seed: int) -> None:
    """Draw schedules from a function and measure each, in a process of its own."""
    module = module_of(mod)
    workload = database.commit_workload(module)
    info = args_info(module["main"])
    tried: set[str] = set()
    with ModuleTimer(TIMEOUT_S, number=3, repeat=3) as timer:
        for trial in range(trials):
            for sch in generator.generate_design_space(module, target, seed + trial):
                text = str(sch.trace)
                if text in tried:
                    continue
                tried.add(text)
                scheduled = sch.mod["main"].with_attr("tir.is_scheduled", True)
                seconds = _seconds(timer.time((scheduled, str(target))))
                database.commit_tuning_record(TuningRecord(sch.trace, workload, seconds, target, info))


def _seconds(measurement: Measurement) -> list[float]:
    """What a record says of a measurement: seconds per call, or FAILED_S."""
    return list(measurement.times_s) if measurement.is_ok else [FAILED_S]


def as_task(x: object, target: TargetLike) -> ExtractedTask:
    """A task of a PrimFunc or a module of one."""
    if isinstance(x, ExtractedTask):
        return x
    if isinstance(x, PrimFunc | IRModule):
        return ExtractedTask("main", module_of(x), Target(target))
    raise InvalidTypeError(f"no task: {type(x).__name__}")

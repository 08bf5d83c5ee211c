"""Tuning of PrimFuncs."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike

from autosched.errors import InvalidTypeError, UsageError, refuse
from autosched.ir import IRModule
from autosched.meta_schedule.database import Database
from autosched.meta_schedule.options import refuse_measuring
from autosched.meta_schedule.tasks import ExtractedTask, tune_tasks
from autosched.meta_schedule.workload import module_of
from autosched.target import Target
from autosched.target.target import TargetLike
from autosched.tir import PrimFunc, Schedule


def tune_tir(
    mod: object, target: TargetLike, work_dir: str | PathLike[str], max_trials_global: int, *,
    max_trials_per_task: int | None = None, num_trials_per_iter: int = 64, builder: object = "local",
    runner: object = "local", database: object = "json", cost_model: object = "xgb",
    measure_callbacks: object = "default", task_scheduler: object = "gradient", space: object = "post-order-apply",
    strategy: object = "evolutionary", num_tuning_cores: object = "physical", seed: int | None = None,
    module_equality: str = "structural", special_space: Mapping[str, object] | None = None,
    post_optimization: bool = False, task_name: str = "main",
) -> Database:  # fmt: skip
    """Tune a PrimFunc, or every PrimFunc of a module.

    special_space  {function's name: space} where it is not `space`
    Raises         TypeError for what is neither; UsageError for a module without PrimFuncs
    """
    refuse_measuring("tune_tir", measure_callbacks, task_scheduler)
    refuse("tune_tir", post_optimization=post_optimization)
    if isinstance(mod, PrimFunc):
        mod = IRModule({task_name: mod})
    if not isinstance(mod, IRModule):
        raise InvalidTypeError(f"tune_tir takes a PrimFunc or an IRModule, got {type(mod).__name__}")
    chosen = Target(target)
    tasks = []
    for gv, f in mod.functions_items():
        if isinstance(f, PrimFunc):
            own = (special_space or {}).get(gv.name, space)
            tasks.append(ExtractedTask(gv.name, module_of(f), chosen, space_generator=own))
    if not tasks:
        raise UsageError("the module has no PrimFunc to tune")
    return tune_tasks(
        tasks=tasks, work_dir=work_dir, max_trials_global=max_trials_global, max_trials_per_task=max_trials_per_task,
        num_trials_per_iter=num_trials_per_iter, builder=builder, runner=runner, database=database,
        cost_model=cost_model, strategy=strategy, seed=seed, module_equality=module_equality,
    )  # fmt: skip


def compile_tir(database: Database, mod: object, target: TargetLike) -> Schedule | None:
    """The schedule of the fastest record; None where the database does not know the module."""
    return database.query_schedule(mod, Target(target), "main")

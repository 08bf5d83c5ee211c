"""Tuning and its results as passes, which `relax.transform` shows under TVM's names."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from autosched.driver.build.choose import is_scheduled
from autosched.errors import UsageError
from autosched.ir import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.meta_schedule.database import Database, JSONDatabase
from autosched.meta_schedule.tasks import ExtractedTask, tune_tasks
from autosched.meta_schedule.workload import module_of
from autosched.relax.pipeline import ZERO_PASSES
from autosched.target import Target
from autosched.tir import PrimFunc

log = logging.getLogger("autosched.meta_schedule")


def MetaScheduleApplyDatabase(work_dir: Any = None, enable_warning: bool = False) -> Pass:  # noqa: N802
    """Give every PrimFunc that a database knows the schedule of its fastest record.

    work_dir  of a JSON database; else that of the `with` block. Raises UsageError where there is none.
    """

    def apply(module: IRModule) -> IRModule:
        database = JSONDatabase(work_dir=work_dir) if work_dir is not None else Database.current()
        if database is None:
            raise UsageError(
                "MetaScheduleApplyDatabase found no database", hint="use `with database:` or give work_dir"
            )
        target = Target.current(allow_none=True) or Target("cpu")
        functions = dict(module.functions)
        for gv, f in module.functions.items():
            if not isinstance(f, PrimFunc) or is_scheduled(f):
                continue
            found = database.query_ir_module(module_of(f), target)
            if found is not None:
                functions[gv] = found["main"].with_attr("tir.is_scheduled", _has_loops_scheduled(found["main"]))
            elif enable_warning:
                log.warning("no record for %s", gv.name)
        return module.with_functions(functions)

    return graph_pass("MetaScheduleApplyDatabase")(apply)


def _has_loops_scheduled(func: PrimFunc) -> bool:
    """Whether the schedule is in the loops; one that only names a configuration is applied by the build."""
    from autosched.driver.build.choose import annotated_config

    return annotated_config(func) is None


def _target() -> Target:
    current = Target.current(allow_none=True)
    if current is None:
        raise UsageError("tuning needs a target", hint="use `with Target(…):`")
    return current


def MetaScheduleTuneTIR(  # noqa: N802
    work_dir: Any, max_trials_global: int, max_trials_per_task: int | None = None
) -> Pass:
    """Tune every PrimFunc of a module into the database of `work_dir`; the module stays as it is."""

    def tune(module: IRModule) -> IRModule:
        target = _target()
        tasks = [
            ExtractedTask(gv.name, module_of(f), target)
            for gv, f in module.functions_items() if isinstance(f, PrimFunc) and not is_scheduled(f)
        ]  # fmt: skip
        if tasks:
            tune_tasks(tasks=tasks, work_dir=work_dir, max_trials_global=max_trials_global,
                       max_trials_per_task=max_trials_per_task)  # fmt: skip
        return module

    return graph_pass("MetaScheduleTuneTIR")(tune)


def MetaScheduleTuneIRMod(  # noqa: N802
    params: Mapping[str, Any] | None, work_dir: Any, max_trials_global: int, max_trials_per_task: int | None = None,
    op_names: Collection[str] | None = None,
) -> Pass:  # fmt: skip
    """Tune the kernels that a module's functions call into the database of `work_dir`; the module stays as it is."""

    def tune(module: IRModule) -> IRModule:
        from autosched.meta_schedule.relax_integration import tune_relax

        tune_relax(module, params, _target(), work_dir, max_trials_global, max_trials_per_task, op_names)
        return module

    return graph_pass("MetaScheduleTuneIRMod")(tune)


def _current_database() -> Sequence[Pass]:
    """What the zero pipeline does within `with database:`."""
    return (MetaScheduleApplyDatabase(),) if Database.current() is not None else ()


ZERO_PASSES.append(_current_database)

"""Tuning of relax modules, and tuning and its results as passes, which `relax.transform` shows under TVM's names."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from os import PathLike

from autosched.driver.build.choose import is_scheduled
from autosched.driver.vm.relax_build import build_relax
from autosched.errors import InvalidTypeError, UsageError, refuse
from autosched.ir import IRModule
from autosched.ir.transform import Pass, PassContext, graph_pass
from autosched.meta_schedule.context import TuneContext
from autosched.meta_schedule.database import Database, JSONDatabase
from autosched.meta_schedule.options import refuse_measuring
from autosched.meta_schedule.tasks import ExtractedTask, open_database, tune_tasks
from autosched.meta_schedule.workload import form_of, module_of
from autosched.relax.expr import Call, Function
from autosched.relax.op.call import is_call_tir, tir_target
from autosched.relax.pipeline import ZERO_PASSES, get_pipeline
from autosched.relax.rewrite import bindings_of
from autosched.relax.transform import BindParams
from autosched.runtime.relax_vm import VMExecutable
from autosched.target import Target
from autosched.target.target import TargetLike
from autosched.tir import PrimFunc


def _prepared(mod: object, params: Mapping[str, object] | None) -> IRModule:
    module = IRModule.from_expr(mod) if isinstance(mod, Function) else mod
    if not isinstance(module, IRModule):
        raise InvalidTypeError(f"expected an IRModule, got {type(mod).__name__}")
    if params:
        module = BindParams("main", params)(module)
    if not any(isinstance(f, PrimFunc) for f in module.functions.values()):
        module = get_pipeline("zero")(module)
    return module


def extract_tasks(
    mod: object,
    target: TargetLike,
    params: Mapping[str, object] | None = None,
    *,
    module_equality: str = "structural",
) -> list[ExtractedTask]:
    """The kernels that a module's functions call, equal ones as one task with a weight."""
    refuse("extract_tasks", hint="tasks are equal by form", module_equality=module_equality != "structural")
    module, chosen = _prepared(mod, params), Target(target)
    counts: Counter[str] = Counter()
    for f in module.functions.values():
        for b in bindings_of(f.body) if isinstance(f, Function) else ():
            if isinstance(b.value, Call) and is_call_tir(b.value):
                counts[tir_target(b.value).name] += 1
    tasks: dict[str, ExtractedTask] = {}
    for gv, f in module.functions_items():
        if not isinstance(f, PrimFunc) or not counts[gv.name] or is_scheduled(f):
            continue
        own = module_of(f)
        known = tasks.get(form_of(own))
        if known is None:
            tasks[form_of(own)] = ExtractedTask(gv.name, own, chosen, [own], counts[gv.name])
        else:
            known.weight += counts[gv.name]
    return list(tasks.values())


def extracted_tasks_to_tune_contexts(
    extracted_tasks: Collection[ExtractedTask], work_dir: str | PathLike[str], space: object = "post-order-apply",
    strategy: object = "evolutionary", num_threads: int | str = "physical", seed: int | None = None,
) -> tuple[list[TuneContext], list[float]]:  # fmt: skip
    """A context for each task, and their weights; `tune_tasks` keeps its files in a `work_dir` of its own."""
    tasks = list(extracted_tasks)
    contexts = [
        TuneContext(
            t.mod,
            target=t.target,
            space_generator=space,
            search_strategy=strategy,
            task_name=t.task_name,
            rand_state=-1 if seed is None else seed,
            num_threads=num_threads,
        )  # fmt: skip
        for t in tasks
    ]
    return contexts, [float(t.weight) for t in tasks]


def tune_relax(
    mod: object, params: Mapping[str, object] | None, target: TargetLike, work_dir: str | PathLike[str],
    max_trials_global: int, max_trials_per_task: int | None = None, op_names: Collection[str] | None = None, *,
    num_trials_per_iter: int = 64, builder: object = "local", runner: object = "local", database: object = "json",
    cost_model: object = "xgb", measure_callbacks: object = "default", task_scheduler: object = "gradient",
    space: object = "post-order-apply", strategy: object = "evolutionary", seed: int | None = None,
    module_equality: str = "structural",
) -> Database:  # fmt: skip
    """Tune the kernels of a module; `op_names` limits that to those whose name holds one of the texts."""
    refuse_measuring("tune_relax", measure_callbacks, task_scheduler)
    tasks = extract_tasks(mod, target, params)
    if op_names is not None:
        tasks = [t for t in tasks if any(name in t.task_name for name in op_names)]
    if not tasks:
        return open_database(database, work_dir, module_equality)
    return tune_tasks(
        tasks=tasks, work_dir=work_dir, max_trials_global=max_trials_global, max_trials_per_task=max_trials_per_task,
        num_trials_per_iter=num_trials_per_iter, builder=builder, runner=runner, database=database,
        cost_model=cost_model, space=space, strategy=strategy, seed=seed, module_equality=module_equality,
    )  # fmt: skip


def compile_relax(
    database: Database,
    mod: object,
    target: TargetLike,
    params: Mapping[str, object] | None = None,
    enable_warning: bool = False,
) -> VMExecutable:
    """Build a module with what the database knows of its kernels."""
    module = _prepared(mod, params)
    with Target(target), database, PassContext(opt_level=3):
        module = MetaScheduleApplyDatabase(enable_warning=enable_warning)(module)
    return build_relax(module, target)


log = logging.getLogger("autosched.meta_schedule")


def MetaScheduleApplyDatabase(work_dir: str | PathLike[str] | None = None, enable_warning: bool = False) -> Pass:  # noqa: N802
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
    work_dir: str | PathLike[str], max_trials_global: int, max_trials_per_task: int | None = None
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
    params: Mapping[str, object] | None, work_dir: str | PathLike[str], max_trials_global: int,
    max_trials_per_task: int | None = None, op_names: Collection[str] | None = None,
) -> Pass:  # fmt: skip
    """Tune the kernels that a module's functions call into the database of `work_dir`; the module stays as it is."""

    def tune(module: IRModule) -> IRModule:
        tune_relax(module, params, _target(), work_dir, max_trials_global, max_trials_per_task, op_names)
        return module

    return graph_pass("MetaScheduleTuneIRMod")(tune)


def _current_database() -> Sequence[Pass]:
    """What the zero pipeline does within `with database:`."""
    return (MetaScheduleApplyDatabase(),) if Database.current() is not None else ()


ZERO_PASSES.append(_current_database)

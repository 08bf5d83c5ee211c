"""The tuning tasks of a model: its distinct workloads, with how often each occurs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autosched.driver.build import call_counts, has_graph, prepare
from autosched.driver.choose import is_scheduled, make_task
from autosched.driver.models import as_module
from autosched.driver.settings import resolve_records, resolve_target, resolve_threads
from autosched.ir import IRModule
from autosched.target import Target
from autosched.task import Task
from autosched.templates import space_for, templates_for
from autosched.tir import PrimFunc


def extract_tasks(
    module: IRModule, target: Target, *, threads: int = 1, params: Mapping[str, Any] | None = None
) -> tuple[Task, ...]:
    """The tasks of a module, those with the most work first; equal workloads are one task, their counts added."""
    weights: dict[str, int] = {}
    if has_graph(module):
        module = prepare(module, target, params or {})
        weights = call_counts(module)
    tasks: dict[str, Task] = {}
    for gv, func in module.functions_items():
        if not isinstance(func, PrimFunc) or is_scheduled(func):
            continue
        weight = weights.get(gv.name, 1)
        task = make_task(func, target, name=gv.name, weight=weight, threads=threads)
        known = tasks.get(task.key)
        if known is not None:
            task = make_task(func, target, name=known.name, weight=known.weight + weight, threads=threads)
        tasks[task.key] = task
    return tuple(sorted(tasks.values(), key=lambda t: -t.weight * _work(t)))


def _work(task: Task) -> int:
    """A measure of a task's size before anything is measured: multiply-adds of its anchor, or elements touched."""
    steps = task.workload.attrs.get("sizes", ())
    work = 1
    for size in steps if isinstance(steps, tuple) else ():
        work *= int(size or 1)  # type: ignore[arg-type]
    if work > 1:
        return work
    elements = 0
    for shape in task.workload.shapes:
        n = 1
        for extent in shape:
            n *= extent
        elements += n
    return elements


def list_tasks(
    what: Any, target: Any = None, *, threads: int | None = None, records: Any = None
) -> list[dict[str, Any]]:
    """A row for each task: index, name, weight, templates, number of configurations, what the records know."""
    chosen = resolve_target(target)
    reader = resolve_records(records)
    rows = []
    for index, task in enumerate(extract_tasks(as_module(what), chosen, threads=resolve_threads(threads))):
        found = reader.best(task)
        rows.append(
            {
                "index": index,
                "name": f"{task.name}: {task.workload}",
                "weight": task.weight,
                "templates": [t.name for t, _ in templates_for(task.func, chosen)],
                "configs": space_for(task.func, chosen).count(),
                "record": str(found.trust) if found else "none",
            }
        )
    return rows

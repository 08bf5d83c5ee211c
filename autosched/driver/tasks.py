"""The tuning tasks of a model: its distinct workloads, with how often each occurs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from autosched.driver.build.choose import is_scheduled, make_task
from autosched.driver.build.graph import call_counts, has_graph, prepare
from autosched.driver.build.graph_options import options_for
from autosched.driver.build.tuned_layouts import TunedLayouts
from autosched.ir import IRModule
from autosched.target import Target
from autosched.task import Task
from autosched.templates.base import KERNEL_NAME
from autosched.tir import PrimFunc


def extract_tasks(
    module: IRModule,
    target: Target,
    *,
    threads: int = 1,
    params: Mapping[str, object] | None = None,
    layouts: TunedLayouts | None = None,
) -> tuple[Task, ...]:
    """The tasks of a module, those with the most work first; equal workloads are one task, their counts added.

    layouts  what the records that a build would use know of layouts; their options of the graph are used too
    """
    if has_graph(module):
        options = None if layouts is None else options_for(module, target, layouts.reader, layouts.threads)
        prepared = prepare(module, target, params or {}, layouts, options)
        return prepared_tasks(prepared, target, threads=threads, cache="cold")
    return prepared_tasks(module, target, threads=threads, cache="warm")


def prepared_tasks(module: IRModule, target: Target, *, threads: int, cache: str) -> tuple[Task, ...]:
    """The tasks of a module that `prepare` has gone over, or of one without a graph.

    cache  how their kernels will find their weights: "cold" in a model, "warm" in a loop of calls
    """
    weights = call_counts(module) if has_graph(module) else {}
    tasks: dict[str, Task] = {}
    for gv, func in module.functions_items():
        if not isinstance(func, PrimFunc) or is_scheduled(func):
            continue
        weight = weights.get(gv.name, 1)
        task = make_task(func, target, name=gv.name, weight=weight, threads=threads, cache=cache)
        known = tasks.get(task.key)
        if known is not None:
            task = dataclasses.replace(known, weight=known.weight + weight)
        elif has_graph(module):  # so that the builder's kernels are those that the build finds in the kernel cache
            task = dataclasses.replace(task, func=func.with_attr(KERNEL_NAME, gv.name))
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

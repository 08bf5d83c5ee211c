"""Which configuration each kernel of a module gets: looked up in the records, else the template's default."""

from __future__ import annotations

from dataclasses import dataclass

from autosched.driver.work import count_work
from autosched.errors import ScheduleError, SpaceError
from autosched.ir import IRModule, walk
from autosched.records import Found, RecordReader, Trust
from autosched.space import Config, ConfigSpace
from autosched.target import Target
from autosched.task import Task
from autosched.templates import Applied, apply_config, default_config, space_for, templates_for
from autosched.templates.workload import describe
from autosched.tir import Block, For, LoopKind, PrimFunc


@dataclass(frozen=True)
class Choice:
    """One kernel's configuration, and why it is that one.

    name        the function's name in the module
    is_default  whether the configuration is the template's default, looked up or not
    applied     the function with the configuration applied, where that was tried to see whether it can be used
    """

    name: str
    task: Task
    config: Config
    found: Found
    is_default: bool
    applied: Applied | None = None

    @property
    def row(self) -> dict[str, object]:
        """The line of the build report."""
        return {
            "kernel": self.name,
            "workload": str(self.task.workload),
            "template": self.config.template,
            "config": str(self.config),
            "origin": self.found.origin or "template default",
            "trust": str(self.found.trust),
            "reason": self.found.reason,
            "expected_s": self.found.expected_s,
            "flops": count_work(self.task.func),
        }


def make_task(func: PrimFunc, target: Target, *, name: str = "", weight: int = 1, threads: int = 1) -> Task:
    """The tuning task of one function in its natural layout."""
    return Task(describe(func, target), target, weight=weight, func=func, threads=threads, name=name)


def choose(task: Task, records: RecordReader | None, name: str) -> Choice:
    """The configuration for a task; an invalid or missing record gives the default, with the reason."""
    func, target = task.func, task.target
    default = default_config(func, target)
    if records is None:
        return Choice(name, task, default, Found(default, "", Trust.DEFAULT, "nothing was looked up"), True)
    tried: dict[Config, Applied] = {}

    def objection(config: Config) -> str:
        if text := _objection(func, target, config):
            return text
        try:
            tried[config] = apply_config(func, config, target)
        except (SpaceError, ScheduleError) as error:  # recorded when the template was another one
            return error.line
        return ""

    found = records.best(task, objection)
    if found.config is None:
        return Choice(name, task, default, found, True)
    return Choice(name, task, found.config, found, found.config == default, tried.get(found.config))


def _objection(func: PrimFunc, target: Target, config: Config) -> str:
    """Why a recorded configuration cannot be used for the function; "" if it can."""
    matching = {template.name for template, _ in templates_for(func, target)}
    if config.template not in matching:
        return f"template '{config.template}' does not apply"
    try:
        space: ConfigSpace = space_for(func, target)
    except SpaceError as error:
        return str(error)
    return space.why_not(config)


def is_scheduled(func: PrimFunc) -> bool:
    """Whether somebody has scheduled it: its attribute says so, a loop is not serial, or a sum is decomposed."""
    if func.attrs.get("tir.is_scheduled") or func.attrs.get("tirx.is_scheduled"):
        return True
    nodes = list(walk(func.body))
    names = {x.name_hint for x in nodes if isinstance(x, Block)}
    decomposed = any(n.endswith("_update") and f"{n[:-7]}_init" in names for n in names)  # no template takes it up
    return decomposed or any(isinstance(x, For) and x.kind is not LoopKind.SERIAL for x in nodes)


def choose_all(
    module: IRModule,
    target: Target,
    records: RecordReader | None,
    *,
    threads: int,
    weights: dict[str, int] | None = None,
) -> dict[str, Choice]:
    """A choice for every PrimFunc of the module that nobody has scheduled, by name; equal workloads share a look-up."""
    by_key: dict[str, Choice] = {}
    choices: dict[str, Choice] = {}
    for gv, func in module.functions_items():
        if not isinstance(func, PrimFunc) or is_scheduled(func):
            continue
        weight = (weights or {}).get(gv.name, 1)
        task = make_task(func, target, name=gv.name, weight=weight, threads=threads)
        if task.key not in by_key:
            by_key[task.key] = choose(task, records, gv.name)
        first = by_key[task.key]
        applied = first.applied if first.task.func is func else None
        choices[gv.name] = Choice(gv.name, task, first.config, first.found, first.is_default, applied)
    return choices

"""Which configuration each kernel of a module gets: looked up in the records, else the template's default."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autosched.codegen.lower.flops import count_work
from autosched.driver.task_space import with_usual_threads
from autosched.errors import ScheduleError, SpaceError, UntrustedError
from autosched.ir import IRModule
from autosched.records import Found, RecordReader, Trust
from autosched.records.lookup import Lookup
from autosched.space import Config, ConfigSpace
from autosched.target import Target
from autosched.task import Task
from autosched.templates import Applied, apply_config, default_config, space_for, template_versions, templates_for
from autosched.templates.kernel import Facts
from autosched.templates.thread_knob import split_threads
from autosched.templates.workload import describe
from autosched.tir.axis import REDUCE, SPATIAL
from autosched.tir.function import PrimFunc
from autosched.tir.functor import statements
from autosched.tir.stmt import Block, BlockRealize, Evaluate, For, LoopKind, SeqStmt, Stmt, While

if TYPE_CHECKING:
    from autosched.json_types import Json


@dataclass(frozen=True)
class Choice:
    """One kernel's configuration, and why it is that one.

    name        the function's name in the module
    is_default  whether the configuration is the template's default, looked up or not
    applied     the function with the configuration applied, where that was tried to see whether it can be used
    threads     over how many a call is split at most, where the record says that; `config` is without it
    work        the function's floating-point operations, where they are known already
    """

    name: str
    task: Task
    config: Config
    found: Found
    is_default: bool
    applied: Applied | None = None
    threads: int | None = None
    work: int | None = None

    @property
    def flops(self) -> int:
        """The function's floating-point operations, see `count_work`."""
        return count_work(self.task.func) if self.work is None else self.work

    @property
    def row(self) -> dict[str, object]:
        """The line of the build report."""
        return {
            "kernel": self.name,
            "workload": str(self.task.workload),
            "types": " ".join(dict.fromkeys(self.task.workload.dtypes)),
            "template": self.config.template,
            "config": str(self.config) + (f" threads={self.threads}" if self.threads else ""),
            "origin": self.found.origin or "template default",
            "trust": str(self.found.trust),
            "reason": self.found.reason,
            "expected_s": self.found.expected_s,
            "flops": self.flops,
        }


def make_task(
    func: PrimFunc, target: Target, *, name: str = "", weight: int = 1, threads: int = 1, cache: str = ""
) -> Task:
    """The tuning task of one function in its natural layout."""
    return Task(describe(func, target), target, weight=weight, func=func, threads=threads, name=name, cache=cache)


def choose(task: Task, records: RecordReader | None, name: str, default: Config | None = None) -> Choice:
    """The configuration for a task; an invalid or missing record gives the default, with the reason.

    default  of the task's function, where it is known
    """
    func, target = task.func, task.target
    default = default or default_config(func, target)
    if (named := annotated_config(func)) is not None and not _objection(func, target, named):
        found = Found(named, "the function's annotation", Trust.PINNED, "a schedule names it")
        return Choice(name, task, named, found, named == default)
    if records is None:
        return Choice(name, task, default, Found(default, "", Trust.DEFAULT, "nothing was looked up"), True)
    check = Usable(task, default)
    found = records.best(task, check)
    if found.config is None:
        return Choice(name, task, default, found, True)
    config, split = split_threads(found.config)
    return Choice(name, task, config, found, config == default, check.tried.get(config), split)


class Usable:
    """Says why a recorded configuration cannot be used for a task's function, "" if it can.

    plain     the default of the function's template, where it is known
    versions  the current version of each template
    tried     what was applied on the way
    """

    def __init__(self, task: Task, plain: Config | None = None):
        self.task, self.func, self.target, self._plain = task, task.func, task.target, plain
        self.versions = template_versions(task.target.backend)
        self.tried: dict[Config, Applied] = {}

    @functools.cached_property
    def default(self) -> Config:
        """What the task gets without any record."""
        return with_usual_threads(self._plain or default_config(self.func, self.target), self.task)

    def __call__(self, config: Config) -> str:
        config, _ = split_threads(config)
        if text := _objection(self.func, self.target, config):
            return text
        try:
            self.tried[config] = apply_config(self.func, config, self.target)
        except (SpaceError, ScheduleError) as error:  # recorded when the template was another one
            return error.line
        return ""


def annotated_config(func: PrimFunc) -> Config | None:
    """The configuration that a tuned schedule has written on the function's root block."""
    root = func.body.block if isinstance(func.body, BlockRealize) else None
    text = root.annotations.get("autosched.config") if root is not None else None
    return None if text is None else Config.from_json(str(getattr(text, "value", text)))


def _objection(func: PrimFunc, target: Target, config: Config) -> str:
    """Why a recorded configuration cannot be used for the function; "" if it can."""
    matching = {template.name for template, _ in templates_for(func, target)}
    if config.template not in matching:
        return f"template '{config.template}' does not apply"
    try:
        space: ConfigSpace = space_for(func, target)
    except SpaceError as error:
        return str(error)
    reason = space.why_not(config)
    if not reason.endswith("is no candidate"):
        return reason
    try:  # a value that another version's list, or a folder of the user's own, has offered
        space.with_default(config)
    except SpaceError as error:
        return str(error)
    return ""


def is_scheduled(func: PrimFunc, recurrences: bool = True) -> bool:
    """Whether its loops are taken as they are. Without `recurrences` those are not, where each nest is scheduled.

    Somebody has scheduled it (its attribute says so, a loop is not serial, a sum is decomposed), or it has not the form
    that templates take up.
    """
    if func.attrs.get("tir.is_scheduled") or func.attrs.get("tirx.is_scheduled"):
        return True
    nodes = list(statements(func.body))
    names = {x.name_hint for x in nodes if isinstance(x, Block)}
    decomposed = any(n.endswith("_update") and f"{n[:-7]}_init" in names for n in names)  # no template takes it up
    return decomposed or not _has_plain_nests(func, not recurrences) or any(
        isinstance(x, For) and x.kind is not LoopKind.SERIAL for x in nodes
    )  # fmt: skip


def _has_plain_nests(func: PrimFunc, repeated: bool) -> bool:
    """Whether a function is what templates schedule: a sequence of loop nests, each around one block that stores.

    repeated  so may be what a loop at the top repeats
    """
    if not isinstance(func.body, BlockRealize):
        return False
    body = func.body.block.body
    parts: list[Stmt] = []
    for stmt in body.seq if isinstance(body, SeqStmt) else (body,):
        parts += stmt.body.seq if repeated and isinstance(stmt, For) and isinstance(stmt.body, SeqStmt) else (stmt,)
    for stmt in parts:
        while isinstance(stmt, For):
            stmt = stmt.body
        if not isinstance(stmt, BlockRealize) or stmt.block.match_buffers or stmt.block.alloc_buffers:
            return False
        if any(isinstance(x, BlockRealize | For | While | Evaluate) for x in statements(stmt.block.body)):
            return False
        if any(iv.kind not in (SPATIAL, REDUCE) for iv in stmt.block.iter_vars):
            return False
        written = {w.buffer for w in stmt.block.writes}
        if stmt.block.init is None and any(r.buffer in written for r in stmt.block.reads):
            return False  # each iteration may need the one before
    return True


def choose_all(
    module: IRModule,
    target: Target,
    records: RecordReader | None,
    *,
    threads: int,
    weights: dict[str, int] | None = None,
    cache: str = "",
    chosen: Callable[[Choice], object] = lambda choice: None,
) -> dict[str, Choice]:
    """A choice for every unscheduled PrimFunc of the module, by name; equal workloads share a look-up.

    cache   how kernels will find their weights: "cold" in a model, "warm" in a loop of calls
    chosen  is given each choice as soon as it is made
    """
    by_key: dict[str, Choice] = {}
    choices: dict[str, Choice] = {}
    for gv, func in module.functions_items():
        if not isinstance(func, PrimFunc) or is_scheduled(func, recurrences=target.is_cpu):
            continue
        weight = (weights or {}).get(gv.name, 1)
        facts = Facts.of(func, target)
        task = Task(facts.workload, target, weight=weight, func=func, threads=threads, name=gv.name, cache=cache)
        if task.key not in by_key:
            by_key[task.key] = choose(task, records, gv.name, facts.default)
        first = by_key[task.key]
        applied = first.applied if first.task.func is func else None
        choices[gv.name] = dataclasses.replace(first, name=gv.name, task=task, applied=applied, work=facts.work)
        chosen(choices[gv.name])
    if isinstance(records, Lookup) and records.is_strict:
        refuse_untrusted(choices.values())
    return choices


TRUSTED = (Trust.HERE, Trust.SAME_DEVICE, Trust.ELSEWHERE)


def refuse_untrusted(choices: Iterable[Choice]) -> None:
    """Raise UntrustedError that names the kernels with an unverified configuration."""
    found = {choice.task.key: choice for choice in choices}
    weak = [choice for choice in found.values() if choice.found.trust not in TRUSTED]
    if weak:
        named = ", ".join(f"{choice.task.workload} ({choice.found.trust})" for choice in weak[:3])
        more = f" and {len(weak) - 3} more" if len(weak) > 3 else ""
        raise UntrustedError(
            f"{len(weak)} of {len(found)} kernels have no trusted record: {named}{more}",
            hint="tune the model, or see `autosched logs explain`",
        )


@dataclass(frozen=True)
class BuildReport:
    """Rows of kernel, template, origin, trust and expected time; and one line that sums them up."""

    rows: tuple[Mapping[str, Json], ...]
    compile_s: float = 0.0
    graph: Mapping[str, Json] | None = None  # options of the graph's passes and why, where records know of any

    @property
    def graph_text(self) -> str:
        """What is said of the graph, "" where records know of none."""
        if self.graph is None:
            return ""
        reason = f"; {self.graph['reason']}" if self.graph["reason"] else ""
        return f"{self.graph['config']} ({self.graph['origin']}, {self.graph['trust']}{reason})"

    @property
    def summary(self) -> str:
        """One line: how many kernels, where their configurations came from, how long compiling took."""
        trusts = Counter(str(r["trust"]) for r in self.rows)
        rest = {trust: trusts.pop(trust, 0) for trust in ("near shape", "pinned", "default")}
        parts = []
        if trusts:
            levels = ", ".join(f"{trusts[trust]} {trust}" for trust in map(str, Trust) if trust in trusts)
            parts.append(f"{trusts.total()} from records ({levels})")
        parts += [f"{n} {trust}" for trust, n in rest.items() if n]
        distinct = len(self.rows)
        text = f"{distinct} kernel{'s' if distinct != 1 else ''}: {', '.join(parts) or 'none'}"
        weak = sum(1 for r in self.rows if r["reason"] and r["trust"] == "default" and "invalid" in str(r["reason"]))
        if narrow := sum(1 for r in self.rows if str(r.get("types", "")).startswith("bfloat16")):
            text += f", {narrow} on bfloat16 with sums of float32"
        if weak:
            text += f", {weak} with an unusable record (see -v)"
        return f"{text}; compiled in {self.compile_s:.1f} s" if self.compile_s else text


def report_of(choices: Sequence[Choice], compile_s: float) -> BuildReport:
    return BuildReport(tuple(c.row for c in choices), compile_s)

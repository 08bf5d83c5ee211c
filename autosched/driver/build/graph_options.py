"""How the graph level builds a model: the options of its passes, and what records say of them for a model.

They are the configuration of a whole model, as a template's knobs are a kernel's: `search_spaces/<back end>/graph.toml`
lists them, `driver.tune.graph_search` tries them by runs of the whole model, and a build looks the winner up.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from autosched.driver.build.precision import precision_of
from autosched.errors import RecordError
from autosched.ir import IRModule
from autosched.ir.structural import structural_key
from autosched.records import Found, RecordReader, Trust
from autosched.records.choose import choose as choose_record
from autosched.records.found import WinnerSource, miss
from autosched.records.lock import Lock
from autosched.records.lookup import parts, sources
from autosched.relax.struct_info import tensor_infos
from autosched.relax.transform.bind_symbolic import symbolic_dims
from autosched.relax.transform.narrow_products import WIDE
from autosched.space import Config, ConfigSpace, list_spaces, load_space
from autosched.target import Target
from autosched.task import Task, Workload

GRAPH = "graph"  # the workload's operator, the space's name, the template of its configurations
VERSION = "3"  # of the options' meaning, as a template's


@dataclass(frozen=True)
class GraphOptions:
    """Options of the graph level's passes; the defaults are what a model gets that was not tuned.

    blocks          channels in a block that layouts of images may have: a "vector", "two vectors", "both", "none"
    change_percent  what a change of layout is taken to cost, of its estimate
    fuse_sums       whether a convolution or product takes in the sum with another tensor of its result's shape
    fuse_attention  whether attention becomes one kernel
    join_convolutions  whether a 1x1 convolution and the depthwise one behind it are one kernel: "usual" where that
                    is faster by an estimate, "all", "none"
    branches        whether parts of the graph that do not depend on each other run side by side, each on one thread
    """

    blocks: str = "both"
    change_percent: int = 100
    fuse_sums: bool = True
    fuse_attention: bool = True
    join_convolutions: str = "usual"
    branches: bool = False

    @property
    def config(self) -> Config:
        """The options as a point of their space."""
        return Config(GRAPH, dataclasses.asdict(self))

    @staticmethod
    def of(config: Config) -> GraphOptions:
        """The options that a configuration of the space names."""
        return GraphOptions(**config.knobs)  # type: ignore[arg-type]  # the space has checked their types

    def layout_blocks(self, usual: Sequence[int]) -> tuple[int, ...]:
        """Of the numbers of channels that the target's blocks may have, those that are used."""
        chosen = {"both": usual, "vector": usual[:-1], "two vectors": usual[-1:], "none": ()}[self.blocks]
        return tuple(chosen)


@dataclass(frozen=True)
class GraphChoice:
    """A model's options and why it has them."""

    task: Task
    options: GraphOptions
    found: Found

    @property
    def row(self) -> dict[str, str | float | None]:
        """What the build report says of it, under the names of a kernel's row."""
        return {
            "workload": str(self.task.workload),
            "config": str(self.options.config),
            "origin": self.found.origin or "default",
            "trust": str(self.found.trust),
            "reason": self.found.reason,
            "expected_s": self.found.expected_s,
        }


def graph_task(module: IRModule, target: Target, threads: int) -> Task:
    """The task of a model as a whole: its form without the values of its weights, its inputs and outputs.

    The sizes of `main` are known numbers.
    """
    main = module["main"]
    infos = [*(p.struct_info for p in main.params), *tensor_infos(main.ret_struct_info)]
    attrs: dict[str, str] = {"form": structural_key(main, labelled=False, valued=False)[:16]}
    if (precision := precision_of(module, target)) != WIDE:
        attrs["precision"] = precision
    known = [info for info in infos if getattr(info, "is_static", False)]
    shapes = tuple(info.static_shape for info in known)
    workload = Workload(GRAPH, tuple(info.dtype for info in known), shapes, attrs)
    return Task(workload, target, threads=threads, name=GRAPH, cache="cold")


def graph_space(target: Target) -> ConfigSpace | None:
    """The options that can be tried; None for a back end that has none."""
    if GRAPH not in list_spaces(target.backend):
        return None
    return load_space(target.backend, GRAPH, {}).with_default(GraphOptions().config)


def choose_graph(module: IRModule, target: Target, records: RecordReader | None, threads: int) -> GraphChoice | None:
    """The options that the records have for a model, else the defaults; None where there is nothing to look up.

    A record counts for the model's form, on a device that a kernel's record would count for, and for the same number of
    threads alone: with another one other graphs are the fastest.
    """
    space = graph_space(target)
    if space is None or records is None or symbolic_dims(module["main"]) or not _knows_graphs(records, target):
        return None  # the usual case: the form of a large model is not computed for nothing
    task = graph_task(module, target, threads)
    found = _recorded(task, space, records)
    options = GraphOptions() if found.config is None else GraphOptions.of(found.config)
    return GraphChoice(task, options, found)


def options_for(module: IRModule, target: Target, records: RecordReader | None, threads: int) -> GraphOptions:
    """The options of `choose_graph`; the defaults where there is no choice."""
    choice = choose_graph(module, target, records, threads)
    return GraphOptions() if choice is None else choice.options


def _knows_graphs(reader: RecordReader, target: Target) -> bool:
    """Whether there are records of any model as a whole."""
    any_graph = Task(Workload(GRAPH, (), ()), target)
    for part in parts(reader):
        if isinstance(part, Lock) and any(Workload.from_json(key).op == GRAPH for key in part.configs):
            return True
        if isinstance(part, WinnerSource):
            with contextlib.suppress(RecordError):  # the kernels' look-up reports it
                if any(True for _ in part.winners_of_op(any_graph, GRAPH)):
                    return True
    return False


def _recorded(task: Task, space: ConfigSpace, reader: RecordReader) -> Found:
    if (lock := next((part for part in parts(reader) if isinstance(part, Lock)), None)) is not None:
        if task.key not in lock.configs:
            return Found(None, "lock", Trust.DEFAULT, "the lock says nothing of the graph")
        return lock.own(task, _Usable(space))
    answer, others = miss("", "no record"), set[int]()
    for source in sources(reader):
        try:
            winners = list(source.winners_of(task))
        except RecordError:  # the kernels' look-up reports it
            continue
        same = [record for record in winners if record.threads == task.threads]
        others |= {record.threads for record in winners} - {task.threads}
        like = str(getattr(reader, "like", ""))
        found = choose_record(
            same, task, source.origin_for(task), valid=_Usable(space), by_family=source.by_family, like=like
        )
        if found:
            return found
        answer = found if same else answer
    if others and answer.reason == "no record":
        return miss("", f"tuned with {', '.join(map(str, sorted(others)))} threads only")
    return answer


class _Usable:
    """Says why a recorded configuration is none of the space; "" if it is one."""

    versions = {GRAPH: VERSION}
    default = GraphOptions().config

    def __init__(self, space: ConfigSpace):
        self.space = space

    def __call__(self, config: Config) -> str:
        return self.space.why_not(config)


__all__ = [
    "GRAPH", "VERSION", "GraphChoice", "GraphOptions", "choose_graph", "graph_space", "graph_task", "options_for"
]  # fmt: skip

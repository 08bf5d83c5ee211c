"""Winners judged inside the built model: what is fastest alone may not be fastest between the other kernels.

Two executables at a time are built and run in turn. First the finalists of the heaviest tasks are swapped in one by
one, and one that makes the whole model faster beyond doubt, twice, is taken; then the model as it was meets the model
as it is now, and where that is not faster, everything goes back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autosched.driver.bench.programs import Program, autosched_program
from autosched.driver.bench.rounds import Comparison, compare, measure
from autosched.driver.build.choose import Choice, is_scheduled, make_task
from autosched.driver.build.graph import assemble, call_counts
from autosched.driver.build.input_ranges import input_ranges
from autosched.driver.task_space import default_of
from autosched.driver.tune.report import ModelTimes
from autosched.ir import IRModule, preorder
from autosched.records import Found, Trust
from autosched.relax.expr import Constant
from autosched.space import Config
from autosched.target import Target
from autosched.task import Task
from autosched.templates import apply_config
from autosched.templates.thread_knob import split_threads
from autosched.tir import PrimFunc

Configs = Mapping[str, Config]  # by workload key

LOOK_S, SWAP_S, FINAL_S = 0.06, 0.6, 1.2  # measuring time of one program
WARM_UP_S = 0.1  # before a swap is measured: its other kernels have just run
MOST_TASKS, MOST_SWAPS = 5, 2  # the heaviest tasks, and the finalists of each
LEAST_CHANGE = 0.002  # of the model's time: smaller changes are not worth a doubt


@dataclass(frozen=True)
class Swap:
    """Something else for one task to be tried in the model."""

    key: str
    name: str
    config: Config


class ModelCheck:
    """Builds a prepared model with given configurations and runs it.

    origin  the module that `prepared` was made from, which knows what its inputs may hold
    """

    def __init__(self, origin: IRModule, prepared: IRModule, target: Target, threads: int):
        self.prepared, self.target, self.threads = prepared, target, threads
        self._ranges = input_ranges(origin)
        self._tasks = model_tasks(prepared, target, threads)
        self._choices: dict[tuple[str, str], Choice] = {}
        self._defaults: dict[str, Config] = {}
        self.last_build_s = 0.0

    @property
    def weight_bytes(self) -> int:
        """Bytes of all constants, each once."""
        constants = (node for node in preorder(self.prepared["main"]) if isinstance(node, Constant))
        found = {id(node.data): node.data.nbytes for node in constants}
        return int(sum(found.values()))

    def program(self, configs: Configs, name: str) -> Program:
        """The built model; tasks without a configuration have their defaults. Raises AutoschedError."""
        start = time.perf_counter()
        choices = {gv: self._choose(gv, task, configs.get(task.key)) for gv, task in self._tasks.items()}
        executable = assemble(self.prepared, choices, self.target, self.threads)
        executable.manifest["input_ranges"] = self._ranges
        program = autosched_program(name, executable, self.threads)
        self.last_build_s = time.perf_counter() - start
        return program

    def _choose(self, name: str, task: Task, config: Config | None) -> Choice:
        """A function with a configuration applied; kept, as most functions are the same in the next program."""
        if name not in self._defaults:
            self._defaults[name] = default_of(task)
        default = self._defaults[name]
        full = config or default
        if (name, full.key) not in self._choices:
            plain, threads = split_threads(full)
            applied = apply_config(task.func, plain, self.target)
            found = Found(full, "tuning", Trust.HERE)
            self._choices[name, full.key] = Choice(name, task, plain, found, full == default, applied, threads)
        return self._choices[name, full.key]

    def compare(
        self, first: Program, second: Program, time_s: float, warmup_s: float | None = None
    ) -> tuple[Comparison, float, float]:
        """Run two programs in turn: the verdict and both medians. `warmup_s` as for `measure`."""
        one, two = measure([first, second], time_s, warmup_s=warmup_s)
        return compare(one, two), one.median_s, two.median_s


def model_tasks(prepared: IRModule, target: Target, threads: int) -> dict[str, Task]:
    """The task of every function that a prepared model calls, by the function's name."""
    counts = call_counts(prepared)
    return {
        gv.name: make_task(func, target, name=gv.name, weight=counts.get(gv.name, 1), threads=threads, cache="cold")
        for gv, func in prepared.functions_items()
        if isinstance(func, PrimFunc) and not is_scheduled(func)
    }


def settle(
    check: ModelCheck,
    before: Configs,
    after: Configs,
    swaps: Sequence[Swap],
    has_time: Callable[[float], bool],
) -> tuple[dict[str, Config], ModelTimes]:
    """The configurations that the model is fastest with, and what whole runs of it took.

    before    what a build would have used;   after   with the winners of the tuning
    swaps     what is tried instead, the most promising first
    has_time  whether so many seconds more may be spent
    """
    old = check.program(before, "before")
    chosen, reverted = dict(after), list[str]()
    if _changed(before, after) or swaps:
        current = check.program(chosen, "after") if _changed(before, after) else old
        for swap in swaps:
            if not has_time(2 * check.last_build_s + 2 * SWAP_S + 2 * FINAL_S):
                break
            tried = {**chosen, swap.key: swap.config}
            other = check.program(tried, "swapped")
            if _is_faster(check, current, other):
                chosen, current = tried, other
                reverted.append(f"{swap.name}: {swap.config}")
        if not _changed(before, chosen):
            seconds = _alone(old)
            return dict(before), ModelTimes(seconds, seconds, reverted=tuple(reverted))
        verdict, before_s, after_s = check.compare(old, current, FINAL_S)
        if verdict.ratio >= 1:  # tuning must be unable to lose: what does not show in the model is not worth a doubt
            return dict(before), ModelTimes(before_s, before_s, reverted=("everything is as it was",))
        # The ratio of each round's medians tells the change best; the interval is around it.
        return chosen, ModelTimes(before_s, before_s * verdict.ratio, verdict.low, verdict.high, tuple(reverted))
    seconds = _alone(old)
    return dict(before), ModelTimes(seconds, seconds)


def _changed(before: Configs, after: Configs) -> bool:
    return any(before.get(key) != config for key, config in after.items())


def _alone(program: Program) -> float:
    (timing,) = measure([program], FINAL_S / 2)
    return timing.median_s


def _is_faster(check: ModelCheck, current: Program, other: Program) -> bool:
    """Whether the other one is faster beyond doubt, twice: of many that are tried one may be lucky."""
    if check.compare(current, other, LOOK_S, WARM_UP_S)[0].low >= 1:  # it is surely slower
        return False
    for _ in range(2):
        verdict, _, _ = check.compare(current, other, SWAP_S, WARM_UP_S)
        if verdict.high >= 1 or verdict.ratio > 1 - LEAST_CHANGE:
            return False
    return True

"""What the surroundings say: targets, threads and records from arguments, contexts and settings.

Only this module reads TVM's ambient contexts (`with Target(…)`, `with ApplyHistoryBest(…)`); what they say is handed on
as arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from autosched.codegen.backends import codegen_backend
from autosched.env import AUTOSCHED_TARGET_AS, AUTOSCHED_TUNE
from autosched.errors import DeviceError, ScheduleError, SpaceError, UsageError
from autosched.records import DispatchContext, FallbackContext, Record, default_reader
from autosched.records.layers import Source
from autosched.records.lookup import Lookup, Predictor
from autosched.runtime.cuda.devices import driver_of
from autosched.runtime.cuda.kernel import choose_image
from autosched.space import Config
from autosched.target import Target, host_cpu
from autosched.target.gpus import usual_arch
from autosched.target.threads import choose_threads
from autosched.task import Task
from autosched.templates import default_config, templates_for
from autosched.templates.base import Estimates
from autosched.templates.thread_knob import split_threads

REACH = 2.0  # distance at which nothing is left of what the neighbour has gained


def expected_gain(task: Task, record: Record, distance: float) -> float:
    """How many times faster than the default a neighbour's winner is expected to be; 1 where nothing speaks for it.

    What it has gained over its own default, shrinking with the distance; nothing where the default has won there, where
    it is this task's default, or where the templates' own estimates speak for the default.
    """
    config, _ = split_threads(record.config)
    gain = record.gain
    if gain is None or record.is_default or task.func is None:
        return 1.0
    default = default_config(task.func, task.target)
    if config == default:
        return 1.0
    first, second = _estimate(task, default), _estimate(task, config)
    if first is not None and second is not None and second > first:
        return 1.0
    return float(gain ** max(0.0, 1.0 - distance / REACH))


def _estimate(task: Task, config: Config) -> float | None:
    """The cycles that a configuration's template expects; None where it cannot say."""
    for template, anchor in templates_for(task.func, task.target):
        if template.name == config.template and isinstance(template, Estimates):
            try:
                return float(template.estimate(anchor, config, task.target))
            except (SpaceError, ScheduleError):
                return None
    return None


Records: TypeAlias = "Source | Sequence[Source]"


def resolve_target(target: Any = None) -> Target:
    """The target given, else that of the `with` block, else this machine's CPU.

    Raises  TargetError for one that no code can be generated for.
    """
    chosen = Target(target) if target is not None else Target.current(allow_none=True) or Target("cpu")
    codegen_backend(chosen.backend)
    if chosen.is_cpu:
        chosen.check_triple()
    return chosen


def check_runs_here(target: Target) -> None:
    """Refuse a target whose code cannot run in this process.

    Raises UsageError naming the instruction sets, DeviceError where there is no such GPU.
    """
    if not target.is_cpu:
        return _check_gpu(target)
    if not target.is_native:
        raise UsageError(
            f"this machine is {host_cpu().architecture}, and target '{target}' is {target.architecture}",
            hint="measure on a machine of that kind",
        )
    if missing := sorted(host_cpu().lacks(target.features)):
        raise UsageError(
            f"this machine lacks {', '.join(missing)}, which target '{target}' uses",
            hint="measure on a CPU that has it",
        )


def _check_gpu(target: Target) -> None:
    driver = driver_of(0)
    if choose_image({target.gpu.arch: b""}, driver.compute_capability) is None:
        here = ".".join(map(str, driver.compute_capability))
        raise DeviceError(
            f"code for {target.gpu.arch} does not run on {driver.name}, which has compute capability {here}",
            hint=f"use the target 'cuda -arch={usual_arch(driver.compute_capability)}'",
        )


def resolve_threads(threads: int | None, target: Target | None = None) -> int:
    """The number of threads given, bounded by what this process may use; all of those where none is given.

    Kernels of a target that is no CPU are launched by one thread.
    """
    return choose_threads(threads) if target is None or target.is_cpu else 1


def resolve_records(
    records: Records | None = None,
    start: Path | None = None,
    *,
    like: str | None = None,
    predict: Predictor = expected_gain,
    run_as: str = "",
    strict: bool = False,
) -> Lookup:
    """The look-up of a build: what was given, else the `with` block's context; for what that lacks, the usual places.

    records  a reader, path, URL, or a list of those; None
    like     devices whose records may be used where there are none of this one's; None: what AUTOSCHED_TARGET_AS says
    predict  what is expected of a near shape's configuration
    run_as   "throughput": winners that were measured beside other instances come first;  strict  refuse the untrusted
    What nobody has tuned gets a near shape's configuration where more than the default's speed is expected of it. A
    `FallbackContext`, given or around, ends the look-up. Raises RecordError for a source that cannot be used.
    """
    if records is None and (context := DispatchContext.current) is not DispatchContext.root:
        records = context
    if records is None and AUTOSCHED_TUNE.get() == "off":
        records = FallbackContext()
    if isinstance(records, DispatchContext) and records.is_last:
        return Lookup(records, predict=predict, run_as=run_as, is_strict=strict)
    if isinstance(records, Sequence) and not isinstance(records, str) and not records:
        records = None
    device = AUTOSCHED_TARGET_AS.get() if like is None else like
    reader = default_reader(records, start=start)
    return Lookup(reader, like=device, predict=predict, run_as=run_as, is_strict=strict)

"""How near a tuned function comes to what this machine can do."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from autosched.driver.report_facts import known_peak
from autosched.driver.tune.report import PeakShare
from autosched.errors import UsageError
from autosched.own.work import call_bytes, count_flops
from autosched.records.report.roofline import nearest_peak
from autosched.task import Task

Rule = int | float | Callable[..., int | float] | None
DOUBLE_BYTES = 8  # of Python's own floats


@dataclass(frozen=True)
class Work:
    """Arithmetic and data of a call, where the user says them: numbers, or functions of arguments and knobs by name.

    flops       operations of floats; None: counted from the source, where the arguments decide them
    size_bytes  read and written; None: all arrays among the arguments, each once
    """

    flops: Rule = None
    size_bytes: Rule = None

    def of(self, func: Callable[..., object], named: Mapping[str, object], where: str) -> tuple[int | None, int | None]:
        """(operations, bytes) of a call; None for what is not known. Raises UsageError for a rule that fails."""
        flops = count_flops(func, named) if self.flops is None else _asked("flops", self.flops, named, where)
        size_bytes = call_bytes(named) if self.size_bytes is None else _asked("bytes", self.size_bytes, named, where)
        return flops, size_bytes


def _asked(part: str, rule: Rule, named: Mapping[str, object], where: str) -> int:
    try:
        found = rule(**{name: named[name] for name in inspect.signature(rule).parameters}) if callable(rule) else rule
        number = int(found)  # type: ignore[arg-type]  # a function may give anything
    except KeyError as error:
        raise UsageError(f"{part}= reads {error}", where=where, hint=f"there are {', '.join(named)}") from None
    except Exception as error:  # the user's function may raise anything
        raise UsageError(f"{part}= raises {type(error).__name__}: {error}", where=where) from error
    if number <= 0:
        raise UsageError(f"{part}= gives {number}", where=where, hint="give a number above 0")
    return number


class Worker(Protocol):
    """What is asked of an `AutotunedFunction`."""

    py_func: Callable[..., object]
    work: Work


def share_of_peak(function: Worker, named: Mapping[str, object], task: Task, best_s: float | None) -> PeakShare | None:
    """The share that a call of `best_s` seconds reaches; None for GPUs, and where neither work nor data are known.

    named  arguments and knobs by name
    """
    flops, size_bytes = function.work.of(function.py_func, named, task.name)
    if not task.target.is_cpu or best_s is None or (flops is None and size_bytes is None):
        return None
    peak = known_peak(task.target, task.threads)
    floats = [v.dtype.itemsize for v in named.values() if isinstance(v, np.ndarray) and v.dtype.kind == "f"]
    share, bound = nearest_peak(peak, best_s, flops or 0, size_bytes or 0, max(floats, default=DOUBLE_BYTES))
    return PeakShare(share, bound, flops, size_bytes, best_s, task.threads)

"""Measuring schedules that a user's function made: each is built and run in a worker process.

A schedule of a user's own may crash or hang what it is built into; that costs the worker, and the candidate counts as
failed. The next one gets a new worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autosched import driver
from autosched.ir import IRModule
from autosched.meta_schedule.database import FAILED_S
from autosched.runtime import array, cpu
from autosched.target import Target
from autosched.task import Status
from autosched.tir import PrimFunc
from autosched.tir.expr import as_int
from autosched.tuner.measure.single import SingleWorker

TIMEOUT_S = 60.0
_ROLE = f"{__name__}:ScheduleRole"


class ScheduleRole:
    """In the worker: builds a PrimFunc as it stands and times it on arguments drawn from one seed."""

    failure = Status.BUILD_ERROR

    def __init__(self, **options: Any):
        assert not options, "the role has no options"

    def learn(self, key: str, value: Any) -> None:
        """Nothing is to be reported beforehand."""

    def do(self, message: tuple[PrimFunc, str]) -> list[float]:
        """Seconds per call, three times."""
        func, target = message
        built = driver.build(IRModule({"main": func}), target=Target(target))
        timed = built.time_evaluator("main", cpu(), number=3, repeat=3)(*arguments(func))
        return list(timed.results)


def arguments(func: PrimFunc) -> list[Any]:
    """Arrays for a function's buffers: random numbers, and integers that are valid positions."""
    rng = np.random.default_rng(0)
    made = []
    for b in func.buffers:
        shape = tuple(as_int(s) for s in b.shape)
        values = rng.random(shape) if b.dtype.startswith("float") else rng.integers(0, 2, shape)
        made.append(array(np.asarray(values).astype(b.dtype)))
    return made


class ScheduleTimer:
    """Times scheduled functions one after the other; used with `with`, which ends its worker.

    error  what the last candidate died of, "" where it ran
    """

    def __init__(self, timeout_s: float = TIMEOUT_S):
        self.error = ""
        self._worker = SingleWorker(_ROLE, timeout_s)

    def __enter__(self) -> ScheduleTimer:
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.close()

    def seconds(self, func: PrimFunc, target: Target) -> Sequence[float]:
        """Seconds of a function as it stands; [1e10] where it cannot be built, crashes or takes too long."""
        reply = self._worker.do((func.with_attr("tir.is_scheduled", True), str(target)))
        self.error = reply.error
        return list(reply.value) if reply.status is Status.OK else [FAILED_S]

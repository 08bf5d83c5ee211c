"""Times built modules in a worker process, for the tuners of the compatibility layer.

The workers are those of every measurement (`tuner.measure.worker_pool`), the times those of TVM's `time_evaluator`.
There is no reference to check the results against.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Self

import numpy as np

from autosched.driver.build.entry import build
from autosched.errors import AutoschedError
from autosched.ir import IRModule
from autosched.runtime import array, cpu, load_module
from autosched.target import Target
from autosched.task import Measurement, Status
from autosched.tir import PrimFunc
from autosched.tuner.measure.base import CandidateError
from autosched.tuner.measure.process import Job
from autosched.tuner.measure.worker import Setup
from autosched.tuner.measure.worker_pool import WorkerPool

if TYPE_CHECKING:
    from autosched.runtime.array import NDArray


class ModuleRole:
    """In the worker: builds or loads a module and times its first function on arguments drawn from one seed."""

    failure = Status.RUN_ERROR

    def learn(self, key: str, value: object) -> None:
        """A message has all that is needed."""

    def do(self, message: tuple[str | tuple[PrimFunc, str], dict[str, object]]) -> Measurement:
        """Serve a message: a module's file, or (function, target); and the arguments of `time_evaluator`."""
        source, options = message
        if isinstance(source, str):
            module = load_module(source)
        else:
            func, target = source
            try:
                module = build(IRModule({"main": func}), target=Target(target))
            except AutoschedError as error:
                raise CandidateError(Status.BUILD_ERROR, str(error)) from error
        arguments = random_arguments([(arg.shape, arg.dtype) for arg in module.entry_func.args])
        timed = module.time_evaluator(module.entry_name, cpu(), **options)(*arguments)
        return Measurement(Status.OK, timed.results)


def random_arguments(specs: list[tuple[tuple[int, ...], str]]) -> list[NDArray]:
    """Arrays of shapes and dtypes: floats in [0, 1), integers 0 or 1, which are valid positions."""
    rng = np.random.default_rng(0)
    return [
        array((rng.random(shape) if np.dtype(dtype).kind == "f" else rng.integers(0, 2, shape)).astype(dtype))
        for shape, dtype in specs
    ]


class ModuleTimer:
    """Times one module after the other; its worker starts with the first, and again after one that crashed or hung.

    timeout_s  for one module
    evaluator  arguments of `time_evaluator`: number, repeat, min_repeat_ms, f_preproc
    """

    def __init__(self, timeout_s: float, **evaluator: object):
        self._timeout_s, self._evaluator = timeout_s, evaluator
        self.pool: WorkerPool | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def time(self, source: str | tuple[PrimFunc, str]) -> Measurement:
        """Time a saved module, or a function that is built for a target in the worker; a failure is a measurement."""
        if self.pool is None:
            setup = Setup(f"{__name__}:{ModuleRole.__name__}", {}, None, os.getpid())
            self.pool = WorkerPool(setup, 1, self._timeout_s, Status.TIMEOUT, spare="after a loss")
        ((_, reply),) = self.pool.run([Job((source, self._evaluator))])
        if reply.status is not Status.OK:
            return Measurement(reply.status, error=reply.error)
        found: Measurement = reply.value
        return found

    def close(self) -> None:
        """End the worker; the next module gets another."""
        if self.pool is not None:
            self.pool.close()
            self.pool = None

"""Builders and runners of AutoTVM, on this machine and on remote devices."""

from __future__ import annotations

import os
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from autosched import driver
from autosched.autotvm.measure.types import BuildResult, MeasureErrorNo, MeasureInput, MeasureResult
from autosched.autotvm.task.space import InstantiationError
from autosched.driver.module_timer import ModuleTimer
from autosched.driver.remote_timer import RemoteTimer, tracked
from autosched.errors import AutoschedError, InvalidValueError, TVMError, refuse
from autosched.rpc.reach import Address, count_devices
from autosched.task import Status

if TYPE_CHECKING:
    from autosched.autotvm.task.task import Task
    from autosched.json_types import Json, JsonObject


class Builder:
    """What builds configurations: a subclass has `build`.

    timeout     seconds for one;   n_parallel  how many make a batch
    """

    def __init__(self, timeout: float = 10, n_parallel: int | None = None):
        self.timeout, self.n_parallel = timeout, n_parallel or os.cpu_count() or 1
        self.build_kwargs: dict[str, object] = {}
        self.task: Task | None = None

    def set_task(self, task: Task, build_kwargs: Mapping[str, object] | None = None) -> None:
        """Say what comes next, and what the runner asks of builds (`Runner.get_build_kwargs`)."""
        self.task, self.build_kwargs = task, dict(build_kwargs or {})

    def build(self, measure_inputs: Sequence[MeasureInput]) -> list[BuildResult]:
        """Build configurations; an error is a result."""
        raise NotImplementedError


class Runner:
    """What runs built configurations: a subclass has `run`.

    timeout     seconds for one;   n_parallel  how many run at once
    """

    def __init__(self, timeout: float = 5, n_parallel: int | None = None):
        self.timeout, self.n_parallel = timeout, n_parallel or os.cpu_count() or 1
        self.task: Task | None = None

    def set_task(self, task: Task) -> None:
        """Say what comes next."""
        self.task = task

    def get_build_kwargs(self) -> Mapping[str, Json]:
        """What builds need for this runner."""
        return {}

    def run(self, measure_inputs: Sequence[MeasureInput], build_results: Sequence[BuildResult]) -> list[MeasureResult]:
        """Run what was built; an error is a result."""
        raise NotImplementedError


class LocalBuilder(Builder):
    """Builds configurations in this process.

    timeout, n_parallel, build_kwargs, build_func, do_fork, runtime  TVM's; a batch is `n_parallel` configurations
    """

    def __init__(
        self, timeout: float = 10, n_parallel: int | None = None, build_kwargs: object = None,
        build_func: str | Callable[..., object] = "default", do_fork: bool = False, runtime: object = None,
    ):  # fmt: skip
        refuse(
            "LocalBuilder", hint="tvm.build compiles on this machine", build_func=build_func != "default",
            runtime=str(getattr(runtime, "name", runtime or "cpp")) != "cpp", build_kwargs=build_kwargs,
        )  # fmt: skip
        del do_fork
        if isinstance(build_func, str) and build_func not in ("default", "ndk"):
            raise InvalidValueError(f"Invalid build_func {build_func}")
        super().__init__(timeout, n_parallel)

    def build(self, measure_inputs: Sequence[MeasureInput]) -> list[BuildResult]:
        """Build configurations; an error is a result."""
        return [self._one(inp) for inp in measure_inputs]

    def _one(self, inp: MeasureInput) -> BuildResult:
        start = time.time()
        try:
            sch, args = inp.task.instantiate(inp.config)
            if not inp.config.valid():
                raise InstantiationError("; ".join(inp.config.errors))
            module = driver.build(sch, args, inp.target)
        except InstantiationError as error:
            return BuildResult(None, None, _error(error), MeasureErrorNo.INSTANTIATION_ERROR, time.time() - start)
        except AutoschedError as error:
            return BuildResult(None, None, _error(error), MeasureErrorNo.COMPILE_HOST, time.time() - start)
        return BuildResult(module, args, None, MeasureErrorNo.NO_ERROR, time.time() - start)


class LocalRunner(Runner):
    """Runs built configurations on random arguments in a worker process: what crashes or hangs costs itself alone.

    timeout                        seconds for one configuration
    number, repeat, min_repeat_ms  see `timing.measure`; of more than two repeats the fastest and slowest are dropped
    cooldown_interval              seconds of rest after each
    """

    def __init__(
        self, timeout: float = 10, number: int = 4, repeat: int = 3, min_repeat_ms: float = 0,
        cooldown_interval: float = 0.1, enable_cpu_cache_flush: bool = False, module_loader: object = None,
    ):  # fmt: skip
        refuse("LocalRunner", module_loader=module_loader is not None)
        super().__init__(timeout, 1)
        self.number, self.repeat = number, repeat
        self.min_repeat_ms, self.cooldown_interval = min_repeat_ms, cooldown_interval
        self._evaluator = {
            "number": number, "repeat": repeat, "min_repeat_ms": min_repeat_ms,
            "f_preproc": "cache_flush_cpu_non_first_arg" if enable_cpu_cache_flush else "",
        }  # fmt: skip
        self._timer: ModuleTimer | RemoteTimer = ModuleTimer(timeout, **self._evaluator)

    def run(self, measure_inputs: Sequence[MeasureInput], build_results: Sequence[BuildResult]) -> list[MeasureResult]:
        """Run what was built; an error is a result."""
        return [self._one(built) for _, built in zip(measure_inputs, build_results, strict=True)]

    def close(self) -> None:
        """End the process that measures; the next run starts another."""
        if isinstance(self._timer, ModuleTimer):
            self._timer.close()

    def _one(self, built: BuildResult) -> MeasureResult:
        start = time.time()
        if built.error is not None:
            return MeasureResult(built.error, built.error_no, built.time_cost, start)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "candidate.so")
            built.module.save(path)
            found = self._timer.time(path)
        if not found.is_ok:
            number = MeasureErrorNo.RUN_TIMEOUT if found.status is Status.TIMEOUT else MeasureErrorNo.RUNTIME_DEVICE
            error = (found.error, TVMError(found.error.strip().rpartition("\n")[2] or str(found.status)))
            return MeasureResult(error, number, time.time() - start + built.time_cost, time.time())
        costs = sorted(found.times_s)[1:-1] if len(found.times_s) > 2 else list(found.times_s)
        time.sleep(self.cooldown_interval)
        return MeasureResult(tuple(costs), MeasureErrorNo.NO_ERROR, time.time() - start + built.time_cost, time.time())


class RPCRunner(LocalRunner):
    """Runs built configurations on the devices that a tracker hands out, each in a session of its own.

    key, host, port  kind of device; where the tracker listens
    priority         of our requests: the larger, the sooner
    n_parallel       how many run at once; None: as many as there are devices of the key
    The others are `LocalRunner`'s. Raises RPCError where the tracker cannot be reached, or has no such device.
    """

    def __init__(self, key: str, host: str, port: int, priority: int = 1, timeout: float = 10,
                 n_parallel: int | None = None, number: int = 4, repeat: int = 3, min_repeat_ms: float = 0,
                 cooldown_interval: float = 0.1, enable_cpu_cache_flush: bool = False,
                 module_loader: object = None):  # fmt: skip
        refuse("RPCRunner", module_loader=module_loader is not None)
        super().__init__(timeout, number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush)
        self.key, self.host, self.port, self.priority = key, host, port, priority
        self.n_parallel = n_parallel or count_devices(Address(host, port, key))
        self._timer = RemoteTimer(tracked(host, port, key, priority, timeout), **self._evaluator)

    def run(self, measure_inputs: Sequence[MeasureInput], build_results: Sequence[BuildResult]) -> list[MeasureResult]:
        """Run what was built, on several devices at once; an error is a result."""
        with ThreadPoolExecutor(self.n_parallel) as threads:
            return list(threads.map(self._one, build_results[: len(measure_inputs)]))


def _error(error: Exception) -> tuple[object, ...]:
    return ("".join(traceback.format_exception(error)), error)


def measure_option(builder: object, runner: object) -> JsonObject:
    """What a tuner measures with: objects, or "local". Raises ValueError for another text or kind."""
    if isinstance(builder, str):
        if builder != "local":
            raise InvalidValueError(f"Invalid builder: {builder}")
        builder = LocalBuilder()
    if isinstance(runner, str):
        if runner != "local":
            raise InvalidValueError(f"Invalid runner: {runner}")
        runner = LocalRunner()
    if not hasattr(builder, "build"):
        raise InvalidValueError(f"Invalid builder: {builder}")
    if not hasattr(runner, "run"):
        raise InvalidValueError(f"Invalid runner: {runner}")
    return {"builder": builder, "runner": runner}


def create_measure_batch(task: Task, option: JsonObject) -> Callable[[Sequence[MeasureInput]], list[MeasureResult]]:
    """A function that builds and runs configurations; its `n_parallel` is the size of a batch."""
    builder, runner = option["builder"], option["runner"]
    if isinstance(runner, Runner):
        runner.set_task(task)
    if isinstance(builder, Builder):
        builder.set_task(task, runner.get_build_kwargs() if isinstance(runner, Runner) else None)

    def measure_batch(inputs: Sequence[MeasureInput]) -> list[MeasureResult]:
        results: list[MeasureResult] = runner.run(inputs, builder.build(inputs))
        return results

    measure_batch.n_parallel = getattr(builder, "n_parallel", 1)  # type: ignore[attr-defined]
    return measure_batch

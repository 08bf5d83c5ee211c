"""`Cluster`: the tuner's side. Builds go to any worker, runs to those whose device has the right tag."""

from __future__ import annotations

import contextlib
import pickle
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autosched.errors import AutoschedError, UsageError
from autosched.target import Target
from autosched.task import ConfigLike, Measurement, Status, Task, Trial
from autosched.tuner.measure.base import Compared, MeasureOptions
from autosched.tuner.measure.builder import TEMPLATE_COMPILER
from autosched.tuner.measure.cluster import work
from autosched.tuner.measure.cluster.device import BUILD, INFO, Device
from autosched.tuner.measure.cluster.security import CONNECT_S, Access, check_access

if TYPE_CHECKING:
    from distributed import Future

    from autosched.json_types import JsonObject

_LOOK_S = 1.0  # how often the workers are looked after while something is awaited
_COMING = ("pending", "lost")  # what a worker that died had done is done again


@dataclass(frozen=True, slots=True)
class Patience:
    """How long is waited for machines.

    silent_s  a worker that has sent no heartbeat for so long is given up, its work goes to others
    empty_s   so long there may be no worker for a device, or none that builds
    """

    silent_s: float = 15.0
    empty_s: float = 60.0


class Cluster:
    """A connection to a scheduler; use it in a `with`, or call `close`.

    Raises  UsageError, AutoschedError naming the hop if the scheduler cannot or must not be used.
    """

    def __init__(self, access: Access, patience: Patience | None = None):
        try:
            from distributed import Client
        except ModuleNotFoundError:
            raise UsageError("a cluster needs dask.distributed", hint="pip install 'autosched[cluster]'") from None
        self.url, self.patience = check_access(access), patience or Patience()
        try:
            self.client = Client(self.url, security=access.security(), timeout=CONNECT_S, set_as_default=False)
        except (OSError, TimeoutError) as error:
            raise AutoschedError(f"the scheduler at {self.url} does not let us in: {error}") from None
        self._seen: dict[str, tuple[float, float]] = {}  # worker -> its last heartbeat, and when we heard of it
        self._empty_since: float | None = None

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection; the workers stay."""
        with contextlib.suppress(OSError, TimeoutError):
            self.client.close(timeout=2)

    def workers(self) -> JsonObject:
        """What the scheduler knows of each worker, by address. Raises AutoschedError if it is gone."""
        try:
            found: JsonObject = self.client.scheduler_info(n_workers=-1)["workers"]
        except (OSError, TimeoutError, KeyError) as error:
            raise AutoschedError(f"the scheduler at {self.url} is gone: {error}") from None
        return found

    def devices(self) -> Counter[Device]:
        """The kinds of device that there are, with the number of workers that have one."""
        found = (Device.from_json(info.get(INFO)) for info in self.workers().values())
        return Counter(device for device in found if device is not None)

    def choose(self, target: Target | str = "cpu") -> Device:
        """The kind of device to tune for: the only one there is, else the one that has the target's fingerprint.

        Raises  UsageError if no worker has such a device, naming those that there are.
        """
        end = time.monotonic() + CONNECT_S  # workers that start beside us may join
        while not (found := self.devices()) and time.monotonic() < end:
            time.sleep(0.2)
        wanted = Target(target)
        if wanted == Target("cpu") and len(found) == 1:
            return next(iter(found))
        exact = [device for device in found if device.fingerprint == wanted.fingerprint()]
        fitting = exact or [device for device in found if _is_same(device.target, wanted)]
        if len(fitting) == 1:
            return fitting[0]
        there = "; ".join(sorted(f"{n} × {device.text}" for device, n in found.items())) or "none"
        raise UsageError(
            f"{'no' if not fitting else 'more than one kind of'} worker at {self.url} for target '{wanted}'",
            hint=f"choose one with --target, or start `autosched worker` on such a machine; there are: {there}",
        )

    def measurer(
        self, device: Device, options: MeasureOptions, *, compiler: str = TEMPLATE_COMPILER
    ) -> ClusterMeasurer:
        """What the tuner measures with."""
        return ClusterMeasurer(self, device, options, compiler)

    def look_after(self, needed: Sequence[str]) -> None:
        """Give up workers that are silent. Raises AutoschedError if for too long nobody offers what is needed."""
        now, workers = time.monotonic(), self.workers()
        for address, info in workers.items():
            last, _ = self._seen.get(address, (None, now))
            if last != info["last_seen"]:
                self._seen[address] = info["last_seen"], now
            elif now - self._seen[address][1] > self.patience.silent_s:
                self._give_up(address)
        offered = {name for info in workers.values() for name in info.get("resources", {})}
        missing = [name for name in needed if name not in offered]
        if not missing:
            self._empty_since = None
        elif self._empty_since is None:
            self._empty_since = now
        elif now - self._empty_since > self.patience.empty_s:
            waited = f"waited {self.patience.empty_s:g} s"
            raise AutoschedError(f"no worker at {self.url} offers '{missing[0]}' any more; {waited}")

    def _give_up(self, address: str) -> None:
        """Have the scheduler forget a worker: its work goes to others, and what it may still send is not heard."""
        self._seen.pop(address, None)
        with contextlib.suppress(OSError, TimeoutError):
            self.client.sync(
                self.client.scheduler.unregister,
                address=address,
                stimulus_id=f"autosched-silent-{uuid.uuid4().hex[:8]}",
                expected=True,
                callback_timeout=CONNECT_S,
            )


class ClusterMeasurer:
    """Measures the candidates of a task on a cluster, as `LocalMeasurer` does on this machine."""

    def __init__(self, cluster: Cluster, device: Device, options: MeasureOptions, compiler: str):
        self._cluster, self._device = cluster, device
        self._setup = work.Setup(device.target.to_json(), options, compiler)
        self._tasks: dict[int, tuple[Task, bytes]] = {}

    def __enter__(self) -> ClusterMeasurer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing to end: the workers stay for the next one."""

    def measure(self, task: Task, configs: Sequence[ConfigLike], best_s: float | None = None) -> Iterator[Trial]:
        """Build, check and time configurations; gives each trial as it comes.

        best_s  the task's best time so far: what is clearly worse is cut short
        Leaving the iteration early, by Ctrl-C too, takes what waits back.
        Raises AutoschedError if the scheduler is gone, or nobody is left that could measure.
        """
        data = self._pickled(task)
        waiting: dict[Future, ConfigLike] = {}
        for config in configs:
            code = self._submit(BUILD, work.build, self._setup, data, config)
            ran = self._submit(self._device.tag, work.run, self._setup, data, config, code, best_s)
            waiting[ran] = config
        for future, measurement in self._completed(list(waiting)):
            yield Trial(waiting[future], measurement)

    def compare(
        self, task: Task, configs: Sequence[ConfigLike], *, rounds: int = 40, extra_seeds: int = 2
    ) -> tuple[Compared, ...]:
        """Measure configurations in turn against the first one, all on one worker."""
        arguments = (self._setup, self._pickled(task), list(configs), rounds, extra_seeds)
        future = self._submit(self._device.tag, work.compare, *arguments)
        ((_, found),) = self._completed([future])
        if isinstance(found, Measurement):
            raise AutoschedError(f"the finalists could not be compared: {found.error}")
        compared: tuple[Compared, ...] = found
        return compared

    def _pickled(self, task: Task) -> bytes:
        if id(task) not in self._tasks:
            self._tasks[id(task)] = task, pickle.dumps(task, pickle.HIGHEST_PROTOCOL)
        return self._tasks[id(task)][1]

    def _submit(self, resource: str, function: Callable[..., object], *arguments: object) -> Future:
        key = f"autosched-{function.__name__}-{uuid.uuid4().hex}"
        return self._cluster.client.submit(function, *arguments, key=key, pure=False, resources={resource: 1})

    def _completed(self, futures: list[Future]) -> Iterator[tuple[Future, Any]]:
        """(future, what it holds) as they end; what is left is cancelled when the iteration is."""
        from distributed import wait

        left = list(futures)
        next_look = time.monotonic() + _LOOK_S
        try:
            while left:
                with contextlib.suppress(TimeoutError), self._cluster.client.as_current():
                    wait(left, timeout=_LOOK_S / 4, return_when="FIRST_COMPLETED")
                ended = [future for future in left if future.status not in _COMING]
                left = [future for future in left if future.status in _COMING]
                for future in ended:
                    try:
                        yield future, self._result(future)
                    except TimeoutError:  # its worker died or hangs: the scheduler has it done again elsewhere
                        left.append(future)
                if left and time.monotonic() >= next_look:
                    self._cluster.look_after([BUILD, self._device.tag])
                    next_look = time.monotonic() + _LOOK_S
        finally:
            if left:
                with contextlib.suppress(OSError, TimeoutError):
                    self._cluster.client.cancel(left, force=True)

    def _result(self, future: Future) -> Any:
        """What a future holds; machines that failed are no candidate's fault: it counts as lost.

        Raises TimeoutError where what it held does not come, AutoschedError if the scheduler is gone.
        """
        from distributed.scheduler import KilledWorker

        try:
            if future.status == "cancelled":
                raise AutoschedError(f"the scheduler at {self._cluster.url} is gone")
            return future.result(timeout=2 * _LOOK_S)
        except KilledWorker as error:
            return Measurement(Status.LOST, error=f"several workers died while they had it: {error}")
        except TimeoutError:
            raise
        except OSError as error:
            raise AutoschedError(f"the scheduler at {self._cluster.url} is gone: {error}") from None


def _is_same(device: Target, wanted: Target) -> bool:
    """Whether a device is what a target asks for, as far as that says anything."""
    asked = {name: value for name, value in wanted.attrs.items() if name != "mattr"}
    return bool(asked) and all(device.attrs.get(name) == value for name, value in asked.items())

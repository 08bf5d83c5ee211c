"""What runs in the runner's worker while an own CUDA kernel is tuned: candidates on copies of the arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from autosched.codegen.cuda.user_kernel import UserKernel
from autosched.own.bench import OwnBench
from autosched.own.expected import Expected
from autosched.own.gpu.kernel import GpuCall, SentKernel
from autosched.own.gpu.values import Placed
from autosched.own.memory import Memory
from autosched.own.role import OwnRole
from autosched.runtime.cuda.devices import driver_of
from autosched.task import Status
from autosched.tuner.measure.base import CandidateError, MeasureOptions
from autosched.tuner.measure.device import CALLS_PER_GRAPH, Guarded

if TYPE_CHECKING:
    from autosched.own.arguments import View
    from autosched.space.config import Config
    from autosched.tuner.measure.base import Packs

ROLE = f"{__name__}:GpuRole"


class DeviceArguments:
    """A call's blocks of memory on the device, between guards, beside a copy of what they begin with."""

    def __init__(self, memory: Memory, start: Sequence[np.ndarray]):
        self.memory, self.driver = memory, driver_of(0)
        self.shifts = [
            block.array.nbytes - len(memory.bytes_of(block, n)) for n, block in enumerate(memory.first.blocks)
        ]
        self.blocks = [Guarded(self.driver, block.array.nbytes) for block in memory.first.blocks]
        self._start = [Guarded(self.driver, len(one)) for one in start]
        for kept, one in zip(self._start, start, strict=True):
            self.driver.copy_in(kept.address, one)
        self.values = memory.arguments_by(self._place)

    def _place(self, view: View) -> Placed:
        address = self.blocks[view.block].address + self.shifts[view.block] + view.offset
        return Placed(address, view.shape, view.strides, view.dtype)

    def reset(self, numbers: Sequence[int]) -> None:
        """Let blocks hold what they began with."""
        for n in numbers:
            self.driver.copy_on(
                self.blocks[n].address + self.shifts[n], self._start[n].address, self._start[n].size_bytes
            )

    def read(self) -> None:
        """Copy the blocks into the host's. Raises CandidateError where something was written beside them."""
        for n, (block, host) in enumerate(zip(self.blocks, self.memory.first.bytes, strict=True)):
            if not block.guards_hold():
                raise CandidateError(Status.WRONG_RESULT, "wrote beside its arguments")
            self.driver.copy_out(host, block.address + self.shifts[n])


class LoadedGpu:
    """A compiled configuration with its arguments on the device (see `tuner.measure.run_role.Loaded`)."""

    returned: None = None

    def __init__(
        self, sent: SentKernel, kernel: UserKernel, config: Config, arguments: DeviceArguments, reset: list[int]
    ):
        self.arguments, self.kernel, self._reset = arguments, kernel, reset
        self.sets: Sequence[object] = (arguments,)
        self._call = GpuCall(sent, config, kernel)
        self._launch = sent.launch_of(kernel, config, arguments.memory.first.values)
        self._graph: Callable[[], None] | Literal[False] | None = None

    def _once(self) -> None:
        self._call.launch(self.arguments.driver, self.kernel, self._launch, self.arguments.values)

    def run(self, number: int = 1) -> float:
        """Launch so often; gives the seconds that the device took. What is changed in place is restored before."""
        driver = self.arguments.driver
        if self._reset:
            return sum(self._restored() for _ in range(number))
        whole, rest = divmod(number, CALLS_PER_GRAPH)
        if whole and self._graph is None:
            self._graph = driver.capture(lambda: self._several(CALLS_PER_GRAPH)) or False
        first = driver.record()
        for _ in range(whole):
            if self._graph:
                self._graph()
            else:
                self._several(CALLS_PER_GRAPH)
        self._several(rest)
        return driver.seconds_between(first, driver.record())

    def _several(self, number: int) -> None:
        for _ in range(number):
            self._once()

    def _restored(self) -> float:
        driver = self.arguments.driver
        self.arguments.reset(self._reset)
        first = driver.record()
        self._once()
        return driver.seconds_between(first, driver.record())


class GpuBench(OwnBench):
    """See `tuner.measure.run_role.Bench`; `OwnBench` compares what is copied back from the device."""

    sent: SentKernel

    def __init__(self, *given: Any):
        super().__init__(*given)
        self._device = DeviceArguments(self.memory, self.expected.start)

    def load(self, kernel: Any, packs: Packs, pool: object, threads: int, *, cold_bytes: int = 0) -> Any:
        """Load a configuration's machine code."""
        expected: Expected = self.expected
        reset = [number for number, is_reset in enumerate(expected.is_reset) if is_reset]
        return LoadedGpu(self.sent, kernel.kernel, kernel.config, self._device, reset)

    def make_fresh(self, loaded: object) -> None:
        """The arguments begin as the caller's do, poisoned where only results are written."""
        for block in self._device.blocks:
            block.poison()
        self._device.reset(range(len(self._device.blocks)))

    def check(self, loaded: Any, packs: Packs, options: MeasureOptions) -> None:
        """Compare what one run has left. Raises CandidateError (WRONG_RESULT or NON_FINITE)."""
        self._device.read()
        super().check(loaded, packs, options)


class GpuRole(OwnRole):
    """Serves own kernels on the first device."""

    bench = GpuBench

"""`EmulatorDriver`: a device of `runtime.cuda.driver` whose launches the emulator runs; for tests without a GPU.

    with use_driver(EmulatorDriver):
        executable.run(…)              # graphs, VM and arrays on cuda(0) as they are

A kernel sees each of its arrays as an allocation of its own, so an access beyond one is found though they lie side by
side in one block of memory.
"""

from __future__ import annotations

import contextlib
import itertools
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.codegen.cuda.build import NEXT_MODULE
from autosched.codegen.cuda.emulate.kernel import KERNEL_CHECKS
from autosched.codegen.cuda.emulate.launch import Checks, Order, run_launch
from autosched.errors import DeviceError
from autosched.runtime.cuda.driver import Region
from autosched.runtime.cuda.kernel import CudaKernel, Launch, image_for
from autosched.target.gpus import gpu_facts, usual_arch
from autosched.tir.dtypes import item_bytes

if TYPE_CHECKING:
    from autosched.json_types import Json

Bytes = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]
_ALIGNMENT = 256  # as the driver's allocations have


class EmulatedMemory:
    """A block of host memory that stands for the device's; it begins as NaNs."""

    def __init__(self, size_bytes: int):
        self.size_bytes = size_bytes
        block = np.full(size_bytes + _ALIGNMENT, 0xFF, np.uint8)
        skipped = -block.ctypes.data % _ALIGNMENT
        self.bytes: Bytes = block[skipped : skipped + size_bytes]
        self.address = int(block.ctypes.data) + skipped


@dataclass(frozen=True)
class _Entry:
    """One launch of a kernel, ready to run."""

    kernel: CudaKernel
    text: str


class EmulatorDriver:
    """One emulated device.

    order, checks  as `run_launch` has them
    """

    def __init__(
        self,
        index: int = 0,
        compute_capability: tuple[int, int] = (9, 0),
        order: Order = "late",
        checks: Checks = KERNEL_CHECKS,
        memory_bytes: int = 8 << 30,
    ):
        self.index = index
        self.name = "the emulated device"
        self.compute_capability = compute_capability
        self.order, self.checks, self.memory_bytes = order, checks, memory_bytes
        self._blocks: weakref.WeakValueDictionary[int, EmulatedMemory] = weakref.WeakValueDictionary()
        self.n_launches = 0
        self._captured: list[tuple[_Entry, Launch, tuple[int | np.generic | Region, ...]]] | None = None

    def attribute(self, name: str) -> int | None:
        """That of the architecture's usual device."""
        return gpu_facts(usual_arch(self.compute_capability)).attributes.get(name)

    def allocate(self, size_bytes: int) -> EmulatedMemory:
        free, total = self.free_bytes()
        if size_bytes > free:
            raise DeviceError(
                f"{self.name} has no room for {size_bytes} bytes more: {free} of {total} are free",
                hint="use a smaller batch",
            )
        made = EmulatedMemory(max(size_bytes, 1))
        self._blocks[made.address] = made
        return made

    def free_bytes(self) -> tuple[int, int]:
        return self.memory_bytes - sum(block.size_bytes for block in self._blocks.values()), self.memory_bytes

    def _view(self, address: int, size_bytes: int) -> Bytes:
        """The bytes at an address. Raises DeviceError if they are in no block."""
        for block in self._blocks.values():
            offset = address - block.address
            if offset >= 0 and offset + size_bytes <= block.size_bytes:
                return block.bytes[offset : offset + size_bytes]
        raise DeviceError(f"{size_bytes} bytes at {address:#x} lie in no memory of {self.name}")

    def copy_in(self, to: int, data: np.ndarray) -> None:
        if data.nbytes:
            self._view(to, data.nbytes)[:] = data.reshape(-1).view(np.uint8)

    def copy_out(self, data: np.ndarray, source: int) -> None:
        if data.nbytes:
            data.reshape(-1).view(np.uint8)[:] = self._view(source, data.nbytes)

    def copy_on(self, to: int, source: int, size_bytes: int) -> None:
        if size_bytes:
            self._view(to, size_bytes)[:] = self._view(source, size_bytes)

    def fill(self, to: int, byte: int, size_bytes: int) -> None:
        if size_bytes:
            self._view(to, size_bytes)[:] = byte

    def load(self, kernel: CudaKernel) -> tuple[_Entry, ...]:
        image_for(kernel, self.name, self.compute_capability)
        texts = kernel.llvm.split(NEXT_MODULE) if kernel.launches else []
        if len(texts) != len(kernel.launches):
            raise DeviceError(f"kernel '{kernel.name}' came without the LLVM IR that the emulator runs")
        return tuple(_Entry(kernel, text) for text in texts)

    def launch(self, entry: Json, launch: Launch, arguments: Sequence[Any]) -> None:
        if self._captured is not None:
            self._captured.append((entry, launch, tuple(arguments)))
            return
        given = self._arguments(entry.kernel, arguments) if entry.kernel.args else self._as_given(arguments)
        run_launch(
            entry.text,
            launch.symbol,
            launch.grid,
            launch.block,
            launch.shared_bytes,
            given,
            order=self.order,
            cluster=launch.cluster,
            tensor_maps=launch.tensor_maps,
            checks=self.checks,
        )
        self.n_launches += 1

    def _as_given(self, arguments: Sequence[int | np.generic | Region]) -> list[Bytes | int]:
        """What a user's kernel is given, with regions as the memory that they are."""
        given: list[Any] = []
        for argument in arguments:
            if isinstance(argument, Region):
                view = self._view(argument.address, argument.size_bytes)
                whole = argument.size_bytes % argument.item_bytes == 0
                given.append(view.view(_CELLS.get(argument.item_bytes, np.uint8)) if whole else view)
            else:
                given.append(argument)
        return given

    def _arguments(self, kernel: CudaKernel, addresses: Sequence[int]) -> list[Bytes | int]:
        """The arguments of a kernel of ours and its scratch memory."""
        written = {a for a, arg in zip(addresses, kernel.args) if arg.role == "output"}
        arguments: list[Bytes | int] = []
        for address, arg in zip(addresses, kernel.args):
            view = self._view(address, arg.size_bytes).view(_CELLS[item_bytes(arg.dtype)])
            view.flags.writeable = address in written
            arguments.append(view)
        scratch = addresses[len(kernel.args)]
        arguments.append(self._view(scratch, kernel.scratch_bytes) if kernel.scratch_bytes else 0)
        if kernel.checks:
            arguments.append(self._view(addresses[len(kernel.args) + 1], 16 * len(kernel.checks)).view(np.uint64))
        return [*arguments, *map(int, addresses[len(kernel.args) + 1 + bool(kernel.checks) :])]

    def synchronize(self) -> None:
        """Launches have ended when `launch` returns."""

    def record(self) -> float:
        return time.perf_counter()

    def seconds_between(self, first: Any, last: Any) -> float:
        """Of the host: how long the emulation took."""
        return float(last - first)

    def capture(self, work: Callable[[], None]) -> Callable[[], None] | None:
        """What launches the same with the addresses of now, as a CUDA graph does."""
        captured: list[tuple[_Entry, Launch, tuple[int | np.generic | Region, ...]]] = []
        self._captured = captured
        try:
            work()
        finally:
            self._captured = None

        def replay() -> None:
            for entry, launch, addresses in captured:
                self.launch(entry, launch, addresses)

        return replay

    def capture_parts(self, works: Sequence[Callable[[], None]]) -> Callable[[], list[float]]:
        parts = [self.capture(work) for work in works]

        def run() -> list[float]:
            marks = [self.record()]
            for part in parts:
                assert part is not None, "what launches the same"
                part()
                marks.append(self.record())
            return [self.seconds_between(*pair) for pair in itertools.pairwise(marks)]

        return run

    def stream_handle(self) -> int:
        """All streams are the default one."""
        return 1

    @contextlib.contextmanager
    def on_stream(self, stream: object) -> Iterator[None]:
        """All streams are one: launches run in the order in which they are made."""
        yield


_CELLS: dict[int, type[np.unsignedinteger]] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}

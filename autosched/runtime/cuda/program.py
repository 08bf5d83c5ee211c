"""`CudaProgram`: a graph made ready to run on a GPU: its memory there, and launches with addresses.

A program of several launches whose addresses stay the same is captured as one CUDA graph when it runs for the second
time: a launch through Python takes 3 µs, one of a captured graph less than 1.
"""

from __future__ import annotations

import functools
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from autosched.errors import ArtifactError, InvalidTypeError, InvalidValueError
from autosched.runtime.array import NDArray, as_numpy
from autosched.runtime.cuda.array import DeviceArray, empty_on
from autosched.runtime.cuda.devices import driver_of
from autosched.runtime.cuda.kernel import CudaKernel, Launch
from autosched.runtime.cuda.pending import check_runs, note_run
from autosched.runtime.device import Device
from autosched.runtime.faults import Faults, node_place
from autosched.runtime.graph import NOP, Graph
from autosched.runtime.kernel import Kernel
from autosched.runtime.locks import renew_after_fork

if TYPE_CHECKING:
    from autosched.runtime.backends import GraphProgram

Constants = tuple[np.ndarray, ...] | tuple[NDArray, ...]
LEAST_LAUNCHES = 2  # fewer gain nothing by a CUDA graph


@dataclass(frozen=True, slots=True)
class _Step:
    """One launch of a node: the values whose addresses it is given, in order, before the scratch block."""

    entry: object  # as the driver's `load` gave it
    launch: Launch
    values: tuple[int, ...]  # by their roots
    node: int
    checks: tuple[int, ...]  # the address of the words of its kernel's checks, where it has some
    sizes: tuple[np.int32, ...]  # that come with the call, and the turn of a launch that is repeated


class CudaProgram:
    """The kernels of a graph on a device; inputs' and outputs' memory can be changed.

    graph, kernels, constants  checked by `check_graph`; constants may be on the device already
    device                     which of CUDA's
    Raises DeviceError where there is no such device, no memory left, or the machine code is for another one.
    Several threads may call `run`: each run has the memory to itself.
    """

    threads = 1  # of the host: launching is one thread's work

    def __init__(self, graph: Graph, kernels: Mapping[str, Kernel], constants: Constants, device: Device):
        self.graph, self.kernels, self.device = graph, kernels, device
        self.renew_locks()
        renew_after_fork(self)
        self.driver = driver_of(device.device_id)
        called = {node.kernel: as_cuda(kernels[node.kernel]) for node in graph.nodes if node.kernel != NOP}
        entries = {name: self.driver.load(kernel) for name, kernel in called.items()}
        self._arena = self.driver.allocate(graph.arena_bytes)
        scratch_bytes = max((kernel.scratch_bytes for kernel in called.values()), default=0)
        self._scratch = self.driver.allocate(scratch_bytes) if scratch_bytes else None
        self._addresses: dict[int, int] = {}  # of values that own their storage
        self._arrays: dict[int, DeviceArray] = {}
        self._steps: list[_Step] = []
        checked = [n for n in graph.nodes if n.kernel != NOP and called[n.kernel].checks]
        self.faults = Faults([(node_place(n), called[n.kernel]) for n in checked])
        self._words = self.driver.allocate(self.faults.words.nbytes) if self.faults else None
        if self._words is not None:
            self.driver.fill(self._words.address, 0, self.faults.words.nbytes)
        for number, node in enumerate(graph.nodes):
            if node.kernel != NOP:
                kernel, numbers = called[node.kernel], (iter(node.inputs), iter(node.outputs))
                values = tuple(graph.root(next(numbers[arg.role == "output"])) for arg in kernel.args)
                words: tuple[int, ...] = ()
                if self._words is not None and kernel.checks:
                    words = (self._words.address + self.faults.offset(checked.index(node)),)
                for i, sizes in kernel.calls:
                    entry, launch = entries[node.kernel][i], kernel.launches[i]
                    self._steps.append(_Step(entry, launch, values, number, words, sizes))
        self._place_all(constants)
        self._captured: Callable[[], None] | Literal[False] | None = None
        self._has_run = False

    def renew_locks(self) -> None:
        """Make the lock that a run holds anew, in a child forked while another thread ran."""
        self.lock = threading.RLock()

    def _place_all(self, constants: Constants) -> None:
        uploaded: dict[int, DeviceArray] = {}
        for number, value in enumerate(self.graph.values):
            at = value.storage
            if at.kind == "const":
                if at.index not in uploaded:
                    data = constants[at.index]
                    uploaded[at.index] = data if isinstance(data, DeviceArray) else self._upload(as_numpy(data))
                self._put(number, uploaded[at.index])
            elif at.kind == "arena":
                self._put(number, DeviceArray(self._arena, value.shape, value.dtype, self.device, at.index))

    def _upload(self, data: np.ndarray) -> DeviceArray:
        made = empty_on(self.device, data.shape, data.dtype)
        self.driver.copy_in(made.address, np.ascontiguousarray(data))
        return made

    def _put(self, number: int, memory: DeviceArray) -> None:
        self._arrays[number] = memory
        self.bind(number, memory.address)

    # Memory

    def bind(self, value: int, address: int) -> None:
        """Set the address of a value that owns its storage; the caller keeps the memory alive."""
        if self._addresses.get(value) != address:
            self._addresses[value] = address
            self._captured, self._has_run = None, False

    def allocate(self, value: int) -> None:
        """Give a value that owns its storage memory of its own, filled with zeros."""
        spec = self.graph.values[value]
        made = empty_on(self.device, spec.shape, spec.dtype)
        self.driver.fill(made.address, 0, made.size_bytes)
        self._put(value, made)

    def own(self, value: int) -> None:
        """Give a value memory of its own that holds what it holds now."""
        spec, old = self.graph.values[value], self._arrays[value]
        made = empty_on(self.device, spec.shape, spec.dtype)
        self.driver.copy_on(made.address, old.address, made.size_bytes)
        self._put(value, made)

    def adopt(self, value: int, given: NDArray | np.ndarray, where: str) -> None:
        """Let a value that owns its storage live in the caller's array from now on."""
        if not isinstance(given, DeviceArray) or given.device != self.device:
            place = given.device if isinstance(given, NDArray) else "the host"
            raise InvalidTypeError(f"the array lies on {place}, not on {self.device}", where=where)
        if given.address % np.dtype(given.dtype).itemsize or given.address % 16:
            raise InvalidValueError("the array is not aligned to 16 bytes", where=where)
        self._put(value, given)

    def share(self, value: int, other: GraphProgram) -> None:
        """Let a value that owns its storage live where another program of the graph has it."""
        assert isinstance(other, CudaProgram), "of the same executable and device"
        self._put(value, other._arrays[value])

    def array(self, value: int) -> NDArray:
        """Give a value's own memory as an array; the next run overwrites it."""
        spec, owner = self.graph.values[value], self._arrays[self.graph.root(value)]
        return DeviceArray(owner.memory, spec.shape, spec.dtype, self.device, owner._offset)

    # Running

    @property
    def n_rows(self) -> int:
        """Number of launches that one run makes."""
        return len(self._steps)

    def kernel_threads(self) -> dict[str, int]:
        """Threads of the host for each kernel: one."""
        return {node.kernel: 1 for node in self.graph.nodes if node.kernel != NOP}

    def _launch(self, steps: Sequence[_Step]) -> None:
        scratch = self._scratch.address if self._scratch is not None else 0
        addresses = self._addresses
        for step in steps:
            given: list[int | np.generic] = [*(addresses[v] for v in step.values), scratch, *step.checks, *step.sizes]
            self.driver.launch(step.entry, step.launch, given)
        if self.faults:
            note_run(self.device.device_id, self)

    def check(self) -> None:
        """Raise IndexOutOfRangeError for what a run has met out of range; waits for the device's work."""
        if self._words is None:
            return
        with self.lock:
            self.driver.copy_out(self.faults.words, self._words.address)
            if np.count_nonzero(self.faults.words):
                self.driver.fill(self._words.address, 0, self.faults.words.nbytes)
            self.faults.check()

    def run(self, number: int = 1) -> int:
        """Give the device `number` runs to do; gives the threads of the host that were used."""
        with self.lock:
            for _ in range(number):
                if self._captured is None and self._has_run and len(self._steps) >= LEAST_LAUNCHES:
                    self._captured = self.driver.capture(lambda: self._launch(self._steps)) or False
                if self._captured:
                    self._captured()
                    if self.faults:
                        note_run(self.device.device_id, self)
                else:
                    self._launch(self._steps)
                    self._has_run = True
        return 1

    def seconds(self, number: int = 1) -> float:
        """Run `number` times and give the time that the device took for all of them."""
        with self.lock:
            first = self.driver.record()
            self.run(number)
            seconds = self.driver.seconds_between(first, self.driver.record())
        check_runs(self.device.device_id)
        return seconds

    def synchronize(self) -> None:
        """Wait until the device has finished. Raises IndexOutOfRangeError for what kernels have met out of range."""
        self.driver.synchronize()
        check_runs(self.device.device_id)

    def run_nodes(self, nodes: range, number: int = 1) -> None:
        """Run some of the graph's nodes, which follow each other, `number` times on what is in memory now."""
        steps = [step for step in self._steps if step.node in nodes]
        with self.lock:
            for _ in range(number):
                self._launch(steps)

    def profile(self, number: int = 1) -> np.ndarray:
        """Run the graph `number` times and give each node's seconds in one run, on average."""
        seconds = np.zeros(len(self.graph.nodes))
        by_node: dict[int, list[_Step]] = defaultdict(list)
        for step in self._steps:
            by_node[step.node].append(step)
        with self.lock:
            self._launch(self._steps)  # what is captured has run before
            run = self.driver.capture_parts([functools.partial(self._launch, steps) for steps in by_node.values()])
            for _ in range(number):
                seconds[list(by_node)] += np.array(run()) / number
        check_runs(self.device.device_id)
        return seconds


def as_cuda(kernel: Kernel) -> CudaKernel:
    """The kernel as one for GPUs. Raises ArtifactError for another back end's."""
    if not isinstance(kernel, CudaKernel):
        raise ArtifactError(
            f"kernel '{kernel.name}' was built for {kernel.backend}, not for CUDA", hint="build it for the target cuda"
        )
    return kernel

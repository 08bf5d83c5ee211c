"""The back ends of the runtime: sub-packages of `autosched.runtime`, found by their names."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterable, Mapping
from typing import Protocol

import numpy as np

from autosched.errors import TVMError, UsageError
from autosched.runtime.array import NDArray
from autosched.runtime.device import Device
from autosched.runtime.graph import Graph
from autosched.runtime.kernel import Kernel


class GraphProgram(Protocol):
    """A graph made ready to run on a device. Values are known by their numbers in the graph."""

    lock: threading.RLock
    threads: int

    @property
    def graph(self) -> Graph:
        """The graph that it runs."""

    def allocate(self, value: int) -> None:
        """Give a value that owns its storage memory of its own, filled with zeros."""

    def own(self, value: int) -> None:
        """Give a value memory of its own that holds what it holds now."""

    def adopt(self, value: int, given: NDArray | np.ndarray, where: str) -> None:
        """Let a value that owns its storage live in the caller's array; raises InvalidTypeError, InvalidValueError."""

    def share(self, value: int, other: GraphProgram) -> None:
        """Let a value that owns its storage live where another program of the same graph and device has it."""

    def bind(self, value: int, address: int) -> None:
        """Set the address of a value that owns its storage; the caller keeps the memory alive."""

    def array(self, value: int) -> NDArray:
        """Give a value's own memory as an array; the next run overwrites it."""

    def run(self, number: int = 1) -> int:
        """Run the graph; gives the threads of the host that were used."""

    def run_nodes(self, nodes: range, number: int = 1) -> None:
        """Run some of the graph's nodes, which follow each other, on what is in memory now."""

    def seconds(self, number: int = 1) -> float:
        """Run the graph `number` times and give the time that all of them took."""

    def profile(self, number: int = 1) -> np.ndarray:
        """Each node's seconds in one run, on average."""

    def synchronize(self) -> None:
        """Wait until all has run."""

    def kernel_threads(self) -> dict[str, int]:
        """Over how many threads of the host each kernel's largest phase is split."""


class RuntimeBackend(Protocol):
    """What `autosched.runtime.<name>` has."""

    KERNEL: type[Kernel]

    def open_program(
        self,
        graph: Graph,
        kernels: Mapping[str, Kernel],
        constants: object,
        native: bytes,
        threads: int,
        device: Device,
    ) -> GraphProgram:
        """A graph on a device; see `GraphProgram`. Constants are arrays of the host, or of the device."""


def runtime_backend(name: str) -> RuntimeBackend:
    """The back end of a name that is known."""
    return importlib.import_module(f"{__package__}.{name}")  # type: ignore[return-value]  # a module with these


def backend_of(kernels: Iterable[Kernel]) -> str:
    """The back end of a model's kernels; that of CPUs where there are none. Raises UsageError for a mixture."""
    found = sorted({kernel.backend for kernel in kernels})
    if len(found) > 1:
        raise UsageError(f"one model with kernels for {' and '.join(found)}", hint="build it for one target")
    return found[0] if found else "cpu"


def default_device(backend: str) -> Device:
    """The first device of a back end."""
    from autosched.target import KINDS

    return Device(next(kind.device_type for kind in KINDS.values() if kind.backend == backend))


def check_device(backend: str, device: Device) -> None:
    """See that a device is of a back end's type. Raises TVMError."""
    if device.device_type != default_device(backend).device_type:
        raise TVMError(f"this model was built for {backend} devices and cannot run on {device}")


def open_program(
    graph: Graph, kernels: Mapping[str, Kernel], constants: tuple[np.ndarray, ...] | tuple[NDArray, ...],
    native: bytes, threads: int, device: Device | None = None,
) -> tuple[GraphProgram, Device]:  # fmt: skip
    """A graph's program on a device, the first one of its kernels' back end where none is named; and that device."""
    backend = backend_of(kernels[node.kernel] for node in graph.nodes if node.kernel in kernels)
    if backend == "cpu" and device is not None and not any(node.kernel in kernels for node in graph.nodes):
        backend = _backend_of_device(device)  # a graph that only passes its inputs on runs anywhere
    device = default_device(backend) if device is None else device
    check_device(backend, device)
    return runtime_backend(backend).open_program(graph, kernels, constants, native, threads, device), device


def _backend_of_device(device: Device) -> str:
    from autosched.target import KINDS

    found = [kind.backend for kind in KINDS.values() if kind.backend and kind.device_type == device.device_type]
    return found[0] if found else "cpu"

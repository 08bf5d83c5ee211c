"""Running kernels on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from autosched.runtime.cpu.kernel import CpuKernel, Phase

if TYPE_CHECKING:
    import numpy as np

    from autosched.runtime.device import Device
    from autosched.runtime.graph import Graph
    from autosched.runtime.kernel import Kernel
    from autosched.runtime.program import Program

KERNEL = CpuKernel


def open_program(
    graph: Graph, kernels: Mapping[str, Kernel], constants: tuple[np.ndarray, ...], native: bytes, threads: int,
    device: Device,
) -> Program:  # fmt: skip
    from autosched.runtime.program import Program

    del device  # there is one
    return Program(graph, kernels, constants, native, threads)

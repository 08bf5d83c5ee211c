"""Running kernels on NVIDIA's GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from autosched.runtime.cuda.kernel import CudaKernel, Launch, LaunchResources, Resources

if TYPE_CHECKING:
    import numpy as np

    from autosched.runtime.cuda.program import CudaProgram
    from autosched.runtime.device import Device
    from autosched.runtime.graph import Graph
    from autosched.runtime.kernel import Kernel

KERNEL = CudaKernel


def open_program(
    graph: Graph, kernels: Mapping[str, Kernel], constants: tuple[np.ndarray, ...], native: bytes, threads: int,
    device: Device,
) -> CudaProgram:  # fmt: skip
    from autosched.runtime.cuda.program import CudaProgram

    del native, threads  # of the host's loop
    return CudaProgram(graph, kernels, constants, device)

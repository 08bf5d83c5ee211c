"""A runner's role for own CUDA kernels whose device is the emulator's: for workers of tests."""

from __future__ import annotations

from autosched.own.gpu.role import GpuRole
from autosched.runtime.cuda.devices import use_driver

ROLE = f"{__name__}:EmulatedGpuRole"


class EmulatedGpuRole(GpuRole):
    """Runs candidates on the emulator."""

    def __init__(self) -> None:
        super().__init__()
        from autosched.codegen.cuda.emulate import EmulatorDriver

        self._device = use_driver(EmulatorDriver)
        self._device.__enter__()

"""A runner's role whose device is the emulator's: for workers of tests, which are processes of their own."""

from __future__ import annotations

from autosched.runtime.cuda.devices import use_driver
from autosched.tuner.measure.run_role import RunRole


class EmulatedRole(RunRole):
    """Runs candidates on the emulator."""

    def __init__(self) -> None:
        super().__init__()
        from autosched.codegen.cuda.emulate import EmulatorDriver

        self._device = use_driver(EmulatorDriver)
        self._device.__enter__()

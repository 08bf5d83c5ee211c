"""TVM's `runtime.profiler_vm`: a virtual machine that says what each part of a run took."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from autosched.errors import refuse
from autosched.runtime.profiling import Report
from autosched.runtime.vm import Executable, VirtualMachine

if TYPE_CHECKING:
    from autosched.runtime.device import Device


def enabled() -> bool:
    """Tell whether the profiler is there: always."""
    return True


class VirtualMachineProfiler(VirtualMachine):
    """A `VirtualMachine` with `profile`."""

    def __init__(self, exe: Executable, device: Device | Sequence[Device], memory_cfg: object = None):
        super().__init__(exe, device, memory_cfg)

    def profile(self, *args: object, func_name: str = "main", collectors: object = None, **kwargs: object) -> Report:
        """Run a function and say what each kernel took, in µs."""
        refuse("profile", collectors=collectors)
        if args or kwargs:
            self.set_input(func_name, *args, **kwargs)
        self._program.call(func_name, self._kept(func_name))  # the first run prepares what later ones use
        start = time.perf_counter()
        self._program.call(func_name, self._kept(func_name))
        total = (time.perf_counter() - start) * 1e6
        calls = []
        for segment in self._program.segments:
            for node_time in segment.create_executor(threads=None).profile(1):
                calls.append((node_time.node.kernel, node_time.seconds * 1e6))
        rows = [
            {"Name": name, "Duration (us)": us, "Percent": 100 * us / total, "Device": "cpu0", "Count": 1}
            for name, us in calls
        ]
        return Report(rows, {"cpu0": {"Duration (us)": total, "Percent": 100.0}}, {"Executor": "VM"})

"""TVM's `runtime.profiler_vm`: a virtual machine that says what each part of a run took."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from autosched.errors import refuse
from autosched.runtime.dynamic import DynamicExecutable
from autosched.runtime.graph_executor import GraphExecutor
from autosched.runtime.profiling import Report
from autosched.runtime.vm import Executable, VirtualMachine

if TYPE_CHECKING:
    from autosched.runtime.array import NDArray
    from autosched.runtime.device import Device
    from autosched.runtime.vm_code import Segment


def enabled() -> bool:
    """Tell whether the profiler is there: always."""
    return True


class _Watched:
    """A segment of a program, which makes an executor for each of its runs."""

    def __init__(self, segment: Segment):
        self.segment = segment
        self.executors: list[GraphExecutor] = []

    def __call__(self, *args: NDArray) -> object:
        if not isinstance(self.segment, DynamicExecutable):
            self.executors.append(self.segment.create_executor(threads=None))
        elif all(0 not in value.shape for value in args):
            shapes = {name: value.shape for name, value in zip(self.segment.input_shapes, args, strict=True)}
            self.executors.append(GraphExecutor(self.segment.at(shapes)))
        return self.segment(*args)


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
        watched: Any = tuple(map(_Watched, self._program.segments))
        replace(self._program, segments=watched).call(func_name, self._kept(func_name))
        executors = [executor for segment in watched for executor in segment.executors]
        calls = [(t.node.kernel, t.seconds * 1e6) for executor in executors for t in executor.profile(1)]
        rows = [
            {"Name": name, "Duration (us)": us, "Percent": 100 * us / total, "Device": "cpu0", "Count": 1}
            for name, us in calls
        ]
        return Report(rows, {"cpu0": {"Duration (us)": total, "Percent": 100.0}}, {"Executor": "VM"})

"""A model for all sizes on a device with memory of its own: a program for each of the sizes of late."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping

import numpy as np

from autosched.runtime.array import NDArray, array
from autosched.runtime.backends import GraphProgram, check_device, default_device, open_program
from autosched.runtime.device import Device
from autosched.runtime.graph import Graph
from autosched.runtime.graph_form import GraphForm
from autosched.runtime.kernel import Kernel

MOST_PROGRAMS = 8  # sizes whose memory on the device is kept

Plan = Callable[[Mapping[str, int]], tuple[Graph, Mapping[str, Kernel]]]


class DeviceSizesExecutor:
    """A model's constants on a device, and its programs for the sizes of late. One caller has it at a time.

    plan   gives the static graph for some sizes, and its kernels
    """

    def __init__(
        self, form: GraphForm, plan: Plan, constants: tuple[np.ndarray, ...], backend: str, device: Device | None = None
    ):
        self.form, self.plan = form, plan
        self.device = default_device(backend) if device is None else device
        check_device(backend, self.device)
        self._constants = tuple(array(constant, self.device) for constant in constants)
        self._programs: OrderedDict[tuple[int, ...], GraphProgram] = OrderedDict()
        self._lock = threading.RLock()

    def program(self, sizes: Mapping[str, int]) -> GraphProgram:
        """The program for some sizes."""
        key = tuple(sizes[name] for name in self.form.names)
        found = self._programs.get(key)
        if found is None:
            while len(self._programs) >= MOST_PROGRAMS:
                self._programs.popitem(last=False)
            graph, kernels = self.plan(sizes)
            found, _ = open_program(graph, kernels, self._constants, b"", 1, self.device)
            for number, value in enumerate(graph.values):
                if value.storage.kind in ("input", "output"):
                    found.allocate(number)
            self._programs[key] = found
        self._programs.move_to_end(key)
        return found

    def run(self, arrays: Mapping[int, NDArray | np.ndarray]) -> tuple[NDArray, ...]:
        """Run on arrays by value; gives new ones on the device. Raises ShapeError as `GraphForm.sizes_of`."""
        with self._lock:
            shapes = {number: tuple(a.shape) for number, a in arrays.items()}
            if (empty := self.form.empty_outputs(shapes)) is not None:
                made = zip(self.form.outputs, empty, strict=True)
                return tuple(array(np.empty(s, self.form.values[n].dtype), self.device) for n, s in made)
            program = self.program(self.form.sizes_of(shapes))
            for number, given in arrays.items():
                program.array(number).copyfrom(given)
            program.run()
            return tuple([array(program.array(number), self.device) for number in program.graph.outputs])

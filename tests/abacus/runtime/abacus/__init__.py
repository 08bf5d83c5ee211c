"""Running on the abacus: the interpreter, on memory of the host."""

import threading
import time
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from autosched.runtime.graph import NOP
from autosched.runtime.kernel import Kernel, shared_fields
from autosched.tir.interpret import interpret
from autosched.tir.serialize import from_json

from autosched.runtime.abacus.array import empty_on  # noqa: I001


@dataclass(frozen=True, slots=True, kw_only=True)
class AbacusKernel(Kernel):
    backend: ClassVar[str] = "abacus"

    beads: bytes

    @property
    def code(self):
        return self.beads

    @property
    def features(self):
        return ()

    @property
    def asm(self):
        return self.beads.decode()

    def to_manifest(self):
        import hashlib

        digest = hashlib.sha256(self.beads).hexdigest()
        return {"backend": "abacus", **self.shared_manifest(), "object_sha256": digest}

    @classmethod
    def read_manifest(cls, entry, code):
        return AbacusKernel(**shared_fields(entry), beads=bytes(code))

    @staticmethod
    def check_manifest(what, entry):
        pass


KERNEL = AbacusKernel


class Program:
    threads = 1

    def __init__(self, graph, kernels, constants, device):
        self.graph, self.kernels, self.device, self.lock = graph, kernels, device, threading.RLock()
        self._arrays = {}
        for number, value in enumerate(graph.values):
            if value.storage.kind in ("const", "arena"):
                self.allocate(number)
            if value.storage.kind == "const":
                self._arrays[number].copyfrom(constants[value.storage.index])

    def allocate(self, value):
        spec = self.graph.values[value]
        self._arrays[value] = empty_on(self.device, spec.shape, spec.dtype)
        self._arrays[value][:] = 0

    def own(self, value):
        old = self.array(value).numpy()
        self.allocate(value)
        self._arrays[value].copyfrom(old)

    def share(self, value, other):
        self._arrays[value] = other._arrays[value]

    def array(self, value):
        return self._arrays[self.graph.root(value)]

    def run(self, number=1):
        for _ in range(number):
            for node in self.graph.nodes:
                if node.kernel == NOP:
                    continue
                kernel, rows = self.kernels[node.kernel], {"input": iter(node.inputs), "output": iter(node.outputs)}
                values = [next(rows[arg.role]) for arg in kernel.args]
                arrays = [self.array(v).view().reshape(arg.shape) for v, arg in zip(values, kernel.args, strict=True)]
                interpret(from_json(kernel.beads.decode()), arrays)
        return 1

    def seconds(self, number=1):
        start = time.perf_counter()
        self.run(number)
        return time.perf_counter() - start

    def profile(self, number=1):
        return np.zeros(len(self.graph.nodes))

    def synchronize(self):
        pass


def open_program(graph, kernels, constants, native, threads, device):
    assert native == b"", "the host's loop does not move beads"
    return Program(graph, kernels, constants, device)

"""`Kernel`: one compiled loop nest, with all that is needed to call it, show it and build it again.

The ABI: a kernel is a tuple of phases with a barrier between them; a phase is `n_tasks` equal pieces of work, and a C
function

    void body(void **slots, int64_t first, int64_t last, int64_t worker)      // runs pieces [first, last)

`slots` holds the address of each argument in order (inputs, then outputs) and then the address of the scratch block:
`scratch_bytes` shared by all workers and phases, after which worker w owns `scratch_bytes_per_worker` bytes.
"""

from __future__ import annotations

import base64
import hashlib
import math
import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autosched.target import Target

ABI_VERSION = 1


def pack_text(text: str) -> str:
    """Compress a long text for a manifest."""
    return base64.b85encode(zlib.compress(text.encode(), 6)).decode() if text else ""


def unpack_text(packed: str) -> str:
    """Give back what `pack_text` compressed."""
    return zlib.decompress(base64.b85decode(packed)).decode() if packed else ""


@dataclass(frozen=True, slots=True)
class ArgSpec:
    """One array argument: row-major, of fixed shape."""

    name: str
    role: str  # "input" or "output"
    dtype: str
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole array."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def __str__(self) -> str:
        return f"{self.name}: Tensor({list(self.shape)}, {self.dtype})"


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a kernel between two barriers: a C function and its number of pieces."""

    symbol: str
    n_tasks: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """Machine code of one loop nest (an ELF object with all its phases) and where it came from."""

    name: str
    phases: tuple[Phase, ...]
    args: tuple[ArgSpec, ...]
    scratch_bytes: int  # shared by workers and phases; a multiple of 64
    scratch_bytes_per_worker: int  # a multiple of 64
    object_code: bytes = field(repr=False)
    source: str = field(default="", repr=False)  # the readable Numba source
    trace: str = field(default="", repr=False)  # JSON of the schedule's trace, "" if there is none
    config: str = ""  # JSON of the configuration, "" for the default
    target: str = ""  # JSON of the target
    features: tuple[str, ...] = ()  # instruction sets that the code needs, in LLVM's names
    flops: int = 0
    generator: str = ""  # version of the code generator
    llvm_packed: str = field(default="", repr=False)  # the optimised LLVM text, see `pack_text`

    def __post_init__(self) -> None:
        sizes = self.scratch_bytes, self.scratch_bytes_per_worker
        assert sizes[0] % 64 == 0 and sizes[1] % 64 == 0, f"scratch sizes {sizes} are multiples of 64"

    @property
    def llvm(self) -> str:
        """The optimised LLVM text that the object code was made from."""
        return unpack_text(self.llvm_packed)

    @property
    def asm(self) -> str:
        """The assembly text, made from the LLVM text for the kernel's target."""
        import llvmlite.binding as llvm

        target = Target(self.target)
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        kind = llvm.Target.from_triple(llvm.get_process_triple())
        machine = kind.create_target_machine(
            cpu=target.mcpu, features=target.llvm_features, opt=3, reloc="pic", codemodel="default"
        )
        return str(machine.emit_assembly(llvm.parse_assembly(self.llvm))) if self.llvm_packed else ""

    @property
    def inputs(self) -> tuple[ArgSpec, ...]:
        """The arguments that are read."""
        return tuple(arg for arg in self.args if arg.role == "input")

    @property
    def outputs(self) -> tuple[ArgSpec, ...]:
        """The arguments that are written."""
        return tuple(arg for arg in self.args if arg.role == "output")

    @property
    def signature(self) -> str:
        """The call as messages show it: `main(A: Tensor([7], float32), …)`."""
        return f"{self.name}({', '.join(map(str, self.args))})"

    def scratch_size(self, threads: int) -> int:
        """Give the bytes of the scratch block for a number of workers."""
        return self.scratch_bytes + threads * self.scratch_bytes_per_worker

    def to_manifest(self) -> dict[str, Any]:
        """Give everything but the object code as JSON values, with the object's SHA-256."""
        return {
            "name": self.name,
            "phases": [[phase.symbol, phase.n_tasks] for phase in self.phases],
            "args": [[arg.name, arg.role, arg.dtype, list(arg.shape)] for arg in self.args],
            "scratch_bytes": self.scratch_bytes,
            "scratch_bytes_per_worker": self.scratch_bytes_per_worker,
            "source": self.source,
            "trace": self.trace,
            "config": self.config,
            "target": self.target,
            "features": list(self.features),
            "flops": self.flops,
            "generator": self.generator,
            "llvm": self.llvm_packed,
            "object_sha256": hashlib.sha256(self.object_code).hexdigest(),
        }

    @staticmethod
    def from_manifest(entry: dict[str, Any], object_code: bytes) -> Kernel:
        """Rebuild a kernel from what `to_manifest` gave and its object code."""
        return Kernel(
            name=str(entry["name"]),
            phases=tuple(Phase(str(symbol), int(n_tasks)) for symbol, n_tasks in entry["phases"]),
            args=tuple(
                ArgSpec(str(name), str(role), str(dtype), tuple(int(size) for size in shape))
                for name, role, dtype, shape in entry["args"]
            ),
            scratch_bytes=int(entry["scratch_bytes"]),
            scratch_bytes_per_worker=int(entry["scratch_bytes_per_worker"]),
            object_code=object_code,
            source=str(entry.get("source", "")),
            trace=str(entry.get("trace", "")),
            config=str(entry.get("config", "")),
            target=str(entry.get("target", "")),
            features=tuple(str(name) for name in entry.get("features", ())),
            flops=int(entry.get("flops", 0)),
            generator=str(entry.get("generator", "")),
            llvm_packed=str(entry.get("llvm", "")),
        )

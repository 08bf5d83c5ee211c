"""`Kernel`: one compiled loop nest, with all that is needed to call it, show it and build it again.

What the kernels of all back ends share. Each back end has its own subclass in `autosched.runtime.<back end>.kernel`,
with the machine code and how it is called: `CpuKernel`, `CudaKernel`.
"""

from __future__ import annotations

import base64
import importlib
import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from autosched.errors import ArtifactError
from autosched.printable import html_code
from autosched.target.kinds import KINDS

if TYPE_CHECKING:
    from autosched.json_types import Json, JsonObject

LARGEST = 1 << 47  # more bytes, elements or pieces than any process can hold


def check_count(what: str, number: object, most: int = LARGEST) -> None:
    """See that a number read from a file is a count that can be. Raises ValueError naming `what`."""
    if type(number) is not int or not 0 <= number <= most:
        raise ValueError(f"{what} is {str(number)[:40]}")


ABI_VERSION = 2


def pack_text(text: str) -> str:
    """Compress a long text for a manifest."""
    return base64.b64encode(zlib.compress(text.encode(), 6)).decode() if text else ""


def unpack_text(packed: str) -> str:
    """Give back what `pack_text` compressed. Files of older versions have it in base 85, where it begins with a "c"."""
    decode = base64.b85decode if packed.startswith("c") else base64.b64decode
    return zlib.decompress(decode(packed)).decode() if packed else ""


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
        return math.prod(self.shape) * (2 if self.dtype == "bfloat16" else np.dtype(self.dtype).itemsize)

    def __str__(self) -> str:
        return f"{self.name}: Tensor({list(self.shape)}, {self.dtype})"


OPEN = -1  # in place of a check's upper bound: a size that comes with the call


@dataclass(frozen=True, slots=True)
class Check:
    """Something that a kernel looks at while it runs: a number that has to be in [low, high)."""

    what: str  # "take along axis 0"
    low: int
    high: int
    is_access: bool = False  # an index of a buffer, not a position that the model was given
    is_assert: bool = False  # a condition that has to hold: `what` says which, there is no number


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel(ABC):
    """Machine code of one loop nest and where it came from."""

    backend: ClassVar[str]

    name: str
    args: tuple[ArgSpec, ...]
    scratch_bytes: int = 0  # memory that the kernel needs beside its arguments
    source: str = field(default="", repr=False)  # the readable Numba source
    trace: str = field(default="", repr=False)  # JSON of the schedule's trace, "" if there is none
    config: str = ""  # JSON of the configuration, "" for the default
    target: str = ""  # JSON of the target
    flops: int = 0
    generator: str = ""  # version of the code generator
    llvm_packed: str = field(default="", repr=False)  # the LLVM text, see `pack_text`
    checks: tuple[Check, ...] = ()

    @property
    @abstractmethod
    def code(self) -> bytes:
        """All machine code as one block of bytes: what an artifact's section and the kernel cache hold."""

    @property
    @abstractmethod
    def features(self) -> tuple[str, ...]:
        """Instruction sets of the host's CPU that running needs, in LLVM's names."""

    def _repr_html_(self) -> str:
        """What notebooks show: the source."""
        return html_code(self.source or self.name)

    @property
    def takes_sizes(self) -> bool:
        """Whether its sizes come with the call."""
        return False

    @property
    def lacks_sizes(self) -> bool:
        """Whether it is such a kernel without its sizes, which cannot be called."""
        return False

    def at(self, numbers: tuple[int, ...]) -> Kernel:
        """A kernel whose sizes come with the call as it is for some values of its symbols."""
        raise AssertionError(f"the sizes of '{self.name}' are its own")

    @abstractmethod
    def to_manifest(self) -> JsonObject:
        """Give everything but the code as JSON values, with the code's SHA-256."""

    @staticmethod
    def from_manifest(entry: Mapping[str, object], code: bytes) -> Kernel:
        """Rebuild a kernel of any back end from what `to_manifest` and `code` gave.

        Raises KeyError, TypeError or ValueError for an entry that no `to_manifest` gave, ArtifactError for a back end
        that this version does not know.
        """
        return kernel_class(entry).read_manifest(entry, code)

    @classmethod
    @abstractmethod
    def read_manifest(cls, entry: Mapping[str, object], code: bytes) -> Kernel:
        """Rebuild a kernel of this back end; see `from_manifest`."""

    @staticmethod
    @abstractmethod
    def check_manifest(what: str, entry: Mapping[str, object]) -> None:
        """See that sizes and counts can be, since native code trusts them; the arguments are seen to already.

        Raises ValueError naming `what`, and KeyError for what is missing.
        """

    @property
    def llvm(self) -> str:
        """The LLVM text that the machine code was made from."""
        return unpack_text(self.llvm_packed)

    @property
    @abstractmethod
    def asm(self) -> str:
        """The machine code as text, as far as that can be shown here."""

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

    def shared_manifest(self) -> JsonObject:
        """Give the fields of this class as JSON values."""
        return {
            "name": self.name,
            "args": [[arg.name, arg.role, arg.dtype, list(arg.shape)] for arg in self.args],
            "scratch_bytes": self.scratch_bytes,
            "source": self.source,
            "trace": self.trace,
            "config": self.config,
            "target": self.target,
            "flops": self.flops,
            "generator": self.generator,
            "llvm": self.llvm_packed,
            **({"checks": [_written(check) for check in self.checks]} if self.checks else {}),
        }


def _written(check: Check) -> list[Json]:
    return [check.what, check.low, check.high, check.is_access, *([True] if check.is_assert else [])]


def shared_fields(entry: Mapping[str, Json]) -> JsonObject:
    """Read what `shared_manifest` gave, as arguments of a kernel's class."""
    return {
        "name": str(entry["name"]),
        "args": tuple(
            ArgSpec(str(name), str(role), str(dtype), tuple(int(size) for size in shape))
            for name, role, dtype, shape in entry["args"]
        ),
        "scratch_bytes": int(entry["scratch_bytes"]),
        "source": str(entry.get("source", "")),
        "trace": str(entry.get("trace", "")),
        "config": str(entry.get("config", "")),
        "target": str(entry.get("target", "")),
        "flops": int(entry.get("flops", 0)),
        "generator": str(entry.get("generator", "")),
        "llvm_packed": str(entry.get("llvm", "")),
        "checks": tuple(Check(str(c[0]), int(c[1]), int(c[2]), *map(bool, c[3:5])) for c in entry.get("checks", ())),
    }


def kernel_class(entry: Mapping[str, object]) -> type[Kernel]:
    """The class of a manifest's kernel; kernels of the time before there were back ends are a CPU's.

    Raises ArtifactError for a back end that this version does not know.
    """
    backend = entry.get("backend", "cpu")
    if backend not in {kind.backend for kind in KINDS.values() if kind.backend}:
        raise ArtifactError(f"a kernel is for the unknown back end {backend!r}", hint="upgrade autosched")
    found: type[Kernel] = importlib.import_module(f"{__package__}.{backend}").KERNEL
    return found

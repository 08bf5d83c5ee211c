"""`CpuKernel`: object code whose functions the native loop calls.

The ABI: a kernel is a tuple of phases with a barrier between them; a phase is `n_tasks` equal pieces of work, and a C
function

    void body(void **slots, int64_t first, int64_t last, int64_t worker)      // runs pieces [first, last)

`slots` holds the address of each argument in order (inputs, then outputs) and then the address of the scratch block:
`scratch_bytes` shared by all workers and phases, after which worker w owns `scratch_bytes_per_worker` bytes. Then come
the kernel's `numbers`, sizes that are no part of its code. A kernel with checks gets one more address: two words for
each check, of which it sets the first to 1 and the second to the number that is out of range, where there is one.

A kernel whose sizes come with the call is given them as its numbers; its number of pieces, scratch and the shapes of
its arguments are expressions of them (`Sized`), evaluated before the native loop runs.

A kernel of blocks has two numbers, `first` and `count`: its code computes one block, so many parts of a batch, and a
call runs `count` blocks of which the first one begins at part `first`. Arguments that hold something of each part are
addressed block by block; the others are the same for all.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from autosched.errors import ArtifactError
from autosched.runtime.cpu.machine import target_machine
from autosched.runtime.kernel import ArgSpec, Kernel, check_count, shared_fields
from autosched.runtime.size_expr import Shape, Size, read_shape, read_size, shape_at, size_at
from autosched.target import Target

if TYPE_CHECKING:
    from autosched.json_types import Json, JsonObject


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a kernel between two barriers: a C function and its number of pieces."""

    symbol: str
    n_tasks: int


@dataclass(frozen=True, slots=True)
class Sized:
    """Of a kernel whose sizes come with the call: its symbols, and what follows from them.

    names   of the symbols, in the order of the kernel's numbers
    pieces  of each phase
    shared, own  bytes of scratch that workers share, and that each has
    shapes  of the arguments
    flops   of a call
    empty   names of the symbols that may be 0
    """

    names: tuple[str, ...]
    pieces: tuple[Size, ...]
    shared: Size
    own: Size
    shapes: tuple[Shape, ...]
    flops: Size
    empty: tuple[str, ...] = ()

    @property
    def expressions(self) -> tuple[Shape, ...]:
        """All that follows from the symbols: pieces; scratch and flops; the shapes."""
        return self.pieces, (self.shared, self.own, self.flops), *self.shapes

    def to_manifest(self) -> list[Json]:
        """Give it as JSON values."""
        return [list(self.names), self.pieces, self.shared, self.own, self.shapes, self.flops, list(self.empty)]

    @staticmethod
    def from_manifest(entry: Json) -> Sized:
        """Read what `to_manifest` gave. Raises ValueError, TypeError."""
        names, pieces, shared, own, shapes, flops, *more = entry
        names = tuple(map(str, names))
        rest = [read_size(size, names) for size in (shared, own, flops)]
        return Sized(
            names,
            read_shape(pieces, names),
            rest[0],
            rest[1],
            tuple(read_shape(s, names) for s in shapes),
            rest[2],
            tuple(str(name) for empty in more for name in empty),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuKernel(Kernel):
    """Machine code of one loop nest (an ELF object with all its phases) and where it came from."""

    backend: ClassVar[str] = "cpu"

    phases: tuple[Phase, ...]
    object_code: bytes = field(repr=False)
    scratch_bytes_per_worker: int = 0  # a multiple of 64, as scratch_bytes, which workers and phases share
    features: tuple[str, ...] = ()  # instruction sets that the code needs, in LLVM's names
    block: tuple[int, ...] = ()  # of a kernel of blocks: parts in a block, and which arguments hold something of each
    numbers: tuple[int, ...] = ()  # what a call gives it: (first, count) of blocks, or the values of its symbols
    sized: Sized | None = None  # of a kernel whose sizes come with the call

    def __post_init__(self) -> None:
        sizes = self.scratch_bytes, self.scratch_bytes_per_worker
        assert sizes[0] % 64 == 0 and sizes[1] % 64 == 0, f"scratch sizes {sizes} are multiples of 64"

    @property
    def code(self) -> bytes:
        return self.object_code

    @property
    def asm(self) -> str:
        """The assembly text, made from the LLVM text for the kernel's target."""
        import llvmlite.binding as llvm

        target = Target(self.target)
        machine = target_machine(target.triple, target.mcpu, target.llvm_features)
        return str(machine.emit_assembly(llvm.parse_assembly(self.llvm))) if self.llvm_packed else ""

    def scratch_size(self, threads: int) -> int:
        """Give the bytes of the scratch block for a number of workers."""
        return self.scratch_bytes + threads * self.scratch_bytes_per_worker

    def blocks(self, first: int, count: int) -> CpuKernel:
        """A kernel of blocks as it runs `count` of them, beginning at part `first` of the batch."""
        assert self.block, f"'{self.name}' is no kernel of blocks"
        phases = tuple(Phase(phase.symbol, phase.n_tasks * count) for phase in self.phases)
        return replace(self, phases=phases, scratch_bytes=self.scratch_bytes * count, numbers=(first, count))

    @property
    def takes_sizes(self) -> bool:
        return self.sized is not None

    @property
    def lacks_sizes(self) -> bool:
        return self.sized is not None and not self.numbers

    def takes_numbers(self, numbers: Sequence[int]) -> bool:
        """Whether the code is for such values of its symbols."""
        if min(numbers, default=1) > 0:
            return True
        return self.sized is not None and all(
            n > 0 or (n == 0 and name in self.sized.empty) for name, n in zip(self.sized.names, numbers, strict=True)
        )

    def at(self, numbers: tuple[int, ...]) -> CpuKernel:
        """A kernel whose sizes come with the call as it is for some values of its symbols, which are 1 at least.

        Some may be 0 (`Sized.empty`). Raises ArtifactError for smaller ones.
        """
        assert self.sized is not None, f"the sizes of '{self.name}' are its own"
        values = dict(zip(self.sized.names, numbers, strict=True))
        return self.with_sizes(numbers, *(shape_at(shape, values) for shape in self.sized.expressions))

    def with_sizes(
        self, numbers: tuple[int, ...], pieces: Sequence[int], rest: Sequence[int], *shapes: tuple[int, ...]
    ) -> CpuKernel:
        """The same, given what `Sized.expressions` are for these numbers."""
        if not self.takes_numbers(numbers):
            raise ArtifactError(f"kernel '{self.name}' is called with the sizes {', '.join(map(str, numbers))}")
        return replace(
            self, numbers=numbers, scratch_bytes=rest[0], scratch_bytes_per_worker=rest[1], flops=rest[2],
            phases=tuple([Phase(phase.symbol, n) for phase, n in zip(self.phases, pieces, strict=True)]),
            args=tuple([ArgSpec(a.name, a.role, a.dtype, s) for a, s in zip(self.args, shapes, strict=True)]),
        )  # fmt: skip

    def to_manifest(self) -> JsonObject:
        return {
            **({"block": list(self.block)} if self.block else {}),
            **({"sized": self.sized.to_manifest()} if self.sized else {}),
            **({"numbers": list(self.numbers)} if self.sized and self.numbers else {}),
            **self.shared_manifest(),
            "phases": [[phase.symbol, phase.n_tasks] for phase in self.phases],
            "scratch_bytes_per_worker": self.scratch_bytes_per_worker,
            "features": list(self.features),
            "object_sha256": hashlib.sha256(self.object_code).hexdigest(),
        }

    @classmethod
    def read_manifest(cls, entry: Mapping[str, Json], code: bytes) -> CpuKernel:
        return CpuKernel(
            **shared_fields(entry),
            phases=tuple(Phase(str(symbol), int(n_tasks)) for symbol, n_tasks in entry["phases"]),
            scratch_bytes_per_worker=int(entry["scratch_bytes_per_worker"]),
            object_code=code,
            features=tuple(str(name) for name in entry.get("features", ())),
            block=tuple(int(n) for n in entry.get("block", ())),
            numbers=(0, 1) if entry.get("block") else tuple(int(n) for n in entry.get("numbers", ())),
            sized=Sized.from_manifest(entry["sized"]) if entry.get("sized") else None,
        )

    @staticmethod
    def check_manifest(what: str, entry: Mapping[str, Json]) -> None:
        for name in ("scratch_bytes", "scratch_bytes_per_worker"):
            check_count(f"{name} of {what}", entry[name])
            if entry[name] % 64:
                raise ValueError(f"{name} of {what} is {entry[name]}, no multiple of 64")
        for n_parts, *positions in [entry["block"]] if entry.get("block") else []:
            check_count(f"parts in a block of {what}", n_parts)
            for position in positions:
                check_count(f"argument of {what}", position, len(entry["args"]) - 1)
            if not n_parts or any(math.prod(entry["args"][position][3]) % n_parts for position in positions):
                raise ValueError(f"blocks of {what} have {n_parts} parts, which its arguments do not divide into")
        for _, n_tasks in entry["phases"]:
            check_count(f"pieces of {what}", n_tasks)
        if entry.get("sized"):
            sized = Sized.from_manifest(entry["sized"])
            if (len(sized.pieces), len(sized.shapes)) != (len(entry["phases"]), len(entry["args"])):
                raise ValueError(f"the sizes of {what} are not those of its phases and arguments")
            if numbers := entry.get("numbers"):
                _check_numbers(what, sized, numbers, entry)


def _check_numbers(what: str, sized: Sized, numbers: Sequence[Json], entry: Mapping[str, Json]) -> None:
    """See that all that a kernel says of itself is what it is for its symbols' values. Raises ValueError."""
    for number in numbers:
        check_count(f"a size of {what}", number)
    least = [0 if name in sized.empty else 1 for name in sized.names]
    if len(numbers) != len(sized.names) or any(n < low for n, low in zip(numbers, least, strict=True)):
        raise ValueError(f"{what} has the sizes {list(numbers)} for {len(sized.names)} symbols")
    values = dict(zip(sized.names, numbers, strict=True))
    said = [n for _, n in entry["phases"]], [tuple(arg[3]) for arg in entry["args"]]
    bytes_said = entry["scratch_bytes"], entry["scratch_bytes_per_worker"]
    if (
        said != ([*shape_at(sized.pieces, values)], [tuple(shape_at(shape, values)) for shape in sized.shapes])
        or bytes_said != (size_at(sized.shared, values), size_at(sized.own, values))
    ):  # fmt: skip
        raise ValueError(f"the sizes of {what} are not those of its phases, arguments and scratch")


def as_cpu(kernel: Kernel) -> CpuKernel:
    """The kernel as one that the native loop calls. Raises ArtifactError for another back end's."""
    if not isinstance(kernel, CpuKernel):
        raise ArtifactError(
            f"kernel '{kernel.name}' was built for {kernel.backend}, not for a CPU",
            hint=f"run it on a {kernel.backend} device, or build it for the target cpu",
        )
    return kernel

"""`CudaKernel`: machine code for GPUs, and the launches that one call makes.

Every entry has the same signature: one pointer for each argument of the kernel in order (inputs, then outputs), and
then one pointer to the scratch block: `scratch_bytes` of device memory for what lives between launches, null where
that is 0. A kernel with checks takes one more, of the words that a CPU's kernel has: two for each check. Sizes that
come with the call follow as numbers of 32 bits, and of a kernel that repeats launches the turn of this one, from 1 on.
The launches of a call run in order on one stream.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from autosched.errors import ArtifactError, DeviceError, ShapeError
from autosched.runtime.kernel import Kernel, check_count, shared_fields, unpack_text
from autosched.runtime.size_expr import Shape, Size, read_shape, read_size, shape_at, size_at
from autosched.target import Target

if TYPE_CHECKING:
    from autosched.json_types import Json, JsonObject

Extents = tuple[int, int, int]  # in x, y and z

# The most that a launch may ask for, by the CUDA programming guide: blocks of a grid in x, y, z; threads of a block;
# blocks of a cluster, which some devices take more than 8 of.
MOST_BLOCKS = (2**31 - 1, 65535, 65535)
MOST_THREADS = 1024
MOST_CLUSTER = 16
MOST_ELEMENTS = 1 << 30  # of an argument whose size comes with the call: its places are numbers of 32 bits
MOST_SHARED = 1 << 20  # no device has a MiB of shared memory in an SM


MOST_TENSOR_DIMS = 5
MOST_BOX = 256  # elements of a box along one dimension


@dataclass(frozen=True, slots=True)
class TensorMap:
    """How a row-major argument is copied in boxes by the tensor memory accelerator; what is outside of it reads as 0.

    argument    position among the kernel's arguments; the one behind them is the scratch block
    item_bytes  of an element
    shape, box  elements along each dimension, the innermost last; rows of a box have 128 bytes, whose 16-byte pieces
                are permuted by the number of the row modulo 8
    offset_bytes  of the array in the scratch block
    """

    argument: int
    item_bytes: int
    shape: tuple[int, ...]
    box: tuple[int, ...]
    offset_bytes: int = 0

    @property
    def strides_bytes(self) -> tuple[int, ...]:
        """Distances of neighbours along each dimension but the innermost."""
        steps = [self.item_bytes * math.prod(self.shape[i + 1 :]) for i in range(len(self.shape))]
        return tuple(steps[:-1])


@dataclass(frozen=True, slots=True)
class Launch:
    """One entry and how many threads run it; `shared_bytes` of a block are dynamic, asked for at launch.

    grid         blocks in x, y, z;  block  threads of a block;  cluster  blocks that share their shared memory
    tensor_maps  parameters of the entry behind the pointers, 128 bytes each, by value
    """

    symbol: str
    grid: Extents
    block: Extents
    cluster: Extents = (1, 1, 1)
    shared_bytes: int = 0
    tensor_maps: tuple[TensorMap, ...] = ()

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return math.prod(self.block)


@dataclass(frozen=True, slots=True)
class Repeat:
    """The launches from `first` up to `end` follow on each other `times` times."""

    first: int
    end: int
    times: Size


@dataclass(frozen=True, slots=True)
class Sized:
    """Of a kernel whose sizes come with the call: its symbols, and what follows from them.

    names   of the symbols, in the order of the kernel's numbers
    most    that each may be, so that places in arrays are numbers of 32 bits
    grids   of each launch, in x, y and z
    scratch bytes of what lives between launches
    shapes  of the arguments
    flops   of a call
    empty   names of the symbols that may be 0
    """

    names: tuple[str, ...]
    most: tuple[int, ...]
    grids: tuple[Shape, ...]
    scratch: Size
    shapes: tuple[Shape, ...]
    flops: Size
    empty: tuple[str, ...] = ()

    def least_grid(self, launch: int) -> Extents:
        """The blocks of a launch for sizes of 1, of which at least one is there: half of such a size has none."""
        x, y, z = (max(1, n) for n in shape_at(self.grids[launch], dict.fromkeys(self.names, 1)))
        return x, y, z

    def grid_at(self, launch: int, numbers: Sequence[int]) -> Extents:
        """The blocks of a launch for some sizes. Raises ShapeError where no device takes so many."""
        grid = _extents(shape_at(self.grids[launch], dict(zip(self.names, numbers, strict=True))))
        for blocks, most, axis in zip(grid, MOST_BLOCKS, "xyz", strict=True):
            if not 1 <= blocks <= most:
                given = ", ".join(f"{name} = {n}" for name, n in zip(self.names, numbers, strict=True))
                raise ShapeError(f"for {given} a launch has {blocks} blocks along {axis}: 1 to {most} can be")
        return grid

    def to_manifest(self) -> list[Json]:
        """Give it as JSON values."""
        return [
            list(self.names), list(self.most), self.grids, self.scratch, self.shapes, self.flops, list(self.empty)
        ]  # fmt: skip

    @staticmethod
    def from_manifest(entry: Json) -> Sized:
        """Read what `to_manifest` gave. Raises ValueError, TypeError."""
        names, most, grids, scratch, shapes, flops, *more = entry
        names = tuple(map(str, names))
        read = [tuple(read_shape(shape, names) for shape in found) for found in (grids, shapes)]
        rest = [read_size(size, names) for size in (scratch, flops)]
        empty = tuple(str(name) for names_of_empty in more for name in names_of_empty)
        return Sized(names, tuple(map(int, most)), read[0], rest[0], read[1], rest[1], empty)


@dataclass(frozen=True, slots=True)
class LaunchResources:
    """What the assembler says that one launch uses.

    registers     of a thread
    shared_bytes  of a block, static and dynamic
    stack_bytes   of a thread: more than 0 shows that an array was not kept in registers
    spill_bytes   of a thread: stores and loads of registers that did not fit
    occupancy     resident threads of an SM over the most there can be
    """

    registers: int
    shared_bytes: int
    stack_bytes: int
    spill_bytes: int
    occupancy: float


@dataclass(frozen=True, slots=True)
class Resources:
    """What a kernel's launches use; each property is that of the launch that is worst in it."""

    launches: tuple[LaunchResources, ...]

    @property
    def registers(self) -> int:
        return max((launch.registers for launch in self.launches), default=0)

    @property
    def shared_bytes(self) -> int:
        return max((launch.shared_bytes for launch in self.launches), default=0)

    @property
    def stack_bytes(self) -> int:
        return max((launch.stack_bytes for launch in self.launches), default=0)

    @property
    def spill_bytes(self) -> int:
        return max((launch.spill_bytes for launch in self.launches), default=0)

    @property
    def occupancy(self) -> float:
        return min((launch.occupancy for launch in self.launches), default=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaKernel(Kernel):
    """Launches, and their machine code for one or several architectures.

    images     by architecture: "sm_90a" a cubin for that chip, "compute_80" the text of PTX, which a driver compiles
               for any later chip
    resources  on the architecture of `target`
    repeats    launches that are made again and again, in order
    """

    backend: ClassVar[str] = "cuda"

    launches: tuple[Launch, ...]
    images: Mapping[str, bytes] = field(repr=False, hash=False)
    resources: Resources = Resources(())
    ptx_packed: str = field(default="", repr=False)  # the PTX that the target's cubin was made from, see `pack_text`
    numbers: tuple[int, ...] = ()  # what the sizes are, of a kernel whose sizes come with the call
    sized: Sized | None = None  # of such a kernel
    repeats: tuple[Repeat, ...] = ()

    @property
    def takes_sizes(self) -> bool:
        return self.sized is not None

    def at(self, numbers: tuple[int, ...]) -> CudaKernel:
        """A kernel whose sizes come with the call as it is for some values of its symbols.

        Raises ShapeError for sizes that are below 1, or 0 where they may be that, or too large.
        """
        assert self.sized is not None, f"the sizes of '{self.name}' are its own"
        values = dict(zip(self.sized.names, numbers, strict=True))
        for (name, n), most in zip(values.items(), self.sized.most, strict=True):
            if not (least := int(name not in self.sized.empty)) <= n <= most:
                raise ShapeError(f"'{name}' is {n}, and kernel '{self.name}' is for {least} to {most}")
        args = tuple(
            replace(arg, shape=shape_at(shape, values)) for arg, shape in zip(self.args, self.sized.shapes, strict=True)
        )
        if large := [arg for arg in args if math.prod(arg.shape) >= MOST_ELEMENTS]:
            raise ShapeError(
                f"{large[0]} has more than {MOST_ELEMENTS} elements, the most that kernel '{self.name}' counts"
            )
        scratch_bytes = size_at(self.sized.scratch, values)
        if scratch_bytes >= MOST_ELEMENTS:
            raise ShapeError(f"kernel '{self.name}' needs {scratch_bytes} bytes between launches, for 1 GiB at most")
        launches = (replace(x, grid=self.sized.grid_at(i, numbers)) for i, x in enumerate(self.launches))
        return replace(
            self, numbers=numbers, args=args, launches=tuple(launches), scratch_bytes=scratch_bytes,
            flops=size_at(self.sized.flops, values),
        )  # fmt: skip

    @property
    def size_arguments(self) -> tuple[np.int32, ...]:
        """The sizes that each entry is given behind the addresses."""
        return tuple(map(np.int32, self.numbers))

    @property
    def calls(self) -> Iterator[tuple[int, tuple[np.int32, ...]]]:
        """The launches that one call makes: the position of each, and what its entry is given behind the addresses."""
        sizes, at = self.size_arguments, 0
        turnless = (np.int32(1),) if self.repeats else ()
        values = dict(zip(self.sized.names, self.numbers, strict=True)) if self.sized else {}
        for repeat in (*self.repeats, None):
            first = len(self.launches) if repeat is None else repeat.first
            yield from ((i, (*sizes, *turnless)) for i in range(at, first))
            if repeat is not None:
                for turn in range(1, size_at(repeat.times, values) + 1):
                    yield from ((i, (*sizes, np.int32(turn))) for i in range(first, repeat.end))
                at = repeat.end

    @property
    def code(self) -> bytes:
        return b"".join(self.images.values())

    @property
    def features(self) -> tuple[str, ...]:
        return ()

    @property
    def archs(self) -> tuple[str, ...]:
        """What there is code for, by the names of `images`."""
        return archs_of(self.images, self.target, bool(self.ptx_packed))

    @property
    def ptx(self) -> str:
        """The PTX that the cubin of the kernel's target was made from."""
        return unpack_text(self.ptx_packed)

    @property
    def cubin(self) -> bytes:
        """The machine code for the kernel's target. Raises ArtifactError where there is none."""
        arch = Target(self.target).gpu.arch
        if arch not in self.images:
            there = ", ".join(self.images) or "nothing"
            raise ArtifactError(f"kernel '{self.name}' has no machine code for {arch}", hint=f"it has {there}")
        return self.images[arch]

    @property
    def sass(self) -> str:
        """The disassembly of `cubin`. Raises DeviceError where NVIDIA's disassembler is missing."""
        tool = _disassembler()
        if tool is None:
            hint = "pip install nvidia-cuda-nvdisasm, or the CUDA toolkit"
            raise DeviceError("nvdisasm is not there, which shows machine code", hint=hint)
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(self.cubin)
            file.flush()
            done = subprocess.run([tool, "-c", file.name], capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise DeviceError(f"nvdisasm refuses the machine code of kernel '{self.name}'", hint=done.stderr.strip())
        return done.stdout

    @property
    def asm(self) -> str:
        """The PTX text."""
        return self.ptx

    def to_manifest(self) -> JsonObject:
        images = [[arch, len(image), hashlib.sha256(image).hexdigest()] for arch, image in self.images.items()]
        return {
            "backend": self.backend,
            **self.shared_manifest(),
            "launches": [
                [x.symbol, list(x.grid), list(x.block), list(x.cluster), x.shared_bytes, *_written(x.tensor_maps)]
                for x in self.launches
            ],
            "images": images,
            "resources": [
                [x.registers, x.shared_bytes, x.stack_bytes, x.spill_bytes, x.occupancy]
                for x in self.resources.launches
            ],
            "ptx": self.ptx_packed,
            **({"sized": self.sized.to_manifest()} if self.sized else {}),
            **({"repeats": [[r.first, r.end, r.times] for r in self.repeats]} if self.repeats else {}),
            "object_sha256": hashlib.sha256(self.code).hexdigest(),
        }

    @classmethod
    def read_manifest(cls, entry: Mapping[str, Json], code: bytes) -> CudaKernel:
        images, at = {}, 0
        sized = Sized.from_manifest(entry["sized"]) if entry.get("sized") else None
        for arch, size, _ in entry["images"]:
            images[str(arch)] = code[at : at + size]
            at += size
        if at != len(code):
            raise ValueError(f"the images of kernel '{entry['name']}' have {at} bytes, its section {len(code)}")
        return CudaKernel(
            **shared_fields(entry),
            launches=tuple(
                Launch(str(symbol), _extents(grid), _extents(block), _extents(cluster), int(shared), _read(maps))
                for symbol, grid, block, cluster, shared, *maps in entry["launches"]
            ),
            images=images,
            resources=Resources(
                tuple(
                    LaunchResources(int(registers), int(shared), int(stack), int(spills), float(occupancy))
                    for registers, shared, stack, spills, occupancy in entry["resources"]
                )
            ),
            ptx_packed=str(entry.get("ptx", "")),
            sized=sized,
            numbers=() if sized is None else (1,) * len(sized.names),
            repeats=_read_repeats(entry, sized),
        )

    @staticmethod
    def check_manifest(what: str, entry: Mapping[str, Json]) -> None:
        check_count(f"scratch_bytes of {what}", entry["scratch_bytes"])
        for _, size, _ in entry["images"]:
            check_count(f"bytes of an image of {what}", size)
        n_args = len(entry["args"])
        for _, grid, block, cluster, shared, *maps in entry["launches"]:
            for tensor_map in maps:
                _check_map(tensor_map, n_args, entry["scratch_bytes"], f"a tensor map of {what}")
            for extents, most in ((grid, MOST_BLOCKS), (block, (MOST_THREADS,) * 3), (cluster, (MOST_CLUSTER,) * 3)):
                for extent, limit in zip(extents, most, strict=True):
                    check_count(f"extent of a launch of {what}", extent, limit)
                    if extent < 1:
                        raise ValueError(f"extent of a launch of {what} is {extent}")
            if math.prod(block) > MOST_THREADS or math.prod(cluster) > MOST_CLUSTER:
                raise ValueError(f"a launch of {what} has blocks of {block} threads in clusters of {cluster}")
            check_count(f"shared memory of {what}", shared, MOST_SHARED)
        if entry.get("sized"):
            sized = Sized.from_manifest(entry["sized"])
            for count in sized.most:
                check_count(f"the most of a size of {what}", count, MOST_ELEMENTS)
            found = len(sized.grids), len(sized.shapes), len(sized.most)
            if found != (len(entry["launches"]), n_args, len(sized.names)) or any(len(g) != 3 for g in sized.grids):
                raise ValueError(f"the sizes of {what} are not those of its launches and arguments")
        end = 0
        for repeat in _read_repeats(entry, Sized.from_manifest(entry["sized"]) if entry.get("sized") else None):
            if not end <= repeat.first < repeat.end <= len(entry["launches"]):
                raise ValueError(f"{what} repeats the launches {repeat.first} to {repeat.end} of its own")
            end = repeat.end


def _read_repeats(entry: Mapping[str, Json], sized: Sized | None) -> tuple[Repeat, ...]:
    names = () if sized is None else sized.names
    return tuple(Repeat(int(a), int(b), read_size(times, names)) for a, b, times in entry.get("repeats", ()))


def _disassembler() -> str | None:
    """NVIDIA's disassembler: that of PATH, else that of the package nvidia-cuda-nvdisasm."""
    spec = importlib.util.find_spec("nvidia")
    roots = (spec.submodule_search_locations if spec else None) or ()
    folders = sorted(str(folder) for root in roots for folder in Path(root).glob("cu*/bin"))
    return shutil.which("nvdisasm") or shutil.which("nvdisasm", path=os.pathsep.join(folders))


def _written(maps: Iterable[TensorMap]) -> list[Json]:
    return [[m.argument, m.item_bytes, list(m.shape), list(m.box), m.offset_bytes] for m in maps]


def _read(maps: Iterable[Json]) -> tuple[TensorMap, ...]:
    return tuple(
        TensorMap(int(argument), int(item), tuple(map(int, shape)), tuple(map(int, box)), *map(int, offset))
        for argument, item, shape, box, *offset in maps
    )


def _check_map(entry: Json, n_args: int, scratch_bytes: int, what: str) -> None:
    argument, item, shape, box, *offset = entry
    check_count(f"argument of {what}", argument, n_args)
    for n in offset:
        check_count(f"offset of {what}", n, scratch_bytes if argument == n_args else 0)
    check_count(f"element size of {what}", item, 8)
    if item not in (1, 2, 4, 8) or len(shape) != len(box) or not 2 <= len(shape) <= MOST_TENSOR_DIMS:
        raise ValueError(f"{what} has elements of {item} bytes, the shape {shape} and boxes of {box}")
    for size, extent in zip(shape, box, strict=True):
        check_count(f"size of {what}", size, 1 << 32)
        check_count(f"box of {what}", extent, MOST_BOX)
        if not size or not extent:
            raise ValueError(f"{what} is empty")
    if argument == n_args and sum(offset) + item * math.prod(shape) > scratch_bytes:
        raise ValueError(f"{what} is larger than the scratch block")


def archs_of(images: Iterable[str], target: str, has_ptx: bool) -> tuple[str, ...]:
    """What a kernel has code for: its images, and the PTX of its target, which a driver compiles for any later chip.

    PTX of an architecture with a suffix ("sm_90a") is for that chip alone, which has its machine code.
    """
    found = dict.fromkeys(images)
    arch = Target(target).gpu.arch if has_ptx and target else ""
    if arch and not arch.endswith(("a", "f")):
        found[arch.replace("sm_", "compute_")] = None
    return tuple(found)


def _extents(extents: Json) -> Extents:
    x, y, z = extents
    return int(x), int(y), int(z)


_CUBIN, _PTX = re.compile(r"sm_(\d+)(\d)([af]?)"), re.compile(r"compute_(\d+)(\d)([af]?)")


def choose_image(images: Mapping[str, bytes], capability: tuple[int, int]) -> str | None:
    """The best of a kernel's images for a device: machine code of its own, of its family, then the newest PTX.

    Machine code runs on later chips of the same major number; with the suffix "a" on its own chip alone, with "f" on
    its family. None where nothing runs.
    """
    major, minor = capability
    ranked: list[tuple[tuple[int, int, int], str]] = []
    for arch in images:
        if found := _CUBIN.fullmatch(arch):
            its, suffix = (int(found[1]), int(found[2])), found[3]
            if its == capability or (its[0] == major and its[1] < minor and suffix != "a"):
                ranked.append(((2, its[1], 1 if suffix else 0), arch))
        elif (found := _PTX.fullmatch(arch)) and (int(found[1]), int(found[2])) <= capability:
            its, suffix = (int(found[1]), int(found[2])), found[3]
            if not suffix or its == capability:
                ranked.append(((1, its[0] * 10 + its[1], 1 if suffix else 0), arch))
    return max(ranked)[1] if ranked else None


def image_for(kernel: CudaKernel, device: str, capability: tuple[int, int]) -> tuple[str, bytes]:
    """(architecture, image) of a kernel for a device.

    Raises DeviceError naming what the kernel was built for.
    """
    chosen = choose_image(dict.fromkeys(kernel.archs, b""), capability)
    if chosen is None:
        here = f"sm_{capability[0]}{capability[1]}"
        raise DeviceError(
            f"kernel '{kernel.name}' was built for {', '.join(kernel.archs) or 'nothing'}, "
            f"and {device} has compute capability {capability[0]}.{capability[1]}",
            hint=f"build it for the target 'cuda -arch={here}'",
        )
    return chosen, kernel.images[chosen] if chosen in kernel.images else kernel.ptx.encode()

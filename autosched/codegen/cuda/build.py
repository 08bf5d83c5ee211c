"""`compile_uncached`: a scheduled PrimFunc to a kernel for NVIDIA GPUs."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from autosched.codegen.cpu.build import schedule_steps
from autosched.codegen.cpu.source import Scratch, align_bytes, buffer_bytes
from autosched.codegen.cuda.assembler import Assembled, assemble
from autosched.codegen.cuda.source import LaunchWriter
from autosched.codegen.generator import GENERATOR
from autosched.codegen.lower.device import LoweredDevice, lower_device
from autosched.errors import CodegenError
from autosched.tir.function import PrimFunc
from autosched.tir.in_place import overwritable


@dataclass(frozen=True, slots=True)
class Generated:
    """Readable source, NVVM IR texts (one for each launch), symbols of the entries, bytes of device memory between."""

    lowered: LoweredDevice
    source: str
    texts: tuple[str, ...]
    symbols: tuple[str, ...]
    scratch_bytes: int


def generate(func: PrimFunc, name: str, header: str = "", min_blocks: int = 0) -> Generated:
    """Source and NVVM IR of a scheduled function, the same for all architectures.

    min_blocks  blocks that a multiprocessor is to hold at once: it limits a thread's registers
    Raises      CodegenError for what no CUDA code exists for
    """
    from autosched.codegen.cuda.numba_cuda import lower_kernels, offset, tile_intrinsic

    if len(func.buffers) != len(func.params):
        raise CodegenError(f"'{name}' has scalar parameters", hint="pass scalars as buffers of shape ()")
    lowered = lower_device(func)
    python_name = re.sub(r"\W", "_", name)
    in_place = frozenset((func.buffers[i], func.buffers[o]) for i, o in overwritable(func))
    left: dict[object, int] = {}
    scratch_bytes = 0
    for buffer in lowered.scratch:
        left[buffer] = scratch_bytes
        scratch_bytes += align_bytes(buffer_bytes(buffer))
    no_alias = bool(func.attrs.get("tir.noalias", True))
    writer = LaunchWriter(python_name, func.buffers, Scratch(), no_alias, in_place)
    functions = [f"{python_name}_l{i}" for i in range(len(lowered.launches))]
    for launch, function in zip(lowered.launches, functions, strict=True):
        writer.write(launch, function, f"{function}_shared", left)  # type: ignore[arg-type]
    source = header + "\n".join(writer.lines).rstrip() + "\n"
    digest = hashlib.sha256("\x1f".join((source, GENERATOR)).encode()).hexdigest()[:12]
    symbols = [f"{python_name}_{digest}_l{i}" for i in range(len(functions))]
    names = {tile.name: tile_intrinsic(tile) for tile in writer.tiles.values()}  # type: ignore[arg-type]
    names["offset"] = offset
    bounds = [(launch.threads, min_blocks) for launch in lowered.launches]
    pointers = len(func.buffers) + 1
    texts = lower_kernels(source, functions, symbols, pointers, bounds, names, f"<autosched {name} {digest}>")
    return Generated(lowered, source, tuple(texts), tuple(symbols), scratch_bytes)


__all__ = ["Assembled", "assemble", "generate", "schedule_steps"]

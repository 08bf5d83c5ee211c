"""Large tiles, compiled apart from the kernels that call them: kernels that have the same tile share its machine code.

A network's kernels differ in outer sizes, in what is fused behind them and in tails. Optimising a register tile and
choosing its instructions takes most of the time that a kernel takes to compile.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Hashable
from dataclasses import dataclass

from autosched.codegen.cache import keeps, toolchain
from autosched.codegen.cpu.machine import Machine, optimise
from autosched.codegen.cpu.tile import Tile, tile_module
from autosched.codegen.cpu.types import Isa
from autosched.runtime.cache import kernel_cache

MOST_KEPT = 256  # in this process


@dataclass(frozen=True, slots=True)
class TileObject:
    """A tile's function as an ELF object, and as optimised LLVM code, which is shown."""

    object_code: bytes
    bitcode: bytes

    def to_bytes(self) -> bytes:
        """What the kernel cache keeps."""
        return len(self.object_code).to_bytes(8, "little") + self.object_code + zlib.compress(self.bitcode, 1)

    @staticmethod
    def from_bytes(data: bytes) -> TileObject:
        """What `to_bytes` gave."""
        end = 8 + int.from_bytes(data[:8], "little")
        return TileObject(data[8:end], zlib.decompress(data[end:]))


_kept: dict[str, TileObject] = {}


def compile_tile(tile: Tile, isa: Isa, machine: Machine) -> TileObject:
    """The tile's machine code, from this process or the kernel cache where they have it."""
    key = _key(tile.key(isa), machine)
    if (found := _kept.get(key)) is not None:
        return found
    if (data := kernel_cache().get(key)) is not None:
        found = TileObject.from_bytes(data)
    else:
        module = optimise([str(tile_module(tile, isa))], machine)
        found = TileObject(machine.llvm.emit_object(module), module.as_bitcode())
        if keeps():
            kernel_cache().put(key, found.to_bytes())
    if len(_kept) >= MOST_KEPT:
        _kept.pop(next(iter(_kept)), None)
    _kept[key] = found
    return found


def _key(tile: Hashable, machine: Machine) -> str:
    return "tile " + hashlib.sha256(f"{tile!r} {machine!r} {toolchain('cpu')}".encode()).hexdigest()

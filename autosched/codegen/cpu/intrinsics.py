"""What generated source may call: tiles, the address of a place in a block, numbers in slots, tile registers."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from llvmlite import ir

from autosched.codegen.cpu.amx import configure, release
from autosched.codegen.cpu.amx_nest import TileSizes
from autosched.codegen.cpu.front_end import Intrinsic
from autosched.codegen.cpu.tile import Tile, declare_tile, define_tile
from autosched.codegen.cpu.types import BYTES, I64, VOID, Isa


def _offset(builder: ir.IRBuilder, pointer: ir.Value, count: ir.Value) -> ir.Value:
    """The address `count` bytes after `pointer`."""
    return builder.gep(pointer, [count], inbounds=True)


def _number(builder: ir.IRBuilder, slot: ir.Value) -> ir.Value:
    """A slot that holds a number instead of an address."""
    return builder.ptrtoint(slot, I64)


def intrinsics(
    tiles: Mapping[str, Tile], palettes: Mapping[str, TileSizes], isa: Isa, apart: Collection[str] = ()
) -> dict[str, Intrinsic]:
    """Everything that the source of a kernel may call, by name.

    tiles     run by (buffers…, variables…, words of checks); palettes: what configures tile registers
    apart     the tiles whose code is elsewhere
    """
    found = {
        "offset": Intrinsic((BYTES, I64), BYTES, _offset),
        "number": Intrinsic((BYTES,), I64, _number),
        "release_tiles": Intrinsic((), VOID, release),
    }
    found |= {name: _palette(sizes) for name, sizes in palettes.items()}
    return found | {name: _tile(tile, isa, name in apart) for name, tile in tiles.items()}


def _palette(sizes: TileSizes) -> Intrinsic:
    return Intrinsic((), VOID, lambda builder: configure(builder, sizes))


def _tile(tile: Tile, isa: Isa, is_apart: bool) -> Intrinsic:
    def emit(builder: ir.IRBuilder, *arguments: ir.Value) -> None:
        module = builder.module
        builder.call(declare_tile(module, tile) if is_apart else define_tile(module, tile, isa), arguments)

    pointers = [BYTES] * (len(tile.buffers) + bool(tile.checks))
    kinds = (*pointers[: len(tile.buffers)], *[I64] * len(tile.variables), *pointers[len(tile.buffers) :])
    return Intrinsic(kinds, VOID, emit)

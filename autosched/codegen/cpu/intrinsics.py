"""Numba intrinsics of generated source: a call of a tile, the address of a place in a block, numbers in slots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from numba import types
from numba.extending import intrinsic

from autosched.codegen.cpu.amx import configure, release
from autosched.codegen.cpu.amx_nest import TileSizes
from autosched.codegen.cpu.tile import Tile, define_tile
from autosched.codegen.cpu.types import I64, Isa

if TYPE_CHECKING:
    from llvmlite import ir
    from numba.core.base import BaseContext


@intrinsic
def offset(typingctx, pointer, count):  # type: ignore[no-untyped-def]
    """The address `count` bytes after `pointer`."""

    def codegen(context: BaseContext, builder: ir.IRBuilder, signature: object, args: Sequence[ir.Value]) -> ir.Value:
        return builder.gep(args[0], [args[1]], inbounds=True)

    return types.voidptr(types.voidptr, types.int64), codegen


@intrinsic
def number(typingctx, slot):  # type: ignore[no-untyped-def]
    """A slot that holds a number instead of an address."""

    def codegen(context: BaseContext, builder: ir.IRBuilder, signature: object, args: Sequence[ir.Value]) -> ir.Value:
        return builder.ptrtoint(args[0], I64)

    return types.int64(types.voidptr), codegen


def palette_intrinsic(name: str, sizes: TileSizes) -> Callable[..., None]:
    """The function that generated source calls to configure tile registers."""

    def codegen(context: BaseContext, builder: ir.IRBuilder, signature: object, args: Sequence[ir.Value]) -> ir.Value:
        configure(builder, sizes)
        return context.get_dummy_value()

    made: Callable[..., None] = intrinsic(_typing_function(name, [], types.void(), codegen))
    return made


@intrinsic
def release_tiles(typingctx):  # type: ignore[no-untyped-def]
    """Empty the tile registers."""

    def codegen(context: BaseContext, builder: ir.IRBuilder, signature: object, args: Sequence[ir.Value]) -> ir.Value:
        release(builder)
        return context.get_dummy_value()

    return types.void(), codegen


def tile_intrinsic(tile: Tile, isa: Isa) -> Callable[..., None]:
    """The function that generated source calls to run a tile: (buffers…, variables…, words of checks) -> nothing."""
    status = ["status"] if tile.checks else []
    pointers, numbers = [types.voidptr] * len(tile.buffers), [types.int64] * len(tile.variables)
    signature = types.void(*pointers, *numbers, *[types.voidptr] * len(status))

    def codegen(context: BaseContext, builder: ir.IRBuilder, signature: object, args: Sequence[ir.Value]) -> ir.Value:
        builder.call(define_tile(builder.module, tile, isa), args)
        return context.get_dummy_value()

    parameters = [f"p{i}" for i in range(len(tile.buffers))] + [f"v{i}" for i in range(len(tile.variables))] + status
    made: Callable[..., None] = intrinsic(_typing_function(tile.name, parameters, signature, codegen))
    return made


def _typing_function(name: str, parameters: list[str], signature: object, codegen: Callable[..., object]) -> object:
    """A function (typingctx, p0, …) -> (signature, codegen); Numba counts its parameters."""
    scope: dict[str, object] = {"signature": signature, "codegen": codegen}
    exec(f"def {name}({', '.join(['typingctx', *parameters])}):\n    return signature, codegen", scope)
    return scope[name]

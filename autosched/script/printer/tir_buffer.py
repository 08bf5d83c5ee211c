"""Buffers and their regions as text: declarations, `A[0:4, j]`."""

from __future__ import annotations

from collections.abc import Iterable

from autosched.ir.node import preorder
from autosched.script.printer.context import Context
from autosched.script.printer.literals import string, tuple_text
from autosched.script.printer.tir_expr import expr, name_of
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer
from autosched.tir.expr import SizeVar, Var
from autosched.tir.stmt import BufferRegion

DEFAULT_ALIGNMENT = 64


def _layout_keywords(ctx: Context, buffer: Buffer) -> list[str]:
    """The keywords for what differs from a row-major buffer in global memory."""
    words = []
    if buffer.strides:
        words.append(f"strides={tuple_text([expr(ctx, s) for s in buffer.strides])}")
    if buffer.elem_offset is not None:
        words.append(f"elem_offset={expr(ctx, buffer.elem_offset)}")
    if buffer.scope != "global":
        words.append(f"scope={string(buffer.scope)}")
    if buffer.data_alignment != DEFAULT_ALIGNMENT:
        words.append(f"align={buffer.data_alignment}")
    if buffer.offset_factor != 1:
        words.append(f"offset_factor={buffer.offset_factor}")
    if buffer.axis_separators:
        words.append(f"axis_separators=[{', '.join(map(str, buffer.axis_separators))}]")
    return words


def buffer_type(ctx: Context, buffer: Buffer) -> str:
    """`T.Buffer((4, 8), "float32")`, the annotation of a parameter."""
    parts = [tuple_text([expr(ctx, s) for s in buffer.shape]), string(buffer.dtype), *_layout_keywords(ctx, buffer)]
    return f"{ctx.t('Buffer')}({', '.join(parts)})"


def buffer_call(ctx: Context, function: str, buffer: Buffer, *first: str, more: Iterable[str] = ()) -> str:
    """`T.alloc_buffer((4, 8), scope="local")` and its relatives; the default dtype is left out."""
    parts = [*first, tuple_text([expr(ctx, s) for s in buffer.shape])]
    if buffer.dtype != ctx.options.buffer_dtype:
        parts.append(string(buffer.dtype))
    return f"{ctx.t(function)}({', '.join([*parts, *_layout_keywords(ctx, buffer), *more])})"


def is_plain(buffer: Buffer) -> bool:
    """Whether a parameter's annotation can say all of the buffer: constant shape, row-major, global memory."""
    return (
        not buffer.strides and buffer.elem_offset is None and buffer.scope == "global"
        and buffer.data_alignment == DEFAULT_ALIGNMENT and buffer.offset_factor == 1 and not buffer.axis_separators
        and not _symbols(buffer)
    )  # fmt: skip


def _symbols(buffer: Buffer) -> list[Var]:
    parts = [*buffer.shape, *buffer.strides, *([buffer.elem_offset] if buffer.elem_offset is not None else [])]
    return [x for part in parts for x in preorder(part) if isinstance(x, Var)]


def declare_symbols(ctx: Context, buffer: Buffer) -> None:
    """Write `n = T.int32()` for the symbols of a shape that have no name yet."""
    for var in _symbols(buffer):
        if ctx.names.find(var) is None:
            size = "is_size_var=True" if isinstance(var, SizeVar) else ""
            ctx.line(f"{ctx.names.define(var, var.name)} = {ctx.t(var.dtype)}({size})", var)


def region(ctx: Context, r: BufferRegion) -> str:
    """`A[i, 0:8]`: one element where the extent is 1."""
    parts = []
    for dim in r.region:
        if E.const_int(dim.extent) == 1:
            parts.append(expr(ctx, dim.min))
        else:
            parts.append(f"{expr(ctx, dim.min)}:{expr(ctx, E.add(dim.min, dim.extent))}")
    return ctx.marked(r, f"{name_of(ctx, r.buffer)}[{', '.join(parts) or '()'}]")

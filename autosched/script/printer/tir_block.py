"""Blocks as text: what they bind, read, write, allocate and start from."""

from __future__ import annotations

from collections.abc import Callable

from autosched.ir.node import Node
from autosched.script.printer.context import Context
from autosched.script.printer.literals import attributes, string
from autosched.script.printer.tir_buffer import buffer_call, declare_symbols, region
from autosched.script.printer.tir_expr import expr, name_of
from autosched.tir import expr as E
from autosched.tir.axis import OPAQUE, REDUCE, SCAN, SPATIAL, IterVar
from autosched.tir.expr import PrimExpr, Var
from autosched.tir.simplify import form_key
from autosched.tir.stmt import Block, BlockRealize, For, Stmt

WriteStmt = Callable[[Context, Stmt], None]
Loops = dict[Var, For]  # the loops around a block, by variable

AXIS = {SPATIAL: "spatial", REDUCE: "reduce", SCAN: "scan", OPAQUE: "opaque"}


def write_block(ctx: Context, block: Block, realize: BlockRealize | None, loops: Loops, write_body: WriteStmt) -> None:
    """Write a block and, where it stands in loops, what binds its variables."""
    ctx.line(f"with {ctx.t('block')}({string(block.name_hint)}):", block, *([realize] if realize else []))
    with ctx.indented():
        if realize is None:
            for iv in block.iter_vars:
                ctx.line(f"{ctx.names.define(iv.var, iv.var.name)} = {_axis(ctx, iv)}", iv)
        else:
            _write_axes(ctx, block, realize, loops)
            if E.const_int(realize.predicate) != 1:
                ctx.line(f"{ctx.t('where')}({expr(ctx, realize.predicate)})")
        write_signature(ctx, block, write_body)
        write_body(ctx, block.body)


def write_signature(ctx: Context, block: Block, write_body: WriteStmt) -> None:
    """Write what stands between a block's axes and its body."""
    for buffer in block.alloc_buffers:
        ctx.names.define(buffer, buffer.name)
    ctx.line(f"{ctx.t('reads')}({', '.join(region(ctx, r) for r in block.reads)})")
    ctx.line(f"{ctx.t('writes')}({', '.join(region(ctx, r) for r in block.writes)})")
    if block.annotations:
        ctx.line(f"{ctx.t('block_attr')}({attributes(ctx, block.annotations, expr)})")
    write_allocations(ctx, block)
    for match in block.match_buffers:
        declare_symbols(ctx, match.buffer)
        source = region(ctx, match.source)
        call = buffer_call(ctx, "match_buffer", match.buffer, source)
        ctx.line(f"{ctx.names.define(match.buffer, match.buffer.name)} = {call}", match)
    if block.init is not None:
        ctx.line(f"with {ctx.t('init')}():", block.init)
        with ctx.indented():
            write_body(ctx, block.init)


def write_allocations(ctx: Context, block: Block) -> None:
    """Write `T.alloc_buffer` for each buffer that the block owns."""
    for buffer in block.alloc_buffers:
        ctx.names.define(buffer, buffer.name)
        ctx.line(f"{name_of(ctx, buffer)} = {buffer_call(ctx, 'alloc_buffer', buffer)}")


def _axis(ctx: Context, iv: IterVar, value: PrimExpr | None = None) -> str:
    domain = expr(ctx, iv.dom.extent)
    if E.const_int(iv.dom.min) != 0:
        domain = f"({expr(ctx, iv.dom.min)}, {expr(ctx, E.add(iv.dom.min, iv.dom.extent))})"
    parts = [domain] if value is None else [domain, expr(ctx, value)]
    return f"{ctx.t('axis')}.{AXIS.get(iv.kind, 'opaque')}({', '.join(parts)})"


def _write_axes(ctx: Context, block: Block, realize: BlockRealize, loops: Loops) -> None:
    run: list[tuple[IterVar, PrimExpr]] = []
    pairs = list(zip(block.iter_vars, realize.iter_values, strict=False))
    for iv, value in pairs:
        if ctx.options.syntax_sugar and _runs_whole_loop(iv, value, loops):
            run.append((iv, value))
            continue
        _write_run(ctx, run)
        run = []
        _write_axis(ctx, iv, value)
    _write_run(ctx, run)
    for iv in block.iter_vars[len(pairs) :]:
        _write_axis(ctx, iv, None)


def _write_axis(ctx: Context, iv: IterVar, value: PrimExpr | None) -> None:
    text = _axis(ctx, iv, value)
    ctx.line(f"{ctx.names.define(iv.var, iv.var.name)} = {text}", iv)


def _write_run(ctx: Context, run: list[tuple[IterVar, PrimExpr]]) -> None:
    """Several variables that are loops one to one: `v_i, v_j = T.axis.remap("SS", [i, j])`."""
    if len(run) == 1:
        _write_axis(ctx, *run[0])
    if len(run) < 2:
        return
    values = ", ".join(expr(ctx, value) for _, value in run)
    kinds = "".join(iv.kind for iv, _ in run)
    names = ", ".join(ctx.marked(iv, ctx.names.define(iv.var, iv.var.name)) for iv, _ in run)
    ctx.line(f'{names} = {ctx.t("axis")}.remap("{kinds}", [{values}])')


def _runs_whole_loop(iv: IterVar, value: PrimExpr, loops: Loops) -> bool:
    loop = loops.get(value) if isinstance(value, Var) else None
    if loop is None or iv.kind not in (SPATIAL, REDUCE) or iv.var.dtype != loop.loop_var.dtype:
        return False
    return _same(iv.dom.min, loop.start) and _same(iv.dom.extent, loop.extent)


def _same(a: PrimExpr, b: PrimExpr) -> bool:
    return a is b or (a.dtype == b.dtype and form_key(a) == form_key(b))


def block_of(node: Node) -> Block | None:
    """The block of a Block or BlockRealize."""
    return node.block if isinstance(node, BlockRealize) else node if isinstance(node, Block) else None

"""A PrimFunc as text."""

from __future__ import annotations

from autosched.ir.node import preorder
from autosched.script.printer.context import Context
from autosched.script.printer.literals import attributes
from autosched.script.printer.names import legal
from autosched.script.printer.tir_block import write_allocations
from autosched.script.printer.tir_buffer import buffer_call, buffer_type, declare_symbols, is_plain
from autosched.script.printer.tir_expr import expr, name_of
from autosched.script.printer.tir_stmt import StmtWriter
from autosched.tir.buffer import Buffer
from autosched.tir.expr import SizeVar, Var, const_int
from autosched.tir.function import PrimFunc
from autosched.tir.stmt import Block, BlockRealize, Stmt


def write_prim_func(ctx: Context, func: PrimFunc, name: str | None = None) -> None:
    """Write a function called `name`, or what its `global_symbol` says, or "main"."""
    symbol = func.attrs.get("global_symbol")
    name = legal(name or (symbol if isinstance(symbol, str) else "main"))
    private = "" if symbol is not None else "(private=True)"
    attrs = {k: v for k, v in func.attrs.items() if not (k == "global_symbol" and v == name)}
    ctx.line(f"@{ctx.t('prim_func')}{private}")
    with ctx.names.frame():
        params = ", ".join([_param(ctx, func, p) for p in func.params])
        result = f" -> {ctx.t(func.ret_type)}" if isinstance(func.ret_type, str) else ""
        ctx.line(f"def {name}({params}){result}:", func)
        with ctx.indented():
            if attrs:
                ctx.line(f"{ctx.t('func_attr')}({attributes(ctx, attrs, expr)})")
            for param, buffer in func.buffer_map.items():
                if not is_plain(buffer):
                    _match_buffer(ctx, param, buffer)
            _write_body(ctx, func.body)


def _param(ctx: Context, func: PrimFunc, param: Var) -> str:
    buffer = func.buffer_map.get(param)
    if buffer is not None and is_plain(buffer):
        ctx.names.define(buffer, buffer.name)
        return f"{ctx.marked(param, name_of(ctx, buffer))}: {buffer_type(ctx, buffer)}"
    dtype = ctx.t(param.dtype)
    if isinstance(param, SizeVar):
        dtype += "(is_size_var=True)"
    ctx.names.define(param, param.name)
    return f"{name_of(ctx, param)}: {dtype}"


def _match_buffer(ctx: Context, param: Var, buffer: Buffer) -> None:
    declare_symbols(ctx, buffer)
    call = buffer_call(ctx, "match_buffer", buffer, name_of(ctx, param))
    ctx.names.define(buffer, buffer.name)
    ctx.line(f"{name_of(ctx, buffer)} = {call}")


def _write_body(ctx: Context, body: Stmt) -> None:
    writer = StmtWriter(ctx)
    if not isinstance(body, BlockRealize) or not _is_implied(body):
        writer.body(ctx, body)
        return
    ctx.line(f'# with {ctx.t("block")}("root"):', body, body.block)
    write_allocations(ctx, body.block)
    writer.body(ctx, body.block.body)


def _is_implied(realize: BlockRealize) -> bool:
    """Whether readers (and the parser) know from what is inside that there is this root block around it."""
    root = realize.block
    says_nothing = not (root.iter_vars or root.reads or root.writes or root.match_buffers or root.annotations)
    return (
        says_nothing and root.name_hint == "root" and root.init is None and const_int(realize.predicate) == 1
        and (bool(root.alloc_buffers) or _has_inner_blocks(root)) and not _is_root_like(root)
    )  # fmt: skip


def _has_inner_blocks(root: Block) -> bool:
    return any(isinstance(x, Block) for x in preorder(root.body))


def _is_root_like(root: Block) -> bool:
    """A lone block without variables would be taken for the root itself."""
    return not root.alloc_buffers and isinstance(root.body, BlockRealize) and not root.body.block.iter_vars

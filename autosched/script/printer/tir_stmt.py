"""Statements of the loop level as text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autosched.script.printer.context import Context
from autosched.script.printer.literals import attributes, string
from autosched.script.printer.tir_block import Loops, write_block
from autosched.script.printer.tir_buffer import buffer_call, declare_symbols
from autosched.script.printer.tir_expr import access, expr, name_of
from autosched.tir import expr as E
from autosched.tir import stmt as S
from autosched.tir.buffer import Buffer
from autosched.tir.functor import uses
from autosched.tir.share import bind_shared
from autosched.tir.stmt import For, LoopKind, SeqStmt, Stmt

LOOPS = {
    LoopKind.SERIAL: "serial", LoopKind.PARALLEL: "parallel", LoopKind.VECTORIZED: "vectorized",
    LoopKind.UNROLLED: "unroll", LoopKind.THREAD_BINDING: "thread_binding",
}  # fmt: skip

MOST_NODES = 4096  # of a value as a tree: in larger ones shared parts are bound to names


class StmtWriter:
    """Writes statements into a Context; knows the loops around the place it is at."""

    def __init__(self, ctx: Context):
        self.ctx = ctx
        self.loops: Loops = {}

    def body(self, ctx: Context, stmt: Stmt) -> None:
        """Write all of a body; never nothing, as Python needs a statement."""
        n_before = len(ctx.lines)
        self.write(stmt)
        if len(ctx.lines) == n_before:
            ctx.line("pass")

    def write(self, stmt: object, *, last: bool = True) -> None:
        """Write one statement. `last`: nothing follows in its scope, so a definition needs no scope of its own."""
        writer = _WRITERS.get(type(stmt))
        if writer is None:
            self.ctx.line(f"{self.ctx.t('evaluate')}({expr(self.ctx, stmt)})")
        else:
            writer(self, stmt, last)

    def _seq(self, stmt: SeqStmt, last: bool) -> None:
        for i, s in enumerate(stmt.seq):
            self.write(s, last=last and i == len(stmt.seq) - 1)

    def _store(self, stmt: S.BufferStore, _: bool) -> None:
        value = expr(self.ctx, bind_shared(stmt.value, MOST_NODES))
        self.ctx.line(f"{access(self.ctx, stmt.buffer, stmt.indices)} = {value}", stmt)

    def _evaluate(self, stmt: S.Evaluate, _: bool) -> None:
        self.ctx.line(f"{self.ctx.t('evaluate')}({expr(self.ctx, stmt.value)})", stmt)

    # --- loops

    def _for(self, stmt: For, _: bool) -> None:
        nest = self._grid(stmt) if self.ctx.options.syntax_sugar else [stmt]
        if len(nest) > 1:
            domain = f"{self.ctx.t('grid')}({', '.join(expr(self.ctx, f.extent) for f in nest)})"
        else:
            domain = self._domain(stmt)
        with self.ctx.names.frame():
            names = ", ".join(self._loop_name(f) for f in nest)
            self.ctx.line(f"for {names} in {domain}:", *([stmt] if len(nest) == 1 else []))
            self.loops.update({f.loop_var: f for f in nest})
            with self.ctx.indented():
                self.body(self.ctx, nest[-1].body)
            for f in nest:
                del self.loops[f.loop_var]

    def _loop_name(self, loop: For) -> str:
        name = self.ctx.names.define(loop.loop_var, loop.loop_var.name)
        return self.ctx.marked(loop, self.ctx.marked(loop.loop_var, name))

    def _grid(self, outer: For) -> list[For]:
        """The perfect nest of plain serial loops that begins here; each extent is free of the nest's variables."""
        nest = [outer]
        while _is_plain_serial(nest[-1]) and isinstance(inner := nest[-1].body, For) and _is_plain_serial(inner):
            if uses(inner.extent, {f.loop_var for f in nest}):
                break
            nest.append(inner)
        return nest

    def _domain(self, loop: For) -> str:
        """`range(n)`, `T.parallel(2, 8)`, `T.thread_binding(32, thread="threadIdx.x")`."""
        start = [] if E.const_int(loop.start) == 0 else [expr(self.ctx, loop.start)]
        end = E.add(loop.start, loop.extent) if start else loop.extent
        words = []
        if loop.thread or loop.kind is LoopKind.THREAD_BINDING:
            words.append(f"thread={string(loop.thread)}")
        if loop.annotations:
            words.append(f"annotations={attributes(self.ctx, loop.annotations, expr)}")
        plain = loop.kind is LoopKind.SERIAL and not words
        function = "range" if plain else self.ctx.t(LOOPS.get(loop.kind, "serial"))
        return f"{function}({', '.join([*start, expr(self.ctx, end), *words])})"

    def _while(self, stmt: S.While, _: bool) -> None:
        self.ctx.line(f"while {expr(self.ctx, stmt.condition)}:", stmt)
        with self.ctx.indented():
            self.body(self.ctx, stmt.body)

    def _if(self, stmt: S.IfThenElse, _: bool) -> None:
        self.ctx.line(f"if {expr(self.ctx, stmt.condition)}:", stmt)
        with self.ctx.indented():
            self.body(self.ctx, stmt.then_case)
        if stmt.else_case is not None:
            self.ctx.line("else:")
            with self.ctx.indented():
                self.body(self.ctx, stmt.else_case)

    # --- definitions: flat where nothing follows, else `with … as name:`

    def _let(self, stmt: S.LetStmt, last: bool) -> None:
        value = expr(self.ctx, stmt.value)
        dtype = self.ctx.t(stmt.var.dtype)
        if last:
            self.ctx.line(f"{self.ctx.names.define(stmt.var, stmt.var.name)}: {dtype} = {value}", stmt)
            self.write(stmt.body)
        else:
            name = self.ctx.names.define
            self._scoped(lambda: f"with {self.ctx.t('LetStmt')}({value}) as {name(stmt.var, stmt.var.name)}:", stmt)

    def _allocate(self, stmt: S.Allocate, last: bool) -> None:
        buffer = stmt.buffer
        declare_symbols(self.ctx, buffer)
        more = [f"annotations={attributes(self.ctx, stmt.annotations, expr)}"] if stmt.annotations else []
        call = buffer_call(self.ctx, "decl_buffer", buffer, more=more)
        if last:
            self.ctx.line(f"{self._define_buffer(buffer)} = {call}", stmt)
            self.write(stmt.body)
        else:
            self._scoped(lambda: f"with {call} as {self._define_buffer(buffer)}:", stmt)

    def _define_buffer(self, buffer: Buffer) -> str:
        self.ctx.names.define(buffer, buffer.name)
        return name_of(self.ctx, buffer)

    def _assert(self, stmt: S.AssertStmt, last: bool) -> None:
        condition, message = expr(self.ctx, stmt.condition), string(stmt.message)
        if last:
            self.ctx.line(f"assert {condition}, {message}", stmt)
            self.write(stmt.body)
        else:
            self._scoped(lambda: f"with {self.ctx.t('Assert')}({condition}, {message}):", stmt)

    def _scoped(self, header: Callable[[], str], stmt: Any) -> None:
        with self.ctx.names.frame():
            self.ctx.line(header(), stmt)
            with self.ctx.indented():
                self.body(self.ctx, stmt.body)

    # --- blocks

    def _realize(self, stmt: S.BlockRealize, _: bool) -> None:
        write_block(self.ctx, stmt.block, stmt, self.loops, self.body)

    def _block(self, stmt: S.Block, _: bool) -> None:
        write_block(self.ctx, stmt, None, self.loops, self.body)


def _is_plain_serial(loop: For) -> bool:
    return loop.kind is LoopKind.SERIAL and not loop.annotations and not loop.thread and E.const_int(loop.start) == 0


_WRITERS: dict[type, Callable[[StmtWriter, Any, bool], None]] = {
    SeqStmt: StmtWriter._seq, S.BufferStore: StmtWriter._store, S.Evaluate: StmtWriter._evaluate,
    For: StmtWriter._for, S.While: StmtWriter._while, S.IfThenElse: StmtWriter._if, S.LetStmt: StmtWriter._let,
    S.Allocate: StmtWriter._allocate, S.AssertStmt: StmtWriter._assert, S.BlockRealize: StmtWriter._realize,
    S.Block: StmtWriter._block,
}  # fmt: skip

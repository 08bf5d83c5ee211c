"""TVM's builder of statements by `with` blocks, as tutorials of 0.9 use it.

ib = tir.ir_builder.create()
A = ib.pointer("float32", name="A")
with ib.for_range(0, n, name="i") as i:
    A[i] = A[i] + 1
body = ib.get()
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from autosched.errors import InvalidTypeError, InvalidValueError
from autosched.ir.node import FrozenDict
from autosched.tir import expr as E
from autosched.tir.axis import IterVar
from autosched.tir.buffer import Buffer, BufferLoad, Indices
from autosched.tir.dtypes import check_dtype
from autosched.tir.expr import ExprLike, IntImm, PrimExpr, Var, to_expr
from autosched.tir.stmt import (
    Allocate,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    LoopKind,
    Stmt,
    While,
    seq,
)  # fmt: skip

T = TypeVar("T")
Wrap = Callable[[Stmt], Stmt]
_KINDS = {
    "serial": LoopKind.SERIAL, "parallel": LoopKind.PARALLEL, "vectorize": LoopKind.VECTORIZED,
    "vectorized": LoopKind.VECTORIZED, "unroll": LoopKind.UNROLLED, "unrolled": LoopKind.UNROLLED,
}  # fmt: skip


class BufferVar:
    """Memory that is read and written by index: flat, or in the shape of its buffer."""

    def __init__(self, builder: IRBuilder, buffer: Buffer, shape: Sequence[ExprLike] | None = None):
        self._builder, self.buffer, self._shape = builder, buffer, shape

    @property
    def dtype(self) -> str:
        return self.buffer.dtype

    def asobject(self) -> PrimExpr:
        """The memory as an argument of calls."""
        return self.buffer.data

    def _at(self, index: object) -> tuple[PrimExpr, ...]:
        items = tuple(to_expr(i) for i in (index if isinstance(index, tuple | list) else (index,)))
        if len(items) == self.buffer.ndim:
            return items
        if len(items) == 1:  # a flat index into a buffer of more dimensions
            rest, found = items[0], []
            for extent in reversed(self.buffer.shape[1:]):
                found.append(E.floormod(rest, extent))
                rest = E.floordiv(rest, extent)
            return (rest, *reversed(found))
        raise InvalidValueError(
            f"buffer '{self.buffer.name}' has {self.buffer.ndim} dimensions, got {len(items)} indices"
        )

    def __getitem__(self, index: Indices) -> PrimExpr:
        return BufferLoad(self.buffer, self._at(index))

    def __setitem__(self, index: object, value: object) -> None:
        stored = E.cast(self.buffer.dtype, to_expr(value, self.buffer.dtype))
        self._builder.emit(BufferStore(self.buffer, stored, self._at(index)))


class IRBuilder:
    """Collects statements; a scope's `with` block wraps those emitted inside of it."""

    def __init__(self) -> None:
        self._open: list[list[Stmt | Wrap]] = [[]]
        self.nidx = 0

    def emit(self, stmt: Stmt | PrimExpr | Wrap) -> None:
        """Add a statement, or an expression that is run for its effect."""
        if isinstance(stmt, PrimExpr):
            stmt = Evaluate(stmt)
        if not isinstance(stmt, Stmt) and not callable(stmt):
            raise InvalidTypeError(f"emit takes a statement or expression, not {type(stmt).__name__}")
        self._open[-1].append(stmt)

    def _close(self, parts: list[Stmt | Wrap]) -> Stmt:
        """Statements in order; one that wraps takes those behind it."""
        done: list[Stmt] = []
        for part in reversed(parts):
            if isinstance(part, Stmt):
                done.insert(0, part)
            else:
                done = [part(seq(*done) if done else Evaluate(IntImm(0)))]
        return seq(*done) if done else Evaluate(IntImm(0))

    @contextmanager
    def _scope(self, wrap: Callable[[Stmt], Stmt | Wrap], value: T) -> Iterator[T]:
        self._open.append([])
        yield value
        inside = self._open.pop()
        self._open[-1].append(wrap(self._close(inside)))

    def for_range(
        self, begin: object, end: object, name: str = "i", dtype: str | None = None, kind: str = "serial"
    ) -> AbstractContextManager[Var]:
        """A loop from `begin` to `end`, the end exclusive; gives the loop's variable."""
        if kind not in _KINDS:
            raise InvalidValueError(f"for_range: unknown kind '{kind}'", hint=f"one of {', '.join(_KINDS)}")
        if name == "i":
            name = f"{chr(ord('i') + self.nidx)}" if self.nidx < 3 else f"i_{self.nidx - 3}"
            self.nidx += 1
        low, high = E.match_types(to_expr(begin), to_expr(end))
        var = Var(name, check_dtype(dtype, "for_range") if dtype else low.dtype)
        start, extent = E.cast(var.dtype, low), E.cast(var.dtype, E.sub(high, low))
        return self._scope(lambda body: For(var, start, extent, _KINDS[kind], body), var)

    def while_loop(self, condition: object) -> AbstractContextManager[None]:
        """A loop that runs as long as a condition holds."""
        test = to_expr(condition, "bool")
        return self._scope(lambda body: While(test, body), None)

    def if_scope(self, cond: object) -> AbstractContextManager[None]:
        """What is emitted inside runs where the condition holds."""
        test = to_expr(cond, "bool")
        return self._scope(lambda body: IfThenElse(test, body), None)

    def else_scope(self) -> AbstractContextManager[None]:
        """What is emitted inside runs where the condition just before does not hold. Raises ValueError without one."""
        before = self._open[-1][-1] if self._open[-1] else None
        if not isinstance(before, IfThenElse) or before.else_case is not None:
            raise InvalidValueError("else_scope comes directly after an if_scope")

        def wrap(body: Stmt) -> Stmt:
            self._open[-1].pop()
            return dataclasses.replace(before, else_case=body)

        return self._scope(wrap, None)

    def scope_attr(self, node: object, attr_key: str, value: object) -> None:
        """An attribute of what follows; a thread's extent becomes a loop over the thread, others change nothing."""
        if attr_key not in ("thread_extent", "virtual_thread"):
            return
        if not isinstance(node, IterVar):
            raise InvalidTypeError(f"scope_attr '{attr_key}' takes a te.thread_axis, not {type(node).__name__}")
        extent = E.cast(node.var.dtype, to_expr(value))
        start = E.const(0, node.var.dtype)
        self.emit(lambda body: For(node.var, start, extent, LoopKind.THREAD_BINDING, body, node.thread_tag))

    def let(self, var_name: str, value: object) -> Var:
        """A variable for what follows."""
        bound = to_expr(value)
        var = Var(var_name, bound.dtype)
        self.emit(lambda body: LetStmt(var, bound, body))
        return var

    def allocate(
        self,
        dtype: str,
        shape: Sequence[ExprLike] | ExprLike,
        name: str = "buf",
        axis_separators: Sequence[int] | None = None,
        scope: str = "",
    ) -> BufferVar:
        """Memory for what follows."""
        from autosched.tir.buffer import decl_buffer

        buffer = decl_buffer(shape, dtype, name, scope=scope, axis_separators=axis_separators)
        self.emit(lambda body: Allocate(buffer, body, FrozenDict()))
        return BufferVar(self, buffer)

    def pointer(self, content_type: str, name: str = "ptr", scope: str = "") -> BufferVar:
        """Memory of the caller, one-dimensional."""
        buffer = Buffer(
            name, (E.SizeVar(f"{name}_size"),), check_dtype(content_type, "pointer"), scope=scope or "global"
        )
        return BufferVar(self, buffer)

    def buffer_ptr(self, buf: Buffer, shape: Sequence[ExprLike] | None = None) -> BufferVar:
        """A buffer's memory, by its indices or flat."""
        if not isinstance(buf, Buffer):
            raise InvalidTypeError(f"buffer_ptr takes a Buffer, not {type(buf).__name__}")
        return BufferVar(self, buf, shape)

    def likely(self, expr: PrimExpr) -> PrimExpr:
        """The condition, marked as nearly always true."""
        return E.call("likely", expr)

    def get(self) -> Stmt:
        """The statements so far as one."""
        if len(self._open) != 1:
            raise InvalidValueError("a scope of the builder is still open")
        parts, self._open = self._open[0], [[]]
        return self._close(parts)


def create() -> IRBuilder:
    """A builder without statements."""
    return IRBuilder()


__all__ = ["BufferVar", "IRBuilder", "create"]

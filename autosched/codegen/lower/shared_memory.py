"""Places shared buffers in a block's memory; those that do not live at the same time may lie at the same bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autosched.errors import CodegenError
from autosched.ir.node import Node, children, map_children, preorder
from autosched.tir.buffer import Buffer, BufferData, BufferLoad
from autosched.tir.expr import const_int
from autosched.tir.stmt import Allocate, BufferStore, For, Stmt

SCOPES = ("shared", "shared.dyn")
ALIGNMENT = 1024  # of buffers that are multiples of it: boxes of tensors want it
SMALL_ALIGNMENT = 128  # of others


def is_shared(buffer: Buffer) -> bool:
    """Whether the threads of a block share the buffer."""
    return buffer.scope in SCOPES


def buffer_size(buffer: Buffer, item_bytes: int) -> int:
    """Bytes of a buffer of constant shape with its strides. Raises CodegenError for a symbolic shape."""
    sizes = [const_int(s) for s in buffer.shape]
    steps = [const_int(s) for s in buffer.strides]
    if any(s is None for s in (*sizes, *steps)):
        raise CodegenError(f"the shared buffer '{buffer.name}' has a symbolic shape", hint="specialize the function")
    count = 1
    for size in sizes:
        count *= size or 1
    if steps:
        count = 1 + sum(((size or 1) - 1) * (step or 0) for size, step in zip(sizes, steps, strict=True))
    return count * item_bytes


def constant_strides(buffer: Buffer) -> list[int]:
    """Distances in elements between neighbours of each dimension of a buffer of constant shape."""
    if buffer.strides:
        return [const_int(s) or 0 for s in buffer.strides]
    found: list[int] = []
    step = 1
    for size in reversed(buffer.shape):
        found.insert(0, step)
        step *= const_int(size) or 1
    return found


@dataclass(slots=True)
class _Lives:
    """First and last position of each buffer's uses; a loop's uses count for all of the loop."""

    position: int = 0
    found: dict[Buffer, list[int]] = field(default_factory=dict)

    def visit(self, node: Node) -> None:
        if isinstance(node, Stmt):
            self.position += 1
        if isinstance(node, BufferLoad | BufferStore | BufferData) and is_shared(node.buffer):
            self.use(node.buffer, self.position)
        if isinstance(node, For):
            start, before = self.position, {b: list(r) for b, r in self.found.items()}
            for child in children(node):
                self.visit(child)
            self.position += 1
            own = {n.buffer for n in preorder(node.body) if isinstance(n, Allocate)}
            for buffer, r in self.found.items():
                if before.get(buffer) != r and buffer not in own:
                    r[0], r[1] = min(r[0], start), max(r[1], self.position)
            return
        for child in children(node) if not isinstance(node, Buffer) else ():
            self.visit(child)

    def use(self, buffer: Buffer, at: int) -> None:
        r = self.found.setdefault(buffer, [at, at])
        r[0], r[1] = min(r[0], at), max(r[1], at)


def plan_shared(
    body: Stmt, item_bytes: Mapping[str, int], alone: frozenset[Buffer] = frozenset()
) -> tuple[Stmt, dict[Buffer, int], int]:
    """(the statement without allocations of shared buffers, their offsets in bytes, bytes of all).

    alone   buffers at whose bytes no other one may lie
    """
    lives = _Lives()
    lives.visit(body)
    for buffer in alone & lives.found.keys():
        lives.found[buffer] = [0, lives.position]
    offsets: dict[Buffer, int] = {}
    sizes = {b: buffer_size(b, item_bytes[b.dtype]) for b in lives.found}
    total = 0
    for buffer in sorted(lives.found, key=lambda b: -sizes[b]):  # sorting is stable: equal sizes in order of use
        taken = sorted(
            (offsets[other], offsets[other] + sizes[other])
            for other in offsets
            if lives.found[other][0] <= lives.found[buffer][1] and lives.found[buffer][0] <= lives.found[other][1]
        )
        at = 0
        for start, end in taken:
            if at + sizes[buffer] <= start:
                break
            at = max(at, _aligned(end, sizes[buffer]))
        offsets[buffer] = at
        total = max(total, at + sizes[buffer])
    return _stripped(body), offsets, -(-total // 16) * 16


def _aligned(at: int, size: int) -> int:
    alignment = SMALL_ALIGNMENT if size % ALIGNMENT else ALIGNMENT
    return -(-at // alignment) * alignment


def _stripped(stmt: Stmt) -> Stmt:
    if isinstance(stmt, Allocate) and is_shared(stmt.buffer):
        return _stripped(stmt.body)
    return map_children(stmt, lambda c: _stripped(c) if isinstance(c, Stmt) else c)

"""Functions over symbols of their own where a caller's extents are long: ((height + 1) // 2 + 1) // 2 becomes `n0`.

for y in range((height + 1) // 2): out[y] = x[y] * 2          x, out: [(height + 1) // 2]
-> for y in range(n0): out[y] = x[y] * 2                      x, out: [n0]

An extent that follows from another one stays an expression of that one's name. The code is short then, and layers at
several depths of a network have one form, which is compiled once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from typing import TypeVar

from autosched.ir.node import FrozenDict, Node, preorder
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer
from autosched.tir.expr import PrimExpr, SizeVar, Var
from autosched.tir.function import PrimFunc, size_vars
from autosched.tir.functor import free_vars, replace_buffers, rewrite_down
from autosched.tir.simplify import form_key
from autosched.tir.size_expr import polynomial

N = TypeVar("N", bound=Node)


def name_extents(func: PrimFunc) -> PrimFunc:
    """The function with a symbol in place of each compound extent of its arguments; as it is where that cannot be.

    Each new symbol is a dimension of an argument. What is a sum of products of symbols alone stays.
    """
    said = {extent for buffer in func.buffers for extent in buffer.shape if isinstance(extent, Var)}
    names = _Names(func)
    for buffer in func.buffers:
        for extent in buffer.shape:
            if not free_vars(names.of(extent)) <= {*said, *names.made} and _is_compound(extent):
                names.add(extent)
    if not names.made:
        return func
    known = {x for x in preorder(func.body) if isinstance(x, Buffer)} | set(func.buffers)
    buffers = {b: names.buffer(b) for b in known}
    body = names.of(replace_buffers(func.body, {old: new for old, new in buffers.items() if new is not old}))
    made = dataclasses.replace(
        func, buffer_map=FrozenDict({p: buffers[b] for p, b in func.buffer_map.items()}), body=body
    )
    return made if set(size_vars(made)) <= {*said, *names.made} else func


def _is_compound(extent: PrimExpr) -> bool:
    return any(isinstance(x, E.FloorDiv | E.FloorMod | E.Min | E.Max) for x in preorder(extent))


class _Names:
    """The symbols that stand for extents."""

    def __init__(self, func: PrimFunc):
        self.symbols = set(size_vars(func))
        self.taken = {v.name for v in self.symbols}
        self.made: list[Var] = []
        self._by_value: dict[Hashable, Var] = {}
        self._values: dict[Hashable, Hashable] = {}  # of forms

    def add(self, extent: PrimExpr) -> None:
        name = next(n for n in (f"n{i}" for i in range(len(self.taken) + 1)) if n not in self.taken)
        self.taken.add(name)
        self.made.append(SizeVar(name, "int64"))
        self._by_value[self._value(extent)] = self.made[-1]

    def of(self, node: N) -> N:
        """A node with symbols in place of what they stand for, in whatever order it is written there."""
        if not self.made:
            return node

        def step(x: Node) -> object:
            if not isinstance(x, E.BinaryOp) or isinstance(x, E.CmpOp) or not free_vars(x) <= self.symbols:
                return None
            return self._by_value.get(self._value(x))

        return rewrite_down(node, step)

    def buffer(self, buffer: Buffer) -> Buffer:
        shape, strides = (tuple(map(self.of, extents)) for extents in (buffer.shape, buffer.strides))
        offset = None if buffer.elem_offset is None else self.of(buffer.elem_offset)
        if all(
            a is b for a, b in zip((*shape, *strides, offset), (*buffer.shape, *buffer.strides, buffer.elem_offset))
        ):
            return buffer
        return dataclasses.replace(buffer, shape=shape, strides=strides, elem_offset=offset)

    def _value(self, x: PrimExpr) -> Hashable:
        form = form_key(x)
        if form not in self._values:
            self._values[form] = frozenset(polynomial(x).items())
        return self._values[form]

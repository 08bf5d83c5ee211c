"""How tensors one after the other are found: a block whose value differs along an axis, from each of some starts on."""

from __future__ import annotations

import math
from dataclasses import dataclass

from autosched.ir.node import preorder
from autosched.templates.classify import extents, is_injective, spatial
from autosched.tir import Block, Var
from autosched.tir import expr as E
from autosched.tir.expr import Call, IntImm, PrimExpr
from autosched.tir.functor import rewrite
from autosched.tir.stmt import BufferStore

MOST_ELEMENTS = 1 << 30  # whose numbers fit 32 bits


@dataclass(frozen=True)
class Parts:
    """A block whose value differs along an axis from each of `starts` on.

    block   element-wise
    axis    position of the axis among the block's
    """

    block: Block
    axis: int
    starts: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the result."""
        return extents(spatial(self.block))

    @property
    def inner(self) -> int:
        """Elements for each place along the axis."""
        return math.prod(self.shape[self.axis + 1 :])

    @property
    def value(self) -> PrimExpr:
        """An element, in terms of the block's axes."""
        assert isinstance(self.block.body, BufferStore), "an element-wise block is one store"
        return self.block.body.value

    def of_part(self, start: int) -> PrimExpr:
        """The value from a start on to the next."""

        def step(x: object) -> object:
            begins = _start(x)
            return x.args[1 if start >= begins[1] else 2] if isinstance(x, Call) and begins is not None else x

        found: PrimExpr = rewrite(self.value, step)
        return found


def _start(x: object) -> tuple[Var, int] | None:
    """(v, start) of `if_then_else(v >= start, …)`."""
    if not isinstance(x, Call) or x.op != "if_then_else" or not isinstance(x.args[0], E.GE):
        return None
    var, start = x.args[0].a, x.args[0].b
    return (var, start.value) if isinstance(var, Var) and isinstance(start, IntImm) else None


def parts_of(found: Block) -> Parts | None:
    """The parts of an element-wise block; None where there is one only."""
    if not is_injective(found):
        return None
    assert isinstance(found.body, BufferStore), "an element-wise block is one store"
    begins = [s for s in map(_start, preorder(found.body.value)) if s is not None]
    axes = [iv.var for iv in spatial(found)]
    if len({var for var, _ in begins}) != 1 or begins[0][0] not in axes:
        return None
    axis, shape = axes.index(begins[0][0]), extents(spatial(found))
    starts = tuple(sorted({0, *(start for _, start in begins)}))
    if not 0 < math.prod(shape) <= MOST_ELEMENTS or starts[0] < 0 or starts[-1] >= shape[axis]:
        return None
    return Parts(found, axis, starts)

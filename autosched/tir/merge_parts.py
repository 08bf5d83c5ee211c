"""Functions over several leading symbols that treat them as one count: tokens of all sequences, whatever the batch.

for b, s, j in grid(batch, sequence, 8): y[b, s, j] = x[b, s, j] + w[j]
-> for n, j in grid(parts, 8): y[n, j] = x[n, j] + w[j]          parts = batch * sequence

Frames of sound are counted by expressions like (samples - 400) // 160 + 1, which may stand for symbols too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from autosched.ir.node import FrozenDict, preorder
from autosched.ir.structural import structural_equal
from autosched.tir.axis import SPATIAL, IterVar, Range
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import IntImm, Mul, PrimExpr, Var, const_int, mul
from autosched.tir.function import PrimFunc
from autosched.tir.functor import free_vars, rewrite
from autosched.tir.separable import NotSeparableError
from autosched.tir.stmt import Block, BlockRealize, BufferRegion, BufferStore, For, SeqStmt, Stmt, seq


def _factors(extent: PrimExpr) -> tuple[int, list[PrimExpr]]:
    """A product's number and its other factors."""
    if (number := const_int(extent)) is not None:
        return number, []
    if isinstance(extent, Mul):
        a, b = _factors(extent.a), _factors(extent.b)
        return a[0] * b[0], [*a[1], *b[1]]
    return 1, [extent]


def leading(shape: Sequence[PrimExpr], *, expressions: bool = True) -> tuple[int, int, tuple[PrimExpr, ...]] | None:
    """(leading dimensions up to the last symbolic one, their number, their symbols); None where there is none.

    expressions  whether others than products of symbols and numbers stand for symbols; where not, these raise
                 NotSeparableError
    """
    symbolic = [d for d, extent in enumerate(shape) if const_int(extent) is None]
    if not symbolic:
        return None
    number = 1
    symbols: list[PrimExpr] = []
    for extent in shape[: symbolic[-1] + 1]:
        times, factors = _factors(extent)
        if not expressions and not all(isinstance(f, Var) for f in factors):
            raise NotSeparableError(f"the dimension {extent} is no product of symbols")
        number, symbols = number * times, [*symbols, *factors]
    return symbolic[-1] + 1, number, tuple(sorted(symbols, key=str))


def _same(a: Sequence[PrimExpr], b: Sequence[PrimExpr]) -> bool:
    return len(a) == len(b) and all(structural_equal(x, y) for x, y in zip(a, b, strict=True))


def merged_parts(func: PrimFunc, *, expressions: bool = False) -> PrimFunc:
    """The function over one symbol where all shapes count the same leading symbols; `leading` says how many.

    Raises NotSeparableError that says why they do not.
    """
    buffers = (*func.buffers, *func.root.alloc_buffers)
    leads = {b: found for b in buffers if (found := leading(b.shape, expressions=expressions)) is not None}
    counts = [symbols for _, _, symbols in leads.values()]
    if not counts or not all(_same(counts[0], other) for other in counts):
        raise NotSeparableError(f"its shapes count {' and '.join(sorted({_shown(c) for c in counts})) or 'nothing'}")
    symbols = counts[0]
    parts = Var("parts", symbols[0].dtype)
    new = {b: _flat_buffer(b, lead, mul(parts, number)) for b, (lead, number, _) in leads.items()}
    rewriter = _Merger(new, {b: lead for b, (lead, _, _) in leads.items()}, symbols, parts)
    body = func.root.body
    nests = [rewriter.nest(nest) for nest in (body.seq if isinstance(body, SeqStmt) else (body,))]
    root = dataclasses.replace(
        func.root, body=seq(*nests), alloc_buffers=tuple(new.get(b, b) for b in func.root.alloc_buffers)
    )
    merged = dataclasses.replace(
        func,
        buffer_map=FrozenDict({p: new.get(b, b) for p, b in func.buffer_map.items()}),
        body=dataclasses.replace(func.body, block=root),  # type: ignore[type-var]
    )
    sizes = {v for symbol in symbols for v in free_vars(symbol)}
    if left := sizes & {x for x in preorder(merged.body) if isinstance(x, Var)} - {parts}:
        raise NotSeparableError(f"it computes with the size '{min(v.name for v in left)}'")
    return merged


def _shown(symbols: Sequence[PrimExpr]) -> str:
    return " * ".join(v.name if isinstance(v, Var) else f"({v})" for v in symbols)


def _flat_buffer(buffer: Buffer, lead: int, first: PrimExpr) -> Buffer:
    if buffer.strides:
        raise NotSeparableError(f"buffer '{buffer.name}' has strides of its own")
    return dataclasses.replace(buffer, shape=(first, *buffer.shape[lead:]))


class _Merger:
    """Rewrites nests whose outer loops run over the leading dimensions."""

    def __init__(self, new: dict[Buffer, Buffer], lead: dict[Buffer, int], symbols: tuple[PrimExpr, ...], parts: Var):
        self.new, self.lead, self.symbols, self.parts = new, lead, symbols, parts

    def nest(self, nest: Stmt) -> Stmt:
        if not any(isinstance(x, BufferLoad | BufferStore) and x.buffer in self.new for x in preorder(nest)):
            return nest  # what no part has to do with
        loops: list[For] = []
        while isinstance(nest, For):
            loops.append(nest)
            nest = nest.body
        if not isinstance(nest, BlockRealize) or const_int(nest.predicate) != 1:
            raise NotSeparableError("it is no sequence of loop nests, each around one block")
        block = nest.block
        lead, number = self.leading_axes(block, loops, nest.iter_values)
        if lead == 0:
            raise NotSeparableError(f"block '{block.name_hint}' does not run over {_shown(self.symbols)}")
        extent = mul(self.parts, number)
        loop_var, own = (Var(name, self.parts.dtype) for name in ("part", "v_part"))
        old = tuple(iv.var for iv in block.iter_vars[:lead])
        block = self.block(block, lead, own, old, extent)
        values = (loop_var, *nest.iter_values[lead:])
        body: Stmt = BlockRealize(values, nest.predicate, block)
        for loop in reversed(loops[lead:]):
            body = dataclasses.replace(loop, body=body)
        return dataclasses.replace(loops[0], loop_var=loop_var, extent=extent, body=body)

    def leading_axes(self, block: Block, loops: Sequence[For], values: Sequence[PrimExpr]) -> tuple[int, int]:
        """(how many first axes of a block run over the leading dimensions, their number)."""
        found = leading([iv.dom.extent for iv in block.iter_vars if iv.kind == SPATIAL])
        lead = found[0] if found is not None else 0
        axes = list(zip(block.iter_vars, loops, values))[:lead]
        plain = all(
            iv.kind == SPATIAL and value is loop.loop_var and const_int(iv.dom.min) == 0 and const_int(loop.start) == 0
            for iv, loop, value in axes
        )
        if found is None or not _same(found[2], self.symbols) or not plain or len(axes) < lead:
            raise NotSeparableError(f"block '{block.name_hint}' does not run over {_shown(self.symbols)} first")
        return lead, found[1]

    def block(self, block: Block, lead: int, own: Var, old: tuple[Var, ...], extent: PrimExpr) -> Block:
        """The block over one axis in place of its first ones; accesses go by that axis or not at all."""

        def access(x: object) -> object:
            if isinstance(x, BufferLoad | BufferStore) and x.buffer in self.new:
                return dataclasses.replace(x, buffer=self.new[x.buffer], indices=self.indices(x, old, own))
            if isinstance(x, BufferRegion) and x.buffer in self.new:
                n = self.lead[x.buffer]
                self.indices_of(x.buffer, tuple(r.min for r in x.region[:n]), old, block.name_hint)
                first = Range(own, IntImm(1, own.dtype))
                return dataclasses.replace(x, buffer=self.new[x.buffer], region=(first, *x.region[n:]))
            return x

        self.name = block.name_hint
        new = rewrite(block, access)
        axis = IterVar(Range(IntImm(0, own.dtype), extent), own, SPATIAL)
        new = dataclasses.replace(new, iter_vars=(axis, *new.iter_vars[lead:]))
        if set(old) & {x for part in (new.body, new.init) if part is not None for x in preorder(part)}:
            raise NotSeparableError(f"block '{self.name}' computes with a position in {_shown(self.symbols)}")
        return new

    def indices(self, x: BufferLoad | BufferStore, old: tuple[Var, ...], own: Var) -> tuple[PrimExpr, ...]:
        lead = self.lead[x.buffer]
        self.indices_of(x.buffer, x.indices[:lead], old, self.name)
        return (own, *x.indices[lead:])

    def indices_of(self, buffer: Buffer, first: tuple[PrimExpr, ...], old: tuple[Var, ...], name: str) -> None:
        """See that the leading indices are the block's own leading axes. Raises NotSeparableError.

        Of an axis of extent one there is one position, which need not be named by the axis.
        """
        ones = (const_int(extent) == 1 for extent in buffer.shape)
        known = (a is b or (one and const_int(a) == 0) for a, b, one in zip(first, old, ones, strict=False))
        if len(first) != len(old) or not all(known):
            raise NotSeparableError(f"block '{name}' reads other parts of '{buffer.name}' than it computes")


__all__ = ["leading", "merged_parts"]

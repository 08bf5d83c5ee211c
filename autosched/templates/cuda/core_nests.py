"""Functions of a core whose launches a template writes itself, with what is element-wise around it.

What reads the core's results element by element is computed where they are written. What else is left is a launch of
its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from autosched.templates.classify import is_injective, spatial
from autosched.templates.core_nests import CoreNests, typed
from autosched.templates.cuda.elementwise import DEFAULT_THREADS, widest_vector
from autosched.templates.cuda.threads import bind_flat, fused, inline_injective, ordered_loops
from autosched.tir import PrimFunc, Var
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import IntImm, PrimExpr, const_int
from autosched.tir.functor import loads, rewrite_down, substitute
from autosched.tir.size_expr import same_extent
from autosched.tir.stmt import Block, BufferStore, Stmt, seq

VECTOR = 4  # elements that a thread of an element-wise launch takes at most


Known = Callable[[BufferLoad, Sequence[Var]], PrimExpr | None]


class Core(CoreNests):
    """See `CoreNests`.

    results  what the core writes for others to read
    read     buffers that are there before the core
    """

    def __init__(
        self, func: PrimFunc, names: Sequence[str], results: Sequence[Buffer] = (), read: Sequence[Buffer] = ()
    ):
        super().__init__(func, names)
        self.behind: dict[Buffer, list[tuple[Block, tuple[PrimExpr, ...]]]] = {b: [] for b in results}
        written = {x.buffer for b in self.left for x in b.writes} - set(read)
        for block in self.left:
            found = self._read(block, written) if block.name_hint not in self.names else None
            if found is not None:
                self.behind[found.buffer].append((block, found.indices))
                self.behind[block.writes[0].buffer] = []
        self.names |= {block.name_hint for blocks in self.behind.values() for block, _ in blocks}

    def inline(self) -> None:
        inline_injective(self.schedule, self.func)

    def schedule_other(self, block: Block) -> None:
        outer, _ = ordered_loops(self.schedule, block)
        vector = math.gcd(VECTOR, widest_vector(block))
        bind_flat(self.schedule, fused(self.schedule, outer, block.name_hint), DEFAULT_THREADS, vector)

    def _read(self, block: Block, written: set[Buffer]) -> BufferLoad | None:
        """What a block reads of one result, where each of its elements needs one of that and nothing else computed."""
        if not is_injective(block) or not isinstance(block.body, BufferStore):
            return None
        reads = [x for x in loads(block.body.value) if x.buffer in written]
        if not reads or reads[0].buffer not in self.behind or not all(_is_same(x, reads[0]) for x in reads):
            return None
        axes = {iv.var: iv.dom.extent for iv in spatial(block)}
        used: list[Var] = []
        for i, size in zip(reads[0].indices, reads[0].buffer.shape, strict=True):
            if isinstance(i, Var) and i in axes and same_extent(axes[i], size) and i not in used:
                used.append(i)
            elif const_int(size) != 1 or not isinstance(i, IntImm):
                return None
        return reads[0] if all(v in used or const_int(n) == 1 for v, n in axes.items()) else None

    def is_read(self, buffer: Buffer) -> bool:
        """Whether a result is wanted itself: it is an argument, or a launch of its own reads it."""
        others = (b for b in self.left if b.name_hint not in self.names)
        return buffer in self.func.buffers or any(x.buffer is buffer for b in others for x in b.reads)

    def result(
        self, buffer: Buffer, value: PrimExpr, at: Sequence[PrimExpr],
        known: Known = lambda x, axes: None,
    ) -> Stmt:  # fmt: skip
        """Write an element of a result, and of what is computed of it.

        known  what is at hand of other buffers' elements, in terms of a block's axes
        """
        stmts: list[Stmt] = []
        indices = typed(buffer, at)
        if self.is_read(buffer) or not self.behind[buffer]:
            stmts.append(BufferStore(buffer, value, indices))
        for block, own in self.behind[buffer]:
            assert isinstance(block.body, BufferStore), "an element-wise block is one store"

            axes = [iv.var for iv in block.iter_vars]

            def step(x: object, axes: Sequence[Var] = axes) -> PrimExpr | None:
                if not isinstance(x, BufferLoad):
                    return None
                return value if x.buffer is buffer else known(x, axes)

            made = rewrite_down(block.body.value, step)
            values: dict[Var, PrimExpr] = {iv.var: E.const(0, iv.var.dtype) for iv in spatial(block)}
            values |= {v: E.cast(v.dtype, i) for v, i in zip(own, indices, strict=True) if isinstance(v, Var)}
            out = tuple(substitute(i, values) for i in block.body.indices)
            stmts.append(self.result(block.body.buffer, substitute(made, values), out))
        return seq(*stmts)


def _is_same(a: BufferLoad, b: BufferLoad) -> bool:
    """Whether two loads, by axes or constants, are of one element."""
    pairs = zip(a.indices, b.indices, strict=True)
    return a.buffer is b.buffer and all(x is y or (isinstance(x, IntImm) and isinstance(y, IntImm)) for x, y in pairs)

"""Running sums and products along an axis: cumsum, cumprod. Each element is read once.

    for task in parallel:                       # a line; where lines lie side by side, `width` of them
        so_far[width] = identity
        for k in range(length):
            so_far[:] = combine(so_far[:], x[…, k, :])
            out[…, k, :] = so_far[:]            # before that step, where an element's own value is left out

float32 is summed in float64, which costs nothing where one step waits for the last, and halves in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from autosched.codegen.lower.half import HALVES
from autosched.ir.node import preorder
from autosched.space import Config, ConfigSpace, load_space
from autosched.target import Target
from autosched.templates.base import Anchor, Applied
from autosched.templates.classify import blocks_of, is_injective, reduced, spatial
from autosched.templates.cpu.elementwise import inline_all, schedule_nest
from autosched.templates.lines import INDEX
from autosched.templates.scan_form import COMBINE, IDENTITY, ScanForm, scan_of
from autosched.tir import PrimFunc, Var
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import IntImm, PrimExpr
from autosched.tir.function import make_root
from autosched.tir.functor import substitute
from autosched.tir.schedule import Schedule
from autosched.tir.stmt import BufferStore, For, LoopKind, SeqStmt, Stmt, seq

LEAST_LENGTH = 16  # below, the sum over all elements up to each is unrolled
MOST_WIDTH = 64  # lines side by side
MOST_ELEMENTS = 1 << 31  # whose numbers fit the loops' type


class Scan:
    """One scan and what is element-wise around it."""

    name = "scan"

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        blocks = blocks_of(func)
        found = [s for s in map(scan_of, blocks) if s is not None]
        if len(found) != 1 or not all(is_injective(b) for b in blocks if b is not found[0].block):
            return None
        lines = found[0].lines
        if lines.length < LEAST_LENGTH or lines.count * lines.length >= MOST_ELEMENTS:
            return None
        inner = 1 if lines.axis == len(lines.shape) - 1 else lines.shape[-1]
        sizes = {"lines": lines.count, "length": lines.length, "inner": inner}
        return Anchor(found[0].block.name_hint, self.name, sizes)

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        values = {**anchor.sizes, "most_width": MOST_WIDTH}
        return load_space(target.backend, self.name, values).with_default(self.default(anchor, target))

    def default(self, anchor: Anchor, target: Target) -> Config:
        inner = anchor.sizes["inner"]
        return Config(self.name, {"width": next(w for w in range(min(MOST_WIDTH, inner), 0, -1) if inner % w == 0)})

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        sch = Schedule(func)
        inline_all(sch, func)
        (scan,) = [s for s in map(scan_of, blocks_of(sch.func)) if s is not None]
        for block in blocks_of(sch.func):
            if block is not scan.block:
                schedule_nest(sch, block, 4 * target.lanes("float32"), target.lanes("float32"), True)
        root = sch.func.root
        nests = root.body.seq if isinstance(root.body, SeqStmt) else (root.body,)
        so_far, body = _scanned(scan, int(config["width"]))
        parts = [body if any(x is scan.block for x in preorder(n)) else n for n in nests]
        whole = make_root(seq(*parts), (*root.alloc_buffers, so_far), root.annotations)
        return Applied(sch.func.with_body(whole), (None,) * len(func.params), sch.trace.to_json_text())


def _scanned(scan: ScanForm, width: int) -> tuple[Buffer, Stmt]:
    """(what the steps so far combine to, the statements that scan all lines)."""
    shape, axis = scan.lines.shape, scan.lines.axis
    last = len(shape) - 1
    out = scan.block.writes[0].buffer
    wide = "float32" if out.dtype in HALVES else "float64" if out.dtype == "float32" else out.dtype
    so_far = Buffer("so_far", (IntImm(width, INDEX),), wide, scope="local")
    axes, k = [iv.var for iv in spatial(scan.block)], reduced(scan.block)[0].var
    extents = [1 if d == axis else n // width if d == last else n for d, n in enumerate(shape)]

    def at(task: Var, step: Var, lane: PrimExpr) -> list[PrimExpr]:
        found: list[PrimExpr] = []
        left: PrimExpr = task
        for d in reversed(range(len(shape))):
            own = E.floormod(left, IntImm(extents[d], INDEX))
            left = E.floordiv(left, IntImm(extents[d], INDEX))
            found.append(step if d == axis else E.add(E.mul(own, IntImm(width, INDEX)), lane) if d == last else own)
        return found[::-1]

    def of_step(task: Var, step: Var) -> Stmt:
        def combine(lane: PrimExpr) -> Stmt:
            values = {v: E.cast(v.dtype, i) for v, i in zip((*axes, k), (*at(task, step, lane), step), strict=True)}
            own = E.cast(wide, substitute(scan.value, values))
            return BufferStore(so_far, COMBINE[scan.combine](BufferLoad(so_far, (lane,)), own), (lane,))

        def write(lane: PrimExpr) -> Stmt:
            place = tuple(E.cast(n.dtype, i) for n, i in zip(out.shape, at(task, step, lane), strict=True))
            return BufferStore(out, E.cast(out.dtype, BufferLoad(so_far, (lane,))), place)

        steps = [_lanes(width, combine), _lanes(width, write)]
        return seq(*(reversed(steps) if scan.exclusive else steps))

    def of_task(task: Var) -> Stmt:
        start = E.const(IDENTITY[scan.combine], wide)
        clear = _lanes(width, lambda lane: BufferStore(so_far, start, (lane,)))
        return seq(clear, _loop("k", scan.lines.length, lambda step: of_step(task, step)))

    return so_far, _loop("task", math.prod(extents), of_task, LoopKind.PARALLEL)


def _loop(name: str, extent: int, body: Callable[[Var], Stmt], kind: LoopKind = LoopKind.SERIAL) -> Stmt:
    var = Var(name, INDEX)
    return For(var, IntImm(0, INDEX), IntImm(extent, INDEX), kind, body(var))


def _lanes(width: int, body: Callable[[PrimExpr], Stmt]) -> Stmt:
    return _loop("lane", width, body, LoopKind.VECTORIZED) if width > 1 else body(IntImm(0, INDEX))

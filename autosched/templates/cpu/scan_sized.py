"""Running sums and products where sizes come with the call. Each element is read once, as in `scan`.

for outer in parallel:                      # an axis of the others each, all but the innermost one
    for piece in parallel:                  # `width` lines side by side
        so_far[width] = identity
        for k in range(length):
            so_far[:] = combine(so_far[:], x[…, k, piece])
            out[…, k, piece] = so_far[:]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autosched.codegen.lower.half import HALVES
from autosched.ir.node import preorder
from autosched.target import Target
from autosched.templates.base import Applied
from autosched.templates.classify import blocks_of, reduced, spatial
from autosched.templates.cpu.elementwise import inline_all
from autosched.templates.cpu.scan import MOST_WIDTH
from autosched.templates.cpu.sized import VECTORS, schedule_nest, sized
from autosched.templates.nests import loop
from autosched.templates.scan_form import COMBINE, IDENTITY, RunningForm, running_form
from autosched.tir import Block, PrimFunc, Var
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import PrimExpr, const_int
from autosched.tir.function import make_root
from autosched.tir.functor import substitute
from autosched.tir.schedule import Schedule
from autosched.tir.stmt import BufferStore, IfThenElse, LoopKind, SeqStmt, Stmt, seq

WIDTH = 64  # lines side by side where their number is not known


def schedule_scans(func: PrimFunc, target: Target) -> Applied | None:
    """Schedule a function over symbols with scans; None for one that has none."""
    named = [block.name_hint for block in blocks_of(func) if running_form(block) is not None]
    if not named:
        return None
    sch = Schedule(func)
    inline_all(sch, func)
    scans = {block.name_hint: form for block in blocks_of(sch.func) if (form := running_form(block)) is not None}
    for block in blocks_of(sch.func):
        if block.name_hint not in scans:
            schedule_nest(sch, block, VECTORS * target.lanes("float32"))
    root = sch.func.root
    buffers: list[Buffer] = list(root.alloc_buffers)
    nests = []
    for nest in root.body.seq if isinstance(root.body, SeqStmt) else (root.body,):
        inside = [x for x in preorder(nest) if isinstance(x, Block) and x.name_hint in scans]
        nests.append(_scanned(inside[0], scans[inside[0].name_hint], buffers) if inside else nest)
    whole = make_root(seq(*nests), tuple(buffers), root.annotations)
    return sized(func, sch.func.with_body(whole), sch.trace.to_json_text(), named)


def _scanned(block: Block, form: RunningForm, buffers: list[Buffer]) -> Stmt:
    """The nests that scan all lines; appends what they keep between steps to `buffers`."""
    out, axes, k = block.writes[0].buffer, [iv.var for iv in spatial(block)], reduced(block)[0].var
    wide = "float32" if out.dtype in HALVES else "float64" if out.dtype == "float32" else out.dtype
    sizes = [iv.dom.extent for iv in spatial(block)]
    is_last = form.axis == len(axes) - 1
    outer = [d for d in range(len(axes)) if d != form.axis and (is_last or d != len(axes) - 1)]
    length = sizes[form.axis]

    def of_lines(so_far: Buffer, at: dict[int, PrimExpr], start: PrimExpr, count: int, guard: PrimExpr | None) -> Stmt:
        """Lines side by side, those below `guard` where there is one."""

        def indices(lane: PrimExpr, step: PrimExpr) -> list[PrimExpr]:
            place = {
                **at,
                form.axis: step,
                **({} if is_last else {len(axes) - 1: E.add(start, E.cast(start.dtype, lane))}),
            }
            return [E.cast(axes[d].dtype, place[d]) for d in range(len(axes))]

        def guarded(lane: PrimExpr, stmt: Stmt) -> Stmt:
            inside = E.add(start, E.cast(start.dtype, lane))
            return stmt if guard is None else IfThenElse(E.compare(E.LT, inside, guard), stmt)

        def combine(lane: PrimExpr, step: PrimExpr) -> Stmt:
            values = {v: E.cast(v.dtype, i) for v, i in zip((*axes, k), (*indices(lane, step), step), strict=True)}
            own = E.cast(wide, substitute(form.value, values))
            return guarded(lane, BufferStore(so_far, COMBINE[form.combine](BufferLoad(so_far, (lane,)), own), (lane,)))

        def write(lane: PrimExpr, step: PrimExpr) -> Stmt:
            place = tuple(E.cast(n.dtype, i) for n, i in zip(out.shape, indices(lane, step), strict=True))
            return guarded(lane, BufferStore(out, E.cast(out.dtype, BufferLoad(so_far, (lane,))), place))

        def of_step(number: Var) -> Stmt:
            step = E.sub(E.sub(length, E.const(1, length.dtype)), number) if form.reverse else number
            steps = [_lanes(count, lambda lane: combine(lane, step)), _lanes(count, lambda lane: write(lane, step))]
            return seq(*(reversed(steps) if form.exclusive else steps))

        identity = E.const(IDENTITY[form.combine], wide)
        return seq(_lanes(count, lambda lane: BufferStore(so_far, identity, (lane,))), loop("k", length, of_step))

    def pieces(at: dict[int, PrimExpr], number: PrimExpr, first: int, count: int, guard: PrimExpr | None) -> Stmt:
        so_far = Buffer("so_far", (E.const(count, "int32"),), wide, scope="local")
        buffers.append(so_far)

        def of_piece(piece: Var) -> Stmt:
            start = E.add(E.mul(piece, E.const(count, piece.dtype)), E.const(first, piece.dtype))
            return of_lines(so_far, at, start, count, guard)

        return loop("piece", number, of_piece, LoopKind.PARALLEL)

    def around(left: Sequence[int], at: dict[int, PrimExpr], body: Callable[[dict[int, PrimExpr]], Stmt]) -> Stmt:
        if not left:
            return body(at)
        d = left[0]
        return loop(f"outer{d}", sizes[d], lambda var: around(left[1:], {**at, d: var}, body), LoopKind.PARALLEL)

    if is_last:
        so_far = Buffer("so_far", (E.const(1, "int32"),), wide, scope="local")
        buffers.append(so_far)
        zero = E.const(0, length.dtype)
        return around(outer, {}, lambda at: of_lines(so_far, at, zero, 1, None))
    inner = sizes[-1]
    known = const_int(inner)
    if known is None:
        number = E.floordiv(E.add(inner, E.const(WIDTH - 1, inner.dtype)), E.const(WIDTH, inner.dtype))
        return around(outer, {}, lambda at: pieces(at, number, 0, WIDTH, inner))
    whole, rest = divmod(known, min(known, MOST_WIDTH))
    parts = [(whole, 0, min(known, MOST_WIDTH)), (1, known - rest, rest)]

    def of_part(number: int, first: int, count: int) -> Stmt:
        return around(outer, {}, lambda at: pieces(at, E.const(number, inner.dtype), first, count, None))

    return seq(*(of_part(*part) for part in parts if part[2]))


def _lanes(width: int, body: Callable[[PrimExpr], Stmt]) -> Stmt:
    zero = E.const(0, "int32")
    return loop("lane", width, body, LoopKind.VECTORIZED) if width > 1 else body(zero)

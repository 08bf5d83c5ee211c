"""Running sums and products along an axis: cumsum, cumprod. Each element is read once.

    for task in parallel:                       # a line; where lines lie side by side, `width` of them or the rest
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
from autosched.templates.lines import INDEX, Lines
from autosched.templates.scan_form import COMBINE, IDENTITY, ScanForm, scan_of
from autosched.tir import PrimFunc, Var
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import IntImm, PrimExpr
from autosched.tir.function import make_root
from autosched.tir.functor import substitute
from autosched.tir.schedule import Schedule
from autosched.tir.stmt import BufferStore, For, LoopKind, SeqStmt, Stmt, seq

MOST_WIDTH = 128  # lines side by side: 256x1024 along its first axis takes 33 us, in pieces of 64 48 (Zen 5)
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
        if lines.length < 2 or lines.count * lines.length >= MOST_ELEMENTS:
            return None
        sizes = {"lines": lines.count, "length": lines.length, "inner": _inner(lines)}
        return Anchor(found[0].block.name_hint, self.name, sizes)

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        values = {**anchor.sizes, "most_width": MOST_WIDTH}
        return load_space(target.backend, self.name, values).with_default(self.default(anchor, target))

    def default(self, anchor: Anchor, target: Target) -> Config:
        inner, lanes = anchor.sizes["inner"], target.lanes("float32")
        width = -(-inner // -(-inner // MOST_WIDTH))  # pieces of about the same size, of whole vectors where that does
        return Config(self.name, {"width": min(inner, MOST_WIDTH, -(-width // lanes) * lanes)})

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
        whole = make_root(seq(*parts), (*root.alloc_buffers, *so_far), root.annotations)
        return Applied(sch.func.with_body(whole), (None,) * len(func.params), sch.trace.to_json_text())


def _inner(lines: Lines) -> int:
    """How many lines lie side by side: those along the innermost axis, as vectors that cross its ends are gathered."""
    return 1 if lines.axis == len(lines.shape) - 1 else lines.shape[-1]


def _scanned(scan: ScanForm, width: int) -> tuple[list[Buffer], Stmt]:
    """(what the steps so far combine to, for each of the nests; the nests that scan all lines)."""
    out, axis, inner = scan.block.writes[0].buffer, scan.lines.axis, _inner(scan.lines)
    wide = "float32" if out.dtype in HALVES else "float64" if out.dtype == "float32" else out.dtype
    axes, k = [iv.var for iv in spatial(scan.block)], reduced(scan.block)[0].var
    shape = [1 if d == axis else n for d, n in enumerate(scan.lines.shape)]
    outer = math.prod(shape) // inner

    def at(line: PrimExpr, step: PrimExpr) -> list[PrimExpr]:
        """The indices of a line's element, of a line as a number among all."""
        found: list[PrimExpr] = []
        for n in reversed(shape):
            found.append(E.floormod(line, IntImm(n, INDEX)))
            line = E.floordiv(line, IntImm(n, INDEX))
        return [step if d == axis else i for d, i in enumerate(reversed(found))]

    def of_step(so_far: Buffer, start: PrimExpr, count: int, number: Var) -> Stmt:
        step = E.sub(IntImm(scan.lines.length - 1, INDEX), number) if scan.reverse else number

        def combine(lane: PrimExpr) -> Stmt:
            values = {v: E.cast(v.dtype, i) for v, i in zip((*axes, k), (*at(start + lane, step), step), strict=True)}
            own = E.cast(wide, substitute(scan.value, values))
            return BufferStore(so_far, COMBINE[scan.combine](BufferLoad(so_far, (lane,)), own), (lane,))

        def write(lane: PrimExpr) -> Stmt:
            place = tuple(E.cast(n.dtype, i) for n, i in zip(out.shape, at(start + lane, step), strict=True))
            return BufferStore(out, E.cast(out.dtype, BufferLoad(so_far, (lane,))), place)

        steps = [_lanes(count, combine), _lanes(count, write)]
        return seq(*(reversed(steps) if scan.exclusive else steps))

    def of_task(so_far: Buffer, start: PrimExpr, count: int) -> Stmt:
        identity = E.const(IDENTITY[scan.combine], wide)
        clear = _lanes(count, lambda lane: BufferStore(so_far, identity, (lane,)))
        return seq(clear, _loop("k", scan.lines.length, lambda step: of_step(so_far, start, count, step)))

    def pieces(number: int, first: int, count: int) -> tuple[Buffer, Stmt]:
        """Pieces of `count` lines: so many in each group of `inner` lines, from its line `first` on."""
        so_far = Buffer("so_far", (IntImm(count, INDEX),), wide, scope="local")

        def of_piece(task: Var) -> Stmt:
            group, piece = E.floordiv(task, IntImm(number, INDEX)), E.floormod(task, IntImm(number, INDEX))
            return of_task(so_far, group * inner + piece * count + first, count)

        return so_far, _loop("task", outer * number, of_piece, LoopKind.PARALLEL)

    whole, rest = divmod(inner, width)
    nests = [pieces(*n) for n in ((whole, 0, width), (1, whole * width, rest)) if n[0] and n[2]]
    return [so_far for so_far, _ in nests], seq(*(nest for _, nest in nests))


def _loop(name: str, extent: int, body: Callable[[Var], Stmt], kind: LoopKind = LoopKind.SERIAL) -> Stmt:
    var = Var(name, INDEX)
    return For(var, IntImm(0, INDEX), IntImm(extent, INDEX), kind, body(var))


def _lanes(width: int, body: Callable[[PrimExpr], Stmt]) -> Stmt:
    return _loop("lane", width, body, LoopKind.VECTORIZED) if width > 1 else body(IntImm(0, INDEX))

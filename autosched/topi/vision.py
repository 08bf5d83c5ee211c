"""Operators of detectors: which boxes are kept beside better ones.

The best box that is left is kept, and those that share too much with it go, until enough are kept:

    for line of scores (an image and a class), in parallel:
        for box: where its score is above the threshold, keys[m], place[m] and its corners are the next ones
        best = the highest key, the first one of equals
        while best is alive and fewer than `most` are kept:
            chosen[kept] = place[best]
            for m, in vectors: where it shares too much with the best one its key becomes DEAD; the next best is found

A key is a score's bits as an integer in the same order, so that every score has one above DEAD.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autosched import te
from autosched.te import Tensor
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer
from autosched.tir.calls import reinterpret
from autosched.tir.expr import PrimExpr
from autosched.tir.ir_builder import BufferVar, IRBuilder
from autosched.tir.stmt import Stmt
from autosched.topi.shapes import dims, open_shape

LANES = 16
DEAD, NOT_A_NUMBER = -(1 << 31), 1 - (1 << 31)  # keys; NaN is the least of scores


def kept_rows(
    boxes: Tensor, scores: Tensor, most: Tensor, overlap: Tensor, least: Tensor, at_most: int
) -> tuple[Tensor, Tensor]:
    """(rows [R, 3] int64: image, class and box of those kept, the best first; total [1] int64: how many these are).

    boxes    [N, B, 4]: y and x of two corners, those of lower numbers first
    scores   [N, C, B]
    most     [1] int64: boxes of each class to keep
    overlap  [1]: intersection by union above which a box goes
    least    [1]: a box is kept with a score above it, with any where it is NaN
    at_most  a limit of `most` that is known, 0 for none: R is as large as they allow. Zeros follow the rows kept
    """
    n = open_shape(scores)[2]
    rows = min(n, at_most) if at_most and isinstance(n, int) else at_most or n
    return _rows_of_chosen(*_chosen(boxes, scores, most, overlap, least, rows))


def _chosen(
    boxes: Tensor, scores: Tensor, most: Tensor, overlap: Tensor, least: Tensor, rows: int | PrimExpr
) -> tuple[Tensor, Tensor]:
    """(chosen [N, C, rows] int32: kept boxes, count [N, C] int32: how many of these there are)."""
    images, kinds, n = dims(scores.shape)

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        ib = IRBuilder()
        with ib.for_range(0, images * kinds, name="line", kind="parallel") as line:
            _Line(ib, [ib.buffer_ptr(b) for b in (*ins, *outs)], line // kinds, line % kinds, n).write(E.to_expr(rows))
        return ib.get()

    shapes = [(images, kinds, E.to_expr(rows)), (images, kinds)]
    chosen, count = te.extern(
        shapes, [boxes, scores, most, overlap, least], body, name="kept_boxes", dtype=["int32", "int32"]
    )
    return chosen, count


class _Line:
    """The statements for the boxes of one image and class."""

    def __init__(self, ib: IRBuilder, buffers: Sequence[BufferVar], image: PrimExpr, kind: PrimExpr, n: PrimExpr):
        self.ib, self.image, self.kind, self.n = ib, image, kind, n
        self.boxes, self.scores, self.most, self.overlap, self.least, self.chosen, self.count = buffers
        size = E.floordiv(n + (LANES - 1), E.const(LANES, n.dtype)) * LANES
        self.corners = [ib.allocate("float32", (size,), name=name) for name in ("y1", "x1", "y2", "x2")]
        self.area = ib.allocate("float32", (size,), name="area")
        self.keys, self.place = (ib.allocate("int32", (size,), name=name) for name in ("keys", "place"))
        self.lane_key, self.lane_at = (ib.allocate("int32", (LANES,), name=name) for name in ("lane_key", "lane_at"))
        self.alive, self.kept, self.best, self.best_at = (
            ib.allocate("int32", (1,), name=name) for name in ("alive", "kept", "best", "best_at")
        )
        self.own = ib.allocate("float32", (5,), name="own")

    def write(self, rows: PrimExpr) -> None:
        ib = self.ib
        self.kept[0] = 0
        self.gather()
        self.find_best(lambda at: self.keys[at])
        limit = E.minimum(E.cast("int64", rows), self.most[0])
        is_open = te.all(E.cast("int64", self.kept[0]) < limit, self.best[0] > DEAD)
        with ib.while_loop(is_open):
            at = self.best_at[0]
            self.chosen[self.image, self.kind, self.kept[0]] = self.place[at]
            self.kept[0] = self.kept[0] + 1
            self.keys[at] = DEAD
            for i, values in enumerate((*self.corners, self.area)):
                self.own[i] = values[at]
            self.find_best(self.key_beside_own)
        self.count[self.image, self.kind] = self.kept[0]

    def gather(self) -> None:
        """The boxes whose scores are above the threshold, and dead ones that fill the last vector."""
        ib, least = self.ib, self.least[0]
        self.alive[0] = 0
        with ib.for_range(0, self.n, name="box") as box:
            score = self.scores[self.image, self.kind, box]
            with ib.if_scope(te.any(score > least, E.compare(E.NE, least, least))):
                at = self.alive[0]
                corner = [self.boxes[self.image, box, i] for i in range(4)]
                for values, value in zip(self.corners, corner, strict=True):
                    values[at] = value
                self.area[at] = (corner[2] - corner[0]) * (corner[3] - corner[1])
                self.keys[at] = _key(score)
                self.place[at] = box
                self.alive[0] = at + 1
        whole = self.vectors() * LANES
        with ib.for_range(0, whole - self.alive[0], name="rest") as rest:
            self.keys[self.alive[0] + rest] = DEAD
            self.area[self.alive[0] + rest] = 0.0

    def vectors(self) -> PrimExpr:
        return E.floordiv(self.alive[0] + (LANES - 1), E.const(LANES, "int32"))

    def find_best(self, key: Callable[[PrimExpr], PrimExpr]) -> None:
        """Give all boxes new keys and find the highest, the first one of equals."""
        ib = self.ib
        with ib.for_range(0, LANES, name="lane", kind="vectorize") as lane:
            self.lane_key[lane] = DEAD
            self.lane_at[lane] = 0
        with ib.for_range(0, self.vectors(), name="v") as v:
            with ib.for_range(0, LANES, name="lane", kind="vectorize") as lane:
                at = v * LANES + lane
                self.keys[at] = key(at)
                is_better = self.keys[at] > self.lane_key[lane]
                self.lane_at[lane] = E.select(is_better, at, self.lane_at[lane])
                self.lane_key[lane] = E.select(is_better, self.keys[at], self.lane_key[lane])
        self.best[0] = DEAD
        self.best_at[0] = 0
        with ib.for_range(0, LANES, name="lane") as lane:
            mine, best = self.lane_key[lane], self.best[0]
            is_first = te.all(E.compare(E.EQ, mine, best), self.lane_at[lane] < self.best_at[0])
            with ib.if_scope(te.any(mine > best, is_first)):
                self.best_at[0] = self.lane_at[lane]
                self.best[0] = mine

    def key_beside_own(self, at: PrimExpr) -> PrimExpr:
        """A box's key, DEAD where it shares too much with the one that was kept last."""
        y1, x1, y2, x2 = (values[at] for values in self.corners)
        own = [self.own[i] for i in range(5)]
        zero = E.const(0.0, "float32")
        height, width = E.minimum(y2, own[2]) - E.maximum(y1, own[0]), E.minimum(x2, own[3]) - E.maximum(x1, own[1])
        shared = E.maximum(height, zero) * E.maximum(width, zero)
        both = self.area[at] + own[4] - shared
        counts = te.all(shared > zero, self.area[at] > zero, own[4] > zero, both > zero)
        goes = te.all(counts, E.div(shared, both) > self.overlap[0])
        return E.select(goes, E.const(DEAD, "int32"), self.keys[at])


def _key(score: PrimExpr) -> PrimExpr:
    raw = reinterpret("int32", score + E.const(0.0, "float32"))  # zeros of both signs are equal
    flipped = E.bitwise("bitwise_xor", raw, E.const((1 << 31) - 1, "int32"))
    key = E.select(raw < 0, flipped, raw)
    return E.select(E.compare(E.NE, score, score), E.const(NOT_A_NUMBER, "int32"), key)


def _rows_of_chosen(chosen: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """The rows of those chosen, and how many they are."""
    images, kinds, most = dims(chosen.shape)

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        ib = IRBuilder()
        boxes, counts, rows, total = (ib.buffer_ptr(b) for b in (*ins, *outs))
        total[0] = 0
        with ib.for_range(0, images, name="image") as image:
            with ib.for_range(0, kinds, name="kind") as kind:
                with ib.for_range(0, counts[image, kind], name="rank") as rank:
                    for i, value in enumerate((image, kind, boxes[image, kind, rank])):
                        rows[total[0], i] = value
                    total[0] = total[0] + 1
        with ib.for_range(0, images * kinds * most - total[0], name="rest") as rest:
            for i in range(3):
                rows[total[0] + rest, i] = 0
        return ib.get()

    shapes = [(images * kinds * most, 3), (1,)]
    rows, total = te.extern(shapes, [chosen, count], body, name="kept_rows", dtype=["int64", "int64"])
    return rows, total

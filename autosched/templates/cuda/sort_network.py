"""A bitonic network (Batcher 1968) in shared memory whose comparators all have the same direction.

Places beyond the last element take no part. Keys move with their positions, which decide between equals.
"""

from __future__ import annotations

from autosched.templates.core_nests import load, one_of, store
from autosched.templates.cuda.threads import power_of_two_above
from autosched.templates.nests import index, unrolled
from autosched.tir import Var
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer
from autosched.tir.expr import PrimExpr, as_int
from autosched.tir.stmt import IfThenElse, Stmt, seq
from autosched.topi.sort import precedes

PLACE = "int32"  # of positions along a line
PLACE_BYTES = 4


class SortNetwork:
    """What sorts keys of a type with `along` threads a line; `buffers` are those that its statements use."""

    def __init__(self, dtype: str, descending: bool, along: int):
        self.dtype, self.descending, self.along = dtype, descending, along
        self.buffers: list[Buffer] = []

    def own(self, name: str, dtype: str, *shape: int, scope: str = "local") -> Buffer:
        """A new buffer."""
        self.buffers.append(one_of(name, dtype, *shape, scope=scope))
        return self.buffers[-1]

    def order_pairs(
        self, keys: Buffer, places: Buffer, bit: PrimExpr, mirrored: PrimExpr, there: PrimExpr, ty: Var, tx: Var
    ) -> Stmt:
        """Order the pairs whose positions differ in a bit, or, `mirrored`, in it and all bits below it."""
        pairs = max(1, power_of_two_above(as_int(keys.shape[1])) // 2 // self.along)
        key, place = self._pair_buffers(pairs)
        one = E.bitwise("shift_left", index(1), bit)
        mask = E.select(mirrored, E.sub(E.mul(one, index(2)), index(1)), one)

        def at(pair: PrimExpr, side: PrimExpr) -> PrimExpr:
            number = E.add(E.mul(pair, index(self.along)), tx)
            above = E.bitwise("shift_left", E.bitwise("shift_right", number, bit), E.add(bit, index(1)))
            low = E.add(above, E.bitwise("bitwise_and", number, E.sub(one, index(1))))
            return E.bitwise("bitwise_xor", low, E.mul(side, mask))

        def take(pair: Var, side: Var) -> Stmt:
            inside = E.minimum(at(pair, side), E.sub(there, index(1)))
            return seq(
                store(key, load(keys, ty, inside), pair, side), store(place, load(places, ty, inside), pair, side)
            )

        def swap(pair: Var) -> Stmt:
            high_place, low_place = load(place, pair, 1), load(place, pair, 0)
            is_earlier = E.compare(E.LT, high_place, low_place)
            is_less = precedes(load(key, pair, 1), load(key, pair, 0), self.descending, is_earlier)
            is_there = E.compare(E.LT, at(pair, index(1)), there)
            return IfThenElse(E.all_of(is_there, is_less), unrolled("side", (2,), lambda side: seq(
                store(keys, load(key, pair, E.sub(index(1), side)), ty, at(pair, side)),
                store(places, load(place, pair, E.sub(index(1), side)), ty, at(pair, side)))))  # fmt: skip

        return seq(unrolled("pair side", (pairs, 2), take), unrolled("pair", (pairs,), swap))

    def _pair_buffers(self, pairs: int) -> tuple[Buffer, Buffer]:
        return self.own("key", self.dtype, pairs, 2), self.own("place", PLACE, pairs, 2)

"""What templates that write the loops of attention themselves read from a function.

On GPUs the softmax of a row is computed while its keys come by (Milakov, Gimelshein 2018; Dao 2023): with the largest
score so far, the sum of exp(score - largest) and that of exp(score - largest) * value. A larger score rescales both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from autosched.codegen.lower.half import widened
from autosched.templates.attention_form import Attention, causal_shift, find_attention
from autosched.templates.classify import blocks_of, contraction, extents, is_injective, reduced, spatial
from autosched.templates.nests import INDEX, element_of, index, value_at
from autosched.tir import PrimFunc
from autosched.tir import expr as E
from autosched.tir.axis import IterVar
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.dtypes import item_bytes
from autosched.tir.expr import EQ, Add, Call, FloatImm, Max, PrimExpr, Select, Sub, as_int, const_int
from autosched.tir.inlined_size import too_large_to_inline
from autosched.tir.stmt import Block, BufferStore, Stmt

WIDE = "float32"  # of scores and sums
VECTOR_BYTES = 16  # of an access


@dataclass(frozen=True)
class Operand:
    """A matrix of a head as the function reads it: `rows` and `columns` are positions among `axes`."""

    load: BufferLoad
    axes: tuple[IterVar, ...]
    rows: int
    columns: int

    def at(self, head: Mapping[int, PrimExpr], row: PrimExpr, column: PrimExpr) -> PrimExpr:
        """The element; `head` gives the values of the other axes."""
        values = [head.get(n, index(0)) for n in range(len(self.axes))]
        values[self.rows], values[self.columns] = row, column
        return element_of(self.load, self.axes, values)

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements of a row lie side by side."""
        return self.load.indices[-1] is self.axes[self.columns].var

    def vector(self, columns: int) -> int:
        """The elements of a row that one access of 16 bytes takes; 1 where they are not at multiples of that."""
        wide = max(1, VECTOR_BYTES // item_bytes(self.load.buffer.dtype))
        while wide > 1 and (columns % wide or not self.is_contiguous):
            wide //= 2
        return wide


@dataclass(frozen=True)
class Flash:
    """Attention of `heads` (all images together) with M queries, T keys, D and E elements of a key and a value.

    shift   query i sees keys up to i + shift; None: all of them
    extents the sizes as expressions, with those of both axes of heads ("B", "H"). Where one of them comes with the
            call, `sizes` has a prime in its place: a usual size, which no tile divides
    """

    found: Attention
    blocks: Mapping[Buffer, Block]
    query: Operand
    key: Operand
    value: Operand
    out: Buffer
    head_axes: tuple[int, int]  # of the result, where the scores have theirs
    sizes: Mapping[str, int]
    shift: int | None
    extents: Mapping[str, PrimExpr]

    @property
    def heads(self) -> PrimExpr:
        """The number of heads, of all images together."""
        return E.mul(self.extents["B"], self.extents["H"])

    @property
    def is_open(self) -> bool:
        """Whether a size comes with the call."""
        return any(const_int(n) is None for n in self.extents.values())

    def tiles(self, name: str, each: int) -> PrimExpr:
        """How many tiles of so many queries ("M") or keys ("T") there are."""
        return E.floordiv(E.add(self.extents[name], index(each - 1)), index(each))

    def split_head(self, head: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
        """The first two indices of the scores."""
        inner = self.extents["H"]
        return E.floordiv(head, inner), E.floormod(head, inner)

    def of_scores(self, head: PrimExpr) -> dict[int, PrimExpr]:
        """The values of the scores' first axes."""
        return dict(enumerate(self.split_head(head)))

    def of_result(self, head: PrimExpr) -> dict[int, PrimExpr]:
        """The values of the result's axes that tell heads apart."""
        return dict(zip(self.head_axes, self.split_head(head), strict=True))

    def score(self, head: PrimExpr, row: PrimExpr, column: PrimExpr, product: BufferLoad) -> PrimExpr:
        """The argument of the softmax, for the product of a query with a key; in float32."""
        scores = self.found.scores.writes[0].buffer
        known = {scores: lambda _: E.cast(scores.dtype, product)}
        argument = self.found.before[-1].writes[0].buffer
        made = value_at(self.blocks, argument, (*self.split_head(head), row, column), known)
        return widened(made, {product.buffer})

    def power(self, head: PrimExpr, row: PrimExpr, column: PrimExpr, score: BufferLoad, top: BufferLoad) -> PrimExpr:
        """The weight of a key, for the argument of the softmax and the largest one of its row."""
        found = self.found
        known = {found.before[-1].writes[0].buffer: lambda _: score, found.softmax[0].writes[0].buffer: lambda _: top}
        power = found.softmax[1]
        blocks = {power.writes[0].buffer: power}
        return value_at(blocks, power.writes[0].buffer, (*self.split_head(head), row, column), known)

    def weight(self, head: PrimExpr, row: PrimExpr, column: PrimExpr, power: BufferLoad, total: BufferLoad) -> PrimExpr:
        """What a key's value is multiplied by, where that is made of all weights; in float32."""
        found = self.found
        assert found.weights is not None, "only such attention has it"
        buffer = found.weights.writes[0].buffer
        known = {found.softmax[1].writes[0].buffer: lambda _: power, found.softmax[2].writes[0].buffer: lambda _: total}
        made = value_at({buffer: found.weights}, buffer, (*self.split_head(head), row, column), known)
        return widened(made, {power.buffer, total.buffer})

    def result(
        self, head: PrimExpr, row: PrimExpr, column: PrimExpr, weighted: BufferLoad, total: BufferLoad
    ) -> tuple[PrimExpr, tuple[PrimExpr, ...]]:
        """(an element of the result, its indices), for the sums of weighted values and of weights."""
        values = self.of_result(head)
        values[self.found.rows], values[self.found.columns] = row, column
        indices = tuple(values[n] for n in range(4))
        sums = self.found.context.writes[0].buffer, self.found.softmax[2].writes[0].buffer
        known = {
            sums[0]: lambda _: E.cast(sums[0].dtype, weighted),
            sums[1]: lambda _: E.cast(sums[1].dtype, total),
        }
        made = widened(value_at(self.blocks, self.out, indices, known), {weighted.buffer, total.buffer})
        shape = [b.dtype for b in self.out.shape]
        return E.cast(self.out.dtype, made), tuple(E.cast(t, i) for t, i in zip(shape, indices, strict=True))

    @property
    def dtype(self) -> str:
        """The type of the result."""
        return self.out.dtype

    def last_key(self, last_row: PrimExpr) -> PrimExpr:
        """The last key that a query sees, where the mask is causal."""
        return E.add(last_row, index(self.shift or 0))

    def key_tiles(self, last_row: PrimExpr, keys: int) -> PrimExpr:
        """How many tiles of so many keys the queries up to a row see; below 1 where they see none."""
        whole = self.tiles("T", keys)
        if self.shift is None:
            return whole
        seen = E.floordiv(E.add(self.last_key(last_row), keys), index(keys))
        return E.minimum(whole, seen)


def find_flash(func: PrimFunc, stand_ins: Mapping[str, int] | None = None) -> Flash | None:
    """Attention of one type whose softmax can be computed as the keys come by; None for any other function.

    stand_ins   numbers for those of the sizes B, H, M and T that come with the call; without, all are known
    """
    flash = find_parts(func, stand_ins, shares_heads=True)
    if flash is not None and flash.found.weights is not None:
        return None
    return (
        flash if flash is not None and {b.dtype for b in func.buffers if b.dtype != "bool"} == {flash.dtype} else None
    )


def find_parts(func: PrimFunc, stand_ins: Mapping[str, int] | None = None, shares_heads: bool = False) -> Flash | None:
    """Attention with what is element-wise in it written out, see `find_flash`; None for any other function."""
    found = find_attention(func, shares_heads)
    if found is None or not _is_softmax(found) or too_large_to_inline(blocks_of(func)):
        return None
    outputs = [b for b in func.buffers if any(w.buffer is b for x in blocks_of(func) for w in x.writes)]
    last = found.chain.after[-1] if found.chain.after else found.context
    if outputs != [last.writes[0].buffer] or not all(is_injective(b) for b in (*found.before, *found.chain.after)):
        return None
    scores, context = contraction(found.scores), contraction(found.context)
    if scores is None or context is None:
        return None
    query = scores.a if scores.b is found.key else scores.b
    power = (found.weights or found.softmax[1]).writes[0].buffer
    weights, values = (context.a, context.b) if context.a.buffer is power else (context.b, context.a)
    out_axes = [iv.var for iv in spatial(found.context)]
    heads = tuple(next((n for n, v in enumerate(out_axes) if v is i), -1) for i in weights.indices[:2])
    if -1 in heads or len(query.indices) != 4 or len(values.indices) != 4:
        return None
    score_axes = (*spatial(found.scores), *reduced(found.scores))
    value_axes = (*spatial(found.context), *reduced(found.context))
    axes = dict(zip("BHMT", spatial(found.scores), strict=True))
    if stand_ins is not None and any(const_int(iv.dom.extent) is None for iv in _elements(found)):
        return None
    b, h, m, t = (_size(iv, (stand_ins or {}).get(name)) for name, iv in axes.items())
    d, e = extents(_elements(found))
    return Flash(
        found, {x.writes[0].buffer: x for x in (*found.before, *found.chain.after)}, Operand(query, score_axes, 2, 4),
        Operand(found.key, score_axes, 3, 4), Operand(values, value_axes, 4, found.columns), outputs[0],
        (heads[0], heads[1]), {"heads": b * h, "M": m, "T": t, "D": d, "E": e}, causal_shift(found.before[-1]),
        {name: E.cast(INDEX, iv.dom.extent) for name, iv in axes.items()},
    )  # fmt: skip


def _elements(found: Attention) -> tuple[IterVar, IterVar]:
    """The axes of the elements of a key and of a value."""
    return reduced(found.scores)[0], spatial(found.context)[found.columns]


def _size(axis: IterVar, stand_in: int | None) -> int:
    """The extent of an axis, or what stands for one that is open."""
    known = const_int(axis.dom.extent)
    return stand_in if known is None and stand_in is not None else as_int(axis.dom.extent)


def _is_softmax(found: Attention) -> bool:
    """Whether the three blocks are largest = max(x), power = exp(x - largest) and total = sum(power)."""
    largest, power, total = (_stored(b) for b in found.softmax)
    if largest is None or power is None or total is None:
        return False
    argument = found.before[-1].writes[0].buffer
    made = [b.writes[0].buffer for b in found.softmax]
    value = power.value
    return (
        _combines(largest, Max, argument)
        and _combines(total, Add, made[1])
        and isinstance(value, Call)
        and value.op in ("exp", "tir.exp")
        and isinstance(value.args[0], Sub)
        and _reads(value.args[0].a, argument)
        and is_largest_or_zero(value.args[0].b, made[0])
    )


def is_largest_or_zero(e: PrimExpr, largest: Buffer) -> bool:
    """Whether this is the largest score, or 0 where that is -inf, as in `safe`."""
    if isinstance(e, Select) and isinstance(e.condition, EQ):
        low, zero = e.condition.b, e.true_value
        is_safe = isinstance(low, FloatImm) and low.value == -math.inf and isinstance(zero, FloatImm) and not zero.value
        return is_safe and _reads(e.condition.a, largest) and _reads(e.false_value, largest)
    return _reads(e, largest)


def _stored(block: Block) -> BufferStore | None:
    return block.body if isinstance(block.body, BufferStore) else None


def _combines(store: BufferStore, kind: type[Max] | type[Add], source: Buffer) -> bool:
    value = store.value
    if not isinstance(value, kind):
        return False
    return any(_reads(x, store.buffer) and _reads(y, source) for x, y in ((value.a, value.b), (value.b, value.a)))


def _reads(e: PrimExpr, buffer: Buffer) -> bool:
    return isinstance(e, BufferLoad) and e.buffer is buffer


def fill(
    operand: Operand, head: Mapping[int, PrimExpr], first: PrimExpr, limits: tuple[PrimExpr | int, int]
) -> Callable[[PrimExpr, PrimExpr], PrimExpr]:
    """The elements of an operand from a row on, 0 outside of `limits` (rows, columns); in the operand's type."""
    zero = E.const(0.0, operand.load.buffer.dtype)
    end = index(limits[0]) if isinstance(limits[0], int) else limits[0]

    def element(row: PrimExpr, column: PrimExpr) -> PrimExpr:
        whole = E.add(first, row)
        inside = E.all_of(E.compare(E.LT, whole, end), E.compare(E.LT, column, index(limits[1])))
        load = operand.at(head, whole, column)
        return Call("if_then_else", (inside, load, zero), zero.dtype)

    return element


def seen(flash: Flash, column: PrimExpr, score: PrimExpr, keys: int) -> PrimExpr:
    """The score of a key, -inf where there is none: tiles of `keys` may reach beyond the last."""
    if flash.sizes["T"] % keys == 0:
        return score
    hidden = E.const(float("-inf"), WIDE)
    return E.Select(E.compare(E.LT, column, flash.extents["T"]), score, hidden)


def safe(largest: PrimExpr) -> PrimExpr:
    """What is taken off scores: the largest, but 0 where all so far are -inf, whose powers are then 0."""
    lowest = E.const(float("-inf"), WIDE)
    return E.Select(E.compare(E.EQ, largest, lowest), E.const(0.0, WIDE), largest)


def padded(size: int, step: int) -> int:
    """The next multiple."""
    return -(-size // step) * step


# Statements of one element.


def element(buffer: Buffer, *at: PrimExpr) -> BufferLoad:
    return BufferLoad(buffer, at)


def wide(buffer: Buffer, *at: PrimExpr) -> PrimExpr:
    """An element as the type of sums."""
    return E.cast(WIDE, BufferLoad(buffer, at))


def assign(buffer: Buffer, at: tuple[PrimExpr, ...], value: PrimExpr) -> Stmt:
    return BufferStore(buffer, value, at)


def add_to(buffer: Buffer, at: tuple[PrimExpr, ...], value: PrimExpr) -> Stmt:
    return BufferStore(buffer, E.add(BufferLoad(buffer, at), value), at)


def zero() -> PrimExpr:
    """Of the type of sums."""
    return E.const(0.0, WIDE)

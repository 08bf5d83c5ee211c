"""Products with weights of a few bits, as templates read them from a function: see `topi.nbits`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from autosched.codegen.lower.half import HALVES
from autosched.templates.accuracy import is_strict
from autosched.templates.chain import Chain, chain_around
from autosched.templates.classify import blocks_of, is_injective, is_reduction, reduced, spatial
from autosched.tir import Block, Buffer, BufferLoad, BufferStore, PrimFunc, as_int
from autosched.tir import expr as E
from autosched.tir.functor import loads, rewrite
from autosched.topi.nbits import ACTIVATION_BITS, WORD_BITS

GROUP_SUMS, DEQUANTIZED = "group_sums", "dequantized"
WORD_BYTES = 4


@dataclass(frozen=True)
class NBits:
    """chain: before the product the group sums or the dequantised weight; factors: zero points, if any, and scales.

    activation_bits  to which the data may be rounded; 32: they stay as they are
    """

    chain: Chain
    x: Buffer
    weight: Buffer
    factors: tuple[Buffer, ...]
    per_word: int
    activation_bits: int = WORD_BITS

    @property
    def has_few_rows(self) -> bool:
        """Whether groups are summed up by themselves."""
        return self.chain.before[0].name_hint == GROUP_SUMS

    @property
    def bits(self) -> int:
        """Of an integer."""
        return 8 * WORD_BYTES // self.per_word


def with_narrow_weight(func: PrimFunc) -> PrimFunc:
    """The function with the dequantised weight in the data's type, if that is a half; any other as it is.

    Tensor cores then multiply both. The weight has 11 bits of a float16, or 8 of a bfloat16, as the data have. What
    asks for strict accuracy keeps it.
    """
    found = None if is_strict(func) else find_nbits(func)
    if found is None or found.chain.before[0].name_hint != DEQUANTIZED or found.x.dtype not in HALVES:
        return func
    wide = found.chain.before[0].writes[0].buffer
    narrow = replace(wide, dtype=found.x.dtype)

    def step(x: object) -> object:
        if x is wide:
            return narrow
        if isinstance(x, BufferStore) and x.buffer is narrow:
            return replace(x, value=E.cast(narrow.dtype, x.value))
        return E.cast(wide.dtype, x) if isinstance(x, BufferLoad) and x.buffer is narrow else x

    return func.with_body(rewrite(func.body, step))


def find_nbits(func: PrimFunc) -> NBits | None:
    """The parts of such a product, found by the block that unpacks words of 32 bits; None for other functions."""
    blocks = blocks_of(func)
    if len(blocks) < 2 or blocks[0].name_hint not in (GROUP_SUMS, DEQUANTIZED) or not is_reduction(blocks[1]):
        return None
    unpacks, anchor = blocks[0], blocks[1]
    if is_injective(unpacks) != (unpacks.name_hint == DEQUANTIZED) or len(spatial(anchor)) != 2:
        return None
    chain = chain_around(func, anchor)
    words = {x.buffer for x in _reads(unpacks) if x.buffer.dtype == "uint32"}
    if chain is None or len(reduced(anchor)) != 1 or len(words) != 1:
        return None
    (weight,) = words
    factors = _factors(unpacks, anchor, weight)
    depth = _depth(unpacks, anchor)
    if not all(any(b is x for x in func.buffers) for b in (weight, *factors)):
        return None
    others = (x.buffer for x in _reads(anchor if unpacks.name_hint == DEQUANTIZED else unpacks))
    x = next(b for b in others if b not in (weight, *factors, *(w.buffer for k in (unpacks, anchor) for w in k.writes)))
    activation_bits = int(anchor.annotations.get(ACTIVATION_BITS, WORD_BITS))
    return NBits(chain, x, weight, factors, depth // weight.const_shape()[1], activation_bits)


def _factors(unpacks: Block, anchor: Block, weight: Buffer) -> tuple[Buffer, ...]:
    """Scales and zero points: two-dimensional, a row for each of the weight's."""
    found: dict[Buffer, None] = {}
    n = weight.const_shape()[0]
    written = unpacks.writes[0].buffer
    for block in (unpacks, anchor):
        column = spatial(block)[0 if block.name_hint == DEQUANTIZED else 1].var
        for x in _reads(block):
            own = x.buffer not in (weight, written, anchor.writes[0].buffer)
            if own and len(x.indices) == 2 and x.indices[0] is column and x.buffer.const_shape()[0] == n:
                found[x.buffer] = None
    return tuple(found)


def _reads(block: Block) -> list[BufferLoad]:
    return list(loads(block.body.value)) if isinstance(block.body, BufferStore) else []


def _depth(unpacks: Block, anchor: Block) -> int:
    if unpacks.name_hint == DEQUANTIZED:
        return as_int(spatial(unpacks)[1].dom.extent)
    return as_int(reduced(unpacks)[0].dom.extent) * as_int(reduced(anchor)[0].dom.extent)

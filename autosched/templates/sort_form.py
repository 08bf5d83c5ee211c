"""How sorting is found: the blocks by which `topi.sort` counts the places of elements, whatever is around them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from autosched import te
from autosched.ir.node import FrozenDict, preorder
from autosched.ir.structural import structural_equal
from autosched.templates.classify import blocks_of, extents, is_injective, is_reduction, reduced, spatial
from autosched.templates.core_nests import uncast
from autosched.templates.lines import Lines, lines_of
from autosched.tir import Block, PrimFunc, Var
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import IntImm, PrimExpr, const_int
from autosched.tir.function import make_root
from autosched.tir.functor import loads
from autosched.tir.stmt import BufferStore, SeqStmt, Stmt, seq
from autosched.topi.sort import argsort


@dataclass(frozen=True)
class SortForm:
    """The first positions of the elements of each line in order.

    ranks, order  the two blocks that compute them
    keys          what is sorted
    count         how many are wanted; None: all of a line whose length comes with the call
    """

    ranks: Block
    order: Block
    keys: Buffer
    lines: Lines
    descending: bool
    count: int | None

    @property
    def n_wanted(self) -> int:
        """How many are wanted of a line as long as `Lines.length`."""
        return self.lines.length if self.count is None else self.count


def find_open_sort(func: PrimFunc, indices: str) -> SortForm | None:
    """The one sort of a function over symbols; None where there is none, or several.

    indices  the dtype of positions in its lines
    """
    found: list[SortForm] = []
    for ranks, order, key, made, nests in _candidates(func):
        shape, sizes = (tuple(iv.dom.extent for iv in spatial(block)) for block in (ranks, order))
        if not structural_equal(tuple(key.shape), shape):
            continue
        x = te.placeholder(list(key.shape), dtype=key.dtype, name="x")
        override = dtype if (dtype := reduced(ranks)[0].dom.min.dtype) == "int64" else None
        for axis, size in enumerate(sizes):
            count = const_int(size)
            if count is None and not structural_equal(size, shape[axis]):
                continue
            for descending in (False, True):
                wanted = argsort(x, axis, descending, made.dtype, count)
                form = te.create_prim_func([x, wanted], index_dtype_override=override)
                if _is_form(form, key, made, order.writes[0].buffer, nests):
                    found.append(SortForm(ranks, order, key, lines_of(shape, axis, indices), descending, count))
                    break
    return found[0] if len(found) == 1 else None


def find_sort(func: PrimFunc) -> SortForm | None:
    """The one sort of a function; None where there is none, or several."""
    found = list(_sorts(func))
    return found[0] if len(found) == 1 else None


def _sorts(func: PrimFunc) -> Iterator[SortForm]:
    for ranks, order, key, made, nests in _candidates(func):
        if any(const_int(iv.dom.extent) is None for block in (ranks, order) for iv in block.iter_vars):
            continue
        shape, found = extents(spatial(ranks)), extents(spatial(order))
        if 0 in found or key.const_shape() != shape:
            continue
        indices, loops = key.shape[0].dtype, reduced(ranks)[0].dom.min.dtype
        for axis, size in enumerate(found):
            for descending in (False, True):
                form = _form(shape, indices, loops, key.dtype, axis, descending, made.dtype, size)
                if _is_form(form, key, made, order.writes[0].buffer, nests):
                    yield SortForm(ranks, order, key, Lines(shape, axis), descending, size)
                    break


def _candidates(func: PrimFunc) -> Iterator[tuple[Block, Block, Buffer, Buffer, list[Stmt]]]:
    """Pairs of blocks that may be a sort: (of the ranks, of the order, what is sorted, the ranks, their nests)."""
    blocks = blocks_of(func)
    for ranks, order in zip(blocks, blocks[1:], strict=False):
        if not all(
            is_reduction(b) and len(reduced(b)) == 1 and isinstance(b.body, BufferStore) for b in (ranks, order)
        ):
            continue
        made = ranks.writes[0].buffer
        keys = {x.buffer for x in loads(ranks.body.value) if x.buffer is not made}  # type: ignore[attr-defined]
        if len(keys) != 1 or len(spatial(ranks)) != len(spatial(order)) or made in func.buffers:
            continue
        (key,) = keys
        nests = [_nest(func, b) for b in (ranks, order)]
        if nests[0] is not nests[1] and None not in nests:
            yield ranks, order, key, made, [n for n in nests if n is not None]


@lru_cache(maxsize=64)
def _form(
    shape: tuple[int, ...], indices: str, loops: str, dtype: str, axis: int, descending: bool, places: str, count: int
) -> PrimFunc:
    """What a sort looks like, with sizes of type `indices`, and all loops of type int64 where `loops` is that."""
    x = te.placeholder([IntImm(n, indices) for n in shape], dtype=dtype, name="x")
    override = loops if loops == "int64" else None
    return te.create_prim_func([x, argsort(x, axis, descending, places, count)], index_dtype_override=override)


def _is_form(form: PrimFunc, keys: Buffer, ranks: Buffer, order: Buffer, nests: Sequence[Stmt]) -> bool:
    handles = tuple(Var(b.name, "handle") for b in (keys, order))
    buffers = FrozenDict(zip(handles, (keys, order), strict=True))
    body = make_root(seq(*nests), (ranks,))
    return structural_equal(dataclasses.replace(form, params=handles, buffer_map=buffers, body=body), form)


def _nest(func: PrimFunc, block: Block) -> Stmt | None:
    """The loops around a block."""
    body = func.root.body
    parts = body.seq if isinstance(body, SeqStmt) else (body,)
    return next((n for n in parts if any(x is block for x in preorder(n))), None)


def sorted_values(form: SortForm, blocks: Sequence[Block]) -> Block | None:
    """The block that takes the elements at the positions, if nothing else is done to them."""
    for block in blocks:
        if not is_injective(block) or not structural_equal(_extents(block), _extents(form.order)):
            continue
        assert isinstance(block.body, BufferStore)
        if is_sorted_key(form, block.body.value, [iv.var for iv in block.iter_vars]):
            return block
    return None


def _extents(block: Block) -> tuple[PrimExpr, ...]:
    return tuple(iv.dom.extent for iv in spatial(block))


def is_sorted_key(form: SortForm, value: PrimExpr, axes: Sequence[Var]) -> bool:
    """Whether a value is the key whose position stands at an element of the order."""
    if not isinstance(value, BufferLoad) or value.buffer is not form.keys or len(axes) != len(value.indices):
        return False
    order = form.order.writes[0].buffer
    places = enumerate(zip(value.indices, axes, strict=True))
    return all(_is_at(i, v, order, axes) if d == form.lines.axis else i is v for d, (i, v) in places)


def _is_at(e: PrimExpr, var: Var, order: Buffer, axes: Sequence[Var]) -> bool:
    """Whether an index is the position of the element in order."""
    e = uncast(e)
    return isinstance(e, BufferLoad) and e.buffer is order and all(i is v for i, v in zip(e.indices, axes, strict=True))

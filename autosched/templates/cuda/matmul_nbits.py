"""Few rows times integers of a few bits: out[m, n] += (a[m, k] * (integer[n, k] - zero)) * scale[n, group].

The time is that of the weight's bytes. A warp takes some columns, and its lanes their words side by side, which they
unpack in registers; what a lane reads of `a` for a word serves all columns:

    for columns in blockIdx.x, threadIdx.y:
        for step: for word in threadIdx.x:
            for m, n: sums[m, n] = 0; for integer in word: sums[m, n] += a[m, k] * (integer - zero)
            for m, n: tile[m, n] += sums[m, n] * scale
        out = epilogue(tile summed up over lanes)
"""

from __future__ import annotations

from collections.abc import Sequence

from autosched.ir.node import preorder
from autosched.space import Config, ConfigSpace
from autosched.target import Target
from autosched.templates.base import Anchor, Applied
from autosched.templates.chain import Chain, schedule_epilogue
from autosched.templates.classify import spatial
from autosched.templates.cuda.product_form import block_axes, block_nest
from autosched.templates.cuda.spaces import device_space
from autosched.templates.cuda.threads import BLOCK_X, THREAD_X, THREAD_Y, VECTOR_BYTES, dividing, read_index
from autosched.templates.nbits_form import NBits, find_nbits
from autosched.templates.nests import index
from autosched.tir import PrimFunc, as_int
from autosched.tir import expr as E
from autosched.tir.axis import REDUCE, IterVar
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.dtypes import item_bytes
from autosched.tir.expr import PrimExpr, Var
from autosched.tir.function import make_root
from autosched.tir.schedule import LoopRV, Schedule
from autosched.tir.stmt import BufferStore, SeqStmt, Stmt, seq
from autosched.topi.nbits import field

WORD_SUMS = "word_sums"
WARPS = 4  # of a block
MOST_RESULTS = 16  # of a warp, each a register of every lane


class MatmulNBits:
    """Floats times integers in groups, of few rows: the form that sums up groups by themselves."""

    name = "matmul_nbits"

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        found = find_nbits(func)
        if found is None or not found.has_few_rows:
            return None
        m, n = (as_int(iv.dom.extent) for iv in spatial(found.chain.anchor))
        sizes = {"M": m, "N": n, "words": found.weight.const_shape()[1]}
        return Anchor(found.chain.anchor.name_hint, "matmul_nbits", sizes, found)

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        return device_space(self, anchor, target, most_results=MOST_RESULTS)

    def default(self, anchor: Anchor, target: Target) -> Config:
        """As many columns as registers allow, while every SM has two blocks."""
        m, n = anchor.sizes["M"], anchor.sizes["N"]
        columns = 4
        while columns > 1 and (columns * m > MOST_RESULTS or n < 2 * columns * WARPS * target.gpu.sm_count):
            columns //= 2
        return Config(self.name, {"columns": columns, "warps": WARPS})

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        found = find_nbits(func)
        assert found is not None, "apply is called on a function that matched"
        n, warp = found.weight.const_shape()[0], target.gpu.warp_size
        columns = dividing(config["columns"], n)
        warps = dividing(config["warps"], n // columns)
        sch = Schedule(_by_words(func, found))
        anchor = found.chain.anchor.name_hint
        out = schedule_epilogue(sch, Chain((), found.chain.anchor, found.chain.after))
        row, column = sch.get_loops(out)
        group, of_warp, column = sch.split(column, [None, warps, columns])
        sch.reorder(group, of_warp, row, column)
        sch.bind(group, BLOCK_X)
        sch.bind(of_warp, THREAD_Y)
        sch.compute_at(anchor, of_warp, preserve_unit_loops=True)
        *_, row, column, word = sch.get_loops(anchor)
        step, lane = sch.split(word, [None, warp])
        sch.bind(lane, THREAD_X)
        sch.reorder(step, lane, row, column)
        _unrolled(sch, row, column)
        sch.set_scope(WORD_SUMS, 0, "local")
        sch.compute_at(WORD_SUMS, lane, preserve_unit_loops=True)
        _copy_rows(sch, found, lane)
        *_, row, column, _one, integer = sch.get_loops(WORD_SUMS)
        _unrolled(sch, row, column, integer)
        _unrolled(sch, *sch.get_loops(out)[-2:])
        sch.bind(sch.add_unit_loop(sch.get_block(out)), THREAD_X)
        return Applied(sch.func, (None,) * len(func.params), sch.trace.to_json_text())


def _unrolled(sch: Schedule, *loops: LoopRV) -> None:
    for loop in loops:
        sch.unroll(loop)


def _copy_rows(sch: Schedule, found: NBits, lane: LoopRV) -> None:
    """Read the numbers that a word is multiplied by in whole vectors."""
    copy = sch.cache_read(WORD_SUMS, read_index(sch, WORD_SUMS, found.x.name), "local")
    sch.compute_at(copy, lane, preserve_unit_loops=True)
    row, number = sch.get_loops(copy)[-2:]
    vector = min(found.per_word, VECTOR_BYTES // item_bytes(found.x.dtype))
    far, near = sch.split(number, [None, vector])
    _unrolled(sch, row, far)
    sch.vectorize(near)


def _by_words(func: PrimFunc, found: NBits) -> PrimFunc:
    """The function with sums of words in place of those of groups, which are multiplied by their group's scale."""
    sums, product = found.chain.before[0], found.chain.anchor
    total = product.writes[0].buffer
    m, n = total.const_shape()
    words = found.weight.const_shape()[1]
    scales = next(b for b in found.factors if any(r.buffer is b for r in product.reads))
    zeros = [b for b in found.factors if b is not scales]
    words_in_group = words // scales.const_shape()[1]
    partial = Buffer(WORD_SUMS, tuple(map(index, (m, n, words))), "float32")

    def factor(buffer: Buffer, column: PrimExpr, word: PrimExpr) -> PrimExpr:
        return E.cast("float32", BufferLoad(buffer, (column, E.floordiv(word, index(words_in_group)))))

    i, j, w = block_axes("i j w", list(map(index, (m, n, words))))
    (q,) = block_axes("q", [index(found.per_word)], REDUCE)
    zero = factor(zeros[0], j.var, w.var) if zeros else E.const(float(1 << found.bits - 1), "float32")
    number = E.cast("float32", BufferLoad(found.x, (i.var, E.add(E.mul(w.var, index(found.per_word)), q.var))))
    integer = field(BufferLoad(found.weight, (j.var, w.var)), q.var, found.bits)
    first = _sum(WORD_SUMS, partial, [i, j, w], q, E.mul(number, E.sub(integer, zero)))
    i, j = block_axes("i j", list(map(index, (m, n))))
    (w,) = block_axes("w", [index(words)], REDUCE)
    term = E.mul(BufferLoad(partial, (i.var, j.var, w.var)), factor(scales, j.var, w.var))
    second = _sum(product.name_hint, total, [i, j], w, term)
    root = func.root
    nests: list[Stmt] = []
    for nest in root.body.seq if isinstance(root.body, SeqStmt) else (root.body,):
        inside = {id(x) for x in preorder(nest)}
        made = first if id(sums) in inside else second if id(product) in inside else nest
        nests.append(made)
    buffers = tuple(b for b in root.alloc_buffers if b is not sums.writes[0].buffer)
    return func.with_body(make_root(seq(*nests), (*buffers, partial), root.annotations))


def _sum(name: str, buffer: Buffer, axes: Sequence[IterVar], axis: IterVar, term: PrimExpr) -> Stmt:
    at: tuple[Var, ...] = tuple(iv.var for iv in axes)
    body = BufferStore(buffer, E.add(BufferLoad(buffer, at), term), at)
    return block_nest(name, [*axes, axis], body, BufferStore(buffer, E.const(0.0, "float32"), at))

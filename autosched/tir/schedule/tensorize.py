"""tensorize: a loop nest that computes what a TensorIntrin describes is replaced by the intrinsic's own form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from autosched.errors import ScheduleError
from autosched.ir.node import FrozenDict, preorder
from autosched.tir import expr as E
from autosched.tir.axis import REDUCE, Range
from autosched.tir.buffer import Buffer, BufferData, BufferLoad
from autosched.tir.expr import IntImm, PrimExpr, Var
from autosched.tir.function import PrimFunc
from autosched.tir.functor import free_vars, rewrite, substitute
from autosched.tir.schedule.blockize import blockize
from autosched.tir.schedule.place import where_block
from autosched.tir.schedule.tree import Tree
from autosched.tir.serialize import from_json, to_json
from autosched.tir.simplify import Analyzer
from autosched.tir.stmt import (
    Block,
    BlockRealize,
    BufferRegion,
    BufferStore,
    For,
    MatchBufferRegion,
    SeqStmt,
    Stmt,
)  # fmt: skip
from autosched.tir.tensor_intrin import TensorIntrin


class _Different(Exception):
    """The two computations are not the same; says where."""


def plain(stmt: Stmt) -> Stmt:
    """Loops and stores without blocks: iteration variables replaced by their bindings. Inits are left out."""

    def step(x: object) -> object:
        if isinstance(x, BlockRealize):
            values = {iv.var: v for iv, v in zip(x.block.iter_vars, x.iter_values, strict=True)}
            if not (isinstance(x.predicate, IntImm) and x.predicate.value):
                raise _Different("a block runs under a condition")
            return substitute(x.block.body, values)
        return x

    return rewrite(stmt, step)


class Matcher:
    """Compares a description with a nest, and finds where in the nest's buffers those of the description lie."""

    def __init__(self, analyzer: Analyzer):
        self.analyzer = analyzer
        self.vars: dict[Var, PrimExpr] = {}
        self.buffers: dict[Buffer, tuple[Buffer, tuple[PrimExpr, ...]]] = {}  # -> the nest's buffer, start of the tile

    def stmt(self, d: Stmt, m: Stmt) -> None:
        if type(d) is not type(m):
            raise _Different(f"a {type(m).__name__} stands where the intrinsic has a {type(d).__name__}")
        if isinstance(d, For) and isinstance(m, For):
            if E.const_int(d.extent) != E.const_int(m.extent) or E.const_int(d.extent) is None:
                raise _Different(f"loop '{m.loop_var.name}' has extent {m.extent}, the intrinsic's has {d.extent}")
            self.vars[d.loop_var] = m.loop_var
            self.stmt(d.body, m.body)
        elif isinstance(d, SeqStmt) and isinstance(m, SeqStmt):
            if len(d.seq) != len(m.seq):
                raise _Different(f"{len(m.seq)} statements stand where the intrinsic has {len(d.seq)}")
            for x, y in zip(d.seq, m.seq, strict=True):
                self.stmt(x, y)
        elif isinstance(d, BufferStore) and isinstance(m, BufferStore):
            self.access(d.buffer, d.indices, m.buffer, m.indices)
            self.expr(d.value, m.value)
        else:
            raise _Different(f"a {type(m).__name__} cannot be compared")

    def access(self, d: Buffer, at: tuple[PrimExpr, ...], m: Buffer, there: tuple[PrimExpr, ...]) -> None:
        """Both access the same element: `there` is `at`, moved by the tile's start."""
        if d.dtype != m.dtype:
            raise _Different(f"'{m.name}' is {m.dtype}, the intrinsic's '{d.name}' is {d.dtype}")
        if len(at) > len(there):
            raise _Different(f"'{m.name}' has fewer dimensions than the intrinsic's '{d.name}'")
        moved = [substitute(i, self.vars) for i in at]
        extra = len(there) - len(moved)
        start = []
        for k, index in enumerate(there):
            offset = index if k < extra else E.sub(index, E.cast(index.dtype, moved[k - extra]))
            start.append(self.analyzer.simplify(offset))
            if free_vars(start[-1]) & {v for v in self.vars.values() if isinstance(v, Var)}:
                raise _Different(f"'{m.name}' is read or written at other indices than the intrinsic's '{d.name}'")
        known = self.buffers.get(d)
        if known is None:
            self.buffers[d] = (m, tuple(start))
        elif known[0] is not m or any(
            E.const_int(self.analyzer.simplify(E.sub(a, b))) != 0 for a, b in zip(known[1], start, strict=True)
        ):
            raise _Different(f"the intrinsic's '{d.name}' would lie in two places")

    def expr(self, d: PrimExpr, m: PrimExpr) -> None:
        if isinstance(d, BufferLoad) and isinstance(m, BufferLoad):
            return self.access(d.buffer, d.indices, m.buffer, m.indices)
        if type(d) is not type(m) or d.dtype != m.dtype:
            raise _Different(f"'{m}' stands where the intrinsic has '{d}'")
        if isinstance(d, E.BinaryOp) and isinstance(m, E.BinaryOp):
            return self.operands(d, m)
        if isinstance(d, IntImm | E.FloatImm | E.StringImm):
            if d.value != m.value:  # type: ignore[attr-defined]
                raise _Different(f"'{m}' stands where the intrinsic has '{d}'")
            return None
        if isinstance(d, Var):
            same = self.vars.get(d) is m
            if not same:
                raise _Different(f"'{m}' stands where the intrinsic has '{d}'")
            return None
        if isinstance(d, E.Cast) and isinstance(m, E.Cast):
            return self.expr(d.value, m.value)
        if isinstance(d, E.Call) and isinstance(m, E.Call) and d.op == m.op and len(d.args) == len(m.args):
            for x, y in zip(d.args, m.args, strict=True):
                self.expr(x, y)
            return None
        if isinstance(d, E.Select) and isinstance(m, E.Select):
            for x, y in ((d.condition, m.condition), (d.true_value, m.true_value), (d.false_value, m.false_value)):
                self.expr(x, y)
            return None
        raise _Different(f"'{m}' stands where the intrinsic has '{d}'")

    def operands(self, d: E.BinaryOp, m: E.BinaryOp) -> None:
        """Both operands, in either order where the order does not matter."""
        saved = dict(self.buffers)
        try:
            self.expr(d.a, m.a)
            self.expr(d.b, m.b)
        except _Different:
            if not isinstance(d, E.Add | E.Mul | E.Min | E.Max):
                raise
            self.buffers = saved
            self.expr(d.a, m.b)
            self.expr(d.b, m.a)


def inner_init(stmt: Stmt) -> bool:
    """Whether a block below reduces from start values."""
    return any(isinstance(x, Block) and x.init is not None for x in preorder(stmt))


def tensorize(tree: Tree, place: Var | str, intrin: TensorIntrin, preserve_unit_iters: bool = True) -> tuple[Tree, str]:
    """Replace a loop (or block) and all below it by an intrinsic; returns the name of the block that holds it.

    Raises ScheduleError saying where the nest is not what the intrinsic computes.
    """
    name = place if isinstance(place, str) else ""
    if not name or not _is_outer(tree, name):
        tree, name = blockize(tree, place, preserve_unit_iters)
    realize = tree.realizes[name]
    block, where = realize.block, where_block(tree, name)
    desc_root = intrin.desc.root
    takes_start = inner_init(desc_root.body) or desc_root.init is not None
    if takes_start and block.init is None:
        raise ScheduleError("tensorize: the intrinsic sets start values, the block has none", where=where)
    if takes_start and any(
        iv.kind == REDUCE and E.const_int(v) is None for iv, v in zip(block.iter_vars, realize.iter_values, strict=True)
    ):
        raise ScheduleError(
            "tensorize: the intrinsic sets start values, but loops outside of it reduce as well", where=where,
            hint="reduce inside of the intrinsic only, or give one that continues a sum",
        )  # fmt: skip
    analyzer = Analyzer()
    for iv in block.iter_vars:
        analyzer.bind(iv.var, iv.dom)
    matcher = Matcher(analyzer)
    try:
        matcher.stmt(plain(desc_root.body), plain(block.body))
    except _Different as error:
        raise ScheduleError(f"tensorize: the nest is not what the intrinsic computes: {error}", where=where) from None
    new = _replaced(block, intrin, matcher, init=None if takes_start else block.init)
    return tree.replace(realize, replace(realize, block=new)), name


def _is_outer(tree: Tree, name: str) -> bool:
    return any(isinstance(x, BlockRealize) for x in preorder(tree.block(name).body))


def _replaced(block: Block, intrin: TensorIntrin, matcher: Matcher, init: Stmt | None) -> Block:
    impl = fresh(intrin.impl)
    matches, values = [], dict[Var, PrimExpr]()
    for d, buffer in zip(intrin.desc.buffers, impl.buffers, strict=True):
        if d not in matcher.buffers:
            raise ScheduleError(f"tensorize: the intrinsic does not use its own buffer '{d.name}'")
        source, start = matcher.buffers[d]
        extra = len(start) - len(d.shape)
        ranges = [Range(i, E.const(1, i.dtype)) for i in start[:extra]]
        ranges += [Range(i, E.cast(i.dtype, n)) for i, n in zip(start[extra:], d.shape, strict=True)]
        matches.append(MatchBufferRegion(buffer, BufferRegion(source, tuple(ranges))))
        values |= _layout_values(buffer, source, start)
    root = impl.root
    body = substitute(root.body, values) if values else root.body
    body = _with_pointers(body, {m.buffer: m.source for m in matches})
    return replace(
        block, body=body, init=init, match_buffers=tuple(matches), alloc_buffers=root.alloc_buffers,
        annotations=FrozenDict({**block.annotations, **root.annotations}),
    )  # fmt: skip


def _with_pointers(body: Stmt, places: Mapping[Buffer, BufferRegion]) -> Stmt:
    """Pointers into matched buffers as pointers into their sources: code from outside knows no second names."""

    def step(x: object) -> object:
        if not isinstance(x, E.Call) or x.op != "tvm_access_ptr" or not isinstance(x.args[1], BufferData):
            return x
        place = places.get(x.args[1].buffer)
        if place is None:
            return x
        at: PrimExpr = E.const(0, x.args[2].dtype)
        for r, stride in zip(place.region, _strides(place.buffer), strict=True):
            at = E.add(at, E.cast(at.dtype, E.mul(r.min, stride)))
        dtype, _, offset, extent, mask = x.args
        return E.Call(x.op, (dtype, place.buffer.data, E.add(at, offset), extent, mask), x.dtype)

    return rewrite(body, step)


def _strides(source: Buffer) -> list[PrimExpr]:
    """The strides of a buffer; of a row-major one from its shape."""
    if source.strides:
        return list(source.strides)
    found: list[PrimExpr] = []
    step: PrimExpr = E.const(1, source.shape[0].dtype if source.shape else "int32")
    for n in reversed(source.shape):
        found.insert(0, step)
        step = E.mul(step, n)
    return found


def _layout_values(buffer: Buffer, source: Buffer, start: tuple[PrimExpr, ...]) -> Mapping[Var, PrimExpr]:
    """What the variables in a matched buffer's strides and offset are for this source."""
    strides = _strides(source)
    found: dict[Var, PrimExpr] = {}
    for var, stride in zip(buffer.strides, strides[len(strides) - len(buffer.shape) :], strict=False):
        if isinstance(var, Var):
            found[var] = E.cast(var.dtype, stride)
    if isinstance(buffer.elem_offset, Var):
        at: PrimExpr = E.const(0, buffer.elem_offset.dtype)
        for i, stride in zip(start, strides, strict=True):
            at = E.add(at, E.cast(buffer.elem_offset.dtype, E.mul(i, stride)))
        found[buffer.elem_offset] = at
    return found


def fresh(func: PrimFunc) -> PrimFunc:
    """A copy whose variables and buffers are new: a function may be put into another twice."""
    copy = from_json(to_json(func))
    assert isinstance(copy, PrimFunc)
    return copy

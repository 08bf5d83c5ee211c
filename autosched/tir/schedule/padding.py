"""pad_einsum and decompose_padding: room around data, and its parts one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autosched.errors import ScheduleError
from autosched.tir import expr as E
from autosched.tir.access import point
from autosched.tir.axis import SPATIAL, IterVar, Range
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import IntImm, PrimExpr, Var
from autosched.tir.functor import free_vars, loads, replace_buffers, rewrite, substitute
from autosched.tir.schedule.check import require_complete, require_reduction
from autosched.tir.schedule.inline import with_regions
from autosched.tir.schedule.place import where_block
from autosched.tir.schedule.reindex import fresh_vars, insert_beside, nest_over
from autosched.tir.schedule.tree import Tree, realizes_below
from autosched.tir.simplify import Analyzer, split_conditions
from autosched.tir.stmt import Block, BlockRealize, BufferStore, For, LoopKind, Stmt, seq


def pad_einsum(tree: Tree, name: str, padding: Sequence[int]) -> Tree:
    """Let each iteration variable of a sum of products run to a multiple of a number; what is added is zero.

    The inputs are copied into larger buffers `A_pad`, the result is computed in `C_pad` and copied back.
    """
    require_reduction(tree, name, "pad_einsum")
    realize, where = tree.realizes[name], where_block(tree, name)
    block = realize.block
    if len(padding) != len(block.iter_vars):
        raise ScheduleError(f"pad_einsum: {len(padding)} numbers for {len(block.iter_vars)} variables", where=where)
    if any(p < 1 for p in padding):
        raise ScheduleError("pad_einsum: a padding must be at least 1", where=where)
    _require_einsum(tree, name)
    shared = next((x for x in tree.loops_of(name) if sum(1 for _ in realizes_below(x)) > 1), None)
    if shared is not None:
        raise ScheduleError(f"pad_einsum: loop '{shared.loop_var.name}' is around other blocks as well", where=where)
    sizes: dict[Var, int] = {}
    loops = {x.loop_var: x for x in tree.loops_of(name)}
    for iv, value, multiple in zip(block.iter_vars, realize.iter_values, padding, strict=True):
        extent = E.const_int(iv.dom.extent)
        loop = loops.get(value) if isinstance(value, Var) else None
        if extent is None or E.const_int(iv.dom.min) != 0 or loop is None or E.const_int(loop.extent) != extent:
            raise ScheduleError(
                f"pad_einsum: '{iv.var.name}' is not bound to a whole loop of constant extent", where=where,
                hint="pad before the loops are split",
            )  # fmt: skip
        sizes[iv.var] = -(-extent // multiple) * multiple
    old_sizes = {iv.var: E.as_int(iv.dom.extent) for iv in block.iter_vars}
    if sizes == old_sizes:
        return tree
    (write,) = block.writes
    update = block.body
    assert isinstance(update, BufferStore)
    new_buffers: dict[Buffer, Buffer] = {}
    ahead: list[Stmt] = []
    reads: dict[Buffer, BufferLoad] = {x.buffer: x for x in loads(update.value) if x.buffer is not write.buffer}
    for load in reads.values():
        padded = _padded_shape(load.buffer, load.indices, sizes)
        if padded is not None:
            new = Buffer(tree.unique_buffer_name(f"{load.buffer.name}_pad"), padded, load.buffer.dtype)
            new_buffers[load.buffer] = new
            ahead.append(_padding_nest(tree, load.buffer, new))
    behind: Stmt | None = None
    out_shape = _padded_shape(write.buffer, update.indices, sizes)
    if out_shape is not None:
        new = Buffer(tree.unique_buffer_name(f"{write.buffer.name}_pad"), out_shape, write.buffer.dtype)
        new_buffers[write.buffer] = new
        behind = _cropping_nest(tree, new, write.buffer)
    iter_vars = tuple(
        replace(iv, dom=Range(iv.dom.min, E.const(sizes[iv.var], iv.var.dtype))) for iv in block.iter_vars
    )
    changed = replace(replace_buffers(block, new_buffers), iter_vars=iter_vars)
    tree = tree.replace(realize, replace(realize, block=with_regions(changed)))
    for iv, value in zip(block.iter_vars, realize.iter_values, strict=True):
        assert isinstance(value, Var)
        loop = tree.loops[value]
        tree = tree.replace(loop, replace(loop, extent=E.const(sizes[iv.var], value.dtype)))
    for nest in ahead:
        tree = insert_beside(tree, name, nest, after=False)
    if behind is not None:
        tree = insert_beside(tree, name, behind, after=True)
    return tree.add_buffers(*new_buffers.values())


def _require_einsum(tree: Tree, name: str) -> None:
    block, where = tree.block(name), where_block(tree, name)
    store, init = block.body, block.init
    if not isinstance(store, BufferStore) or not isinstance(store.value, E.Add) or not isinstance(init, BufferStore):
        raise ScheduleError(f"pad_einsum: block '{name}' is no sum", where=where)
    if not isinstance(init.value, IntImm | E.FloatImm) or init.value.value != 0:
        raise ScheduleError(f"pad_einsum: the sum of block '{name}' does not start at zero", where=where)
    own = {iv.var for iv in block.iter_vars}
    accesses: list[BufferStore | BufferLoad] = [store, *loads(store.value)]
    for x in accesses:
        plain = [i for i in x.indices if isinstance(i, Var) and i in own]
        if len(plain) != len(x.indices) or len(set(plain)) != len(plain):
            raise ScheduleError(
                f"pad_einsum: '{x.buffer.name}' is used at other indices than distinct variables of the block",
                where=where,
            )
    terms = [x for x in (store.value.a, store.value.b) if not _is_load(x, store.buffer)]
    reduced = {iv.var for iv in block.iter_vars if iv.kind != SPATIAL}
    if len(terms) != 1 or not _vanishes(terms[0], reduced):
        raise ScheduleError(f"pad_einsum: what block '{name}' sums up is no product of its inputs", where=where)


def _is_load(x: PrimExpr, buffer: Buffer) -> bool:
    return isinstance(x, BufferLoad) and x.buffer is buffer


def _vanishes(x: PrimExpr, reduced: set[Var]) -> bool:
    """Whether a term is zero wherever a reduced variable is past its end: a factor per variable reads zeros there."""

    def factors(y: PrimExpr) -> list[PrimExpr]:
        if isinstance(y, E.Mul):
            return [*factors(y.a), *factors(y.b)]
        return factors(y.value) if isinstance(y, E.Cast) else [y]

    parts = factors(x)
    covered = {v for p in parts if isinstance(p, BufferLoad) for i in p.indices for v in free_vars(i)}
    return all(isinstance(p, BufferLoad | IntImm | E.FloatImm) for p in parts) and reduced <= covered


def _padded_shape(buffer: Buffer, indices: Sequence[PrimExpr], sizes: dict[Var, int]) -> tuple[PrimExpr, ...] | None:
    shape = tuple(E.const(sizes[i], n.dtype) for i, n in zip(indices, buffer.shape, strict=True) if isinstance(i, Var))
    same = all(E.const_int(a) == E.const_int(b) for a, b in zip(shape, buffer.shape, strict=True))
    return None if same else shape


def _over(buffer: Buffer) -> list[IterVar]:
    return [IterVar(Range(IntImm(0, n.dtype), n), Var(f"v{i}", n.dtype), SPATIAL) for i, n in enumerate(buffer.shape)]


def _padding_nest(tree: Tree, source: Buffer, target: Buffer) -> Stmt:
    new = _over(target)
    at = tuple(iv.var for iv in new)
    inside = E.all_of(*(
        E.compare(E.LT, v, n) for v, n, m in zip(at, source.shape, target.shape, strict=True)
        if E.const_int(n) != E.const_int(m)
    ))  # fmt: skip
    value = E.if_then_else(inside, BufferLoad(source, at), E.const(0, source.dtype))
    block = Block(
        iter_vars=tuple(new), alloc_buffers=(), reads=(point(source, at),), writes=(point(target, at),),
        name_hint=tree.unique_block_name(target.name), body=BufferStore(target, value, at),
    )  # fmt: skip
    return nest_over(new, block)


def _cropping_nest(tree: Tree, source: Buffer, target: Buffer) -> Stmt:
    new = _over(target)
    at = tuple(iv.var for iv in new)
    block = Block(
        iter_vars=tuple(new), alloc_buffers=(), reads=(point(source, at),), writes=(point(target, at),),
        name_hint=tree.unique_block_name(source.name), body=BufferStore(target, BufferLoad(source, at), at),
    )  # fmt: skip
    return nest_over(new, block)


def decompose_padding(tree: Tree, name: str, var: Var) -> tuple[Tree, str]:
    """Fill with the padding value in front of a loop, then copy the part inside; returns the filling block.

       for i: y[i] = if_then_else(6 <= i < 134, x[i - 6], 0)
    -> for i: y[i] = 0
       for i in range(128): y[i + 6] = x[i]
    """
    require_complete(tree, name, "decompose_padding")
    realize, loop, where = tree.realizes[name], tree.loops[var], where_block(tree, name)
    block = realize.block
    loops = tree.loops_of(name)
    if loop not in loops:
        raise ScheduleError(f"decompose_padding: loop '{var.name}' is not around block '{name}'", where=where)
    store = block.body
    choice = store.value if isinstance(store, BufferStore) else None
    if (
        not isinstance(choice, E.Call)
        or choice.op != "if_then_else"
        or loads(choice.args[2])
        or not loads(choice.args[1])
    ):
        raise ScheduleError(f"decompose_padding: block '{name}' is no choice between data and a constant", where=where)
    assert isinstance(store, BufferStore)
    condition, inside, padding = choice.args
    below = loops[loops.index(loop) :]
    stmt: Stmt = loop
    for x in below:
        if stmt is not x:
            raise ScheduleError("decompose_padding: between the loop and the block stands more than loops", where=where)
        stmt = x.body
    if free_vars(padding):
        raise ScheduleError("decompose_padding: the padding value is no constant", where=where)
    fill_name = tree.unique_block_name(f"{name}_pad_const")
    nest = _fill_nest(block, realize, below, store, padding, fill_name)
    tree = _trimmed(tree, realize, below, condition, replace(store, value=inside))
    current = tree.loops[var] if var in tree.loops else tree.realizes[name]
    return tree.replace(current, seq(nest, current)), fill_name


def _fill_nest(
    block: Block, realize: BlockRealize, loops: Sequence[For], store: BufferStore, padding: PrimExpr, name: str
) -> Stmt:
    new, renamed = fresh_vars(block.iter_vars)
    new = [replace(iv, var=Var(old.var.name, old.var.dtype)) for iv, old in zip(new, block.iter_vars, strict=True)]
    renamed = {old.var: iv.var for old, iv in zip(block.iter_vars, new, strict=True)}
    at = tuple(substitute(i, renamed) for i in store.indices)
    fill = Block(
        iter_vars=tuple(new), alloc_buffers=(), reads=(), writes=(point(store.buffer, at),), name_hint=name,
        body=BufferStore(store.buffer, padding, at),
    )  # fmt: skip
    fresh: dict[Var, PrimExpr] = {x.loop_var: Var(f"{x.loop_var.name}_pad", x.loop_var.dtype) for x in loops}
    body: Stmt = BlockRealize(
        tuple(substitute(v, fresh) for v in realize.iter_values), substitute(realize.predicate, fresh), fill
    )
    for x in reversed(loops):
        v = fresh[x.loop_var]
        assert isinstance(v, Var)
        body = For(v, substitute(x.start, fresh), substitute(x.extent, fresh), LoopKind.SERIAL, body)
    return body


def _trimmed(tree: Tree, realize: BlockRealize, loops: Sequence[For], condition: PrimExpr, store: BufferStore) -> Tree:
    """The block for the data alone: its loops run over the inside where they are bound one to one, or test."""
    block = realize.block
    bounds, rest = _box_of(condition, [iv.var for iv in block.iter_vars])
    by_var = {x.loop_var: x for x in loops}
    firsts: dict[Var, int] = {}
    extents: dict[Var, int] = {}
    iter_vars, conditions = [], list(rest)
    for iv, value in zip(block.iter_vars, realize.iter_values, strict=True):
        low, high = bounds.get(iv.var, (None, None))
        size = E.const_int(iv.dom.extent)
        direct = isinstance(value, Var) and value in by_var and size is not None and E.const_int(iv.dom.min) == 0
        if iv.var not in bounds:
            iter_vars.append(iv)
        elif direct and isinstance(value, Var) and size is not None and E.const_int(by_var[value].extent) == size:
            first, last = max(low or 0, 0), min(size if high is None else high, size)
            iter_vars.append(replace(iv, dom=Range(iv.dom.min, E.const(max(last - first, 0), iv.var.dtype))))
            extents[value] = max(last - first, 0)
            firsts[iv.var] = first
        else:
            iter_vars.append(iv)
            conditions += [E.compare(E.GE, iv.var, low)] if low is not None else []
            conditions += [E.compare(E.LT, iv.var, high)] if high is not None else []
    values: dict[Var, PrimExpr] = dict(zip((iv.var for iv in block.iter_vars), realize.iter_values, strict=True))
    shift: dict[Var, PrimExpr] = {v: E.add(v, first) for v, first in firsts.items()}
    moved = {v: E.add(value, firsts.get(v, 0)) for v, value in values.items()}
    analyzer = Analyzer()
    for iv in iter_vars:
        analyzer.bind(iv.var, iv.dom)
    body = substitute(store, shift)
    body = BufferStore(
        body.buffer, _simplified(body.value, analyzer), tuple(analyzer.simplify(i) for i in body.indices)
    )
    predicate = E.all_of(realize.predicate, *(substitute(c, moved) for c in conditions))
    changed = with_regions(replace(block, iter_vars=tuple(iter_vars), body=body))
    tree = tree.replace(realize, BlockRealize(realize.iter_values, predicate, changed))
    for loop_var, extent in extents.items():
        current = tree.loops[loop_var]
        tree = tree.replace(current, replace(current, extent=E.const(extent, loop_var.dtype)))
    return tree


def _simplified(x: PrimExpr, analyzer: Analyzer) -> PrimExpr:
    def step(y: object) -> object:
        return BufferLoad(y.buffer, tuple(analyzer.simplify(i) for i in y.indices)) if isinstance(y, BufferLoad) else y

    return rewrite(x, step)


def _box_of(
    condition: PrimExpr, variables: Sequence[Var]
) -> tuple[dict[Var, tuple[int | None, int | None]], list[PrimExpr]]:
    """Constant bounds [low, high) of single variables that a condition says, and what else it says."""
    bounds: dict[Var, tuple[int | None, int | None]] = {}
    rest: list[PrimExpr] = []
    analyzer = Analyzer()
    for c in split_conditions(condition):
        found = None
        if isinstance(c, E.LT | E.LE | E.GT | E.GE):
            small, large = (c.a, c.b) if isinstance(c, E.LT | E.LE) else (c.b, c.a)
            linear = analyzer.linear(E.sub(large, small))
            slack = 1 if isinstance(c, E.LT | E.GT) else 0
            terms = list(linear.terms.values())
            if len(terms) == 1 and isinstance(terms[0][1], Var) and abs(terms[0][0]) == 1 and terms[0][1] in variables:
                found = (terms[0][1], terms[0][0], linear.const - slack)
        if found is None:
            rest.append(c)
            continue
        v, sign, const = found  # 0 <= sign * v + const
        low, high = bounds.get(v, (None, None))
        if sign > 0:
            low = -const if low is None else max(low, -const)
        else:
            high = const + 1 if high is None else min(high, const + 1)
        bounds[v] = (low, high)
    return bounds, rest

"""Splits loops whose last iterations are ragged into full ones without conditions and the rest.

Before:  for i_o in 22: for i in unroll(6): if i_o * 6 + i < 130: …
After:   for i_o in 21: for i in unroll(6): …
         for i in unroll(4): … with i_o = 21
A parallel loop, or one of several that make up a condition together, gets `if full: … else: …` in its body instead.
With the annotation FULL_APART both are done where the limit comes with the call, too. If its value is a number of
lanes, vectors of the rest are cut into such of so many, each below a test whether any of its lanes is needed, and
whether any of those before it is. With INSIDE_APART one test in the body says whether all conditions hold, as they do
in tiles of an image that meet none of its borders.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from autosched.codegen.lower.loops import NOTHING, const_range, enter
from autosched.codegen.lower.tidy import difference, tidy
from autosched.ir.node import FrozenDict, Node, children, map_children, preorder
from autosched.tir import expr as E
from autosched.tir.expr import IntImm, PrimExpr, Var, all_of, const_int
from autosched.tir.functor import free_vars, replace_buffers, rewrite, statements, substitute
from autosched.tir.simplify import Analyzer, Linear, fold, form_key, split_conditions
from autosched.tir.stmt import (
    Allocate,
    AssertStmt,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    LoopKind,
    Stmt,
    seq,
)

# Each may double the code below its loop. With 12, parts of an image at its edges kept tests for each pixel: a 1x1 and
# a depthwise convolution of 64x75x75 took 2.8 times as long in two parts, 1.4 in four (Zen 5); code without tests
# compiles faster. On GPUs 12 are left: more were not measured there.
MOST_SPLITS, MOST_ON_DEVICES = 48, 12

FULL_APART = "full_apart"  # the annotation of a loop that is split for sizes that come with the call too
INSIDE_APART = "inside_apart"  # the annotation of a loop whose iterations without any condition are apart, likewise
KEEP_WHOLE = "keep_whole"  # the annotation of a loop that is not to be split: its conditions are cheap where they are

_SCALAR = (LoopKind.SERIAL, LoopKind.PARALLEL)


@dataclass(slots=True)
class _Condition:
    """A comparison that says outer + inner <= 0, where `outer` is fixed in one iteration of the loop."""

    expr: PrimExpr
    outer: Linear
    inner: Linear
    inner_low: int
    inner_high: int


@dataclass(slots=True)
class _Budget:
    left: int
    keep: frozenset[Var]  # conditions with these variables stay as they are


def partition_loops(
    stmt: Stmt, analyzer: Analyzer | None = None, keep: frozenset[Var] = frozenset(), most: int = MOST_SPLITS
) -> Stmt:
    """The statement with ragged loops split, `most` times, but not for conditions with variables of `keep`; tidied."""
    a = analyzer or Analyzer()
    return tidy(_visit(stmt, a, (), _Budget(most, keep)), a)


def partition_tidy(stmt: Stmt) -> Stmt:
    """The same of a statement that is tidy: itself where no loop is split."""
    split = _visit(stmt, Analyzer(), (), _Budget(MOST_SPLITS, frozenset()))
    return stmt if split is stmt else tidy(split)


def _visit(stmt: Stmt, a: Analyzer, loops: tuple[For, ...], budget: _Budget) -> Stmt:
    if isinstance(stmt, For):
        if stmt.kind in _SCALAR and budget.left > 0 and not stmt.annotations.get(KEEP_WHOLE):
            split = _split_loop(stmt, a, loops, budget)
            if split is not None:
                budget.left -= 1
                return _visit(tidy(split, a), a, loops, budget)
        body = _visit(stmt.body, enter(a, stmt), (*loops, stmt), budget)
        return stmt if body is stmt.body else dataclasses.replace(stmt, body=body)
    return map_children(stmt, lambda c: _visit(c, a, loops, budget) if isinstance(c, Stmt) else c)


def _split_loop(loop: For, a: Analyzer, loops: tuple[For, ...], budget: _Budget) -> Stmt | None:
    found = _conditions(loop.body, enter(a, loop), (*loops, loop), len(loops))
    found = [c for c in found if not budget.keep & free_vars(c.expr)]
    if loop.annotations.get(INSIDE_APART):
        return _by_tests(loop, found)
    for first in found:
        group = [c for c in found if _key(c.outer) == _key(first.outer)]
        new = _by_range(loop, group) if loop.kind == LoopKind.SERIAL else None
        if new is None and loop.kind == LoopKind.SERIAL and loop.annotations.get(FULL_APART):
            new = _by_open_range(loop, group)
        if new is None:
            new = _by_test(loop, group, enter(a, loop))
        if new is not None:
            return new
    return None


def _key(form: Linear) -> frozenset[tuple[Hashable, int]]:
    return frozenset((key, k) for key, (k, _) in form.terms.items())


def _conditions(node: Node, a: Analyzer, loops: tuple[For, ...], at: int) -> list[_Condition]:
    """The comparisons below a loop (the one at position `at` of `loops`) that this loop is to be split for."""
    if isinstance(node, For):
        return _conditions(node.body, enter(a, node), (*loops, node), at)
    found: list[_Condition] = []
    if isinstance(node, IfThenElse) and node.else_case is None and not _only_prefetches(node.then_case):
        for c in split_conditions(node.condition):
            condition = _analyse(c, a, loops, at)
            if condition is not None:
                found.append(condition)
    for child in children(node):
        if isinstance(child, Stmt):
            found += _conditions(child, a, loops, at)
    return found


def _analyse(c: PrimExpr, a: Analyzer, loops: tuple[For, ...], at: int) -> _Condition | None:
    used = free_vars(c)
    positions = [i for i, loop in enumerate(loops) if loop.loop_var in used]
    if at not in positions or at != _split_position(positions, loops):
        return None
    form = difference(c, a)
    if form is None:
        return None
    inner_vars = {loop.loop_var for loop in loops[at + 1 :]}
    outer, inner = Linear(), Linear(form.const)
    for key, (coefficient, atom) in form.terms.items():
        atom_vars = free_vars(atom)
        if not atom_vars & inner_vars:
            outer.terms[key] = (coefficient, atom)
        elif atom_vars <= inner_vars:
            inner.terms[key] = (coefficient, atom)
        else:
            return None
    low, high = a._linear_bound(inner)
    return None if low is None or high is None or not outer.terms else _Condition(c, outer, inner, low, high)


def _split_position(positions: list[int], loops: tuple[For, ...]) -> int | None:
    """Which loop to split: the innermost scalar one outside the tile's unrolled and vectorised loops."""
    scalar = [i for i in positions if loops[i].kind in _SCALAR]
    if len(scalar) == len(positions):
        return scalar[-2] if len(scalar) > 1 else None
    return scalar[-1] if scalar else None


def _by_range(loop: For, group: list[_Condition]) -> Stmt | None:
    """Two loops, where the conditions depend on this loop's variable and inner ones alone."""
    bounds = const_range(loop)
    outer, inner_high = group[0].outer, max(c.inner_high for c in group)
    if bounds is None or len(outer.terms) != 1:
        return None
    start, end = bounds[0], bounds[0] + bounds[1]
    ((k, atom),) = outer.terms.values()
    if atom is not loop.loop_var:
        return None
    inner_low = min(c.inner_low for c in group)
    if k > 0:  # k * o + inner <= 0 holds for all inner values below some o, for none above some other
        cut = min(max(-inner_high // k + 1, start), end)
        last = min(max(-inner_low // k + 1, cut), end)
        parts: list[tuple[int, int, bool | None]] = [(start, cut, True), (cut, last, None), (last, end, False)]
    else:
        cut = min(max(-(-inner_high // -k), start), end)
        first = min(max(-(-inner_low // -k), start), cut)
        parts = [(start, first, False), (first, cut, None), (cut, end, True)]
    pieces = [(_piece(loop, low, high, group, holds), holds) for low, high, holds in parts if low < high]
    left = [piece for piece, holds in pieces if holds is not False or not _only_prefetches(piece)]
    if len(left) == len(pieces) and not any(holds for _, holds in pieces):
        return None
    return seq(left[0], *map(_with_own_buffers, left[1:])) if left else NOTHING


def _only_prefetches(stmt: Stmt) -> bool:
    """Whether a statement changes nothing, when what is never done is left out."""
    left = (s for s in preorder(tidy(stmt)) if isinstance(s, BufferStore | Evaluate | AssertStmt))
    return all(isinstance(s, Evaluate) and isinstance(s.value, E.Call) and s.value.op == "prefetch" for s in left)


def _with_own_buffers(stmt: Stmt) -> Stmt:
    """A copy of a statement whose allocations are its own: one piece may be a task, and another a phase by itself."""
    found = {node.buffer for node in statements(stmt) if isinstance(node, Allocate)}
    return replace_buffers(stmt, {buffer: dataclasses.replace(buffer) for buffer in found})


def _piece(loop: For, low: int, high: int, group: list[_Condition], holds: bool | None) -> Stmt:
    """The iterations [low, high) of a loop, in which the conditions hold, do not, or have to be tested (None)."""
    body = loop.body if holds is None else _settle(loop.body, group, holds)
    dtype = loop.extent.dtype
    return dataclasses.replace(loop, start=E.const(low, dtype), extent=E.const(high - low, dtype), body=body)


def _settle(body: Stmt, group: list[_Condition], holds: bool) -> Stmt:
    """The body where all conditions of the group hold, or none does."""
    return replace_conditions(body, {form_key(c.expr): IntImm(int(holds), "bool") for c in group})


def _by_open_range(loop: For, group: list[_Condition]) -> Stmt | None:
    """Two loops, where sizes that come with the call say how many iterations are full: these, and the rest."""
    own = [k for k, atom in group[0].outer.terms.values() if atom is loop.loop_var]
    if len(own) != 1 or own[0] <= 0:
        return None
    (k,) = own
    rest, dtype = Linear(k - max(c.inner_high for c in group)), loop.extent.dtype
    for key, (coefficient, atom) in group[0].outer.terms.items():
        if atom is not loop.loop_var:
            if loop.loop_var in free_vars(atom):
                return None
            rest.add_term(key, -coefficient, atom)
    end, span = E.add(loop.start, loop.extent), max(c.inner_high for c in group) - min(c.inner_low for c in group)
    cut = E.maximum(E.floordiv(E.cast(dtype, rest.build(dtype)), k), loop.start)
    last = E.floordiv(E.add(rest.build(dtype), span), k)  # behind the last iteration in which some of it is to be done
    ends_there = const_int(loop.start) == 0 and form_key(Analyzer().simplify(last)) == form_key(loop.extent)
    if not ends_there:
        cut = E.minimum(cut, end)
    loop, lanes = _without_mark(loop)
    full = dataclasses.replace(loop, extent=E.sub(cut, loop.start), body=_settle(loop.body, group, True))
    body = _with_own_buffers(_in_vectors(loop.body, group, lanes))
    if ends_there and span < k:  # one iteration: its masks are the same in all rows
        at = Var(loop.loop_var.name, loop.loop_var.dtype)
        once = LetStmt(at, cut, substitute(body, {loop.loop_var: at}))
        return seq(full, IfThenElse(E.compare(E.LT, cut, end), once))
    return seq(full, dataclasses.replace(loop, start=cut, extent=E.sub(end, cut), body=body))


def _in_vectors(body: Stmt, group: list[_Condition], lanes: int) -> Stmt:
    """Vectorised loops below a condition of the group as vectors of some lanes, each if its first lane is needed.

    With one lane they stay as they are.
    """
    by_form = {form_key(c.expr): c for c in group}

    def is_least_first(part: PrimExpr, var: Var) -> bool:
        """Whether no lane is needed where the first one is not."""
        c = by_form.get(form_key(part))
        return c is not None and any(atom is var and k > 0 for k, atom in c.inner.terms.values())

    def step(x: object) -> object:
        if not isinstance(x, For) or x.kind != LoopKind.VECTORIZED or not isinstance(x.body, IfThenElse):
            return x
        bounds, var = const_range(x), x.loop_var
        tests = [part for part in split_conditions(x.body.condition) if is_least_first(part, var)]
        if bounds is None or not 1 < lanes < bounds[1] or x.body.else_case is not None or not tests:
            return x
        rest: tuple[Stmt, ...] = ()
        for first in reversed(range(bounds[0], sum(bounds), lanes)):
            own, count = Var(var.name, var.dtype), E.const(min(lanes, sum(bounds) - first), var.dtype)
            inner = substitute(x.body, {var: E.add(own, first)})
            vector = dataclasses.replace(x, loop_var=own, start=E.const(0, var.dtype), extent=count, body=inner)
            needed = all_of(*(substitute(test, {var: E.const(first, var.dtype)}) for test in tests))
            rest = (IfThenElse(needed, seq(vector, *rest)),)
        return rest[0]

    return rewrite(body, step)


def _by_test(loop: For, group: list[_Condition], a: Analyzer) -> Stmt | None:
    """`if full: …  else: …` inside the loop; with one ragged value of the outer part, it is a constant there."""
    outer, limit = group[0].outer, -max(c.inner_high for c in group)
    low, high = a._linear_bound(outer)
    if low is None or high is None:
        return _by_open_test(loop, group, limit) if loop.annotations.get(FULL_APART) else None
    if limit < low:
        return None
    step = math.gcd(*(k for k, _ in outer.terms.values()))
    dtype = loop.extent.dtype
    last = -min(c.inner_low for c in group)  # above it, no condition holds
    over = range((limit // step + 1) * step, high + 1, step)
    ragged = list(itertools.islice(itertools.takewhile(lambda v: v <= last, over), 2))
    outside, stmt = _allocations(loop.body)
    full = _settle(stmt, group, True)
    if len(over) and limit // step * step - step < low:
        full = _with_value(full, outer, limit // step * step)
    if len(over):
        rest = replace_conditions(stmt, {form_key(c.expr): _in_rest(c, ragged) for c in group}) if ragged else stmt
        if last < over[-1]:
            none = _settle(stmt, group, False)
            none = NOTHING if _only_prefetches(none) else none
            rest = IfThenElse(_at_most(outer, last, dtype), rest, none) if ragged else none
        if len(over) == 1:
            rest = _with_value(rest, outer, over[0])
        full = IfThenElse(_at_most(outer, limit, dtype), full, rest)
    for allocation in outside:
        full = dataclasses.replace(allocation, body=full)
    return dataclasses.replace(loop, body=full)


def _with_value(stmt: Stmt, form: Linear, value: int) -> Stmt:
    """A statement where a form of one term has this value: conditions on it below need no splits of their own."""
    if len(form.terms) != 1:
        return stmt
    ((k, atom),) = form.terms.values()
    if value % k:
        return stmt  # such a branch is never taken
    key, number = form_key(atom), E.const(value // k, atom.dtype)

    def step(x: object) -> object:
        if not isinstance(x, PrimExpr):
            return x
        return number if type(x) is type(atom) and form_key(x) == key else fold(x)

    return rewrite(stmt, step)


def _by_open_test(loop: For, group: list[_Condition], limit: int) -> Stmt:
    """The same where it is not known how many iterations are full."""
    loop, lanes = _without_mark(loop)
    outside, stmt = _allocations(loop.body)
    ragged = _in_vectors(stmt, group, lanes)
    body: Stmt = IfThenElse(_at_most(group[0].outer, limit, loop.extent.dtype), _settle(stmt, group, True), ragged)
    for allocation in outside:
        body = dataclasses.replace(allocation, body=body)
    return dataclasses.replace(loop, body=body)


def _by_tests(loop: For, conditions: Sequence[_Condition]) -> Stmt:
    """One test whether all conditions hold, each of which may be of another kind; elsewhere they are tested."""
    notes = {name: value for name, value in loop.annotations.items() if name != INSIDE_APART}
    loop = dataclasses.replace(loop, annotations=FrozenDict({**notes, KEEP_WHOLE: True}))
    groups: dict[object, list[_Condition]] = {}
    for c in conditions:
        groups.setdefault(_key(c.outer), []).append(c)
    tests = (_at_most(g[0].outer, -max(c.inner_high for c in g), loop.extent.dtype) for g in groups.values())
    outside, stmt = _allocations(loop.body)
    body: Stmt = IfThenElse(all_of(*tests), _settle(stmt, [*conditions], True), stmt) if groups else stmt
    for allocation in outside:
        body = dataclasses.replace(allocation, body=body)
    return dataclasses.replace(loop, body=body)


def _without_mark(loop: For) -> tuple[For, int]:
    """(a loop that is not to be split again for open sizes, the lanes of vectors in the rest)."""
    notes = {name: value for name, value in loop.annotations.items() if name != FULL_APART}
    return dataclasses.replace(loop, annotations=FrozenDict(notes)), int(loop.annotations[FULL_APART])


def _in_rest(c: _Condition, ragged: list[int]) -> PrimExpr:
    """The condition where the outer part has its one ragged value; with several, in a form that is not split again."""
    if len(ragged) > 1:
        return E.logical_not(E.Not(c.expr))
    inner = Linear().add(c.inner)
    inner.const = 0
    return _at_most(inner, -ragged[0] - c.inner.const, c.expr.a.dtype)  # type: ignore[attr-defined]


def _at_most(form: Linear, limit: int, dtype: str) -> PrimExpr:
    """form <= limit, written as `<` and, for one positive term, without its factor."""
    if len(form.terms) == 1:
        ((k, atom),) = form.terms.values()
        if k > 0:
            return E.compare(E.LT, atom, E.const(limit // k + 1, dtype))
    return E.compare(E.LT, form.build(dtype), E.const(limit + 1, dtype))


def _allocations(body: Stmt) -> tuple[list[Allocate], Stmt]:
    """Allocations in scratch memory stay outside the test, so that both cases share them."""
    found: list[Allocate] = []
    while isinstance(body, Allocate) and body.buffer.scope != "local":
        found.insert(0, body)
        body = body.body
    return found, body


def replace_conditions(stmt: Stmt, new: Mapping[object, PrimExpr]) -> Stmt:
    """Replace conjuncts of the conditions of `if` statements, found by their form."""

    def step(node: object) -> object:
        if not isinstance(node, IfThenElse):
            return fold(node) if isinstance(node, PrimExpr) else node
        parts = [(form_key(p), p) for p in split_conditions(node.condition)]
        if not any(key in new for key, _ in parts):
            return node
        return dataclasses.replace(node, condition=all_of(*(new.get(key, p) for key, p in parts)))

    return rewrite(stmt, step)

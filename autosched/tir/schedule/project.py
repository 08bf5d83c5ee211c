"""Conditions seen without some of their loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from autosched.errors import ScheduleError
from autosched.tir import expr as E
from autosched.tir.axis import SPATIAL
from autosched.tir.expr import PrimExpr, Var
from autosched.tir.functor import free_vars, substitute
from autosched.tir.schedule.place import where_block
from autosched.tir.schedule.tree import Tree
from autosched.tir.simplify import Analyzer, Linear, split_conditions
from autosched.tir.stmt import BlockRealize, For


def holds_somewhere(condition: PrimExpr, gone: AbstractSet[Var], analyzer: Analyzer) -> PrimExpr | None:
    """Where a condition holds for some values of the variables in `gone`, said without them; None where not known.

    i * 4 + k < 30, k in [0, 4)   ->   i * 4 < 30
    """
    if not isinstance(condition, E.LT | E.LE | E.GT | E.GE):
        return None
    smallest = isinstance(condition, E.LT | E.LE)  # of a - b: what makes the condition easiest to meet
    total = analyzer.linear(condition.a).scaled(1).add(analyzer.linear(condition.b), -1)
    rest = Linear(total.const)
    for key, (scale, atom) in total.terms.items():
        variables = free_vars(atom)
        if not variables & gone:
            rest.add_term(key, scale, atom)
            continue
        low, high = analyzer.bound(atom)
        extreme = low if (scale > 0) is smallest else high
        if extreme is None or not variables <= gone:
            return None
        rest.const += scale * extreme
    dtype = condition.a.dtype
    return E.compare(type(condition), Linear(0, rest.terms).build(dtype), E.const(-rest.const, dtype))


def seen_without(
    tree: Tree, realize: BlockRealize, loops: list[For], dropped: set[Var], renamed: Mapping[Var, PrimExpr],
    values: Sequence[PrimExpr], analyzer: Analyzer,
) -> list[PrimExpr]:  # fmt: skip
    """A block's conditions where some of its loops are gone: they hold where it ran for any iteration of those.

    What says of a size alone that these loops have an iteration is left out: a sum of nothing is begun as well.
    """
    found: list[PrimExpr] = []
    bounded = True
    every = {x.loop_var for x in tree.loops_of(realize.block.name_hint)}
    for c in split_conditions(realize.predicate):
        seen = holds_somewhere(c, dropped, analyzer) if free_vars(c) & dropped else c
        bounded &= seen is c
        if seen is not None:
            if seen is c or free_vars(seen) & every:
                found.append(substitute(seen, renamed))
        elif not free_vars(c) <= {x.loop_var for x in loops}:
            raise ScheduleError(
                f"a condition of block '{realize.block.name}' ties outer loops to loops of its reduction",
                where=where_block(tree, realize.block.name),
            )  # fmt: skip
    if not bounded:  # what is gone may have kept the variables in their domains
        domains = [iv.dom for iv in realize.block.iter_vars if iv.kind == SPATIAL]
        for v, dom in zip(values, domains, strict=True):
            found += [E.compare(E.GE, v, dom.min), E.compare(E.LT, v, E.add(dom.min, dom.extent))]
    return found

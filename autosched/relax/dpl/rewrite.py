"""Rewriting what patterns match."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autosched.errors import InvalidTypeError
from autosched.relax.dpl.context import PatternContext, dataflow_blocks
from autosched.relax.dpl.pattern import DFPattern, Matches
from autosched.relax.expr import Expr, Function, Var
from autosched.relax.rewrite import Rewriter
from autosched.relax.transform.canonicalize_bindings import canonicalize_function
from autosched.relax.transform.dead_code import remove_unused_bindings

MOST_ROUNDS = 1000


class _Calls(Rewriter):
    def __init__(self, pattern: DFPattern, rule: Callable[[Expr, Matches], Expr], values: Mapping[Var, Expr]):
        super().__init__()
        self.pattern, self.rule, self.values = pattern, rule, dict(values)

    def value(self, value: Expr, var: Var) -> Expr:
        found = self.pattern.extract_matched_expr(value, self.values)
        new = value if found is None else self.rule(value, found)
        self.values[var] = new
        return new


def rewrite_call(pattern: DFPattern, rewriter: Callable[[Expr, Matches], Expr], func: Function) -> Function:
    """Replace every value that has the form; what nobody reads afterwards is dropped.

    rewriter  (expression, what each pattern inside has matched) -> expression; the same one where nothing is to do
    """
    if not isinstance(pattern, DFPattern) or not isinstance(func, Function):
        raise InvalidTypeError("rewrite_call takes a pattern, a function (expression, matches), and a relax Function")
    values = {b.var: b.value for b in func.bindings()}
    changed = _Calls(pattern, rewriter, values).rewrite(func)
    return func if changed is func else canonicalize_function(remove_unused_bindings(changed))


class _Replaced(Rewriter):
    def __init__(self, changes: Mapping[Var, Expr]):
        super().__init__()
        self.changes = changes

    def value(self, value: Expr, var: Var) -> Expr:
        return self.changes.get(var, value)


def rewrite_bindings(
    ctx: PatternContext,
    rewriter: Callable[[dict[DFPattern, Var], dict[Var, Expr]], Mapping[Var, Expr]],
    func: Function,
) -> Function:
    """Replace the values of variables that a context's patterns match, until there are no matches.

    rewriter  (variable of each pattern, value of each variable) -> new values of some variables; none ends it
    """
    if not isinstance(ctx, PatternContext) or not isinstance(func, Function):
        raise InvalidTypeError("rewrite_bindings takes a PatternContext, a function and a relax Function")
    for _ in range(MOST_ROUNDS):
        values = {b.var: b.value for b in func.bindings()}
        for block in dataflow_blocks(func):
            found = ctx.match_dfb(block)
            changes = {} if found is None else rewriter(found, values)
            if changes:
                break
        else:
            return func
        new = _Replaced(changes).rewrite(func)
        if new is func:
            return func
        func = remove_unused_bindings(new)
    return func


__all__ = ["rewrite_bindings", "rewrite_call"]

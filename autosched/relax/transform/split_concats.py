"""Concatenations of very many tensors run in steps: no kernel takes thousands of pointers or searches among them."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import Call, Expr, Tuple, Var
from autosched.relax.rewrite import Rewriter, map_functions
from autosched.relax.transform.views import is_concat

MOST_PARTS = 64  # of one concatenation: a kernel of 200 parts takes 8 s to compile, one of 2,000 over a minute


class _Splitter(Rewriter):
    def call(self, call: Call, var: Var) -> Expr:
        parts = call.args[0].fields if is_concat(call) and isinstance(call.args[0], Tuple) else ()
        return call if len(parts) <= MOST_PARTS else self.joined(parts, call.attrs["axis"])

    def joined(self, parts: Sequence[Expr], axis: int) -> Expr:
        """The concatenation of parts, in pieces of nearly one length; pieces of equal shapes share a kernel."""
        if len(parts) <= MOST_PARTS:
            return op.concat(Tuple(tuple(parts)), axis=axis)
        pieces = -(-len(parts) // MOST_PARTS)
        size = -(-len(parts) // pieces)
        firsts = range(0, len(parts), size)
        return self.joined([self.emit(op.concat(Tuple(tuple(parts[i : i + size])), axis=axis)) for i in firsts], axis)


def split_concats(module: IRModule) -> IRModule:
    """No concatenation of a function has more than MOST_PARTS parts: those with more are concatenations of such."""
    return map_functions(module, lambda function: _Splitter().rewrite(function))


def SplitConcats() -> Pass:  # noqa: N802
    """See `split_concats`."""
    return graph_pass("SplitConcats")(split_concats)


__all__ = ["SplitConcats", "split_concats"]

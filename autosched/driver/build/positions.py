"""What a build does with positions out of range: report them (the rule), or take the nearest ones."""

from __future__ import annotations

from autosched.errors import UsageError
from autosched.ir import IRModule
from autosched.relax.expr import Call, Expr, Function, Var
from autosched.relax.op.indexing import REPORTING
from autosched.relax.op.registry import remake
from autosched.relax.rewrite import Rewriter
from autosched.tir import PrimFunc
from autosched.tir.checked_index import clip_positions

POSITIONS = ("raise", "clip")


class _Clipper(Rewriter):
    def call(self, call: Call, var: Var) -> Expr:
        if call.attrs.get("mode") not in REPORTING:
            return call
        return remake(call, attrs={"mode": "clip" if call.attrs["mode"] == "positive" else "nearest"})


def with_positions(module: IRModule, indices: str) -> IRModule:
    """The module as it is for "raise"; with "clip", positions out of range mean the nearest valid ones.

    Raises UsageError for anything else.
    """
    if indices not in POSITIONS:
        raise UsageError(f"indices '{indices}'", hint=f"use one of {', '.join(POSITIONS)}")
    if indices == "raise":
        return module

    def clipped(function: object) -> object:
        if isinstance(function, PrimFunc):
            return clip_positions(function)
        return _Clipper().rewrite(function) if isinstance(function, Function) else function

    return module.with_functions({gv: clipped(f) for gv, f in module.functions_items()})

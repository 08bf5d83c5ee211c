"""Remove what nothing uses."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from autosched.ir.module import GlobalVar, IRModule
from autosched.ir.node import walk
from autosched.ir.transform import Pass, PassInfo
from autosched.relax.expr import Binding, BindingBlock, Call, Function, If, MatchCast, Var
from autosched.relax.rewrite import map_functions, used_vars


def _live(function: Function) -> Function:
    needed: set[Var] = set(used_vars(function.body.body))
    blocks: list[BindingBlock] = []
    for block in reversed(function.body.blocks):
        kept: list[Binding] = []
        for b in reversed(block.bindings):
            if b.var in needed or isinstance(b, MatchCast) or _has_effects(b):
                kept.append(b)
                needed.update(used_vars(b.value))
        if kept:
            same = len(kept) == len(block.bindings)
            blocks.append(block if same else dataclasses.replace(block, bindings=tuple(reversed(kept))))
    blocks.reverse()
    if len(blocks) == len(function.body.blocks) and all(a is b for a, b in zip(blocks, function.body.blocks, strict=True)):
        return function
    return dataclasses.replace(function, body=dataclasses.replace(function.body, blocks=tuple(blocks)))


def _has_effects(b: Binding) -> bool:
    return isinstance(b.value, Call) and b.value.op_name in ("relax.call_packed",)


def called_functions(function: Function) -> set[str]:
    """Names of the module's functions that a graph function mentions."""
    names: set[str] = set()
    stack = [function.body]
    while stack:
        body = stack.pop()
        for block in body.blocks:
            for b in block.bindings:
                if isinstance(b.value, If):
                    stack += [b.value.true_branch, b.value.false_branch]
                elif isinstance(b.value, Call):
                    names |= {a.name for a in (b.value.op, *b.value.args) if isinstance(a, GlobalVar)}
    return names


def dead_code_elimination(entry_functions: Sequence[str] | None = None) -> Pass:
    """Remove bindings that nothing reads, and functions that no entry function reaches.

    entry_functions  names to keep; by default the functions with a global symbol, and `main`
    """

    def run(module: IRModule) -> IRModule:
        module = map_functions(module, _live)
        entries = entry_functions or [
            gv.name for gv, f in module.functions_items() if gv.name == "main" or "global_symbol" in getattr(f, "attrs", {})
        ]
        reached: set[str] = set()
        stack = [name for name in entries if name in module]
        while stack:
            name = stack.pop()
            if name in reached:
                continue
            reached.add(name)
            function = module[name]
            stack += called_functions(function) if isinstance(function, Function) else _called_by_prim(function)
        if not stack and all(gv.name in reached for gv in module.functions):
            return module
        return module.with_functions({gv: f for gv, f in module.functions.items() if gv.name in reached})

    return Pass(run, PassInfo(0, "DeadCodeElimination"))


def _called_by_prim(function: object) -> list[str]:
    return [x.name for x in walk(function) if isinstance(x, GlobalVar)]  # type: ignore[arg-type]


def DeadCodeElimination(entry_functions: Sequence[str] | None = None) -> Pass:  # noqa: N802  (TVM's name)
    """Remove unused bindings and functions."""
    return dead_code_elimination(entry_functions)

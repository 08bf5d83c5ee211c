"""What nobody uses goes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from autosched.ir.function import BaseFunc
from autosched.ir.module import GlobalVar, IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax.expr import (
    BindingBlock,
    Call,
    ExternFunc,
    Function,
    If,
    MatchCast,
    SeqExpr,
    Tuple,
    TupleGetItem,
)
from autosched.relax.rewrite import bindings_of, map_functions, used_vars


def _is_pure(value: object) -> bool:
    return not isinstance(value, Call) or not isinstance(value.op, ExternFunc)


def remove_unused_bindings(function: Function) -> Function:
    """The function without bindings whose variable is never read; the same object where there are none."""
    used = set(used_vars(function.body.body))
    blocks: list[BindingBlock] = []
    for block in reversed(function.body.blocks):
        kept = []
        for b in reversed(block.bindings):
            if b.var in used or isinstance(b, MatchCast) or not _is_pure(b.value):
                kept.append(b)
                used.update(used_vars(b.value))
        if len(kept) == len(block.bindings):
            blocks.append(block)
        elif kept:
            blocks.append(dataclasses.replace(block, bindings=tuple(reversed(kept))))
    blocks.reverse()
    if len(blocks) == len(function.body.blocks) and all(
        a is b for a, b in zip(blocks, function.body.blocks, strict=True)
    ):
        return function
    return dataclasses.replace(function, body=SeqExpr(tuple(blocks), function.body.body))


def _called(function: object) -> Iterator[GlobalVar]:
    """The functions of the module that a function names."""
    if not isinstance(function, Function):
        return
    stack: list[object] = [function.body]
    while stack:
        match x := stack.pop():
            case GlobalVar():
                yield x
            case Call():
                stack += [x.op, *x.args]
            case SeqExpr():
                stack += [x.body, *(b.value for b in bindings_of(x))]
            case Tuple():
                stack += x.fields
            case TupleGetItem():
                stack.append(x.tuple_value)
            case If():
                stack.append(x.cond)
            case Function():
                stack.append(x.body)


def _is_entry(function: BaseFunc) -> bool:
    return "global_symbol" in function.attrs


def remove_unused_functions(module: IRModule, entries: Sequence[str] | None = None) -> IRModule:
    """The module with what the entry functions reach.

    entries  their names; by default all with a global symbol; where none has one, all relax functions
    """
    if entries is None:
        roots = [gv for gv, f in module.functions.items() if _is_entry(f)] or [
            gv for gv, f in module.functions.items() if isinstance(f, Function) and not f.attrs.get("Primitive")
        ]
    else:
        roots = [module.get_global_var(name) for name in entries]
    every = module.functions
    reached: set[GlobalVar] = set()
    while roots:
        gv = roots.pop()
        if gv not in reached:
            reached.add(gv)
            roots += [g if g in every else module.get_global_var(g.name) for g in _called(every[gv])]
    functions = {gv: f for gv, f in every.items() if gv in reached}
    return module if len(functions) == len(module) else module.with_functions(functions)


def dead_code_elimination(module: IRModule, entry_functions: Sequence[str] | None = None) -> IRModule:
    """Remove bindings that are never read, and private functions that are never called."""
    module = map_functions(module, remove_unused_bindings)
    if not any(isinstance(f, Function) for f in module.functions.values()):
        return module if entry_functions is None else remove_unused_functions(module, entry_functions)
    return remove_unused_functions(module, entry_functions)


def DeadCodeElimination(entry_functions: Sequence[str] | None = None) -> Pass:  # noqa: N802
    """See `dead_code_elimination`."""
    return graph_pass("DeadCodeElimination")(lambda module: dead_code_elimination(module, entry_functions))

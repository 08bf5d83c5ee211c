"""Rewriting graph functions: one pass over the bindings, in order, that substitutes and re-emits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import is_
from typing import Any

import numpy as np

from autosched.ir.module import IRModule
from autosched.ir.node import PerType, Span
from autosched.relax.expr import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    If,
    MatchCast,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from autosched.relax.names import UniqueNames
from autosched.relax.struct_info import same_info


def with_origin(value: Expr, origin: Span | None) -> Expr:
    """The call, and those among its arguments, with the place that they come from, unless they have one."""
    if origin is None or not isinstance(value, Call):
        return value
    done: dict[int, Expr] = {}  # calls that are shared stay so

    def marked(x: Expr) -> Expr:
        if not isinstance(x, Call):
            return x
        if id(x) not in done:
            args = tuple(marked(a) for a in x.args) if any(isinstance(a, Call) for a in x.args) else x.args
            done[id(x)] = dataclasses.replace(x, args=args, span=x.span or origin)
        return done[id(x)]

    return value if value.span is not None else marked(value)


def bindings_of(body: SeqExpr) -> Iterator[Binding]:
    """All bindings below a sequence, those of branches before the If that holds them."""
    for block in body.blocks:
        for b in block.bindings:
            if isinstance(b.value, If):
                yield from bindings_of(b.value.true_branch)
                yield from bindings_of(b.value.false_branch)
            yield b


def used_vars(expr: object) -> Iterator[Var]:
    """The variables that an expression reads, repeated as often as it reads them (branches included)."""
    match expr:
        case Var():
            yield expr
        case Call():
            if isinstance(expr.op, Var):
                yield expr.op
            for a in expr.args:
                yield from used_vars(a)
        case Tuple():
            for f in expr.fields:
                yield from used_vars(f)
        case TupleGetItem():
            yield from used_vars(expr.tuple_value)
        case If():
            yield from used_vars(expr.cond)
            yield from used_vars(expr.true_branch)
            yield from used_vars(expr.false_branch)
        case SeqExpr():
            for block in expr.blocks:
                for b in block.bindings:
                    yield from used_vars(b.value)
            yield from used_vars(expr.body)


def users(function: Function) -> dict[Var, list[Var | None]]:
    """For each variable the variables whose bindings read it, in order; None stands for the function's result."""
    found: dict[Var, list[Var | None]] = {}
    for b in bindings_of(function.body):
        for v in used_vars(b.value):
            found.setdefault(v, []).append(b.var)
    for v in used_vars(function.body.body):
        found.setdefault(v, []).append(None)
    return found


def read_once(uses: Mapping[Var, Sequence[Var | None]]) -> set[Var]:
    """Of `users`, the variables that one binding reads, and the result does not."""
    return {v for v, readers in uses.items() if len(readers) == 1 and readers[0] is not None}


def float_of(x: Expr) -> float | None:
    """The one element of a constant of floats; None for anything else."""
    if isinstance(x, Constant) and x.data.size == 1 and np.issubdtype(x.data.dtype, np.floating):
        return float(x.data.reshape(()))
    return None


_MAY_NEST = PerType(lambda kind: issubclass(kind, Call | Tuple | TupleGetItem))  # others hold no calls


class Rewriter:
    """Rebuilds a function. Override `call` (or `value`) to say what a value becomes.

    What they return may be any expression whose calls were emitted; a variable or constant replaces the old variable
    everywhere. Variables keep their identity where their type stays.
    """

    def __init__(self) -> None:
        self.replaced: dict[Var, Expr] = {}
        self.names = UniqueNames()
        self._bindings: list[Binding] = []
        self._origin: Span | None = None  # of the binding at hand
        self._dataflow = False
        self._changed = False
        # of the binding at hand, by identity: calls with what was substituted in them, nested ones with their variables
        self._substituted: dict[int, tuple[Call, Call]] = {}
        self._bound: dict[int, tuple[Expr, Expr]] = {}

    # --- what subclasses say -----------------------------------------------------------------------------------------

    def call(self, call: Call, var: Var) -> Expr:
        """What a call (its arguments rewritten) becomes; `var` is the variable it was bound to."""
        return call

    def value(self, value: Expr, var: Var) -> Expr:
        """What any bound value (rewritten) becomes; calls go to `call`."""
        return self.call(value, var) if isinstance(value, Call) else value

    # --- what they use -----------------------------------------------------------------------------------------------

    def emit(self, value: Expr, name: str = "lv") -> Expr:
        """Bind a new value in front of the one being rewritten; it has that one's origin."""
        if isinstance(value, Var):
            return value
        value = with_origin(self._flat(value), self._origin)
        kind = DataflowVar if self._dataflow else Var
        var = kind(self.names(name), value.struct_info)
        self._bindings.append(VarBinding(var, value))
        self._changed = True
        return var

    def _flat(self, x: object) -> Any:
        """`x` with nested calls bound to variables of their own."""
        if isinstance(x, Tuple):
            if not any(_MAY_NEST[type(f)] for f in x.fields):
                return x
            fields = tuple([self._leaf(f) for f in x.fields])
            return x if all(map(is_, fields, x.fields)) else Tuple(fields)
        if isinstance(x, TupleGetItem):
            source = self._leaf(x.tuple_value)
            return x if source is x.tuple_value else TupleGetItem(source, x.index)
        if isinstance(x, Call):
            if not any(_MAY_NEST[type(a)] for a in x.args):
                return x
            args = tuple([self._leaf(a) for a in x.args])
            return x if all(map(is_, args, x.args)) else dataclasses.replace(x, args=args)
        return x

    def _leaf(self, x: object) -> Any:
        if not isinstance(x, Call | TupleGetItem):
            return self._flat(x)
        if id(x) not in self._bound:
            self._bound[id(x)] = x, self.emit(x)
        return self._bound[id(x)][1]

    def substitute(self, x: object) -> Any:
        """An expression with replaced variables; the same object where nothing is replaced."""
        match x:
            case Var():
                return self.replaced.get(x, x)
            case Call():
                if id(x) not in self._substituted:
                    self._substituted[id(x)] = x, self._substituted_call(x)
                return self._substituted[id(x)][1]
            case Tuple():
                fields = tuple([self.substitute(f) for f in x.fields])
                return x if all(map(is_, fields, x.fields)) else Tuple(fields)
            case TupleGetItem():
                source = self.substitute(x.tuple_value)
                if isinstance(source, Tuple):
                    return source.fields[x.index]
                return x if source is x.tuple_value else TupleGetItem(source, x.index)
            case If():
                return If(
                    self.substitute(x.cond),
                    self._sequence(x.true_branch),
                    self._sequence(x.false_branch),
                    x.struct_info,
                )
        return x

    def _substituted_call(self, x: Call) -> Call:
        args = tuple([self.substitute(a) for a in x.args])
        op = self.substitute(x.op) if isinstance(x.op, Var) else x.op
        same = op is x.op and all(map(is_, args, x.args))
        return x if same else dataclasses.replace(x, op=op, args=args)

    # --- the pass ---

    def rewrite(self, function: Function) -> Function:
        """The rewritten function; the same object when nothing changed."""
        taken = [p.name for p in function.params] + [b.var.name for b in bindings_of(function.body)]
        self.names.taken.update(taken)
        body = self._sequence(function.body)
        if not self._changed:
            return function
        return dataclasses.replace(function, body=body, ret_struct_info=body.struct_info)

    def _sequence(self, body: SeqExpr) -> SeqExpr:
        saved = self._bindings, self._dataflow
        blocks = []
        for block in body.blocks:
            self._bindings, self._dataflow = [], isinstance(block, DataflowBlock)
            for b in block.bindings:
                self._binding(b)
            if self._bindings:
                blocks.append(type(block)(tuple(self._bindings)))
        self._bindings, self._dataflow = [], False
        self._forget()
        result = self._leaf(self.substitute(body.body))
        if self._bindings:
            blocks.append(BindingBlock(tuple(self._bindings)))
        self._bindings, self._dataflow = saved
        self._forget()
        if result is not body.body:
            self._changed = True
        return SeqExpr(tuple(blocks), result)

    def _forget(self) -> None:
        self._substituted, self._bound = {}, {}

    def _binding(self, b: Binding) -> None:
        self._forget()
        value = self.substitute(b.value)
        if isinstance(b, MatchCast):
            self._bindings.append(b if value is b.value else MatchCast(b.var, value, b.struct_info))
            return
        self._origin = value.span if isinstance(value, Call) else None
        new = with_origin(self._flat(self.value(value, b.var)), self._origin)
        if new is b.value:
            self._bindings.append(b)
            return
        self._changed = True
        seen_outside = self._dataflow and not isinstance(b.var, DataflowVar)
        if not isinstance(new, Call | If | TupleGetItem) and not seen_outside:
            self.replaced[b.var] = new
            return
        var = b.var
        if not same_info(new.struct_info, var.struct_info):
            var = dataclasses.replace(var, struct_info=new.struct_info)
            self.replaced[b.var] = var
        self._bindings.append(VarBinding(var, new))


class CallTracker(Rewriter):
    """A rewriter that knows the call that each variable is bound to: what `call` returned, unless it noted another."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[Var, Call] = {}

    def value(self, value: Expr, var: Var) -> Expr:
        new = super().value(value, var)
        if isinstance(value, Call) and isinstance(new, Call):
            self.calls.setdefault(var, new)
        return new

    def call_of(self, x: object) -> Call | None:
        """The call that a variable is bound to."""
        return self.calls.get(x) if isinstance(x, Var) else None


def map_functions(module: IRModule, f: Callable[[Function], Function], skip: Iterable[str] = ()) -> IRModule:
    """The module with `f` applied to its graph functions; the same object when none changed."""
    left = set(skip)
    functions = {
        gv: f(x) if isinstance(x, Function) and gv.name not in left else x for gv, x in module.functions.items()
    }
    if all(functions[gv] is x for gv, x in module.functions.items()):
        return module
    return module.with_functions(functions)


__all__ = [
    "BindingBlock",
    "CallTracker",
    "Rewriter",
    "bindings_of",
    "map_functions",
    "used_vars",
    "users",
]

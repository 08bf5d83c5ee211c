"""Relay's visitors and mutators of functions and nested expressions."""

from __future__ import annotations

from typing import Any

from autosched.ir import GlobalVar
from autosched.ir.node import Node
from autosched.relax import Call, Constant, Expr, If, Op, SeqExpr, Tuple, TupleGetItem, Var
from autosched.relax.op import definition_of, remake
from autosched.relay.expr import Branch, Function, GraphFunction, Let, unwrap


class ExprFunctor:
    """Finds the method for an expression; each expression is visited once."""

    def __init__(self) -> None:
        self.memo_map: dict[object, object] = {}

    def visit(self, expr: object) -> Any:
        """Visit an expression, and remember what came of it."""
        if not isinstance(expr, GraphFunction | SeqExpr | Op | GlobalVar):
            expr = unwrap(expr)
        if expr not in self.memo_map:
            self.memo_map[expr] = self._dispatch(expr)
        return self.memo_map[expr]

    def _dispatch(self, expr: object) -> object:
        for kind, method in _METHODS:
            if isinstance(expr, kind):
                return getattr(self, method)(expr)
        return expr

    def visit_seq(self, seq: SeqExpr) -> Any:
        """The bindings in order, then the result."""
        for block in seq.blocks:
            for b in block.bindings:
                self.memo_map[b.var] = self.visit(b.value)
        return self.visit(seq.body)


class ExprVisitor(ExprFunctor):
    """Visits; override the methods of what is looked for, and call `super()` to go on below it."""

    def visit_tuple(self, tup: Tuple) -> None:
        """Visit the fields."""
        for f in tup.fields:
            self.visit(f)

    def visit_call(self, call: Call) -> None:
        """Visit the operator, then the arguments."""
        self.visit(call.op)
        for a in call.args:
            self.visit(a)

    def visit_var(self, var: Var) -> None:
        """Visit a variable."""

    def visit_constant(self, const: Constant) -> None:
        """Visit a constant."""

    def visit_op(self, op: Op) -> None:
        """Visit an operator."""

    def visit_global_var(self, gvar: GlobalVar) -> None:
        """Visit the name of a function."""

    def visit_tuple_getitem(self, t: TupleGetItem) -> None:
        """Visit the tuple of an item."""
        self.visit(t.tuple_value)

    def visit_let(self, let: Let) -> None:
        """Visit variable, value and body."""
        self.visit(let.var)
        self.visit(let.value)
        self.visit(let.body)

    def visit_if(self, i: If | Branch) -> None:
        """Visit the condition and both branches."""
        self.visit(i.cond)
        self.visit(i.true_branch)
        self.visit(i.false_branch)

    def visit_function(self, fn: GraphFunction) -> None:
        """Visit parameters and body."""
        for p in fn.params:
            self.visit(p)
        self.visit_seq(fn.body)


class ExprMutator(ExprFunctor):
    """Rebuilds; a method gives what stands in the place of what it was given."""

    def visit_tuple(self, tup: Tuple) -> Expr:
        """The tuple of what the fields became."""
        return Tuple(tuple(self.visit(f) for f in tup.fields))

    def visit_call(self, call: Call) -> Expr:
        """The call of what the arguments became."""
        args = tuple(unwrap(self.visit(a)) for a in call.args)
        if definition_of(call) is not None:
            return remake(call, args)
        return Call(self.visit(call.op), args, call.attrs, call.sinfo_args, call.struct_info)

    def visit_var(self, var: Var) -> Expr:
        """The variable."""
        return var

    def visit_constant(self, const: Constant) -> Expr:
        """The constant."""
        return const

    def visit_op(self, op: Op) -> Node:
        """The operator."""
        return op

    def visit_global_var(self, gvar: GlobalVar) -> Node:
        """The name."""
        return gvar

    def visit_tuple_getitem(self, t: TupleGetItem) -> Expr:
        """An item of what the tuple became."""
        source = self.visit(t.tuple_value)
        return source.fields[t.index] if isinstance(source, Tuple) else TupleGetItem(source, t.index)

    def visit_let(self, let: Let) -> Expr:
        """The Let of what its parts became."""
        return Let(self.visit(let.var), self.visit(let.value), self.visit(let.body))

    def visit_if(self, i: If | Branch) -> Expr:
        """The branch of what its parts became."""
        return Branch(self.visit(i.cond), self.visit(i.true_branch), self.visit(i.false_branch))

    def visit_function(self, fn: GraphFunction) -> Node:
        """The function of what parameters and body became."""
        params = [self.visit(p) for p in fn.params]
        body = self.visit_seq(fn.body)
        attrs = {k: v for k, v in fn.attrs.items() if k != "global_symbol"}
        return Function(params, body, attrs={**attrs, "global_symbol": fn.attrs.get("global_symbol", "main")})


_METHODS = (
    (GraphFunction, "visit_function"), (Call, "visit_call"), (Let, "visit_let"), (Var, "visit_var"),
    (GlobalVar, "visit_global_var"), ((If, Branch), "visit_if"), (Tuple, "visit_tuple"),
    (TupleGetItem, "visit_tuple_getitem"), (Constant, "visit_constant"), (Op, "visit_op"), (SeqExpr, "visit_seq"),
)  # fmt: skip

"""Term rewriting over the rules of `rules.py`, with what an analyzer knows of variables."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from types import CodeType

from autosched.ir.node import map_children
from autosched.tir import expr as E
from autosched.tir.arith.rules import RULES
from autosched.tir.dtypes import is_float, is_int
from autosched.tir.expr import IntImm, PrimExpr
from autosched.tir.simplify import Analyzer as Core
from autosched.tir.simplify import fold, form_key

INDEX_TYPES = ("int32", "int64")  # sums of other integers wrap around, for which the rules are wrong
MOST_STEPS = 64  # how often one expression is rewritten at its root; rules end long before

_BINARY: dict[type[ast.AST], type[E.BinaryOp]] = {
    ast.Add: E.Add, ast.Sub: E.Sub, ast.Mult: E.Mul, ast.FloorDiv: E.FloorDiv, ast.Mod: E.FloorMod,
    ast.Lt: E.LT, ast.LtE: E.LE, ast.Eq: E.EQ, ast.NotEq: E.NE, ast.And: E.And, ast.Or: E.Or,
}  # fmt: skip
_NAMED: dict[str, type[E.BinaryOp]] = {"min": E.Min, "max": E.Max, "div": E.Div, "mod": E.Mod}
_BUILD: dict[type[E.BinaryOp], Callable[[PrimExpr, PrimExpr], PrimExpr]] = {
    E.Add: E.add, E.Sub: E.sub, E.Mul: E.mul, E.FloorDiv: E.floordiv, E.FloorMod: E.floormod, E.Min: E.minimum,
    E.Max: E.maximum, E.Div: E.truncdiv, E.Mod: E.truncmod, E.And: E.logical_and, E.Or: E.logical_or,
}  # fmt: skip


@dataclass(frozen=True)
class Term:
    """A part of a pattern: `kind` is an operation's class, or "any", "constant" with `name`, or a number's value."""

    kind: type[PrimExpr] | str | int
    parts: tuple[Term, ...] = ()
    name: str = ""


@dataclass(frozen=True)
class Rule:
    """`pattern` becomes `result` where `condition` holds; `again`: rules apply to the result."""

    pattern: Term
    result: Term
    condition: CodeType | None
    again: bool
    text: str


def _term(x: ast.expr) -> Term:
    match x:
        case ast.Name(id=name):
            return Term("constant" if name[0] == "c" and name[1:].isdigit() else "any", name=name)
        case ast.Constant(value=int(number)):
            return Term(int(number))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return Term(E.Sub, (Term(0), _term(operand)))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return Term(E.Not, (_term(operand),))
        case ast.BinOp(left=left, op=op, right=right):
            return Term(_BINARY[type(op)], (_term(left), _term(right)))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return Term(_BINARY[type(op)], (_term(left), _term(right)))
        case ast.BoolOp(op=op, values=parts):
            found = _term(parts[0])
            for part in parts[1:]:
                found = Term(_BINARY[type(op)], (found, _term(part)))
            return found
        case ast.Call(func=ast.Name(id="select"), args=args):
            return Term(E.Select, tuple(_term(a) for a in args))
        case ast.Call(func=ast.Name(id=name), args=args):
            return Term(_NAMED[name], tuple(_term(a) for a in args))
    raise AssertionError(ast.dump(x))


def _condition(text: str) -> CodeType:
    """The condition with expressions in calls quoted, as `nonneg(x * c1)` asks about an expression."""
    tree = ast.parse(text, mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            node.args = [ast.copy_location(ast.Constant(ast.unparse(a)), a) for a in node.args]
    return compile(tree, "rule", "eval")


@cache
def _parsed(text: str) -> Term:
    return _term(ast.parse(text, mode="eval").body)


@cache
def rules() -> dict[type[PrimExpr], tuple[Rule, ...]]:
    """All rules by the operation at the root of their patterns."""
    found: dict[type[PrimExpr], list[Rule]] = {}
    for line in RULES.strip().splitlines():
        if not line:
            continue
        arrow = " => " if " => " in line else " -> "
        left, right = line.split(arrow)
        right, _, condition = right.partition(" if ")
        rule = Rule(_parsed(left), _parsed(right), _condition(condition) if condition else None, "=>" in arrow, line)
        kind = rule.pattern.kind
        assert isinstance(kind, type)
        found.setdefault(kind, []).append(rule)
    return {kind: tuple(each) for kind, each in found.items()}


Bindings = dict[str, PrimExpr]


def _operands(x: PrimExpr) -> tuple[PrimExpr, ...]:
    match x:
        case E.BinaryOp():
            return x.a, x.b
        case E.Not():
            return (x.a,)
        case E.Select():
            return x.condition, x.true_value, x.false_value
    return ()


def _matches(term: Term, x: PrimExpr, found: Bindings) -> bool:
    """Whether `x` has the form of `term`; notes in `found` what names stand for."""
    match term.kind:
        case int():
            return isinstance(x, IntImm) and x.value == term.kind
        case "any" | "constant":
            if term.kind == "constant" and not isinstance(x, IntImm):
                return False
            if term.name in found:
                return form_key(found[term.name]) == form_key(x)
            found[term.name] = x
            return True
    return type(x) is term.kind and all(_matches(t, y, found) for t, y in zip(term.parts, _operands(x), strict=True))


def _built(term: Term, found: Bindings, dtype: str) -> PrimExpr:
    """What a result's text says, with integers of `dtype`."""
    match term.kind:
        case int():
            return IntImm(term.kind, dtype)
        case "any" | "constant":
            return found[term.name]
        case E.Not:
            return E.logical_not(_built(term.parts[0], found, "bool"))
        case E.Select:
            condition, a, b = term.parts
            return E.select(_built(condition, found, "bool"), _built(a, found, dtype), _built(b, found, dtype))
    kind = term.kind
    assert isinstance(kind, type) and issubclass(kind, E.BinaryOp)
    left, right = (_built(part, found, dtype) for part in term.parts)
    build = _BUILD.get(kind)
    return build(left, right) if build is not None else E.compare(kind, left, right)  # type: ignore[arg-type]


class Rewriter:
    """Rewrites expressions by the rules; `facts` are conditions that hold."""

    def __init__(self, core: Core, facts: Sequence[PrimExpr] = ()):
        self.core = core
        self.facts = {form_key(fact) for fact in facts}

    def rewrite(self, x: PrimExpr) -> PrimExpr:
        """An equal expression, with the rules applied to all of its parts."""
        if isinstance(x, E.Var):
            return self._known_value(x)
        if isinstance(x, E.Select):
            return self._branches(x, x.condition, x.true_value, x.false_value, E.select)
        if isinstance(x, E.Call) and x.op == "if_then_else":
            condition, a, b = x.args
            return self._branches(x, condition, a, b, lambda c, a, b: E.Call("if_then_else", (c, a, b), x.dtype))
        new = map_children(x, lambda child: self.rewrite(child) if isinstance(child, PrimExpr) else child)
        return self.root(fold(new))

    def _branches(
        self, x: PrimExpr, condition: PrimExpr, a: PrimExpr, b: PrimExpr,
        build: Callable[[PrimExpr, PrimExpr, PrimExpr], PrimExpr],
    ) -> PrimExpr:  # fmt: skip
        """A choice, each side rewritten with what its condition says."""
        condition = self.rewrite(condition)
        if isinstance(condition, IntImm):
            return self.rewrite(a if condition.value else b)
        sides = []
        for side, fact in ((a, condition), (b, self.root(E.logical_not(condition)))):
            core = self.core.copy()
            core.assume(fact)
            inner = Rewriter(core)
            inner.facts = self.facts | {form_key(fact)}
            sides.append(inner.rewrite(side))
        if isinstance(x, E.Select) and form_key(sides[0]) == form_key(sides[1]):
            return sides[0]
        return build(condition, *sides)

    def _known_value(self, x: E.Var) -> PrimExpr:
        if x.dtype == "bool":
            return self._decided(x)
        return self.core.simplify(x)

    def root(self, x: PrimExpr) -> PrimExpr:
        """`x`, whose parts are rewritten already, with rules applied at its root."""
        if isinstance(x, E.Mul) and isinstance(x.a, IntImm) and isinstance(x.b, E.Add):
            return self._ordered(x)
        for _ in range(MOST_STEPS):
            x = self._ordered(x)
            if isinstance(x, E.CmpOp | E.Not) and (known := self._decided(x)) is not x:
                return known
            if (bounded := self._by_bounds(x)) is not None:
                return bounded
            step = self._step(x)
            if step is None:
                return x
            new, again = step
            if not again:
                return new
            x = new
        return x

    def _decided(self, x: PrimExpr) -> PrimExpr:
        """A condition, or its truth where that is known."""
        if form_key(x) in self.facts:
            return IntImm(1, "bool")
        if not isinstance(x, E.Not) and self._negated_is_fact(x):
            return IntImm(0, "bool")
        if isinstance(x, E.CmpOp) and not isinstance(x, E.And | E.Or) and is_int(x.a.dtype):
            known = self.core.simplify(x)
            if isinstance(known, IntImm):
                return known
            if isinstance(x, E.EQ | E.NE):
                return self._apart(x)
        return x

    def _negated_is_fact(self, x: PrimExpr) -> bool:
        match x:
            case E.LT():
                opposite: PrimExpr = E.LE(x.b, x.a)
            case E.LE():
                opposite = E.LT(x.b, x.a)
            case E.EQ():
                opposite = E.NE(x.a, x.b)
            case E.NE():
                opposite = E.EQ(x.a, x.b)
            case _:
                opposite = E.Not(x)
        return form_key(opposite) in self.facts

    def _apart(self, x: E.EQ | E.NE) -> PrimExpr:
        """`x * 4 == 9` never holds: both sides differ modulo what divides all coefficients."""
        difference = self.core.linear(E.sub(x.a, x.b))
        common = math.gcd(*(c for c, _ in difference.terms.values())) if difference.terms else 0
        if common > 1 and difference.const % common:
            return IntImm(int(isinstance(x, E.NE)), "bool")
        return x

    def _by_bounds(self, x: PrimExpr) -> PrimExpr | None:
        """What the ranges of operands decide: remainders of small numbers, extrema, absolute values."""
        if not is_int(x.dtype) or x.dtype == "bool":
            return None
        match x:
            case E.Min() | E.Max():
                (a_low, a_high), (b_low, b_high) = self.core.bound(x.a), self.core.bound(x.b)
                low, high = self.core.bound(E.sub(x.a, x.b))
                if low is None and a_low is not None and b_high is not None:
                    low = a_low - b_high
                if high is None and a_high is not None and b_low is not None:
                    high = a_high - b_low
                if high is not None and high <= 0:
                    return x.a if isinstance(x, E.Min) else x.b
                if low is not None and low >= 0:
                    return x.b if isinstance(x, E.Min) else x.a
            case E.FloorMod(b=IntImm(value=c)) if c > 0:
                low, high = self.core.bound(x.a)
                if low is not None and high is not None and low >= 0 and high < c:
                    return x.a
                known = self.core.simplify(x)
                if isinstance(known, IntImm):
                    return known
            case E.Call(op="abs"):
                low, high = self.core.bound(x.args[0])
                if low is not None and low >= 0:
                    return x.args[0]
                if high is not None and high <= 0:
                    return self.rewrite(E.sub(0, x.args[0]))
        return None

    def _ordered(self, x: PrimExpr) -> PrimExpr:
        """Comparisons as `<` and `<=`, with integers; constants of products and sums on the right; x * 1.0 as x."""
        match x:
            case E.GT():
                return self._ordered(E.LT(x.b, x.a))
            case E.GE():
                return self._ordered(E.LE(x.b, x.a))
            case E.LE() if is_int(x.a.dtype):
                less = self.root(E.LT(x.b, x.a))
                return x if type(less) is E.LT and less.a is x.b and less.b is x.a else self.root(E.logical_not(less))
            case E.NE() if is_int(x.a.dtype):
                equal = self.root(E.EQ(x.a, x.b))
                return x if isinstance(equal, E.EQ) and equal.a is x.a else self.root(E.logical_not(equal))
            case E.Mul(a=IntImm(), b=b) if not isinstance(b, IntImm):
                return type(x)(b, x.a)
            case E.EQ(a=IntImm(), b=b) if not isinstance(b, IntImm):
                return E.EQ(b, x.a)
            case E.Mul() | E.Div() if is_float(x.dtype) and isinstance(x.b, E.FloatImm) and x.b.value == 1:
                return x.a
            case E.Mul() if is_float(x.dtype) and isinstance(x.a, E.FloatImm) and x.a.value == 1:
                return x.b
        return x

    def _step(self, x: PrimExpr) -> tuple[PrimExpr, bool] | None:
        operands = _operands(x)
        index = next((o.dtype for o in operands if o.dtype != "bool"), "int32")
        if index not in INDEX_TYPES:
            return None
        for rule in rules().get(type(x), ()):
            found: Bindings = {}
            if not _matches(rule.pattern, x, found):
                continue
            if rule.condition is not None and not self._holds(rule.condition, found, index):
                continue
            dtype = "bool" if x.dtype == "bool" and isinstance(rule.result.kind, int) else index
            new = self._parts(_built(rule.result, found, dtype), found)
            return new, rule.again
        return None

    def _parts(self, x: PrimExpr, found: Bindings) -> PrimExpr:
        """The result of a rule with its own new operations simplified, not what its names stand for."""
        known = {id(y) for y in found.values()}
        if id(x) in known:
            return x

        def inner(y: object) -> object:
            if not isinstance(y, PrimExpr) or id(y) in known or not _operands(y):
                return y
            return self.root(map_children(y, inner))

        return self._ordered(fold(map_children(x, inner))) if isinstance(x, E.Mul) else fold(map_children(x, inner))

    def _holds(self, condition: CodeType, found: Bindings, dtype: str) -> bool:
        def expression(text: str) -> PrimExpr:
            return _built(_parsed(text), found, dtype)

        def nonneg(text: str) -> bool:
            low = self.core.bound(expression(text))[0]
            return low is not None and low >= 0

        def within(text: str, limit: str) -> bool:
            low, high = self.core.bound(expression(text))
            most = E.const_int(expression(limit))
            if low is None or high is None or most is None:
                return False
            return low >= 0 and high < most

        def equal(a: str, b: str) -> bool:
            return self.core.can_prove_equal(expression(a), expression(b))

        def constant(text: str) -> bool:
            return isinstance(self.core.simplify(expression(text)), IntImm)

        names: dict[str, object] = {name: x.value for name, x in found.items() if isinstance(x, IntImm)}
        names |= {"nonneg": nonneg, "within": within, "equal": equal, "constant": constant}
        return bool(eval(condition, {"__builtins__": {}}, names))

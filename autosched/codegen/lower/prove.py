"""Proves that the accesses of lowered statements stay inside of their buffers; says which ones could not be proved.

An index is proved by the ranges of loops and the conditions around it: x[h * 2 + r - 3] under `h * 2 + r - 3 >= 0`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from autosched.codegen.lower.loops import enter
from autosched.codegen.lower.phases import LoweredPhase
from autosched.ir.node import Node, children, preorder
from autosched.tir import expr as E
from autosched.tir.axis import Range
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.checked_index import CHECK_INDEX
from autosched.tir.dtypes import is_int
from autosched.tir.expr import PrimExpr, Var, const, const_int, to_expr
from autosched.tir.functor import statements
from autosched.tir.simplify import Analyzer, Linear, split_conditions
from autosched.tir.stmt import BufferStore, Evaluate, For, IfThenElse, LetStmt, Stmt

INFINITY = float("inf")

Indices = tuple[PrimExpr, ...]


@dataclass(frozen=True, slots=True)
class Access:
    """A dimension of a load or store that may leave its buffer.

    is_certain  it does so whenever the statement runs: `low` and `high` are reached
    """

    buffer: Buffer
    indices: Indices
    axis: int
    is_store: bool
    low: int | None
    high: int | None
    is_certain: bool


@dataclass(frozen=True, slots=True)
class _Known:
    """What holds at a place: ranges of variables, and linear forms that are at most 0."""

    analyzer: Analyzer
    facts: tuple[Linear, ...] = ()
    is_reached: bool = True  # nothing but loops of at least one iteration is around it
    exact: frozenset[Var] = frozenset()  # variables that take both ends of their ranges, whatever the others are

    def under(self, condition: PrimExpr, fixed: frozenset[Buffer]) -> _Known:
        """The same where a condition holds as well."""
        facts = [f for part in split_conditions(condition) for f in _facts(part, self.analyzer, fixed)]
        analyzer = self.analyzer.copy()
        for fact in (*facts, *facts):  # twice: one may narrow what another says
            _narrow(analyzer, fact)
        return _Known(analyzer, (*self.facts, *facts), False, self.exact)


_OPPOSITE: Mapping[type[E.CmpOp], type[E.CmpOp]] = {E.LT: E.GE, E.LE: E.GT, E.GT: E.LE, E.GE: E.LT}


def _facts(condition: PrimExpr, a: Analyzer, fixed: frozenset[Buffer]) -> list[Linear]:
    if isinstance(condition, E.Not):
        inner = condition.a
        if isinstance(inner, E.Not):
            return _facts(inner.a, a, fixed)
        if not isinstance(inner, E.LT | E.LE | E.GT | E.GE):
            return []
        condition = _OPPOSITE[type(inner)](inner.a, inner.b)
    if isinstance(condition, E.Call) and condition.op == "likely":
        return _facts(condition.args[0], a, fixed)
    if not isinstance(condition, E.LT | E.LE | E.GT | E.GE | E.EQ) or not is_int(condition.a.dtype):
        return []
    if any(isinstance(x, BufferLoad) and x.buffer not in fixed for x in preorder(condition)):
        return []
    small, large = (condition.b, condition.a) if isinstance(condition, E.GT | E.GE) else (condition.a, condition.b)
    form = Linear().add(a.linear(small)).add(a.linear(large), -1)
    if isinstance(condition, E.EQ):
        return [form, form.scaled(-1)]
    form.const += isinstance(condition, E.LT | E.GT)
    step = math.gcd(*(c for c, _ in form.terms.values()))
    if step > 1:  # 4 * i - 35 <= 0 is i - 8 <= 0
        terms = {key: (c // step, atom) for key, (c, atom) in form.terms.items()}
        form = Linear(-(-form.const // step), terms)
    return [form]


def _narrow(a: Analyzer, fact: Linear) -> None:
    """Narrow the ranges of variables by a linear form that is at most 0."""
    for key, (k, atom) in fact.terms.items():
        if not isinstance(atom, Var):
            continue
        rest = Linear(fact.const, {other: term for other, term in fact.terms.items() if other != key})
        least = a._linear_bound(rest)[0]
        if least is None:
            continue
        low, high = a.bounds.get(atom, (None, None))
        if k > 0:  # v <= -least / k
            most = -least // k
            a.bounds[atom] = (low, most if high is None else min(high, most))
        else:  # v >= least / -k
            fewest = -(least // k)
            a.bounds[atom] = (fewest if low is None else max(low, fewest), high)


class _Prover:
    def __init__(self, fixed: frozenset[Buffer]):
        self.fixed = fixed
        self.found: list[Access] = []

    def stmt(self, stmt: Node, k: _Known) -> None:
        match stmt:
            case For():
                self.value(stmt.start, k)
                self.value(stmt.extent, k)
                self.stmt(stmt.body, _inside(k, stmt))
            case IfThenElse():
                self.value(stmt.condition, k)
                self.stmt(stmt.then_case, k.under(stmt.condition, self.fixed))
                if stmt.else_case is not None:
                    self.stmt(stmt.else_case, k.under(E.Not(stmt.condition), self.fixed))
            case LetStmt():
                self.value(stmt.value, k)
                self.stmt(stmt.body, _let(k, stmt.var, stmt.value))
            case BufferStore():
                self.value(stmt.value, k)
                for index in stmt.indices:
                    self.value(index, k)
                self.access(stmt.buffer, stmt.indices, True, k)
            case Evaluate(value=E.Call(op="prefetch")):
                pass  # asks for a cache line, wherever it is
            case Stmt():
                inner = k if type(stmt).__name__ != "While" else dataclasses.replace(k, is_reached=False)
                for child in children(stmt):
                    if isinstance(child, PrimExpr):
                        self.value(child, inner)
                    elif not isinstance(child, Buffer):
                        self.stmt(child, inner)

    def value(self, x: PrimExpr, k: _Known) -> None:
        match x:
            case BufferLoad():
                for index in x.indices:
                    self.value(index, k)
                self.access(x.buffer, x.indices, False, k)
            case E.Call(op="if_then_else"):
                condition, a, b = x.args
                self.value(condition, k)
                self.value(a, k.under(condition, self.fixed))
                self.value(b, k.under(E.Not(condition), self.fixed))
            case E.Let():
                self.value(x.value, k)
                self.value(x.body, _let(k, x.var, x.value))
            case _:
                for child in children(x):
                    if isinstance(child, PrimExpr):
                        self.value(child, k)

    def access(self, buffer: Buffer, indices: Indices, is_store: bool, k: _Known) -> None:
        if any(low is not None and high is not None and low > high for low, high in k.analyzer.bounds.values()):
            return  # nothing gets here
        if any(not fact.terms and fact.const > 0 for fact in k.facts):
            return
        for axis, (index, extent) in enumerate(zip(indices, buffer.shape, strict=True)):
            size = const_int(extent)
            low, high = k.analyzer.bound(index)
            if size is None or (low is not None and low >= 0 and high is not None and high < size):
                continue
            form = k.analyzer.linear(index)
            too_low = Linear().add(form, -1)
            too_high = Linear(1 - size).add(form)
            if _at_most_zero(too_low, k) and _at_most_zero(too_high, k):
                continue
            certain = k.is_reached and (_takes_its_ends(form, k) or _is_outside(low, high, size))
            self.found.append(Access(buffer, indices, axis, is_store, low, high, certain))


def _is_outside(low: int | None, high: int | None, size: int) -> bool:
    return (high is not None and high < 0) or (low is not None and low >= size)


def _takes_its_ends(form: Linear, k: _Known) -> bool:
    """Whether an index is a sum of independent loop variables, so that its bounds are values that it takes."""
    return all(isinstance(atom, Var) and atom in k.exact for _, atom in form.terms.values())


def _at_most_zero(form: Linear, k: _Known) -> bool:
    """Whether a linear form is at most 0: by ranges alone, or less multiples of one or two known forms."""
    return _high(form, k, 0) <= 0 or _most(form, k, 2) <= 0


def _most(form: Linear, k: _Known, steps: int) -> float:
    """An upper bound of a linear form: that of the ranges, or a smaller one where known forms are taken off."""
    most = _high(form, k, steps)
    for fact in k.facts if steps else ():
        for less in _less(form, fact):
            most = min(most, _most(less, k, steps - 1))
    return most


def _less(form: Linear, fact: Linear) -> list[Linear]:
    """`form` less the positive whole multiples of a fact that cancel one of its terms."""
    times = {Fraction(k, fact.terms[key][0]) for key, (k, _) in form.terms.items() if key in fact.terms}
    return [Linear().add(form).add(fact, -int(t)) for t in sorted(times) if t > 0 and t.denominator == 1]


def _high(form: Linear, k: _Known, steps: int) -> float:
    """The upper bound that ranges give; of a quotient, what is known of its dividend counts too."""
    total: float = form.const
    quotients = []
    for c, atom in form.terms.values():
        low, high = k.analyzer._atom_bound(atom)
        end = high if c > 0 else low
        total += INFINITY if end is None else c * end
        if isinstance(atom, E.FloorDiv) and (const_int(atom.b) or 0) > 0:
            quotients.append((c, atom))
    if steps and k.facts:
        for c, atom in quotients:
            total = min(total, _high_of_quotient(form, c, atom, k, steps))
    return total


def _high_of_quotient(form: Linear, c: int, atom: E.FloorDiv, k: _Known, steps: int) -> float:
    """An upper bound of c * (a // d) + … : terms with multiples of c go into the dividend, c * ((a + d * v) // d)."""
    divisor = const_int(atom.b)
    assert divisor is not None, "the caller looked"
    dividend, rest = Linear().add(k.analyzer.linear(atom.a)), Linear(form.const)
    for key, (other, x) in form.terms.items():
        if x is atom:
            continue
        if other % c == 0:
            dividend.add_term(key, other // c * divisor, x)
        else:
            rest.add_term(key, other, x)
    most = _most(dividend if c > 0 else dividend.scaled(-1), k, steps - 1)
    if most == INFINITY:
        return INFINITY
    quotient = int(most) // divisor if c > 0 else -int(most) // divisor
    return c * quotient + _high(rest, k, steps - 1)


def _inside(k: _Known, loop: For) -> _Known:
    start, extent = const_int(loop.start), const_int(loop.extent)
    runs = start is not None and extent is not None and extent > 0
    exact = k.exact | {loop.loop_var} if runs else k.exact
    return _Known(enter(k.analyzer, loop), k.facts, k.is_reached and runs, exact)


def _let(k: _Known, var: Var, value: PrimExpr) -> _Known:
    if not is_int(var.dtype):
        return k
    analyzer = k.analyzer.copy()
    analyzer.bounds[var] = analyzer.bound(value)
    return dataclasses.replace(k, analyzer=analyzer)


def leaves_empty_alone(
    phases: Sequence[LoweredPhase], outputs: Sequence[Buffer], arguments: Sequence[Buffer], *, checks_leave: bool
) -> bool:
    """Whether no access to an array without elements is reached, and outputs that have elements are written.

    So is what the kernel keeps for itself and reads: a sum of nothing that something else follows on.

    checks_leave  a `check_index` along a dimension without elements ends the tile
    """
    written = {n.buffer for phase in phases for n in statements(phase.body) if isinstance(n, BufferStore)}
    read = {n.buffer for phase in phases for n in preorder(phase.body) if isinstance(n, BufferLoad)}
    if not read <= {*written, *arguments}:
        return False
    reached = (x for x in unproved(phases) if not (checks_leave and any(map(_finds_nothing, x.indices))))
    if any(0 in map(const_int, access.buffer.shape) for access in reached):
        return False
    return all(b in written or 0 in map(const_int, b.shape) for b in outputs)


def _finds_nothing(index: PrimExpr) -> bool:
    """Whether an index holds a check for a position along a dimension without any."""
    return any(isinstance(x, E.Call) and x.op == CHECK_INDEX and const_int(x.args[2]) == 0 for x in preorder(index))


def unproved(phases: Sequence[LoweredPhase]) -> list[Access]:
    """The accesses of a kernel that may leave their buffers, in program order."""
    written = {n.buffer for phase in phases for n in statements(phase.body) if isinstance(n, BufferStore)}
    read = {n.buffer for phase in phases for n in preorder(phase.body) if isinstance(n, BufferLoad)}
    prover = _Prover(frozenset(read - written))
    for phase in phases:
        analyzer = Analyzer(trust_checks=True)
        for var, extent, start in zip(phase.task_vars, phase.extents, phase.starts, strict=True):
            analyzer.bind(var, Range(const(start, var.dtype), to_expr(extent)))
        exact = frozenset(v for v, n in zip(phase.task_vars, phase.extents, strict=True) if const_int(n) is not None)
        prover.stmt(phase.body, _Known(analyzer, (), True, exact))
    return prover.found

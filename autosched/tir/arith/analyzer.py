"""`arith.Analyzer`: simplification and proofs, with TVM's methods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from autosched.errors import InvalidTypeError, InvalidValueError
from autosched.tir import expr as E
from autosched.tir.arith.canonical import canonical, residue, shifts_as_divisions
from autosched.tir.arith.int_set import IntervalSet
from autosched.tir.arith.rewrite import Rewriter
from autosched.tir.axis import Range
from autosched.tir.dtypes import is_int
from autosched.tir.expr import ExprLike, IntImm, PrimExpr, Var, to_expr
from autosched.tir.functor import substitute
from autosched.tir.simplify import Analyzer as Core
from autosched.tir.simplify import split_conditions

POS_INF, NEG_INF = (1 << 63) - 1, -(1 << 63) + 1


@dataclass(frozen=True, slots=True)
class ConstIntBound:
    """The least and greatest value, both included; POS_INF and NEG_INF where unbounded."""

    min_value: int
    max_value: int

    POS_INF = POS_INF
    NEG_INF = NEG_INF


@dataclass(frozen=True, slots=True)
class ModularSet:
    """Values of the form coeff * x + base; coeff 0: the constant base."""

    coeff: int
    base: int


def _expr(what: str, x: object) -> PrimExpr:
    try:
        return to_expr(x)
    except InvalidTypeError:
        raise InvalidTypeError(f"Analyzer.{what}: a {type(x).__name__}, expected an expression or a number") from None


class Analyzer:
    """Simplifies and proves with what is known of variables.

    ana.bind(i, ir.Range(0, 8));  ana.simplify((i + 8) // 8)  ->  1;  ana.can_prove(i < 8)  ->  True
    """

    def __init__(self) -> None:
        self._core = Core()
        self._values: dict[Var, PrimExpr] = {}
        self._facts: list[PrimExpr] = []

    def copy(self) -> Analyzer:
        """An analyzer that knows the same, and can learn more on its own."""
        other = Analyzer()
        other._core, other._values, other._facts = self._core.copy(), dict(self._values), list(self._facts)
        return other

    # --- what is known

    def bind(self, var: Var, expr: Range | ExprLike, allow_override: bool = False) -> None:
        """Say that a variable lies in a Range, or equals an expression.

        Raises InvalidValueError where something else was said before, unless `allow_override`.
        """
        if not isinstance(var, Var):
            raise InvalidTypeError(f"Analyzer.bind: argument 'var' is a {type(var).__name__}, expected a Var")
        before = self._core.bounds.get(var) if var in self._core.bounds else None
        self._bind(var, expr)
        if not allow_override and before is not None and self._core.bounds[var] != before:
            said, self._core.bounds[var] = self._core.bounds[var], before
            raise InvalidValueError(
                f"Analyzer.bind: '{var.name}' lies in {list(before)}, and now in {list(said)}",
                hint="allow_override=True",
            )

    def _bind(self, var: Var, expr: object) -> None:
        if isinstance(expr, Range):
            if E.const_int(expr.extent) == 1:
                self._values[var] = expr.min
            self._core.bind(var, expr)
            if E.const_int(expr.extent) is None:
                self._facts.append(E.compare(E.LT, var, self.simplify(E.add(expr.min, expr.extent))))
            return
        value = _expr("bind", expr)
        self._values[var] = self.simplify(value)
        self._core.bind(var, value)

    def update(self, var: Var, info: ConstIntBound, override: bool = False) -> None:
        """Say what range a variable has.

        Raises InvalidTypeError for other facts, InvalidValueError where another range is known, unless `override`.
        """
        if not isinstance(info, ConstIntBound):
            raise InvalidTypeError(f"Analyzer.update takes a ConstIntBound, not {type(info).__name__}")
        low = None if info.min_value == NEG_INF else info.min_value
        bound = (low, None if info.max_value == POS_INF else info.max_value)
        if not override and self._core.bounds.get(var, bound) != bound:
            raise InvalidValueError(f"Analyzer.update: another range of '{var.name}' is known", hint="override=True")
        self._core.bounds[var] = bound

    @contextmanager
    def constraint_scope(self, constraint: object) -> Iterator[None]:
        """Inside, a condition is known to hold."""
        saved = dict(self._core.bounds), list(self._facts), dict(self._values)
        for fact in split_conditions(self.simplify(_expr("constraint_scope", constraint))):
            self._facts.append(fact)
            self._narrow(fact)
        try:
            yield
        finally:
            self._core.bounds, self._facts, self._values = saved

    def _narrow(self, fact: PrimExpr) -> None:
        """Note the value of a variable that a condition gives, or narrow its range."""
        if isinstance(fact, E.EQ) and is_int(fact.a.dtype):
            for var, value in ((fact.a, fact.b), (fact.b, fact.a)):
                if isinstance(var, Var):
                    self._bind(var, value)
                    return
        self._core.assume(fact)

    # --- questions

    def simplify(self, expr: ExprLike, steps: int = 2) -> PrimExpr:
        """An equal expression that is simpler: rewritten and made canonical in turn, `steps` times in all."""
        result = self._known("simplify", expr)
        for step in range(steps):
            result = canonical(self._core, result, self._facts) if step % 2 else self._rewriter().rewrite(result)
            if isinstance(result, IntImm):
                break
        return result

    def rewrite_simplify(self, expr: ExprLike) -> PrimExpr:
        """An equal expression after the rewriting rules (`tir/arith/rules.py`)."""
        return self._rewriter().rewrite(self._known("rewrite_simplify", expr))

    def canonical_simplify(self, expr: ExprLike) -> PrimExpr:
        """An equal expression in canonical form: sums of multiples of what is no sum."""
        return canonical(self._core, self._known("canonical_simplify", expr), self._facts)

    def _rewriter(self) -> Rewriter:
        return Rewriter(self._core, self._facts)

    def _known(self, what: str, expr: object) -> PrimExpr:
        """The argument with the values of variables that have one."""
        found = _expr(what, expr)
        return substitute(found, self._values) if self._values else found

    def can_prove(self, expr: object, strength: int = 0) -> bool:
        """Whether a condition is known to hold."""
        found = self.simplify(_expr("can_prove", expr))
        return E.const_int(found) == 1 or (found.dtype == "bool" and self._core.can_prove(found))

    def can_prove_equal(self, lhs: object, rhs: object) -> bool:
        """Whether two expressions are known to be equal."""
        difference = E.sub(*E.match_types(_expr("can_prove_equal", lhs), _expr("can_prove_equal", rhs)))
        return E.const_int(self.simplify(difference)) == 0

    def can_prove_greater_equal(self, expr: object, lower_bound: int) -> bool:
        """Whether an expression is known not to be below a number."""
        return self.can_prove(E.compare(E.GE, _expr("can_prove_greater_equal", expr), lower_bound))

    def can_prove_less(self, expr: object, upper_bound: int) -> bool:
        """Whether an expression is known to be below a number."""
        return self.can_prove(E.compare(E.LT, _expr("can_prove_less", expr), upper_bound))

    def const_int_bound(self, expr: object) -> ConstIntBound:
        """The numbers between which an expression lies."""
        low, high = self._core.bound(canonical(self._core, shifts_as_divisions(self._known("const_int_bound", expr))))
        return ConstIntBound(NEG_INF if low is None else low, POS_INF if high is None else high)

    def const_int_bound_is_bound(self, var: Var) -> bool:
        """Whether a range of the variable is known."""
        return var in self._core.bounds

    def modular_set(self, expr: object) -> ModularSet:
        """What all values of an expression have in common: they are `coeff` times an integer, plus `base`."""
        return ModularSet(*residue(self._core, shifts_as_divisions(self._known("modular_set", expr))))

    def int_set(self, expr: object, dom_map: Mapping[Var, object] | None = None) -> IntervalSet:
        """The interval of an expression while variables run over intervals or ranges."""
        from autosched.tir.arith.int_set import interval_of

        return interval_of(self.simplify(_expr("int_set", expr)), dom_map or {}, self._core)

    def set_maximum_rewrite_steps(self, maximum: int) -> None:
        """Refuse limits that could be reached: simplification here always ends. Raises for a negative one."""
        if maximum < 0:
            raise InvalidValueError(f"set_maximum_rewrite_steps: {maximum} is negative")

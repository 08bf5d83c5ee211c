"""The patterns and what each of them matches."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from autosched.errors import InvalidTypeError, InvalidValueError, refuse
from autosched.ir.module import GlobalVar
from autosched.ir.node import Attrs
from autosched.ir.structural import structural_equal
from autosched.lazy_names import resolve
from autosched.relax.expr import (
    Call,
    Constant,
    DataflowVar,
    ExternFunc,
    Function,
    Op,
    ShapeExpr,
    Tuple,
    TupleGetItem,
    Var,
)
from autosched.relax.struct_info import Dim, Expr, StructInfo, TensorStructInfo, same_dims, same_info

COMMUTATIVE = ("relax.add", "relax.multiply")
Matches: TypeAlias = dict["DFPattern", Any]  # an expression; of `ExprPattern` an operator, of `GlobalVarPattern` a name


class Matcher:
    """One attempt: what variables are bound to, and what each pattern has matched so far."""

    def __init__(self, values: Mapping[Var, Expr] | None = None):
        self.values = dict(values or {})
        self.found: Matches = {}

    def value(self, expr: object) -> object:
        """What a variable stands for; other expressions as they are."""
        while isinstance(expr, Var) and expr in self.values:
            expr = self.values[expr]
        return expr

    def match(self, pattern: DFPattern, expr: object) -> bool:
        """Whether an expression has the form; what a failed attempt has noted is forgotten."""
        if pattern in self.found:
            known = self.found[pattern]
            return known is expr or self.value(known) is self.value(expr)
        before = dict(self.found)
        if pattern.matches(expr, self):
            self.found[pattern] = expr
            return True
        self.found = before
        return False

    def match_all(self, patterns: Sequence[DFPattern], exprs: Sequence[object]) -> bool:
        """Whether expressions have the forms, one by one."""
        before = dict(self.found)
        if len(patterns) == len(exprs) and all(map(self.match, patterns, exprs)):
            return True
        self.found = before
        return False


class DFPattern:
    """Base of patterns. Patterns are compared by identity; one that occurs twice matches the same value twice."""

    def matches(self, expr: object, matcher: Matcher) -> bool:
        """What a kind of pattern says."""
        raise NotImplementedError

    def children(self) -> Sequence[DFPattern]:
        """The patterns inside."""
        return ()

    def __call__(
        self, *args: DFPattern, varg_default_wildcard: bool = False, add_constraint: bool = True
    ) -> CallPattern:
        """A call of what this pattern matches."""
        return CallPattern(self, args, varg_default_wildcard, add_constraint)

    def __or__(self, other: DFPattern) -> OrPattern:
        return OrPattern(self, other)

    def __and__(self, other: DFPattern) -> AndPattern:
        return AndPattern(self, other)

    def __invert__(self) -> NotPattern:
        return NotPattern(self)

    def reject(self) -> NotPattern:
        """What this pattern does not match."""
        return NotPattern(self)

    def has_attr(self, attrs: Mapping[str, object]) -> AttrPattern:
        """With these attributes of the operator or function."""
        return AttrPattern(self, attrs)

    def has_struct_info(self, info: StructInfo) -> StructInfoPattern:
        """With this annotation."""
        return StructInfoPattern(self, info)

    has_ty = has_type = has_struct_info

    def has_dtype(self, dtype: str) -> DataTypePattern:
        """A tensor of this dtype."""
        return DataTypePattern(self, dtype)

    def has_shape(self, shape: Sequence[Dim]) -> ShapePattern:
        """A tensor of this shape."""
        return ShapePattern(self, shape)

    def dup(self) -> DFPattern:
        """The same form, which may match another value."""
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__)
        return copied

    def match(self, expr: object, var2val: Mapping[Var, Expr] | None = None) -> bool:
        """Whether an expression has this form. Variables are looked through where `var2val` says what they are."""
        return Matcher(var2val).match(self, expr)

    def extract_matched_expr(self, expr: object, var2val: Mapping[Var, Expr] | None = None) -> Matches | None:
        """What each pattern inside has matched; None where the expression has another form."""
        matcher = Matcher(var2val)
        return matcher.found if matcher.match(self, expr) else None

    def used_by(self, other: DFPattern | PatternSeq, index: int = -1) -> PatternSeq:
        """Say in the current PatternContext that `other` reads this."""
        return PatternSeq([self]).used_by(other, index)

    def only_used_by(self, other: DFPattern | PatternSeq, index: int = -1) -> PatternSeq:
        """Say in the current PatternContext that nothing but `other` reads this."""
        return PatternSeq([self]).only_used_by(other, index)

    def __xor__(self, other: DFPattern | PatternSeq) -> PatternSeq:
        return self.used_by(other)

    def __rshift__(self, other: DFPattern | PatternSeq) -> PatternSeq:
        return self.only_used_by(other)

    def fork_to(self, *others: DFPattern) -> None:
        """Say that each of `others` reads this."""
        for other in others:
            self.used_by(other)

    def __str__(self) -> str:
        inner = ", ".join(map(str, self.children()))
        return f"{type(self).__name__}({inner})"


class PatternSeq:
    """Patterns of which each is read by the next."""

    def __init__(self, patterns: Sequence[DFPattern], only_use: bool = False):
        self.patterns = tuple(patterns)
        for a, b in itertools.pairwise(self.patterns):
            _context().add_constraint(a, b, -1, only_use)

    def _join(self, other: DFPattern | PatternSeq, index: int, only: bool) -> PatternSeq:
        following = other.patterns if isinstance(other, PatternSeq) else (other,)
        if not all(isinstance(p, DFPattern) for p in following):
            raise InvalidTypeError(f"expected a pattern, got {type(other).__name__}")
        _context().add_constraint(self.patterns[-1], following[0], index, only)
        joined = PatternSeq(())
        joined.patterns = (*self.patterns, *following)
        return joined

    def used_by(self, other: DFPattern | PatternSeq, index: int = -1) -> PatternSeq:
        """Say that `other` reads the last pattern."""
        return self._join(other, index, False)

    def only_used_by(self, other: DFPattern | PatternSeq, index: int = -1) -> PatternSeq:
        """Say that nothing but `other` reads the last pattern."""
        return self._join(other, index, True)

    __xor__ = used_by
    __rshift__ = only_used_by

    def __getitem__(self, index: int) -> DFPattern:
        return self.patterns[index]


def _context() -> Any:
    current = resolve("autosched.relax.dpl.context:PatternContext").current()
    if current is None:
        raise InvalidValueError("used_by needs a context", hint="use `with PatternContext() as ctx:`")
    return current


class WildcardPattern(DFPattern):
    """Anything."""

    def matches(self, expr: object, matcher: Matcher) -> bool:
        return True


class ExprPattern(DFPattern):
    """One expression, or one operator."""

    def __init__(self, expr: Expr | Op):
        self.expr = expr

    def matches(self, expr: object, matcher: Matcher) -> bool:
        value = matcher.value(expr)
        if isinstance(self.expr, Op):
            return isinstance(value, Op) and value.name == self.expr.name
        return value is self.expr or expr is self.expr or structural_equal(value, self.expr)

    def __str__(self) -> str:
        return f"{self.expr}"


class VarPattern(DFPattern):
    """A variable, of a name where one is given."""

    kind: type = Var

    def __init__(self, name: str = ""):
        self.name = name

    def matches(self, expr: object, matcher: Matcher) -> bool:
        return isinstance(expr, self.kind) and self.name in ("", getattr(expr, "name", None))


class DataflowVarPattern(VarPattern):
    """A variable of a dataflow block."""

    kind = DataflowVar


class GlobalVarPattern(VarPattern):
    """The name of a function of the module."""

    kind = GlobalVar


class ExternFuncPattern(DFPattern):
    """A registered function, by name."""

    def __init__(self, global_symbol: str):
        self.global_symbol = global_symbol

    def matches(self, expr: object, matcher: Matcher) -> bool:
        return isinstance(expr, ExternFunc) and expr.global_symbol == self.global_symbol


class ConstantPattern(DFPattern):
    """A constant."""

    def matches(self, expr: object, matcher: Matcher) -> bool:
        return isinstance(matcher.value(expr), Constant)


class CallPattern(DFPattern):
    """A call: of what, with what. Sums and products match in either order.

    varg_default_wildcard  further arguments may follow
    """

    def __init__(
        self, op: DFPattern, args: Sequence[DFPattern] | None, varg_default_wildcard: bool = False,
        add_constraint: bool = True,
    ):  # fmt: skip
        refuse("CallPattern", hint="a call is constrained by its arguments", add_constraint=not add_constraint)
        self.op, self.args, self.open = op, None if args is None else tuple(args), varg_default_wildcard
        for a in self.args or ():
            if not isinstance(a, DFPattern):
                raise InvalidTypeError(f"a call pattern takes patterns, got {type(a).__name__}")

    def children(self) -> Sequence[DFPattern]:
        return (self.op, *(self.args or ()))

    def matches(self, expr: object, matcher: Matcher) -> bool:
        call = matcher.value(expr)
        if not isinstance(call, Call) or not matcher.match(self.op, call.op):
            return False
        if self.args is None:
            return True
        given = call.args[: len(self.args)] if self.open else call.args
        if matcher.match_all(self.args, given):
            return True
        return call.op_name in COMMUTATIVE and matcher.match_all(self.args, tuple(reversed(given)))

    def __str__(self) -> str:
        return f"{self.op}({', '.join(map(str, self.args or ()))})"


class FunctionPattern(DFPattern):
    """A function by its parameters and its result."""

    def __init__(self, params: Sequence[DFPattern], body: DFPattern):
        self.params, self.body = tuple(params), body

    def children(self) -> Sequence[DFPattern]:
        return (*self.params, self.body)

    def matches(self, expr: object, matcher: Matcher) -> bool:
        if not isinstance(expr, Function) or not matcher.match_all(self.params, expr.params):
            return False
        matcher.values |= {b.var: b.value for b in expr.bindings()}
        return matcher.match(self.body, expr.body.body)


class TuplePattern(DFPattern):
    """A tuple of these values."""

    def __init__(self, fields: Sequence[DFPattern]):
        self.fields = tuple(fields)

    def children(self) -> Sequence[DFPattern]:
        return self.fields

    def __getitem__(self, index: int) -> TupleGetItemPattern:
        if not -len(self.fields) <= index < len(self.fields):
            raise IndexError("TuplePattern index out of range")
        return TupleGetItemPattern(self, index)

    def __len__(self) -> int:
        return len(self.fields)

    def matches(self, expr: object, matcher: Matcher) -> bool:
        value = matcher.value(expr)
        return isinstance(value, Tuple) and matcher.match_all(self.fields, value.fields)


class UnorderedTuplePattern(TuplePattern):
    """A tuple of these values in any order."""

    def matches(self, expr: object, matcher: Matcher) -> bool:
        value = matcher.value(expr)
        if not isinstance(value, Tuple) or len(value.fields) != len(self.fields):
            return False
        return any(matcher.match_all(self.fields, order) for order in itertools.permutations(value.fields))


class TupleGetItemPattern(DFPattern):
    """An item of a tuple; any item where no index is given."""

    def __init__(self, tuple: DFPattern, index: int | None = None):  # noqa: A002
        self.tuple, self.index = tuple, index

    def children(self) -> Sequence[DFPattern]:
        return (self.tuple,)

    def matches(self, expr: object, matcher: Matcher) -> bool:
        value = matcher.value(expr)
        if not isinstance(value, TupleGetItem) or self.index not in (None, -1, value.index):
            return False
        return matcher.match(self.tuple, value.tuple_value)


class AndPattern(DFPattern):
    """Both forms at once."""

    def __init__(self, left: DFPattern, right: DFPattern):
        self.left, self.right = left, right

    def children(self) -> Sequence[DFPattern]:
        return self.left, self.right

    def matches(self, expr: object, matcher: Matcher) -> bool:
        return matcher.match(self.left, expr) and matcher.match(self.right, expr)


class OrPattern(AndPattern):
    """One form or the other."""

    def matches(self, expr: object, matcher: Matcher) -> bool:
        return matcher.match(self.left, expr) or matcher.match(self.right, expr)


class _Wrapper(DFPattern):
    """A pattern with a condition."""

    def __init__(self, pattern: DFPattern):
        self.pattern = pattern

    def children(self) -> Sequence[DFPattern]:
        return (self.pattern,)

    def holds(self, value: object) -> bool:
        """The condition."""
        raise NotImplementedError

    def matches(self, expr: object, matcher: Matcher) -> bool:
        return matcher.match(self.pattern, expr) and self.holds(expr if isinstance(expr, Var) else matcher.value(expr))


class NotPattern(_Wrapper):
    """What another pattern does not match."""

    def matches(self, expr: object, matcher: Matcher) -> bool:
        return not Matcher(matcher.values).match(self.pattern, expr)


class AttrPattern(_Wrapper):
    """With these attributes of the operator or function."""

    def __init__(self, pattern: DFPattern, attrs: Attrs):
        super().__init__(pattern)
        self.attrs = dict(attrs)

    def matches(self, expr: object, matcher: Matcher) -> bool:
        have = getattr(matcher.value(expr), "attrs", None)
        if have is None or any(k not in have or _plain(have[k]) != _plain(v) for k, v in self.attrs.items()):
            return False
        return matcher.match(self.pattern, expr)


def _plain(value: object) -> object:
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else getattr(value, "value", value)


class StructInfoPattern(_Wrapper):
    """With this annotation."""

    def __init__(self, pattern: DFPattern, info: StructInfo):
        super().__init__(pattern)
        self.info = info

    def holds(self, value: object) -> bool:
        return same_info(getattr(value, "struct_info", None), self.info)


class DataTypePattern(_Wrapper):
    """A tensor of this dtype."""

    def __init__(self, pattern: DFPattern, dtype: str):
        super().__init__(pattern)
        self.dtype = dtype

    def holds(self, value: object) -> bool:
        info = getattr(value, "struct_info", None)
        return isinstance(info, TensorStructInfo) and info.dtype == self.dtype


class ShapePattern(_Wrapper):
    """A tensor of this shape."""

    def __init__(self, pattern: DFPattern, shape: Sequence[Dim]):
        super().__init__(pattern)
        self.shape = tuple(shape)

    def holds(self, value: object) -> bool:
        info = getattr(value, "struct_info", None)
        if not isinstance(info, TensorStructInfo) or info.shape is None:
            return False
        return len(info.dims) == len(self.shape) and same_dims(info.dims, self.shape)


class PrimArrPattern(DFPattern):
    """A shape as a value."""

    def __init__(self, shape: Sequence[Dim]):
        self.shape = tuple(shape)

    def matches(self, expr: object, matcher: Matcher) -> bool:
        value = matcher.value(expr)
        return (
            isinstance(value, ShapeExpr) and len(value) == len(self.shape) and same_dims(value.values, self.shape)
        )  # fmt: skip

    def __getitem__(self, index: int) -> Dim:
        return self.shape[index]

    def __len__(self) -> int:
        return len(self.shape)


def preorder_patterns(pattern: DFPattern) -> Iterator[DFPattern]:
    """A pattern and all inside it."""
    yield pattern
    for child in pattern.children():
        yield from preorder_patterns(child)

"""Relay's constructors of expressions that Relay and relax write differently."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from autosched.errors import InvalidTypeError, TVMError
from autosched.relax import Expr, StructInfo, TensorStructInfo, Var
from autosched.relax import Tuple as GraphTuple
from autosched.relay.expr import Branch, Let, unwrap


class ScopeBuilder:
    """Writes an expression step by step: `let` a value, branch by `if_scope` and `else_scope`, `ret` a result."""

    def __init__(self) -> None:
        self._scopes: list[_Scope] = [_Scope()]

    def let(self, var: Var | str, value: object) -> Var:
        """Bind a value to a variable, or to a new one of that name; gives the variable."""
        expr = unwrap(value)
        bound = Var(var, expr.struct_info) if isinstance(var, str) else var
        self._scopes[-1].bindings.append((bound, expr))
        return bound

    @contextmanager
    def if_scope(self, cond: object) -> Iterator[None]:
        """What is written inside is computed where the condition holds."""
        yield from self._branch(cond)

    @contextmanager
    def else_scope(self) -> Iterator[None]:
        """What is written inside is computed where the condition of the `if_scope` before does not hold."""
        scope = self._scopes[-1]
        if scope.condition is None or scope.then is None:
            raise TVMError("else_scope comes after an if_scope")
        inner = _Scope()
        self._scopes.append(inner)
        yield
        self._scopes.pop()
        scope.result = If(scope.condition, scope.then, inner.get())

    def _branch(self, cond: object) -> Iterator[None]:
        scope, inner = self._scopes[-1], _Scope()
        scope.condition = unwrap(cond)
        self._scopes.append(inner)
        yield
        self._scopes.pop()
        scope.then = inner.get()

    def type_of(self, expr: object) -> StructInfo | None:
        """The type of an expression."""
        return unwrap(expr).struct_info

    def ret(self, value: object) -> None:
        """Say what the innermost scope gives."""
        self._scopes[-1].result = unwrap(value)

    def get(self) -> Expr:
        """The expression. Raises TVMError where nothing is returned."""
        return self._scopes[-1].get()


class _Scope:
    """What is written between two ends of a scope."""

    def __init__(self) -> None:
        self.bindings: list[tuple[Var, Expr]] = []
        self.condition: Expr | None = None
        self.then: Expr | None = None
        self.result: Expr | None = None

    def get(self) -> Expr:
        if self.result is None:
            raise TVMError("a scope returns nothing", hint="call ret(value)")
        whole = self.result
        for var, value in reversed(self.bindings):
            whole = Let(var, value, whole)
        return whole


def Any_() -> None:  # noqa: N802
    """Refused: shapes are static. Raises TVMError always."""
    raise TVMError("relay.Any: dimensions of unknown size are not available", hint="build the model for known sizes")


def Tuple(fields: Sequence[object]) -> GraphTuple:  # noqa: N802  (TVM's name)
    """Several values together."""
    return GraphTuple(tuple(unwrap(field) for field in fields))


def If(cond: object, true_branch: object, false_branch: object) -> Expr:  # noqa: N802  (TVM's name)
    """The value of one of two expressions; only that one is computed.

    cond  a truth: a bool tensor without dimensions
    """
    condition = unwrap(cond)
    info = condition.struct_info
    if isinstance(info, TensorStructInfo) and (info.dtype != "bool" or info.ndim not in (0, -1)):
        raise InvalidTypeError(f"If: the condition is {info!r}, not a bool tensor without dimensions")
    return Branch(condition, unwrap(true_branch), unwrap(false_branch))

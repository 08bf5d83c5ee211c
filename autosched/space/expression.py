"""Arithmetic and comparisons over knobs, read from text without ever running it as Python.

The text is parsed by `ast` and every node is checked against a short list; evaluation visits the tree with NumPy, so
that one call judges a million combinations at once.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from autosched.errors import SpaceError

MAX_CHARACTERS = 1000
MAX_MAGNITUDE = 2**53  # beyond this, int64 and float64 no longer agree
MAX_EXPONENT = 8
MAX_DEPTH = 40
Value: TypeAlias = Any  # a number or text, or a NumPy array of them: one for each combination


def _floor_divide(a: Value, b: Value) -> Value:
    return np.where(b == 0, 0, np.floor_divide(a, np.where(b == 0, 1, b)))


def _remainder(a: Value, b: Value) -> Value:
    return np.where(b == 0, 0, np.remainder(a, np.where(b == 0, 1, b)))


def _divide(a: Value, b: Value) -> Value:
    return np.where(b == 0, 0.0, np.true_divide(a, np.where(b == 0, 1, b)))


def _multiply(a: Value, b: Value) -> Value:
    if np.any(np.abs(np.multiply(a, b, dtype=np.float64)) > MAX_MAGNITUDE):
        raise SpaceError("a product in an expression is larger than 2**53")
    return np.multiply(a, b)


def _power(a: Value, b: Value) -> Value:
    if np.ndim(b) or not 0 <= b <= MAX_EXPONENT:
        raise SpaceError(f"an exponent must be a constant from 0 to {MAX_EXPONENT}")
    result = np.ones_like(a)
    for _ in range(int(b)):
        result = _multiply(result, a)
    return result


def _log2(a: Value) -> Value:
    if np.any(np.asarray(a) <= 0):
        raise SpaceError("log2 of a number that is not positive")
    return np.log2(a)


BINARY: Mapping[type[ast.AST], Callable[[Value, Value], Value]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: _multiply,
    ast.Div: _divide,
    ast.FloorDiv: _floor_divide,
    ast.Mod: _remainder,
    ast.Pow: _power,
}
COMPARE: Mapping[type[ast.AST], Callable[[Value, Value], Value]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
FUNCTIONS: Mapping[str, tuple[int, Callable[..., Value]]] = {
    "min": (2, np.minimum),
    "max": (2, np.maximum),
    "abs": (1, np.abs),
    "ceildiv": (2, lambda a, b: -_floor_divide(-np.asarray(a), b)),
    "log2": (1, _log2),
}


@dataclass(frozen=True)
class Expression:
    """A checked expression; called with the value (a number, text or array of them) of each of its names."""

    text: str
    names: frozenset[str]
    tree: ast.expr

    def __call__(self, values: Mapping[str, Value]) -> Value:
        """The value of the expression; arrays broadcast. A division by zero gives 0.

        Raises  SpaceError if types do not fit or a product is beyond 2**53.
        """
        try:
            return _evaluate(self.tree, values)
        except (TypeError, ValueError, IndexError, OverflowError) as error:
            raise SpaceError(f"expression '{self.text}' cannot be evaluated: {error}") from None
        except SpaceError as error:
            raise SpaceError(error.message, where=f"expression '{self.text}'") from None


def parse_expression(text: str) -> Expression:
    """Read an expression: numbers, names, text in quotes, + - * / // % **, comparisons, and or not, in, if else,
    `name[0]` for a part of a split, min, max, abs, ceildiv, log2.

    Raises  SpaceError, naming what is not allowed.
    """
    if not isinstance(text, str) or not text.strip():
        raise SpaceError("an expression must be text that is not empty")
    if len(text) > MAX_CHARACTERS:
        raise SpaceError(f"an expression of {len(text)} characters", hint=f"use at most {MAX_CHARACTERS}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        names: set[str] = set()
        _check(tree, names, text, MAX_DEPTH)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, SpaceError):
            raise
        reason = getattr(error, "msg", None) or type(error).__name__
        raise SpaceError(f"expression '{text[:80]}' cannot be read: {reason}") from None
    return Expression(text.strip(), frozenset(names), tree)


def _check(node: ast.AST, names: set[str], text: str, depth: int) -> None:
    if depth == 0:
        raise SpaceError(f"expression '{text[:80]}' is nested too deeply")
    match node:
        case ast.Constant(value=bool() | str()):
            return
        case ast.Constant(value=int() | float() as number) if abs(number) <= MAX_MAGNITUDE:
            return
        case ast.Name(id=name):
            names.add(name)
            return
        case ast.BinOp(op=op) if type(op) in BINARY:
            parts: list[ast.expr] = [node.left, node.right]
        case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand):
            parts = [operand]
        case ast.BoolOp(values=operands):
            parts = operands
        case ast.Compare(left=left, ops=ops, comparators=others):
            for compare, other in zip(ops, others, strict=True):
                if isinstance(compare, ast.In | ast.NotIn) and not isinstance(other, ast.Tuple | ast.List):
                    raise _refused("'in' without a list of values", text)
                if not isinstance(compare, ast.In | ast.NotIn) and type(compare) not in COMPARE:
                    raise _refused(f"the comparison {type(compare).__name__}", text)
            parts = [left]
            for other in others:
                parts += other.elts if isinstance(other, ast.Tuple | ast.List) else [other]
        case ast.IfExp(test=test, body=body, orelse=orelse):
            parts = [test, body, orelse]
        case ast.Subscript(value=ast.Name() as value, slice=ast.Constant(value=int())):
            parts = [value]
        case ast.Call(func=ast.Name(id=function), args=arguments, keywords=[]) if function in FUNCTIONS:
            count = FUNCTIONS[function][0]
            if len(arguments) != count:
                raise SpaceError(f"expression '{text}': {function} takes {count} argument{'s' * (count > 1)}")
            parts = arguments
        case _:
            raise _refused(type(node).__name__, text)
    for part in parts:
        _check(part, names, text, depth - 1)


def _refused(what: str, text: str) -> SpaceError:
    allowed = "numbers, knobs, + - * / // % **, comparisons, and/or/not, in, if-else, min, max, abs, ceildiv, log2"
    return SpaceError(f"expression '{text[:80]}' uses {what}", hint=f"allowed are {allowed}")


def _evaluate(node: ast.AST, values: Mapping[str, Value]) -> Value:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            if name not in values:
                raise SpaceError(f"'{name}' has no value")
            return values[name]
        case ast.BinOp(left=left, op=op, right=right):
            return BINARY[type(op)](_evaluate(left, values), _evaluate(right, values))
        case ast.UnaryOp(op=op, operand=operand):
            value = _evaluate(operand, values)
            return np.negative(value) if isinstance(op, ast.USub) else np.logical_not(value)
        case ast.BoolOp(op=op, values=operands):
            join = np.logical_and if isinstance(op, ast.And) else np.logical_or
            result = _evaluate(operands[0], values)
            for operand in operands[1:]:
                result = join(result, _evaluate(operand, values))
            return result
        case ast.Compare():
            return _compare(node, values)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return np.where(_evaluate(test, values), _evaluate(body, values), _evaluate(orelse, values))
        case ast.Subscript(value=value, slice=ast.Constant(value=int() as index)):
            return np.asarray(_evaluate(value, values))[..., index]
        case ast.Call(func=ast.Name(id=function), args=arguments):
            return FUNCTIONS[function][1](*(_evaluate(argument, values) for argument in arguments))
    raise AssertionError(f"unchecked node {type(node).__name__}")


def _compare(node: ast.Compare, values: Mapping[str, Value]) -> Value:
    left = _evaluate(node.left, values)
    result: Value = np.True_
    for op, other in zip(node.ops, node.comparators, strict=True):
        if isinstance(op, ast.In | ast.NotIn):
            assert isinstance(other, ast.Tuple | ast.List), "checked when parsed"
            found = np.zeros(np.shape(left), dtype=bool)
            for element in other.elts:
                found = np.logical_or(found, _equal(left, _evaluate(element, values)))
            result = np.logical_and(result, found if isinstance(op, ast.In) else ~found)
            continue
        right = _evaluate(other, values)
        compare = _equal if isinstance(op, ast.Eq) else COMPARE[type(op)]
        result = np.logical_and(result, compare(left, right))
        left = right
    return result


def _equal(a: Value, b: Value) -> Value:
    """Element-wise equality that also holds between text and numbers (never equal)."""
    return np.equal(np.asarray(a, dtype=object), np.asarray(b, dtype=object)).astype(bool) if _mixed(a, b) else a == b


def _mixed(a: object, b: object) -> bool:
    return (np.asarray(a).dtype.kind in "UO") != (np.asarray(b).dtype.kind in "UO")

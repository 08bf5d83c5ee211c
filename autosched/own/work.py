"""Counts the arithmetic of one call of an own function from its source, where the arguments alone decide it."""

from __future__ import annotations

import ast
import builtins
import inspect
import math
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from autosched.own.specialise import definition, read_source

MOST_STEPS = 20_000  # iterations that are looked at one by one; loops that are all alike take one
MOST_DEPTH = 8  # of calls
_Read = dict[Callable[..., object], tuple[Sequence[ast.stmt], Mapping[str, Any]]]
PLAIN = (int, float, bool, np.integer, np.floating, np.bool_)
NEW_ARRAYS = (np.empty, np.zeros, np.ones)
LIKE_ARRAYS = (np.empty_like, np.zeros_like, np.ones_like)
OPERATORS: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b, ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b, ast.Mod: lambda a, b: a % b, ast.Pow: lambda a, b: a**b,
    ast.Eq: lambda a, b: a == b, ast.NotEq: lambda a, b: a != b, ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b, ast.Gt: lambda a, b: a > b, ast.GtE: lambda a, b: a >= b,
}  # fmt: skip


class CannotTell(Exception):  # noqa: N818  # no error: the answer is that it is not known
    """The source does not say how much it computes."""


@dataclass(frozen=True)
class Unknown:
    """A number that is known when the function runs."""

    is_float: bool


def count_flops(func: Callable[..., object], named: Mapping[str, object]) -> int | None:
    """The additions, multiplications, divisions, … of floats in a call with these arguments, knobs among them.

    Function calls such as `math.exp` count one. None where values of arrays decide the course, or for whole-array
    expressions, `while` and what else this does not read.
    """
    try:
        return _run(func, named, {}, depth=0)[0] or None
    except (CannotTell, RecursionError, ArithmeticError, ValueError, TypeError, LookupError):
        return None


def _run(func: Callable[..., object], named: Mapping[str, object], read: _Read, depth: int) -> tuple[int, object]:
    """(operations, what is returned) of a call."""
    if depth > MOST_DEPTH:
        raise CannotTell
    if func not in read:
        read[func] = _read(func)
    body, outside = read[func]
    counter = _Counter(outside, dict(named), read, depth)
    counter.block(body)
    return counter.flops, counter.returned


def _read(func: Callable[..., object]) -> tuple[Sequence[ast.stmt], Mapping[str, Any]]:
    """(body, what its free names are) of a function."""
    if (text := read_source(func)) is None:
        raise CannotTell
    return definition(text).body, {**vars(builtins), **func.__globals__, **inspect.getclosurevars(func).nonlocals}


@dataclass
class _Counter:
    """Goes through a body with the values that are known.

    outside  globals;  known  values of arguments and variables;  read  functions that were called before
    """

    outside: Mapping[str, Any]
    known: dict[str, Any]
    read: _Read
    depth: int
    flops: int = 0
    steps: int = 0
    returned: object = None
    has_returned: bool = field(default=False)

    # ---- statements

    def block(self, body: Sequence[ast.stmt], *, is_loop: bool = False) -> None:
        for node in body:
            if self.has_returned:
                return
            self._statement(node, is_loop)

    def _statement(self, node: ast.stmt, is_loop: bool) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                found = self.value(value)
                for target in targets:
                    self._set(target, found)
            case ast.AugAssign(target=target, op=op, value=value):
                self._set(target, self._binary(op, self.value(target), self.value(value)))
            case ast.For(target=ast.Name(id=name), iter=ast.Call() as head, body=body, orelse=[]):
                self._loop(name, self._range(head), body)
            case ast.If(test=test, body=body, orelse=orelse):
                self._branch(self.value(test), body, orelse, is_loop)
            case ast.Return(value=value) if not is_loop:
                self.returned = None if value is None else self.value(value)
                self.has_returned = True
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass
            case ast.Expr(value=value):
                self.value(value)
            case _:
                raise CannotTell

    def _set(self, target: ast.expr, found: object) -> None:
        match target:
            case ast.Name(id=name):
                self.known[name] = found
            case ast.Tuple(elts=parts) if isinstance(found, tuple) and len(found) == len(parts):
                for part, value in zip(parts, found, strict=True):
                    self._set(part, value)
            case ast.Subscript(value=base) if isinstance(found, (Unknown, *PLAIN)):
                self.value(base)
            case _:
                raise CannotTell

    def _range(self, head: ast.Call) -> range:
        name = head.func.attr if isinstance(head.func, ast.Attribute) else getattr(head.func, "id", "")
        bounds = [self.value(argument) for argument in head.args]
        if name not in ("range", "prange") or not all(isinstance(bound, int | np.integer) for bound in bounds):
            raise CannotTell
        return range(*(int(bound) for bound in bounds))

    def _loop(self, name: str, values: range, body: Sequence[ast.stmt]) -> None:
        """One iteration for all of them, unless their course depends on what differs between them."""
        changed = {name, *_assigned(body)}
        if changed & _deciding(body):
            for value in values:
                self.steps += 1
                if self.steps > MOST_STEPS:
                    raise CannotTell
                self.known[name] = value
                self.block(body, is_loop=True)
            return
        before = self.flops
        self._forget(changed)
        if len(values):
            self.known[name] = Unknown(False)
            self.block(body, is_loop=True)
        self.flops = before + len(values) * (self.flops - before)
        self._forget(changed)

    def _branch(self, test: object, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt], is_loop: bool) -> None:
        """The branch that is taken; of two that may be taken, the one with more work."""
        if not isinstance(test, Unknown):
            self.block(body if test else orelse, is_loop=is_loop)
            return
        if all(isinstance(node, ast.Raise) for node in body) and not orelse:
            return
        before, known, most = self.flops, dict(self.known), self.flops
        for part in (body, orelse):
            self.flops, self.known = before, dict(known)
            self.block(part, is_loop=True)
            most = max(most, self.flops)
        self.flops, self.known = most, known
        self._forget({*_assigned(body), *_assigned(orelse)})

    def _forget(self, names: set[str]) -> None:
        for name in names:
            found = self.known.get(name)
            if isinstance(found, PLAIN):
                self.known[name] = Unknown(isinstance(found, float | np.floating))

    # ---- expressions

    def value(self, node: ast.expr) -> Any:
        """What an expression gives; its operations are counted."""
        match node:
            case ast.Constant(value=found):
                return found
            case ast.Name(id=name):
                if name not in self.known and name not in self.outside:
                    raise CannotTell
                return self.known.get(name, self.outside.get(name))
            case ast.Tuple(elts=parts):
                return tuple(self.value(part) for part in parts)
            case ast.Attribute(value=base, attr=attr):
                return self._attribute(self.value(base), attr)
            case ast.Subscript(value=base, slice=index):
                return self._element(self.value(base), index)
            case ast.BinOp(left=left, op=op, right=right):
                return self._binary(op, self.value(left), self.value(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                found = self.value(operand)
                return found if isinstance(found, Unknown) else -found
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                found = self.value(operand)
                return found if isinstance(found, Unknown) else not found
            case ast.Compare(left=left, ops=ops, comparators=others):
                sides = [self.value(side) for side in (left, *others)]
                made: list[object] = [self._compare(op, *pair) for op, pair in zip(ops, pairwise(sides), strict=True)]
                return Unknown(False) if any(isinstance(part, Unknown) for part in made) else all(made)
            case ast.BoolOp(op=op, values=values):
                each = [self.value(part) for part in values]
                if any(isinstance(part, Unknown) for part in each):
                    return Unknown(False)
                return all(each) if isinstance(op, ast.And) else any(each)
            case ast.Call(func=func, args=args, keywords=keywords):
                return self._call(self.value(func), [self.value(a) for a in args], keywords)
        raise CannotTell

    def _attribute(self, base: object, attr: str) -> object:
        if isinstance(base, np.ndarray) and attr in ("size", "ndim", "shape", "dtype"):
            return getattr(base, attr)
        if isinstance(base, np.dtype) and attr == "type":
            return base.type
        if isinstance(base, types.ModuleType):
            return getattr(base, attr)
        raise CannotTell

    def _element(self, base: object, index: ast.expr) -> object:
        before = self.flops
        found = self.value(index)
        self.flops = before  # addresses are no arithmetic
        if isinstance(base, tuple) and isinstance(found, int):
            return base[found]
        places = found if isinstance(found, tuple) else (found,)
        is_one = all(isinstance(p, Unknown | int | np.integer) for p in places)
        if isinstance(base, np.ndarray) and is_one and len(places) <= base.ndim:
            if len(places) == base.ndim:
                return Unknown(base.dtype.kind in "fc")
            return _array(base.shape[len(places) :], base.dtype)
        raise CannotTell

    def _binary(self, op: ast.operator, left: object, right: object) -> object:
        both = (left, right)
        if not all(isinstance(side, (Unknown, *PLAIN)) for side in both):
            raise CannotTell
        is_float = isinstance(op, ast.Div) or any(_is_float(side) for side in both)
        self.flops += is_float
        if any(isinstance(side, Unknown) for side in both) or type(op) not in OPERATORS:
            return Unknown(is_float)
        return OPERATORS[type(op)](left, right)

    def _compare(self, op: ast.cmpop, left: object, right: object) -> object:
        if isinstance(left, Unknown) or isinstance(right, Unknown):
            return Unknown(False)
        if isinstance(left, np.ndarray) or isinstance(right, np.ndarray) or type(op) not in OPERATORS:
            raise CannotTell
        return OPERATORS[type(op)](left, right)

    def _call(self, func: object, args: list[Any], keywords: Sequence[ast.keyword]) -> Any:
        inner = getattr(func, "py_func", func)
        named = {word.arg: self.value(word.value) for word in keywords if word.arg}
        is_known = all(isinstance(a, PLAIN) for a in args)
        if func is len and isinstance(args[0], np.ndarray):
            return args[0].shape[0]
        if func in NEW_ARRAYS:
            return _array(args[0], np.dtype([*args[1:], *named.values(), "float64"][0]))
        if func in LIKE_ARRAYS and isinstance(args[0], np.ndarray):
            return _array(args[0].shape, args[0].dtype)
        if any(isinstance(a, np.ndarray) for a in args) and not isinstance(inner, types.FunctionType):
            raise CannotTell
        if func in (int, round) or (isinstance(func, type) and issubclass(func, np.integer)):
            return int(args[0]) if is_known else Unknown(False)
        if func is float or (isinstance(func, type) and issubclass(func, np.floating)):
            return float(args[0]) if is_known else Unknown(True)
        if func in (min, max, abs):
            is_float = any(_is_float(a) for a in args)
            self.flops += is_float * max(1, len(args) - 1)
            return func(*args) if is_known else Unknown(is_float)
        if isinstance(func, np.ufunc) or getattr(func, "__module__", "") == "math":
            self.flops += 1
            return Unknown(func not in (math.floor, math.ceil))
        if isinstance(inner, types.FunctionType):
            bound = inspect.signature(inner).bind(*args, **named)
            bound.apply_defaults()
            flops, returned = _run(inner, bound.arguments, self.read, self.depth + 1)
            self.flops += flops
            return returned
        raise CannotTell


def _is_float(value: object) -> bool:
    return value.is_float if isinstance(value, Unknown) else isinstance(value, float | np.floating)


def _array(shape: Any, dtype: np.dtype) -> np.ndarray:
    """An array that takes no memory."""
    return np.broadcast_to(np.zeros((), dtype), shape)


def _names(node: ast.AST) -> Iterator[str]:
    return (inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name))


def _assigned(body: Sequence[ast.stmt]) -> set[str]:
    """The names that a body sets."""
    inner = (node for statement in body for node in ast.walk(statement))
    return {node.id for node in inner if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _deciding(body: Sequence[ast.stmt]) -> set[str]:
    """The names that decide how often something in a body runs, with those that these are computed from."""
    found: set[str] = set()
    nodes = [node for statement in body for node in ast.walk(statement)]
    for node in nodes:
        if isinstance(node, ast.For):
            found |= set(_names(node.iter))
        elif isinstance(node, ast.If) and not _reads_data(node.test):
            found |= set(_names(node.test))
    found -= {
        name for node in nodes if isinstance(node, ast.Assign) and _reads_data(node.value) for name in _set_by(node)
    }
    size = -1
    while size < len(found):
        size = len(found)
        for node in nodes:
            if isinstance(node, ast.Assign | ast.AugAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if any(set(_names(target)) & found for target in targets):
                    found |= set(_names(node.value))
    return found


def _set_by(node: ast.Assign) -> Iterator[str]:
    return (name for target in node.targets for name in _names(target))


def _reads_data(node: ast.AST) -> bool:
    """Whether an expression reads elements of arrays: what they are is not known, and decides nothing that is."""
    elements = (n for n in ast.walk(node) if isinstance(n, ast.Subscript))
    return any(not (isinstance(n.value, ast.Attribute) and n.value.attr == "shape") for n in elements)


def call_bytes(named: Mapping[str, object]) -> int | None:
    """The bytes of all arrays among the arguments, each once; None where there are none."""
    arrays = {id(value): value.nbytes for value in named.values() if isinstance(value, np.ndarray)}
    return sum(arrays.values()) or None

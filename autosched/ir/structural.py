"""Equality and hash by form: names of variables and of blocks do not matter, everything else does."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np

from autosched.errors import InvalidValueError
from autosched.ir.module import IRModule
from autosched.ir.node import Node, PerType, form_fields, labels


class _Matcher:
    def __init__(self, map_free_vars: bool):
        self.map_free_vars = map_free_vars
        self.left: dict[int, object] = {}
        self.right: dict[int, object] = {}
        self.path: list[str] = []
        self.reason = ""
        self.same: set[tuple[int, int]] = set()  # scalar expressions found equal: their variables are paired for good

    def fail(self, a: object, b: object) -> bool:
        if not self.reason:
            self.reason = f"at {'.'.join(self.path) or '<root>'}: {_brief(a)} against {_brief(b)}"
        return False

    def pair(self, a: object, b: object) -> None:
        self.left[id(a)], self.right[id(b)] = b, a

    def equal(self, a: object, b: object, defines: bool = False) -> bool:
        if isinstance(a, IRModule) and isinstance(b, IRModule):
            return self.modules(a, b)
        if isinstance(a, Node) and isinstance(b, Node):
            return self.nodes(a, b, defines)
        if isinstance(a, tuple | list) and isinstance(b, tuple | list):
            if len(a) != len(b):
                return self.fail(a, b)
            return all(self.step(str(i), x, y, defines) for i, (x, y) in enumerate(zip(a, b, strict=True)))
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            return self.mappings(a, b, defines)
        if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
            if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b):
                return True
            return self.fail(a, b)
        return (type(a) is type(b) and a == b) or self.fail(a, b)

    def mappings(self, a: Mapping[object, object], b: Mapping[object, object], defines: bool) -> bool:
        if len(a) != len(b):
            return self.fail(sorted(map(str, a)), sorted(map(str, b)))
        if any(isinstance(k, Node) for k in a):  # buffer maps: keys are variables, matched in order
            return all(
                self.equal(ka, kb, defines) and self.step(getattr(ka, "name", "key"), a[ka], b[kb], defines)
                for ka, kb in zip(a, b, strict=True)
            )
        if a.keys() != b.keys():
            return self.fail(sorted(map(str, a)), sorted(map(str, b)))
        return all(self.step(str(k), a[k], b[k], defines) for k in a)

    def modules(self, a: IRModule, b: IRModule) -> bool:
        left, right = a.functions_items(), b.functions_items()
        if [gv.name for gv, _ in left] != [gv.name for gv, _ in right]:
            return self.fail([gv.name for gv, _ in left], [gv.name for gv, _ in right])
        for (x, _), (y, _) in zip(left, right, strict=True):
            self.pair(x, y)
        return self.step("attrs", a.attrs, b.attrs, False) and all(
            self.step(x.name, f, g, False) for (x, f), (_, g) in zip(left, right, strict=True)
        )

    def step(self, name: str, a: object, b: object, defines: bool) -> bool:
        self.path.append(name)
        result = self.equal(a, b, defines)
        self.path.pop()
        return result

    def nodes(self, a: Node, b: Node, defines: bool) -> bool:
        if type(a) is not type(b):
            return self.fail(a, b)
        if not a.is_scalar:
            return self.fields(a, b, defines)
        if (id(a), id(b)) in self.same:
            return True
        if not self.fields(a, b, defines):
            return False
        self.same.add((id(a), id(b)))
        return True

    def fields(self, a: Node, b: Node, defines: bool) -> bool:
        if getattr(type(a), "is_variable", False):
            if id(a) in self.left or id(b) in self.right:
                return (self.left.get(id(a)) is b and self.right.get(id(b)) is a) or self.fail(a, b)
            if not defines and not self.map_free_vars:
                return a is b or self.fail(a, b)
            skip = frozenset({"name"})
            self.pair(a, b)
        else:
            skip = labels(type(a))
        return all(
            self.step(
                name, getattr(a, name), getattr(b, name), marked or defines
            )  # a buffer's shape defines its symbols
            for name, marked in form_fields(type(a))
            if name not in skip
        )


def _brief(x: object) -> str:
    text = repr(x) if not isinstance(x, Node) else f"{type(x).__name__} {x}"
    return text if len(text) <= 120 else text[:117] + "..."


def structural_equal(lhs: object, rhs: object, map_free_vars: bool = False) -> bool:
    """Whether two nodes (or modules, tuples of nodes) have the same form, whatever their variables are called."""
    return _Matcher(map_free_vars).equal(lhs, rhs)


def assert_structural_equal(lhs: object, rhs: object, map_free_vars: bool = False) -> None:
    """Raises ValueError naming the first difference."""
    matcher = _Matcher(map_free_vars)
    if not matcher.equal(lhs, rhs):
        raise InvalidValueError(f"StructuralEqual check failed {matcher.reason}")


MOST_TOKENS = 200_000  # of a form as a tree; longer ones have digests in place of what occurs again


class _TooLong(Exception):
    """A form has more than MOST_TOKENS."""


class _Unnamed(Exception):
    """An expression has a variable that has no number yet."""


class _Written(dict[type, tuple[bool, str, Callable[[object], Iterable[object]]]]):
    """(whether it is a variable, its name, what reads the fields that are written) by node type.

    Written are all but a variable's name, and labels only where they count.
    """

    def __init__(self, labelled: bool):
        self.labelled = labelled

    def __missing__(self, kind: type) -> tuple[bool, str, Callable[[object], Iterable[object]]]:
        is_variable = bool(getattr(kind, "is_variable", False))
        left_out = frozenset({"name"}) if is_variable else frozenset() if self.labelled else labels(kind)
        names = tuple(name for name, _ in form_fields(kind) if name not in left_out)
        found = self[kind] = is_variable, kind.__name__, _reader(names)
        return found


def _reader(names: tuple[str, ...]) -> Callable[[object], Iterable[object]]:
    """What gives the values of some fields."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda node: [getattr(node, name) for name in names]


_WRITTEN = {labelled: _Written(labelled) for labelled in (False, True)}
_IS_NODE = PerType(lambda kind: issubclass(kind, Node) and not issubclass(kind, IRModule))
_PREFIXES: dict[type, str] = {kind: f"{kind.__name__}:" for kind in (str, int, float, bool)}


@dataclass
class _Digester:
    """Writes a form as tokens.

    condensed  a scalar expression whose variables have all occurred before is one token, a digest of it. Whether it
               is one depends on the form alone, not on which nodes are shared, and a shared node is looked at once.
    valued     arrays count by what they hold, not by shape and dtype alone
    """

    labelled: bool
    condensed: bool
    valued: bool = True
    names: dict[int, int] = field(default_factory=dict)  # the numbers of variables, by their ids
    variables: list[Any] = field(default_factory=list)  # by number
    digests: dict[int, str] = field(default_factory=dict)

    def write(self, x: object, out: list[str], known_only: bool = False) -> None:
        """The tokens of `x`. Raises _Unnamed for a new variable if `known_only`, _TooLong."""
        prefix = _PREFIXES.get(type(x))
        if prefix is not None:  # first, for they are half of all
            out.append(f"{prefix}{x!r};")
        elif isinstance(x, (tuple, list)):
            out.append("[")
            for v in x:
                if self.condensed or not _IS_NODE[type(v)]:
                    self.write(v, out, known_only)
                elif (number := self.names.get(id(v))) is not None:
                    out.append(f"#{number}")
                else:
                    self.whole(v, out)
            out.append("]")
        elif isinstance(x, IRModule):
            for gv, function in x.functions_items():
                out.append(gv.name)
                if id(gv) not in self.names:
                    self.number(gv)
                self.write(function, out, known_only)
        elif isinstance(x, Node):
            if self.condensed:
                self.node(x, out, known_only)
            else:
                self.whole(x, out)
        elif isinstance(x, Mapping):
            out.append("{")
            keys = list(x) if any(isinstance(k, Node) for k in x) else sorted(x, key=str)
            for k in keys:
                self.write(k, out, known_only)
                self.write(x[k], out, known_only)
            out.append("}")
        elif isinstance(x, np.ndarray):
            held = hashlib.sha256(np.ascontiguousarray(x).tobytes()).hexdigest() if self.valued else ""
            out.append(f"{x.dtype}{x.shape}{held}")
        else:
            out.append(f"{type(x).__name__}:{x!r};")

    def number(self, variable: Node) -> None:
        """Give a variable the next number."""
        self.names[id(variable)] = len(self.names)
        self.variables.append(variable)

    def whole(self, x: Node, out: list[str]) -> None:
        """The tokens of a node where nothing is condensed: what `node` and `fields` write, with fewer calls."""
        is_variable, name, read = _WRITTEN[self.labelled][type(x)]
        if is_variable:
            number = self.names.get(id(x))
            if number is not None:
                out.append(f"#{number}")
                return
            self.names[id(x)] = len(self.names)
            self.variables.append(x)
        elif x.is_scalar and len(out) > MOST_TOKENS:
            raise _TooLong
        out.append(name)
        out.append("(")
        numbers = self.names
        for value in read(x):
            kind = type(value)
            prefix = _PREFIXES.get(kind)
            if prefix is not None:
                out.append(f"{prefix}{value!r};")
            elif (number := numbers.get(id(value))) is not None:  # without a call
                out.append(f"#{number}")
            elif _IS_NODE[kind]:
                self.whole(value, out)  # type: ignore[arg-type]
            else:
                self.write(value, out)
        out.append(")")

    def node(self, x: Node, out: list[str], known_only: bool) -> None:
        """The tokens of a node, its digest where it has one."""
        is_variable, _, _ = _WRITTEN[self.labelled][type(x)]
        if is_variable and id(x) in self.names:
            out.append(f"#{self.names[id(x)]}")
            return
        if is_variable and known_only:
            raise _Unnamed
        if x.is_scalar and not is_variable:
            if known_only:
                out.append(self.digest(x))
                return
            try:
                out.append(self.digest(x))
                return
            except _Unnamed:
                pass
        if is_variable:
            self.number(x)
        self.fields(x, out, known_only)

    def fields(self, x: Node, out: list[str], known_only: bool) -> None:
        _, name, read = _WRITTEN[self.labelled][type(x)]
        out.append(name)
        out.append("(")
        for value in read(x):
            prefix = _PREFIXES.get(type(value))  # as `write` does, which costs a call
            if prefix is not None:
                out.append(f"{prefix}{value!r};")
            elif isinstance(value, Node) and not isinstance(value, IRModule):
                self.node(value, out, known_only)
            else:
                self.write(value, out, known_only)
        out.append(")")

    def digest(self, x: Node) -> str:
        """One token for an expression all of whose variables have numbers, which stay what they are."""
        if id(x) not in self.digests:
            out: list[str] = []
            self.fields(x, out, known_only=True)
            self.digests[id(x)] = _sha256(out)
        return self.digests[id(x)]


def _sha256(tokens: list[str]) -> str:
    return hashlib.sha256("\x1f".join(tokens).encode()).hexdigest()


def structural_key(node: object, *, labelled: bool = True, valued: bool = True) -> str:
    """A hexadecimal SHA-256 of the form; equal forms give equal keys in every process.

    labelled  count the names of blocks, which `structural_equal` does not look at but generated code shows
    valued    count what arrays hold; else models of one form with other weights have equal keys
    """
    return _key_and_variables(node, labelled, valued)[0]


def _key_and_variables(node: object, labelled: bool = True, valued: bool = True) -> tuple[str, list[Any]]:
    """The key of a form, and its variables in the order of their numbers."""
    for condensed in (False, True):
        out: list[str] = []
        digester = _Digester(labelled, condensed, valued)
        try:
            digester.write(node, out)
        except _TooLong:
            continue
        return _sha256(out), digester.variables
    raise AssertionError("a condensed form is never too long")


@functools.lru_cache(maxsize=512)
def function_texts(func: Node) -> tuple[str, str]:
    """`structural_key` of a function of the loop level, and the names of its variables as their numbers go.

    Several steps of a build ask for them.
    """
    key, variables = _key_and_variables(func)
    return key, ",".join(v.name for v in variables)


def function_key(func: Node) -> str:
    """The first of `function_texts`."""
    return function_texts(func)[0]


def structural_hash(node: object, map_free_vars: bool = False) -> int:
    """A 63-bit hash by form; equal for what `structural_equal` finds equal."""
    return int(structural_key(node, labelled=False)[:15], 16)

"""The base of all IR nodes, and generic visitors of them.

A node is a frozen dataclass with `eq=False`: nodes compare by identity, and by form through `structural_equal`.
Field metadata says what a visitor needs to know: `DEFINES` marks the variables that a node introduces.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from operator import attrgetter, is_
from types import MappingProxyType
from typing import Any, ClassVar, TypeAlias, TypeVar

N = TypeVar("N")
T = TypeVar("T")

# Attributes by name: each operator, loop or function says of which type its own are.
Attrs: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Span:
    """A place in the user's source: file, line and column (both from 1); of a model, a node's name and line 0."""

    file: str
    line: int
    column: int = 1


Array = tuple  # type: ignore[type-arg]  # TVM's name of lists in nodes


class FrozenDict(dict[Any, Any]):
    """A dict that refuses change; the default of every attribute mapping."""

    def _refuse(self, *_: object, **__: object) -> None:
        raise TypeError("IR attributes are immutable; make a new node with dataclasses.replace")

    __setitem__ = __delitem__ = update = pop = popitem = clear = setdefault = _refuse  # type: ignore[assignment]

    def __missing__(self, key: object) -> Any:
        if isinstance(key, str) and key.startswith("tirx."):  # TVM's name of today for "tir."
            return self[f"tir.{key[5:]}"]
        raise KeyError(key)

    __hash__ = object.__hash__  # type: ignore[assignment]  # as of nodes: by identity

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return FrozenDict, (dict(self),)

    def set(self, **changes: object) -> FrozenDict:
        """A copy with some entries replaced."""
        return FrozenDict({**self, **changes})


class Node:
    """Base of all IR nodes."""

    __slots__ = ()
    is_scalar: ClassVar[bool] = False  # a scalar expression: Python values that are shared are one node many times

    def same_as(self, other: object) -> bool:
        """Whether both are one object."""
        return self is other


# What a node's field may say of itself: `loop_var: Var = field(metadata=DEFINES)`.
DEFINES: Mapping[str, bool] = MappingProxyType({"defines": True})  # it introduces variables: loop variables, parameters
IGNORED: Mapping[str, bool] = MappingProxyType({"ignored": True})  # it is no part of the node's form: a span, a cache
LABEL: Mapping[str, bool] = MappingProxyType({"label": True})  # what people call it: forms are equal whatever it is


def _form_fields(kind: type) -> tuple[tuple[str, bool], ...]:
    """(name, defines variables) of each field that belongs to the form of `kind`, definitions before uses."""
    fields = (f for f in dataclasses.fields(kind) if not f.metadata.get("ignored"))
    marked = ((f.name, bool(f.metadata.get("defines"))) for f in fields)
    return tuple(sorted(marked, key=lambda field: not field[1]))


# cached, and typed by hand: a class whose instances have a `__hash__` of their own is no `Hashable` to mypy
form_fields: Callable[[type], tuple[tuple[str, bool], ...]] = cache(_form_fields)


def _labels(kind: type) -> frozenset[str]:
    """The names of the fields that are labels."""
    return frozenset(f.name for f in dataclasses.fields(kind) if f.metadata.get("label"))


labels: Callable[[type], frozenset[str]] = cache(_labels)


class PerType(dict[type, T]):
    """What is found out once about each type, by a function of it: a look-up costs less than a question to the type."""

    __slots__ = ("find",)

    def __init__(self, find: Callable[[type], T]):
        self.find = find

    def __missing__(self, kind: type) -> T:
        found = self[kind] = self.find(kind)
        return found


_PLAIN, _NODE, _TUPLE, _MAPPING = range(4)
_PLAIN_FIELDS = frozenset({"str", "int", "float", "bool", "None"})


def _sort(kind: type) -> int:
    """Which of the four a value of this type is."""
    return (
        _NODE if issubclass(kind, Node) else _TUPLE if issubclass(kind, tuple) else _MAPPING * issubclass(kind, Mapping)
    )


def _child_names(kind: type) -> tuple[str, ...]:
    """The fields that belong to the form of `kind` and may hold nodes; the others are declared as texts and numbers."""
    declared = {f.name: set(str(f.type).replace(" ", "").split("|")) for f in dataclasses.fields(kind)}
    return tuple(name for name, _ in form_fields(kind) if not declared[name] <= _PLAIN_FIELDS)


def _all_values(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """What reads fields of these names at once."""
    if len(names) == 1:
        (only,) = names
        return lambda node: (getattr(node, only),)
    return attrgetter(*names)


def _child_values(kind: type) -> Callable[[Any], tuple[Any, ...]] | None:
    """What reads all fields that may hold nodes at once; None where there are none."""
    names = _CHILD_NAMES[kind]
    return _all_values(names) if names else None


def _arguments(kind: type) -> tuple[Callable[[Any], tuple[Any, ...]], tuple[int, ...]]:
    """What gives the arguments that make a node of this type again, and which of them may hold nodes."""
    fields = [f for f in dataclasses.fields(kind) if f.init]
    assert not any(f.kw_only for f in fields), f"{kind.__name__} is made from positions"
    names = tuple(f.name for f in fields)
    return _all_values(names), tuple(map(names.index, _CHILD_NAMES[kind]))


_SORTS, _CHILD_NAMES, _CHILD_VALUES = PerType(_sort), PerType(_child_names), PerType(_child_values)
_ARGUMENTS = PerType(_arguments)


def _map_value(value: Any, f: Callable[[Node], object]) -> object:
    sort = _SORTS[type(value)]
    if sort == _PLAIN:
        return value
    if sort == _NODE:
        return f(value)
    if sort == _TUPLE:
        new = [_map_value(v, f) for v in value]
        return value if all(map(is_, new, value)) else tuple(new)
    if not value:
        return value
    changed = {k: _map_value(v, f) for k, v in value.items()}
    return value if all(changed[k] is value[k] for k in value) else FrozenDict(changed)


def map_children(node: N, f: Callable[[Node], object]) -> N:
    """`node` with `f` applied to each child node; the same object when no child changed."""
    kind = type(node)
    read = _CHILD_VALUES[kind]
    if read is None:
        return node
    changes: list[tuple[int, object]] = []
    for i, old in enumerate(read(node)):
        sort = _SORTS[type(old)]
        if sort == _PLAIN:
            continue
        new = f(old) if sort == _NODE else _map_value(old, f)
        if new is not old:
            changes.append((i, new))
    if not changes:
        return node
    read_all, places = _ARGUMENTS[kind]  # as dataclasses.replace, in a third of the time
    values = [*read_all(node)]
    for i, new in changes:
        values[places[i]] = new
    return kind(*values)


def _add_nodes(values: Iterable[Any], found: list[Node]) -> None:
    for value in values:
        sort = _SORTS[type(value)]
        if sort == _NODE:
            found.append(value)
        elif sort == _TUPLE:
            _add_nodes(value, found)
        elif sort == _MAPPING:
            _add_nodes(value.values(), found)


def children(node: Node) -> list[Node]:
    """The direct child nodes, in field order."""
    found: list[Node] = []
    read = _CHILD_VALUES[type(node)]
    if read is not None:
        _add_nodes(read(node), found)
    return found


def preorder(node: Node, scalars: bool = True) -> Iterator[Node]:
    """The node and everything below it, parents first; without `scalars` no scalar expressions.

    A scalar expression that is shared is given once for each parent, what lies below it once.
    """
    stack = [node]
    entered: set[int] = set()
    readers, sorts = _CHILD_VALUES, _SORTS
    pop, push = stack.pop, stack.append
    while stack:
        top = pop()
        if top.is_scalar:
            if not scalars:
                continue
            yield top
            read = readers[type(top)]
            if read is None or id(top) in entered:
                continue
            entered.add(id(top))
        else:
            yield top
            read = readers[type(top)]
            if read is None:
                continue
        for value in reversed(read(top)):
            sort = sorts[type(value)]
            if sort == _NODE:
                push(value)
            elif sort == _TUPLE:
                for inner in reversed(value):
                    if sorts[type(inner)] == _NODE:  # nearly all are
                        push(inner)
                    else:
                        _push_nodes(inner, stack)
            elif sort == _MAPPING and value:
                _push_nodes(value, stack)


def _push_nodes(value: object, stack: list[Node]) -> None:
    """Put the nodes in a value on a stack, the first one on top."""
    below: list[Node] = []
    _add_nodes((value,), below)
    below.reverse()
    stack += below

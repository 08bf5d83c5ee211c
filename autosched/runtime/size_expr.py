"""Sizes that are known when a model is called: numbers, symbols by name, and arithmetic on them, as JSON holds it.

("*", "batch", ("+", "sequence", 1))      the rows of a batch of sequences that are one longer than 'sequence'
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from autosched.errors import ShapeError

if TYPE_CHECKING:
    from autosched.json_types import Json

Size: TypeAlias = "int | str | tuple[str, Size, Size]"

_OPS: Mapping[str, Callable[[int, int], int]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
    "min": min, "max": max,
}  # fmt: skip
_MOST_DEEP = 64  # of an expression in a file
Shape = tuple[Size, ...]


def size_at(size: Size, values: Mapping[str, int]) -> int:
    """The value of a size. Raises KeyError for a symbol that has none, ZeroDivisionError."""
    if isinstance(size, int):
        return size
    if isinstance(size, str):
        return values[size]
    op, a, b = size
    return _OPS[op](size_at(a, values), size_at(b, values))


def shape_at(shape: Shape, values: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(size_at(size, values) for size in shape)


def compiled(shapes: Sequence[Shape], names: Sequence[str]) -> Callable[[Sequence[int]], tuple[tuple[int, ...], ...]]:
    """A function that gives all shapes for the values of the symbols, in their order; for what is asked often.

    Raises KeyError for a symbol that is none of the names, and for an unknown operation; the function raises
    ZeroDivisionError.
    """
    places = {name: f"v[{index}]" for index, name in enumerate(names)}
    text = "".join(f"({''.join(f'{_code(size, places)}, ' for size in shape)}), " for shape in shapes)
    found: Callable[[Sequence[int]], tuple[tuple[int, ...], ...]] = eval(  # numbers, v[i] and operators alone
        f"lambda v: ({text})", {"__builtins__": {"min": min, "max": max}}
    )
    return found


def _code(size: Size, places: Mapping[str, str]) -> str:
    if isinstance(size, int):
        return f"({int(size)})"
    if isinstance(size, str):
        return places[size]
    op, a, b = size[0], _code(size[1], places), _code(size[2], places)
    if op not in _OPS:  # no assertion: the text is evaluated
        raise KeyError(op)
    return f"{op}({a}, {b})" if op in ("min", "max") else f"({a} {op} {b})"


def product_of(sizes: Iterable[Size]) -> Size:
    """The product, its numbers as one factor."""
    number, rest = 1, []
    for size in sizes:
        if isinstance(size, int):
            number *= size
        else:
            rest.append(size)
    found: Size = number if number != 1 or not rest else rest.pop(0)
    for size in rest:
        found = ("*", found, size)
    return found


def symbols_of(size: Size) -> frozenset[str]:
    """The names in a size."""
    if isinstance(size, tuple):
        return symbols_of(size[1]) | symbols_of(size[2])
    return frozenset((size,)) if isinstance(size, str) else frozenset()


def show_size(size: Size, around: str = "") -> str:
    """The size as people write it: 2*n, n+1; `around` is the operation that it stands in."""
    if not isinstance(size, tuple):
        return str(size)
    op, a, b = size
    if op in ("min", "max"):
        return f"{op}({show_size(a)}, {show_size(b)})"
    text = f"{show_size(a, op)}{op}{show_size(b, op)}"
    is_loose = op in ("+", "-") or (op in ("//", "%") and around not in ("+", "-"))
    return f"({text})" if around and is_loose else text


def show_limit(size: Size, low: int, high: int | None) -> str:
    """That a size lies between two numbers, as people write it: n <= 512, past+n == total, n a multiple of 4."""
    match size:
        case ("-", whole, ("*", ("//", divided, int(n)), int(m))) if divided == whole and n == m and low == high == 0:
            return f"{show_size(whole)} a multiple of {n}"
    if isinstance(size, tuple) and size[0] == "-" and low == 0:
        return f"{show_size(size[1])} {'>=' if high is None else '=='} {show_size(size[2])}"
    if high is None or low == high:
        return f"{show_size(size)} {'>=' if high is None else '=='} {low}"
    return f"{low} <= {show_size(size)} <= {high}"


def show_shape(shape: Shape) -> str:
    return f"[{', '.join(map(show_size, shape))}]"


def format_shapes(shapes: Mapping[str, Sequence[int]]) -> str:
    """Write shapes the way --shapes reads them: x:1x64,y:3."""
    return ",".join(f"{name}:{'x'.join(map(str, shape))}" for name, shape in shapes.items())


def read_size(entry: object, names: Iterable[str], depth: int = 0) -> Size:
    """What JSON holds as a size of the given symbols. Raises ValueError for anything else."""
    if type(entry) is int:
        return entry
    if isinstance(entry, str) and entry in names:
        return entry
    if isinstance(entry, list | tuple) and len(entry) == 3 and entry[0] in _OPS and depth < _MOST_DEEP:
        return (str(entry[0]), read_size(entry[1], names, depth + 1), read_size(entry[2], names, depth + 1))
    raise ValueError(f"a size is {str(entry)[:40]}")


def read_shape(entry: Json, names: Iterable[str]) -> Shape:
    return tuple(read_size(size, names) for size in entry)


def solved(size: Size, value: int, known: Mapping[str, int]) -> tuple[str, int] | None:
    """The symbol, and its value, for which a size takes a value; None unless just one is open, in a linear form.

    The value may be one for which the size is another: whoever asks compares.
    """
    open_names = symbols_of(size) - set(known)
    if len(open_names) != 1:
        return None
    (name,) = open_names
    at = [size_at(size, {**known, name: n}) for n in (0, 1, 2)]
    scale = at[1] - at[0]
    if not scale or at[2] - at[1] != scale:
        return None
    return name, (value - at[0]) // scale


def solve_sizes(
    given: Sequence[tuple[str, Shape, Sequence[int]]], known: Mapping[str, int] | None = None, where: str = ""
) -> tuple[dict[str, int], dict[str, str]]:
    """The symbols that follow from shapes, and which of these said each.

    given  of each of them what it is, for messages, how it is declared, and its extents
    known  symbols that have values already
    Raises ShapeError where a shape is not the declared one, and where two disagree.
    """
    found, said = dict(known or {}), dict.fromkeys(known or {}, "")
    left = list(given)
    while left:
        rest = [one for one in left if _solve(*one, found, said, where)]
        if len(rest) == len(left):
            break
        left = rest
    for what, shape, extents in given:
        _compare(what, shape, extents, found, said, where)
    return found, said


def _solve(
    what: str, shape: Shape, extents: Sequence[int], found: dict[str, int], said: dict[str, str], where: str
) -> bool:
    """Take the symbols that follow from one shape; whether some are left."""
    is_left = False
    if len(shape) != len(extents):
        raise ShapeError(f"{what} has shape {list(extents)} instead of {show_shape(shape)}", where=where)
    for size, number in zip(shape, extents, strict=True):
        if isinstance(size, int):
            continue
        if isinstance(size, str):
            if size not in found:
                found[size], said[size] = number, what
        elif (one := solved(size, number, found)) is not None:
            found[one[0]], said[one[0]] = one[1], what
        else:
            is_left = True
    return is_left


def _compare(
    what: str, shape: Shape, extents: Sequence[int], found: Mapping[str, int], said: Mapping[str, str], where: str
) -> None:
    """Raises ShapeError where a shape is not what the sizes make it."""
    for size, number in zip(shape, extents, strict=True):
        try:
            if size_at(size, found) == number:
                continue
        except KeyError as missing:
            raise ShapeError(f"the size {missing} does not follow from the inputs", where=where) from None
        other = solved(size, number, {})
        if other is not None and size_at(size, {other[0]: other[1]}) == number and said[other[0]] not in ("", what):
            name, n = other
            raise ShapeError(f"'{name}' is {found[name]} for {said[name]} and {n} for {what}", where=where)
        raise ShapeError(f"{what} has shape {list(extents)} instead of {show_shape(shape)}", where=where)

"""TVM's data layouts: `tir.layout("NCHW16c")` and maps between two of them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from autosched.errors import InvalidTypeError, InvalidValueError
from autosched.tir import expr as E
from autosched.tir.expr import PrimExpr, to_expr
from autosched.tir.simplify import Analyzer

_AXIS = re.compile(r"(\d*)([A-Za-z])")


class Layout:
    """Dimensions by letter: a capital one for an axis, a small one with its size in front for blocks of it."""

    def __init__(self, name: str):
        if not isinstance(name, str):
            raise InvalidTypeError(f"layout takes a text such as 'NCHW16c', not {type(name).__name__}")
        self.name = name
        self.axes: list[tuple[str, int]] = []
        at = 0
        for found in _AXIS.finditer(name):
            size, letter = found.groups()
            if found.start() != at or (letter.islower() != bool(size)) or any(letter == a for a, _ in self.axes):
                raise InvalidValueError(f"'{name}' is no layout", hint="such as 'NCHW' or 'NCHW16c'")
            self.axes.append((letter, int(size or 0)))
            at = found.end()
        missing = [a for a, _ in self.axes if a.islower() and all(b != a.upper() for b, _ in self.axes)]
        if at != len(name) or missing:
            raise InvalidValueError(f"'{name}' is no layout", hint="each block needs its axis, as c needs C")

    def __len__(self) -> int:
        return len(self.axes)

    def __contains__(self, axis: str) -> bool:
        return any(a == axis for a, _ in self.axes)

    def __getitem__(self, index: int) -> str:
        if not -len(self.axes) <= index < len(self.axes):
            raise InvalidValueError(f"layout '{self.name}' has no axis {index}")
        return self.axes[index][0]

    def index_of(self, axis: str) -> int:
        """The position of an axis, -1 where there is none."""
        return next((i for i, (a, _) in enumerate(self.axes) if a == axis), -1)

    def factor_of(self, axis: str) -> int:
        """The size of an axis's block, -1 where it has none."""
        return next((n for a, n in self.axes if a == axis.lower() and n), -1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Layout({self.name})"


class BijectiveLayout:
    """Indices and shapes of one layout as those of another."""

    def __init__(self, src_layout: Layout | str, dst_layout: Layout | str):
        self.src_layout = src_layout if isinstance(src_layout, Layout) else Layout(src_layout)
        self.dst_layout = dst_layout if isinstance(dst_layout, Layout) else Layout(dst_layout)
        if {a.upper() for a, _ in self.src_layout.axes} != {a.upper() for a, _ in self.dst_layout.axes}:
            raise InvalidValueError(f"'{self.src_layout}' and '{self.dst_layout}' have different axes")

    def forward_index(self, index: Sequence[object]) -> list[PrimExpr]:
        """An index of the first layout as one of the second."""
        return _index(self.src_layout, self.dst_layout, index)

    def backward_index(self, index: Sequence[object]) -> list[PrimExpr]:
        """An index of the second layout as one of the first."""
        return _index(self.dst_layout, self.src_layout, index)

    def forward_shape(self, shape: Sequence[object]) -> list[PrimExpr]:
        """A shape of the first layout as one of the second."""
        return _shape(self.src_layout, self.dst_layout, shape)

    def backward_shape(self, shape: Sequence[object]) -> list[PrimExpr]:
        """A shape of the second layout as one of the first."""
        return _shape(self.dst_layout, self.src_layout, shape)


def _whole(source: Layout, values: Sequence[object], what: str) -> dict[str, PrimExpr]:
    """Each axis's whole index (or size) from its parts."""
    if len(values) != len(source):
        raise InvalidValueError(f"layout '{source}' has {len(source)} axes, got {len(values)} numbers")
    given = {a: to_expr(v) for (a, _), v in zip(source.axes, values, strict=True)}
    found: dict[str, PrimExpr] = {}
    for axis in (a for a, _ in source.axes if a.isupper()):
        size = source.factor_of(axis)
        if size < 0:
            found[axis] = given[axis]
        elif what == "index":
            found[axis] = E.add(E.mul(given[axis], size), given[axis.lower()])
        else:
            found[axis] = E.mul(given[axis], size)
    return found


def _index(source: Layout, target: Layout, index: Sequence[object]) -> list[PrimExpr]:
    whole = _whole(source, index, "index")
    result = []
    for axis, size in target.axes:
        value, factor = whole[axis.upper()], target.factor_of(axis)
        part = E.floormod(value, size) if axis.islower() else value if factor < 0 else E.floordiv(value, factor)
        result.append(Analyzer().simplify(part))
    return result


def _shape(source: Layout, target: Layout, shape: Sequence[object]) -> list[PrimExpr]:
    whole = _whole(source, shape, "shape")
    result = []
    for axis, size in target.axes:
        value, factor = whole[axis.upper()], target.factor_of(axis)
        if axis.islower():
            part: PrimExpr = E.const(size, value.dtype)
        else:
            part = value if factor < 0 else E.floordiv(E.add(value, factor - 1), factor)
        result.append(Analyzer().simplify(part))
    return result


def layout(layout_str: str) -> Layout:
    """A layout by its name. Raises TypeError and ValueError for what is none."""
    return Layout(layout_str)


def bijective_layout(src_layout: Layout | str, dst_layout: Layout | str) -> BijectiveLayout:
    """The map between two layouts of the same axes."""
    return BijectiveLayout(src_layout, dst_layout)

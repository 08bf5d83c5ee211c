"""IndexMap: how the indices of one layout become those of another."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from autosched.errors import InvalidTypeError, InvalidValueError
from autosched.ir.node import DEFINES, Node
from autosched.tir import expr as E
from autosched.tir.axis import Range
from autosched.tir.expr import ExprLike, PrimExpr, Var
from autosched.tir.functor import substitute
from autosched.tir.simplify import Analyzer

if TYPE_CHECKING:
    from autosched.runtime.ndarray import NDArray

_OPS: dict[type[ast.operator], Callable[[ExprLike, ExprLike], PrimExpr]] = {
    ast.Add: E.add, ast.Sub: E.sub, ast.Mult: E.mul, ast.FloorDiv: E.floordiv, ast.Mod: E.floormod,
}  # fmt: skip
_SIGNS: dict[type, str] = {E.Add: "+", E.Sub: "-", E.Mul: "*", E.FloorDiv: "//", E.FloorMod: "%"}


@dataclass(frozen=True, slots=True, eq=False)
class IndexMap(Node):
    """New indices as expressions of the old ones: `lambda n, c: (n, c // 16, c % 16)`."""

    AXIS_SEPARATOR: ClassVar[str] = "axis_separator"  # in what a function gives: dimensions are not flattened across it

    initial_indices: tuple[Var, ...] = field(metadata=DEFINES)
    final_indices: tuple[PrimExpr, ...]

    @staticmethod
    def from_func(func: Callable[..., object], ndim: int | None = None, dtype: str = "int32", **words: Any) -> IndexMap:
        """The map that a Python function of indices describes; `ndim` says how many `*args` takes."""
        index_map, separators = IndexMap.from_func_with_separators(func, ndim, dtype, **words)
        if separators:
            raise InvalidValueError("IndexMap.from_func: there is an axis separator in what the function gives")
        return index_map

    @staticmethod
    def from_func_with_separators(
        func: Callable[..., object], ndim: int | None = None, dtype: str = "int32", index_dtype: str | None = None,
        inverse_index_map: object = None,
    ) -> tuple[IndexMap, list[int]]:  # fmt: skip
        """The map that a function describes, and the positions where it gives `IndexMap.AXIS_SEPARATOR`."""
        del inverse_index_map
        if not callable(func):
            raise InvalidTypeError(
                f"IndexMap.from_func: argument 'func' is a {type(func).__name__}, expected a function"
            )
        dtype = index_dtype or dtype
        names: list[str] = []
        for p in inspect.signature(func).parameters.values():
            if p.kind is p.VAR_POSITIONAL:
                names += [f"{p.name}_{i}" for i in range((ndim or 0) - len(names))]
            else:
                names.append(p.name)
        variables = tuple(Var(n, dtype) for n in names)
        result = func(*variables)
        items = result if isinstance(result, list | tuple) else (result,)
        found: list[PrimExpr] = []
        separators: list[int] = []
        for item in items:
            if isinstance(item, str) and item == IndexMap.AXIS_SEPARATOR:
                separators.append(len(found))
            else:
                found.append(E.to_expr(item, dtype))
        return IndexMap(variables, tuple(found)), separators

    @staticmethod
    def from_text(text: str, dtype: str = "int32") -> IndexMap:
        """The map that `str()` wrote. Only names, integers and + - * // % are understood; nothing is run."""
        try:
            tree = ast.parse(text.strip(), mode="eval").body
        except SyntaxError as e:
            raise InvalidValueError(f"not an index map: {text!r}") from e
        if not isinstance(tree, ast.Lambda) or not isinstance(tree.body, ast.Tuple):
            raise InvalidValueError(f"not an index map: {text!r}", hint="write 'lambda i, j: (i // 4, j, i % 4)'")
        variables = {a.arg: Var(a.arg, dtype) for a in tree.args.args}
        return IndexMap(tuple(variables.values()), tuple(_expr(x, variables, dtype) for x in tree.body.elts))

    @property
    def ndim(self) -> int:
        return len(self.initial_indices)

    def map_indices(self, indices: Sequence[PrimExpr], analyzer: Analyzer | None = None) -> tuple[PrimExpr, ...]:
        """The new indices of an element."""
        self._check(indices)
        values = {v: E.to_expr(i, v.dtype) for v, i in zip(self.initial_indices, indices, strict=True)}
        analyzer = analyzer or Analyzer()
        return tuple(analyzer.simplify(substitute(x, values)) for x in self.final_indices)

    def map_shape(self, shape: Sequence[PrimExpr | int]) -> tuple[PrimExpr, ...]:
        """The smallest shape that holds every mapped element. Raises InvalidValueError for unknown bounds."""
        sizes = [E.to_expr(s) for s in shape]
        self._check(sizes)
        analyzer = Analyzer(
            {v: Range(E.const(0, s.dtype), s) for v, s in zip(self.initial_indices, sizes, strict=True)}
        )
        result: list[PrimExpr] = []
        extents = dict(zip(self.initial_indices, sizes, strict=True))
        for x in self.final_indices:
            if isinstance(x, Var) and E.const_int(extents[x]) is None:
                result.append(extents[x])  # a dimension as it is, however long
                continue
            if (parts := _parts(x, extents)) is not None:
                result.append(parts)
                continue
            low, high = analyzer.bound(x)
            if low is None or high is None or low < 0:
                raise InvalidValueError(
                    f"index map {self}: index '{_text(x)}' has no bounds from 0 up for shape "
                    f"{[E.const_int(s) for s in sizes]}"
                )
            result.append(E.const(high + 1, sizes[0].dtype if sizes else "int32"))
        return tuple(result)

    def is_equivalent_to(self, other: IndexMap) -> bool:
        """Whether both give the same indices."""
        if (
            not isinstance(other, IndexMap)
            or other.ndim != self.ndim
            or len(other.final_indices) != len(self.final_indices)
        ):
            return False
        values = dict(zip(other.initial_indices, self.initial_indices, strict=True))
        analyzer = Analyzer()
        return all(
            analyzer.can_prove_equal(a, substitute(b, values))
            for a, b in zip(self.final_indices, other.final_indices, strict=True)
        )

    def inverse(self, shape: Sequence[PrimExpr | int | Range]) -> IndexMap:
        """The map back, for indices below `shape`. Raises InvalidValueError where the map is no bijection of them."""
        from autosched.tir.schedule.iter_map import NotAffine, invert

        sizes = [s.extent if isinstance(s, Range) else E.to_expr(s) for s in shape]
        self._check(sizes)
        extents = {v: E.as_int(s) for v, s in zip(self.initial_indices, sizes, strict=True)}
        dtype = self.initial_indices[0].dtype if self.initial_indices else "int32"
        new = tuple(Var(f"axis{i}", dtype) for i in range(len(self.final_indices)))
        analyzer = Analyzer({v: (0, n) for v, n in extents.items()})
        for v, n in zip(new, self.map_shape(sizes), strict=True):
            analyzer.bind(v, (0, E.as_int(n)))
        try:
            found = invert(self.final_indices, extents, new)
        except NotAffine as error:
            raise InvalidValueError(f"index map {self} has no inverse: {error}") from None
        return IndexMap(new, tuple(analyzer.simplify(x) for x in found))

    def non_surjective_inverse(self, shape: Sequence[PrimExpr | int | Range]) -> tuple[IndexMap, PrimExpr]:
        """The map back, and whether a position of the new shape is one that no old index has (padding).

        Raises InvalidValueError where two old indices have one position.
        """
        back = self.inverse(shape)
        sizes = [s.extent if isinstance(s, Range) else E.to_expr(s) for s in shape]
        analyzer = Analyzer()
        for v, n in zip(back.initial_indices, self.map_shape(sizes), strict=True):
            analyzer.bind(v, (0, E.as_int(n)))
        old = dict(zip(self.initial_indices, back.final_indices, strict=True))
        there = [substitute(x, old) for x in self.final_indices]
        misses = [
            *(E.compare(E.LT, x, 0) for x in back.final_indices),
            *(E.compare(E.GE, x, n) for x, n in zip(back.final_indices, sizes, strict=True)),
            *(E.compare(E.NE, x, v) for x, v in zip(there, back.initial_indices, strict=True)),
        ]
        left = [m for m in map(analyzer.simplify, misses) if E.const_int(m) != 0]
        return back, E.any_of(*left) if left else E.const(False, "bool")

    def map_ndarray(self, arr_src: object) -> NDArray:
        """An array in the new layout. Raises InvalidValueError where the map needs padding."""
        from autosched.runtime.ndarray import array as nd_array

        source = np.asarray(arr_src.numpy() if hasattr(arr_src, "numpy") else arr_src)
        shape = tuple(E.as_int(n) for n in self.map_shape(source.shape))
        if np.prod(shape) != source.size:
            raise InvalidValueError(f"index map {self} leaves room between elements of shape {source.shape}")
        result = np.empty(shape, source.dtype)
        for at in np.ndindex(*source.shape):
            there = self.map_indices([E.const(i) for i in at])
            result[tuple(E.as_int(i) for i in there)] = source[at]
        return nd_array(result)

    def _check(self, items: Sequence[object]) -> None:
        if len(items) != self.ndim:
            raise InvalidValueError(f"index map {self} takes {self.ndim} indices, got {len(items)}")

    def __str__(self) -> str:
        names = ", ".join(v.name for v in self.initial_indices)
        body = ", ".join(_text(x) for x in self.final_indices)
        return f"lambda {names}: ({body}{',' if len(self.final_indices) == 1 else ''})"


def _parts(x: PrimExpr, extents: dict[Var, PrimExpr]) -> PrimExpr | None:
    """How many values v // n has, for a dimension v however long; None for another index."""
    if not isinstance(x, E.FloorDiv) or not isinstance(x.a, Var) or (n := E.const_int(x.b)) is None or n < 1:
        return None
    extent = extents[x.a]
    return None if E.const_int(extent) is not None else E.floordiv(E.add(extent, n - 1), n)


def _text(x: PrimExpr) -> str:
    match x:
        case Var(name=name):
            return name
        case E.IntImm(value=value):
            return str(value)
        case E.BinaryOp() if type(x) in _SIGNS:
            left, right = (f"({_text(y)})" if isinstance(y, E.BinaryOp) else _text(y) for y in (x.a, x.b))
            return f"{left} {_SIGNS[type(x)]} {right}"
        case E.Cast(value=value):
            return _text(value)
        case _:
            raise InvalidValueError(f"an index map cannot hold a {type(x).__name__}")


def _expr(node: ast.expr, variables: dict[str, Var], dtype: str) -> PrimExpr:
    match node:
        case ast.Name(id=name) if name in variables:
            return variables[name]
        case ast.Constant(value=int() as value):
            return E.const(value, dtype)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPS:
            return _OPS[type(op)](_expr(left, variables, dtype), _expr(right, variables, dtype))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return E.sub(0, _expr(operand, variables, dtype))
        case _:
            raise InvalidValueError(f"an index map cannot hold {ast.unparse(node)!r}")

"""Types of results where shapes or dtypes of arguments are not known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

from autosched.errors import InvalidTypeError, InvalidValueError
from autosched.ir.node import Attrs
from autosched.relax.struct_info import ShapeStructInfo, StructInfo, TensorStructInfo, TupleStructInfo
from autosched.tir.expr import PrimExpr, Var
from autosched.tir.functor import uses

Rule = Callable[..., StructInfo]
_Result = tuple[str, StructInfo]  # the dtype that stood for unknown ones, and what the rule said
RANKS = range(1, 6)  # tried where even the number of dimensions is not known
DTYPES = ("float32", "float16", "int64", "bool")  # tried where no dtype is known


def is_open(info: StructInfo | None) -> bool:
    """Whether a type lacks a shape or a dtype."""
    if isinstance(info, TupleStructInfo):
        return any(map(is_open, info.fields))
    if isinstance(info, ShapeStructInfo):
        return info.values is None
    return isinstance(info, TensorStructInfo) and (info.shape is None or not info.dtype)


def infer_open(rule: Rule, types: Sequence[StructInfo], attrs: Attrs) -> StructInfo:
    """What a type rule says of all types that the arguments may have: dimensions and dtypes that all share.

    The rule is asked with symbols in the place of sizes, then with sizes of the other arguments.
    Raises what the rule raises where it takes none of them.
    """
    parts = [part for info in types for part in _parts(info)]
    given = [t.dtype for t in parts if isinstance(t, TensorStructInfo)]
    dtypes = dict.fromkeys((*filter(None, given), *DTYPES)) if "" in given else [""]
    found: list[_Result] = []
    refused: Exception | None = None
    for rank, dtype in product(RANKS if any(part.ndim < 0 for part in parts) else (0,), dtypes):
        for guess in _guesses(rank, dtype, types):
            try:
                found.append((dtype, guess.known(rule(*map(guess.fill, types), **attrs))))
                break
            except (InvalidTypeError, InvalidValueError) as error:
                refused = refused or error
    if not found:
        assert refused is not None, "no type was tried"
        raise refused
    return _common(found)


@dataclass(frozen=True, eq=False)
class _Guess:
    """What stands for unknown parts: `dims` by the position of a dimension from the right, or symbols."""

    rank: int
    dtype: str
    dims: tuple[object, ...] | None = None  # None: a symbol for each dimension
    symbols: set[Var] = field(default_factory=set)

    def fill(self, info: StructInfo) -> StructInfo:
        """The type with its unknown parts filled in."""
        if isinstance(info, TupleStructInfo):
            return TupleStructInfo(tuple(map(self.fill, info.fields)))
        if isinstance(info, ShapeStructInfo) and info.values is None:
            return ShapeStructInfo(self._dims(info.ndim))
        if not isinstance(info, TensorStructInfo):
            return info
        shape = self._dims(info.ndim) if info.shape is None else info.shape
        return TensorStructInfo(shape, info.dtype or self.dtype)

    def _dims(self, ndim: int) -> tuple[object, ...]:
        ndim = self.rank if ndim < 0 else ndim
        if self.dims is not None:
            return tuple(self.dims[i] if i < len(self.dims) else 1 for i in range(ndim))
        made = tuple(Var(f"open{i}", "int64") for i in range(ndim))
        self.symbols.update(made)
        return made

    def known(self, info: StructInfo) -> StructInfo:
        """The result without what came of the guess."""
        if isinstance(info, TupleStructInfo):
            return TupleStructInfo(tuple(map(self.known, info.fields)))
        if isinstance(info, ShapeStructInfo) and info.values is not None and not self._follows(info.values):
            return ShapeStructInfo(ndim=info.ndim)
        if isinstance(info, TensorStructInfo) and info.shape is not None and not self._follows(info.shape.values):
            return TensorStructInfo(None, info.dtype, info.ndim)
        return info

    def _follows(self, values: Sequence[PrimExpr]) -> bool:
        """Whether sizes follow from what is known."""
        return self.dims is None and not any(uses(v, self.symbols) for v in values)


def _parts(info: StructInfo) -> Iterator[TensorStructInfo | ShapeStructInfo]:
    """The tensors and shapes of a value."""
    if isinstance(info, TupleStructInfo):
        for item in info.fields:
            yield from _parts(item)
    elif isinstance(info, TensorStructInfo | ShapeStructInfo):
        yield info


def _guesses(rank: int, dtype: str, types: Sequence[StructInfo]) -> Iterator[_Guess]:
    yield _Guess(rank, dtype)
    yield _Guess(rank, dtype, ())
    for info in types:
        for t in _parts(info):
            if isinstance(t, TensorStructInfo) and t.shape is not None:
                yield _Guess(rank, dtype, t.dims)


def _common(results: Sequence[_Result]) -> StructInfo:
    """The type that all results have."""
    first = results[0][1]
    if isinstance(first, TupleStructInfo):
        rows = [(dtype, r.fields) for dtype, r in results if isinstance(r, TupleStructInfo)]
        return TupleStructInfo(
            tuple(_common([(dtype, f[i]) for dtype, f in rows if i < len(f)]) for i in range(len(first.fields)))
        )
    if isinstance(first, ShapeStructInfo):
        ndims = {r.ndim for _, r in results if isinstance(r, ShapeStructInfo)}
        return first if len(ndims) == 1 else ShapeStructInfo()
    if not isinstance(first, TensorStructInfo):
        return first
    tensors = [(dtype, r) for dtype, r in results if isinstance(r, TensorStructInfo)]
    is_known = len({t.dtype for _, t in tensors}) == 1 and any(t.dtype != dtype for dtype, t in tensors)
    ndims = {t.ndim for _, t in tensors}
    shapes = {None if t.shape is None else t.dims for _, t in tensors}
    return TensorStructInfo(
        first.shape if len(shapes) == 1 else None,
        first.dtype if is_known else "",
        first.ndim if len(ndims) == 1 else -1,
    )

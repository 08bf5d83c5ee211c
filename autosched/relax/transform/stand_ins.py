"""Numbers in place of symbolic extents, so that passes that compare products of extents serve symbolic shapes too."""

from __future__ import annotations

from autosched.relax.expr import Expr
from autosched.relax.struct_info import TensorStructInfo
from autosched.tir.expr import Add, IntImm, Mul, PrimExpr, Sub
from autosched.tir.size_expr import same_extent

# A symbol's number is a power of a number larger than any coefficient: a polynomial's value has its coefficients as
# digits, so two polynomials of less than this degree have one value only where they are the same. The exponents are
# powers of the degree: no product of fewer symbols is another symbol.
_BASE = (1 << 127) - 1
MOST_SYMBOLS, _DEGREE = 4, 8


class StandIns:
    """Shapes as integers; equal ones stand for extents that are equal for all values of their symbols."""

    def __init__(self) -> None:
        self._symbols: list[PrimExpr] = []  # or expressions that are no polynomials, as quotients
        self._extents: dict[int, PrimExpr] = {}

    def shape_of(self, x: Expr) -> tuple[int, ...]:
        """The shape of a tensor; () for anything else, an unknown shape, or one of too many symbols."""
        info = x.struct_info
        if not isinstance(info, TensorStructInfo) or info.shape is None:
            return ()
        numbers = tuple(map(self._number, info.dims))
        if any(n is None for n in numbers):
            return ()
        for number, extent in zip(numbers, info.dims, strict=True):
            self._extents.setdefault(number, extent)  # type: ignore[arg-type]
        return numbers  # type: ignore[return-value]

    def extents(self, shape: tuple[int, ...]) -> tuple[PrimExpr | int, ...]:
        """What numbers that `shape_of` gave stand for."""
        return tuple(self._extents.get(number, number) for number in shape)

    def _number(self, extent: object) -> int | None:
        match extent:
            case int():
                return extent
            case IntImm():
                return extent.value
            case Add() | Sub() | Mul():
                a, b = self._number(extent.a), self._number(extent.b)
                if a is None or b is None:
                    return None
                return a * b if isinstance(extent, Mul) else a + b if isinstance(extent, Add) else a - b
        assert isinstance(extent, PrimExpr), "an extent is a number or an expression"
        known = next((i for i, x in enumerate(self._symbols) if same_extent(x, extent)), len(self._symbols))
        if known == MOST_SYMBOLS:
            return None
        if known == len(self._symbols):
            self._symbols.append(extent)
        number: int = _BASE ** (_DEGREE**known)
        return number

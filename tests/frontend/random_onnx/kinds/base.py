"""The table of kinds, and the decorator that adds to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tests.frontend.random_onnx.maker import FLOATS, INTEGERS, Maker, Value

NUMBERS = (*FLOATS, *INTEGERS)
ALL = (*NUMBERS, "bool")
Make = Callable[[Maker, Value], object]


@dataclass(frozen=True)
class Kind:
    """One kind of operator.

    make    adds its nodes behind a value to a model; raises Unfit where they cannot take it
    dtypes  the types of values that they take
    ranks   their numbers of dimensions
    weight  how often it is drawn, beside the others
    """

    name: str
    make: Make
    dtypes: tuple[str, ...]
    ranks: range
    weight: float

    def takes(self, x: Value) -> bool:
        """Whether a value has a type and a rank that it takes."""
        return x.dtype in self.dtypes and x.rank in self.ranks


KINDS: dict[str, Kind] = {}


def kind(
    dtypes: Iterable[str] = ALL, least_rank: int = 0, most_rank: int = 6, weight: float = 1.0
) -> Callable[[Make], Make]:
    """Add a function to the table, under its name."""

    def add(make: Make) -> Make:
        name = make.__name__
        assert name not in KINDS, f"two kinds are named {name}"
        KINDS[name] = Kind(name, make, tuple(dtypes), range(least_rank, most_rank + 1), weight)
        return make

    return add

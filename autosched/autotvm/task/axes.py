"""AutoTVM's axes while a space is being defined, and small arithmetic on them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from autosched.errors import InvalidTypeError
from autosched.tir.axis import IterVar
from autosched.tir.expr import PrimExpr, const_int


@dataclass(frozen=True)
class Axis:
    """Output number `index` of a space that is being defined; `space` None: the configuration is fixed already."""

    space: object
    index: int


class VirtualAxis:
    """An axis by its length, and its name where it has one."""

    def __init__(self, var: object, name: str | None = None):
        self.name = name or getattr(getattr(var, "var", None), "name", "")
        self.length = axis_length(var)


def axis_length(var: object) -> int:
    """The number of iterations of an axis, or the number itself. Raises InvalidTypeError for anything else."""
    if isinstance(var, VirtualAxis):
        return var.length
    if isinstance(var, IterVar):
        var = var.dom.extent
    number = const_int(var) if isinstance(var, PrimExpr) else var
    if isinstance(number, bool) or not hasattr(number, "__index__"):
        raise InvalidTypeError(f"an axis is a te axis or a number, not {type(var).__name__}")
    assert number is not None
    return int(number)


def get_factors(n: int) -> list[int]:
    """All divisors, smallest first."""
    small = [i for i in range(1, math.isqrt(n) + 1) if n % i == 0]
    return sorted({*small, *(n // i for i in small)})


def get_pow2s(n: int) -> list[int]:
    """All powers of two up to n."""
    return [1 << x for x in range(n.bit_length())]

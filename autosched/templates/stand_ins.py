"""Known sizes in the place of open ones, for which a template chooses what it then does over symbols."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autosched.templates.classify import blocks_of
from autosched.tir import PrimFunc
from autosched.tir.expr import Var, const_int
from autosched.tir.function import specialize

SCALES = (1, 16, 256, 4096, 65536)


def with_stand_ins(func: PrimFunc, symbols: Iterable[Var], numbers: Sequence[int], least: int) -> PrimFunc | None:
    """The function with a number for each symbol, None where open axes stay shorter than `least` or there are too many.

    Numbers are multiplied where a size like `n // 160 - 1` would leave an axis nothing, or one step.
    """
    symbols = list(symbols)
    if len(symbols) > len(numbers):
        return None
    is_open = [const_int(axis.dom.extent) is None for block in blocks_of(func) for axis in block.iter_vars]
    for scale in SCALES:
        known = specialize(func, dict(zip(symbols, (scale * n for n in numbers))))
        extents = [const_int(axis.dom.extent) for block in blocks_of(known) for axis in block.iter_vars]
        if all(extent is not None and extent >= least for extent, o in zip(extents, is_open, strict=True) if o):
            return known
    return None

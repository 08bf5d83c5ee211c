"""Packed arguments: constants rearranged once at build into the order in which a kernel reads them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from autosched import te
from autosched.ir.node import FrozenDict
from autosched.tir import Buffer, BufferLoad, BufferRegion, IntImm, PrimExpr, PrimFunc, Range, all_of
from autosched.tir.expr import Var
from autosched.tir.functor import rewrite
from autosched.tir.simplify import Analyzer


class Packing(Protocol):
    """What turns a natural argument into the one that a kernel takes; hashable, and equal ones pack equally."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The natural shape."""

    @property
    def packed_shape(self) -> tuple[int, ...]: ...

    def packed_dtype(self, dtype: str) -> str:
        """The type of the packed elements, for that of the natural ones."""

    def pack(self, array: np.ndarray, into: np.ndarray | None = None) -> np.ndarray:
        """The packed copy of a natural array; `into` is where to write it."""

    def func(self, dtype: str) -> PrimFunc:
        """A PrimFunc that packs at run time."""


@dataclass(frozen=True)
class Pack:
    """Split some dimensions, then reorder: [O, I, KH, KW] with factors {0: 16} and an order gives [O/16, …, 16].

    shape    of the natural array
    factors  per dimension the inner extent of a split, or 0 for none; the tail is filled with zeros
    order    the split dimensions (outer, then inner, for each dimension that is split) in their new order
    """

    shape: tuple[int, ...]
    factors: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def split_shape(self) -> tuple[int, ...]:
        out: list[int] = []
        for extent, factor in zip(self.shape, self.factors, strict=True):
            out += [math.ceil(extent / factor), factor] if factor else [extent]
        return tuple(out)

    @property
    def packed_shape(self) -> tuple[int, ...]:
        split = self.split_shape
        return tuple(split[d] for d in self.order)

    def packed_dtype(self, dtype: str) -> str:
        return dtype

    def pack(self, array: np.ndarray, into: np.ndarray | None = None) -> np.ndarray:
        """The packed copy of a natural array. Raises ValueError (NumPy's) on another shape."""
        packed = np.empty(self.packed_shape, array.dtype) if into is None else into
        padding = [(0, -s % f if f else 0) for s, f in zip(self.shape, self.factors, strict=True)]
        natural = array.reshape(self.shape)
        padded = np.pad(natural, padding) if any(end for _, end in padding) else natural
        np.copyto(packed, padded.reshape(self.split_shape).transpose(self.order))
        return packed

    def extents(self, natural: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        """The packed shape of an array of some other shape, numbers or symbols."""
        split: list[PrimExpr] = []
        for extent, factor in zip(natural, self.factors, strict=True):
            split += [te.ceildiv(extent, factor), IntImm(factor, extent.dtype)] if factor else [extent]
        return tuple(Analyzer().simplify(split[d]) for d in self.order)

    def index(self, natural: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        """Where the element at the natural indices lies in the packed array."""
        split: list[PrimExpr] = []
        for i, factor in zip(natural, self.factors, strict=True):
            split += [i // factor, i % factor] if factor else [i]
        return tuple(split[d] for d in self.order)

    def func(self, dtype: str) -> PrimFunc:
        """A PrimFunc that packs at run time: for arguments that are not known at build."""
        natural = te.placeholder(self.shape, dtype, name="natural")

        def element(*packed: PrimExpr) -> PrimExpr:
            at = dict(zip(self.order, packed, strict=True))
            indices, inside, d = [], [], 0
            for extent, factor in zip(self.shape, self.factors, strict=True):
                i = at[d] * factor + at[d + 1] if factor else at[d]
                d += 2 if factor else 1
                indices.append(i)
                if factor and extent % factor:
                    inside.append(i < extent)
            value = natural[tuple(indices)].as_expr()
            return te.if_then_else(all_of(*inside), value, te.const(0, dtype)) if inside else value

        return te.create_prim_func([natural, te.compute(self.packed_shape, element, name="packed")])


def packed_params(func: PrimFunc, buffer: Buffer, pack: Pack) -> tuple[Pack | None, ...]:
    """How each parameter is packed where `buffer` alone is."""
    return tuple(pack if func.buffer_map.get(p) is buffer else None for p in func.params)


def repack(func: PrimFunc, buffer: Buffer, pack: Pack) -> PrimFunc:
    """`func` with the parameter `buffer` taken in packed form."""
    packed = Buffer(f"{buffer.name}_packed", pack.extents(buffer.shape), buffer.dtype)

    def step(x: object) -> object:
        if isinstance(x, BufferLoad) and x.buffer is buffer:
            return BufferLoad(packed, pack.index(x.indices))
        if isinstance(x, BufferRegion) and x.buffer is buffer:
            if all(isinstance(r.extent, IntImm) and r.extent.value == 1 for r in x.region):
                indices = pack.index(tuple(r.min for r in x.region))
                return BufferRegion(packed, tuple(Range(i, IntImm(1, i.dtype)) for i in indices))
            return BufferRegion(packed, tuple(Range(IntImm(0, s.dtype), s) for s in packed.shape))
        return x

    buffer_map: Mapping[Var, Buffer] = {p: packed if b is buffer else b for p, b in func.buffer_map.items()}
    return dataclasses.replace(func, buffer_map=FrozenDict(buffer_map), body=rewrite(func.body, step))


__all__ = ["Pack", "Packing", "packed_params", "repack"]

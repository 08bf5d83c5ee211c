"""Sizes that follow from what a model computes: symbols that get their values where the VM comes to them."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field

from autosched.frontend.size_arithmetic import EmptySizeVar, info_of, product_of, sliced
from autosched.relax import op
from autosched.relax.block_builder import BlockBuilder
from autosched.relax.expr import Expr, ShapeExpr
from autosched.relax.op.call import call_pure_packed
from autosched.relax.op.registry import some_elements
from autosched.relax.struct_info import Dim, ShapeStructInfo, TensorStructInfo, to_dim
from autosched.tir.expr import PrimExpr, SizeVar


@dataclass
class DataSizes:
    """Makes such symbols in the function that is being written.

    named   makes a symbol of its own, which may be 0; d0, d1, … where nothing is given
    counts  PyTorch's names of integers that a program has checked to be no less than 0
    most    what those that were made may be at most, where that is known
    """

    builder: BlockBuilder
    named: Callable[[], SizeVar] | None = None
    counts: Container[str] = ()
    most: dict[SizeVar, PrimExpr | None] = field(default_factory=dict)

    def size(self, most: Dim | None = None) -> SizeVar:
        """A symbol of its own."""
        made = EmptySizeVar(f"d{len(self.most)}", "int64") if self.named is None else self.named()
        self.most[made] = None if most is None else to_dim(most)
        return made

    def sized(self, value: Expr, dims: Sequence[Dim | None], dtype: str, most: Dim | None = None) -> Expr:
        """A tensor; dimensions that are None become symbols."""
        known = [self.size(most) if d is None else d for d in dims]
        return self.builder.match_cast(self.builder.emit(value), TensorStructInfo(known, dtype))

    def part(self, x: Expr, axis: int, found: tuple[Dim, Dim], step: int = 1) -> Expr:
        """The elements that `cut` found of a dimension. Where there may be none of them although the tensor has some,
        how many they are is a symbol of its own."""
        (begin, count), dims = found, info_of(x).dims
        if step < 0 or not some_elements(count):
            return sliced(x, axis, found, step)
        ends = (
            [d if a == axis else other for a, other in enumerate(whole)]
            for d, whole in ((begin, [0] * len(dims)), (begin + count * step, dims), (step, [1] * len(dims)))
        )
        bounds = [self.builder.emit(op.size_values(ShapeExpr(tuple(end)))) for end in ends]
        left = [None if a == axis else d for a, d in enumerate(dims)]
        return self.sized(op.dynamic_strided_slice(x, *bounds), left, info_of(x).dtype, dims[axis])

    def places(self, x: Expr) -> Expr:
        """Where a tensor is not 0, int64 [its dimensions, how many]."""
        dims = info_of(x).dims
        return self.sized(op.nonzero(x), [max(len(dims), 1), None], "int64", product_of(dims))

    def numbers(self, x: Expr, count: int = 1) -> list[SizeVar]:
        """The integers of a tensor as sizes. A call raises ValueError where one is less than 0."""
        flat = self.builder.emit(op.reshape(self.builder.emit(op.astype(x, "int64")), ShapeExpr((count,))))
        found = self.builder.emit(call_pure_packed("relax.run.counts", flat, sinfo_args=ShapeStructInfo(ndim=count)))
        made = [self.size() for _ in range(count)]
        self.builder.match_cast(found, ShapeStructInfo(tuple(made)))
        return made

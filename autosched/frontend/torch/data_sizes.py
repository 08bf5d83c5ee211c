"""Sizes that follow from what a program computes: symbols that get their values where the VM comes to them."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field

from autosched.frontend.size_arithmetic import EmptySizeVar, info_of, product_of
from autosched.relax import op
from autosched.relax.block_builder import BlockBuilder
from autosched.relax.expr import Expr, ShapeExpr
from autosched.relax.op.call import call_pure_packed
from autosched.relax.struct_info import Dim, ShapeStructInfo, TensorStructInfo, to_dim
from autosched.tir.expr import PrimExpr, SizeVar


@dataclass
class DataSizes:
    """Makes such symbols in the function that is being written.

    counts  PyTorch's names of integers that a program has checked to be no less than 0
    most    what those that were made may be at most, where that is known; they may be 0
    """

    builder: BlockBuilder
    counts: Container[str] = ()
    most: dict[SizeVar, PrimExpr | None] = field(default_factory=dict)

    def size(self, most: Dim | None = None) -> SizeVar:
        """A symbol of its own."""
        made = EmptySizeVar(f"d{len(self.most)}", "int64")
        self.most[made] = None if most is None else to_dim(most)
        return made

    def sized(self, value: Expr, dims: Sequence[Dim | None], dtype: str, most: Dim | None = None) -> Expr:
        """A tensor; dimensions that are None become symbols."""
        known = [self.size(most) if d is None else d for d in dims]
        return self.builder.match_cast(self.builder.emit(value), TensorStructInfo(known, dtype))

    def places(self, x: Expr) -> Expr:
        """Where a tensor is not 0, int64 [its dimensions, how many]."""
        dims = info_of(x).dims
        return self.sized(op.nonzero(x), [max(len(dims), 1), None], "int64", product_of(dims))

    def number(self, x: Expr) -> SizeVar:
        """An integer tensor of one element as a size. A call raises ValueError where it is less than 0."""
        flat = self.builder.emit(op.reshape(self.builder.emit(op.astype(x, "int64")), ShapeExpr((1,))))
        found = self.builder.emit(call_pure_packed("relax.run.counts", flat, sinfo_args=ShapeStructInfo(ndim=1)))
        made = self.size()
        self.builder.match_cast(found, ShapeStructInfo((made,)))
        return made

"""Ranges, the axes that run over them, and reductions over axes."""

from __future__ import annotations

from dataclasses import dataclass, field

from autosched.ir.node import DEFINES, Node
from autosched.tir.expr import ExprLike, IntImm, PrimExpr, StandsForVar, Var, to_expr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Range(Node):
    """[min, min + extent)."""

    min: PrimExpr
    extent: PrimExpr

    def __repr__(self) -> str:
        return f"range(min={_shown(self.min)}, ext={_shown(self.extent)})"

    @staticmethod
    def from_min_extent(start: ExprLike, extent: ExprLike) -> Range:
        return Range(to_expr(start), to_expr(extent))


def _shown(x: PrimExpr) -> str:
    return str(x.value) if isinstance(x, IntImm) else str(x)


SPATIAL, REDUCE, SCAN, OPAQUE = "S", "R", "scan", "opaque"
# the kinds of axes in the order of TVM's numbers
ITER_KINDS = (
    SPATIAL, "thread", REDUCE, SCAN, OPAQUE, "unrolled", "vectorized", "parallelized", "tensorized",
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class IterVar(StandsForVar):
    """A block's (or te axis's) iteration variable: its domain and kind, SPATIAL ("S") or REDUCE ("R")."""

    dom: Range
    var: Var = field(metadata=DEFINES)
    kind: str = SPATIAL
    thread_tag: str = ""

    def __str__(self) -> str:
        return self.var.name

    def __repr__(self) -> str:
        return f"iter_var({self.var.name}, {self.dom!r})"

    @property
    def name(self) -> str:
        return self.var.name

    @property
    def iter_type(self) -> int:
        """TVM's number of `kind`; `IterVar.DataPar`, `IterVar.CommReduce` … are its values."""
        return ITER_KINDS.index(self.kind)

    @property
    def dtype(self) -> str:
        return self.var.dtype


@dataclass(frozen=True, slots=True, eq=False)
class CommReducer(Node):
    """A commutative, associative combination: `result[i]` in terms of `lhs` and `rhs`, and its identity."""

    lhs: tuple[Var, ...] = field(metadata=DEFINES)
    rhs: tuple[Var, ...] = field(metadata=DEFINES)
    result: tuple[PrimExpr, ...]
    identity_element: tuple[PrimExpr, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Reduce(PrimExpr):
    """A reduction of te: combine `source[value_index]` over `axis` where `condition`, from `init` or the identity."""

    combiner: CommReducer
    source: tuple[PrimExpr, ...]
    axis: tuple[IterVar, ...]
    condition: PrimExpr
    value_index: int = 0
    init: tuple[PrimExpr, ...] = ()

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return self.source[self.value_index].dtype


# TVM's names of the numbers: `iv.iter_type == tir.IterVar.DataPar`
for _name, _number in (
    ("DataPar", 0), ("ThreadIndex", 1), ("CommReduce", 2), ("Ordered", 3), ("Opaque", 4), ("DimInfo", 4),
    ("Unrolled", 5), ("Vectorized", 6), ("Parallelized", 7), ("Tensorized", 8),
):  # fmt: skip
    setattr(IterVar, _name, _number)

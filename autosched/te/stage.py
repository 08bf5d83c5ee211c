"""`Stage`: the loops of one operation in a te schedule, as the user has asked for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, SupportsInt

from autosched.errors import InvalidTypeError, InvalidValueError, ScheduleError, refuse
from autosched.te.tensor import ComputeOp, Operation, PlaceholderOp, Tensor
from autosched.tir import expr as E
from autosched.tir.axis import REDUCE, SPATIAL, IterVar, Range
from autosched.tir.expr import ExprLike, PrimExpr, Var
from autosched.tir.index_map import IndexMap
from autosched.tir.simplify import Analyzer

if TYPE_CHECKING:
    from autosched.te.tensor_intrin import TensorIntrin


@dataclass(frozen=True)
class Split:
    """`parent` becomes `outer` and `inner`; one of the two sizes is given."""

    parent: IterVar
    outer: IterVar
    inner: IterVar
    factor: int | None
    nparts: int | None


@dataclass(frozen=True)
class Fuse:
    """`axes`, neighbours, become `fused`."""

    axes: tuple[IterVar, ...]
    fused: IterVar


@dataclass(frozen=True)
class Reorder:
    """`axes` stand in this order from now on, in the places that they had."""

    axes: tuple[IterVar, ...]


Relation = Split | Fuse | Reorder


THREAD_TAGS = (
    *(f"{kind}.{axis}" for kind in ("blockIdx", "clusterCtaIdx", "threadIdx", "vthread") for axis in "xyz"),
    "vthread", "cthread", "parallel", "vectorize", "unroll",
)  # fmt: skip


def thread_axis(dom: Range | Sequence[ExprLike] | str | None = None, tag: str = "", name: str = "") -> IterVar:
    """An axis of a GPU's grid: `thread_axis("threadIdx.x")` or `thread_axis((0, 64), "threadIdx.x")`."""
    if isinstance(dom, str):
        return thread_axis(None, dom, name)
    if not tag:
        raise InvalidValueError("thread_axis needs a tag", hint='such as "blockIdx.x" or "threadIdx.x"')
    if tag.removeprefix("pipeline") == tag and tag not in THREAD_TAGS:
        raise InvalidValueError(f"thread_axis: unknown tag '{tag}'", hint=f"one of {', '.join(THREAD_TAGS)}")
    if dom is None:
        dom = Range(E.const(0), E.const(0))
    elif not isinstance(dom, Range):
        dom = Range(E.to_expr(dom[0]), E.sub(E.to_expr(dom[1]), E.to_expr(dom[0])))
    return IterVar(dom, Var(name or tag), "thread", tag)


class Stage:
    """The loops of one operation: `leaf_iter_vars` from the outermost, made of `op.axis` and `op.reduce_axis`.

    Methods note what is wanted; `schedule.to_prim_func` does it with the primitives of `tir.Schedule`.
    """

    def __init__(self, op: Operation):
        self.origin_op = op
        self.is_output = False
        self.placement: tuple[str, Stage | None, IterVar | None] = ("root", None, None)
        self.reset(op)

    def reset(self, op: Operation) -> None:
        """Let the stage compute `op`, with no loop changed yet."""
        self.op = op
        axes = op.axis + op.reduce_axis if isinstance(op, ComputeOp) else ()
        self.iter_vars: tuple[IterVar, ...] = axes
        self.all_iter_vars: list[IterVar] = list(axes)
        self.leaf_iter_vars: list[IterVar] = list(axes)
        self.relations: list[Relation] = []
        self.kinds: dict[IterVar, str] = {}  # leaf -> "parallel", "vectorize", "unroll"
        self.binds: dict[IterVar, str] = {}
        self.notes: list[tuple[IterVar, str, str | int]] = []
        self.scope = "global"
        self.storage: list[tuple[IterVar, int, int]] = []
        self.intrins: list[tuple[IterVar, TensorIntrin]] = []
        self.layout: Callable[..., Any] | None = None  # from the result's indices to those that it is stored by

    @property
    def is_changed(self) -> bool:
        """Whether anything was asked for."""
        wishes = self.relations or self.kinds or self.binds or self.notes or self.storage or self.intrins
        return (
            bool(wishes or self.layout)
            or self.placement[0] != "root"
            or self.op is not self.origin_op
            or self.scope != "global"
        )

    def __repr__(self) -> str:
        return f"stage({self.op.name}, {', '.join(iv.var.name for iv in self.leaf_iter_vars)})"

    # Loops

    def _leaf(self, axis: object, action: str) -> int:
        if isinstance(axis, Var):  # TVM takes the variable for its axis
            axis = next((iv for iv in self.leaf_iter_vars if iv.var is axis), axis)
        if not isinstance(axis, IterVar):
            raise InvalidTypeError(f"{action} takes an axis, not {type(axis).__name__}", where=f"stage {self.op.name}")
        for position, leaf in enumerate(self.leaf_iter_vars):
            if leaf is axis:
                return position
        known = any(iv is axis for iv in self.all_iter_vars)
        problem = "was split or fused already" if known else "is no axis of this stage"
        raise InvalidValueError(
            f"{action}: '{axis.var.name}' {problem}",
            where=f"stage {self.op.name}",
            hint=f"its axes are {', '.join(iv.var.name for iv in self.leaf_iter_vars)}",
        )

    def split(
        self, parent: IterVar, factor: ExprLike | None = None, nparts: ExprLike | None = None
    ) -> tuple[IterVar, IterVar]:
        """Divide an axis: the inner one has `factor` iterations, or the outer one `nparts`; tails are guarded.

        Raises ValueError unless exactly one of the two is given.
        """
        if (factor is None) == (nparts is None):
            raise InvalidValueError("split needs exactly one of factor and nparts", where=f"stage {self.op.name}")
        position = self._leaf(parent, "split")
        parent = self.leaf_iter_vars[position]
        size = _positive(nparts if factor is None else factor, "split", self)
        extent = parent.dom.extent
        rest = Analyzer().simplify(E.floordiv(extent + (size - 1), E.const(size, extent.dtype)))
        parts = (rest, E.const(size, extent.dtype)) if factor is not None else (E.const(size, extent.dtype), rest)
        outer, inner = (
            _axis(f"{parent.var.name}.{end}", part, parent.kind)
            for end, part in zip(("outer", "inner"), parts, strict=True)
        )
        given = (size, None) if factor is not None else (None, size)
        self._replace([parent], [outer, inner], Split(parent, outer, inner, *given))
        return outer, inner

    def fuse(self, *args: IterVar) -> IterVar:
        """Make one axis of neighbours, given from the outermost."""
        if not args:
            raise InvalidValueError("fuse needs at least one axis", where=f"stage {self.op.name}")
        positions = [self._leaf(axis, "fuse") for axis in args]
        if positions != list(range(positions[0], positions[0] + len(positions))):
            raise InvalidValueError(
                f"fuse: {', '.join(a.var.name for a in args)} are no neighbours, outer to inner",
                where=f"stage {self.op.name}",
                hint=f"the axes are {', '.join(iv.var.name for iv in self.leaf_iter_vars)}",
            )
        axes = tuple(self.leaf_iter_vars[p] for p in positions)
        if len(axes) == 1:
            return axes[0]
        extent: PrimExpr = axes[0].dom.extent
        for axis in axes[1:]:
            extent = extent * axis.dom.extent
        kind = REDUCE if any(axis.kind == REDUCE for axis in axes) else SPATIAL
        fused = _axis(".".join([*(axis.var.name for axis in axes), "fused"]), extent, kind)
        self._replace(list(axes), [fused], Fuse(axes, fused))
        return fused

    def reorder(self, *args: IterVar) -> None:
        """Put the given axes in this order, in the places that they have among all."""
        positions = [self._leaf(axis, "reorder") for axis in args]
        if len(set(positions)) != len(positions):
            raise InvalidValueError("reorder: an axis is given twice", where=f"stage {self.op.name}")
        axes = tuple(self.leaf_iter_vars[p] for p in positions)
        for place, axis in zip(sorted(positions), axes, strict=True):
            self.leaf_iter_vars[place] = axis
        self.relations.append(Reorder(axes))

    def tile(
        self, x_parent: IterVar, y_parent: IterVar, x_factor: int, y_factor: int
    ) -> tuple[IterVar, IterVar, IterVar, IterVar]:
        """Split two axes and bring their inner halves inside: (x outer, y outer, x inner, y inner)."""
        x_outer, x_inner = self.split(x_parent, factor=x_factor)
        y_outer, y_inner = self.split(y_parent, factor=y_factor)
        self.reorder(x_outer, y_outer, x_inner, y_inner)
        return x_outer, y_outer, x_inner, y_inner

    def _replace(self, old: list[IterVar], new: list[IterVar], relation: Relation) -> None:
        place = next(p for p, leaf in enumerate(self.leaf_iter_vars) if leaf is old[0])
        self.leaf_iter_vars[place : place + len(old)] = new
        self.all_iter_vars += new
        self.relations.append(relation)

    # How loops run

    def _mark(self, axis: IterVar, kind: str, *, data_parallel: bool) -> None:
        leaf = self.leaf_iter_vars[self._leaf(axis, kind)]
        if data_parallel and leaf.kind == REDUCE:
            raise ScheduleError(
                f"{kind}: '{leaf.var.name}' is a reduction axis", where=f"stage {self.op.name}",
                hint="only data-parallel axes can be; rfactor makes one of a reduction axis",
            )  # fmt: skip
        self.kinds[leaf] = kind

    def vectorize(self, var: IterVar) -> None:
        """Let vector lanes share an axis."""
        self._mark(var, "vectorize", data_parallel=True)

    def unroll(self, var: IterVar) -> None:
        """Write an axis's iterations out."""
        self._mark(var, "unroll", data_parallel=False)

    def parallel(self, var: IterVar) -> None:
        """Let threads share an axis."""
        self._mark(var, "parallel", data_parallel=True)

    def bind(self, ivar: IterVar, thread_ivar: IterVar) -> None:
        """Bind an axis to a `thread_axis`."""
        if not isinstance(thread_ivar, IterVar) or not thread_ivar.thread_tag:
            raise InvalidTypeError("bind takes an axis and a te.thread_axis", where=f"stage {self.op.name}")
        self.binds[self.leaf_iter_vars[self._leaf(ivar, "bind")]] = thread_ivar.thread_tag

    def pragma(self, var: IterVar, pragma_type: str, pragma_value: str | SupportsInt | None = None) -> None:
        """Note something on an axis for the code generator."""
        leaf = self.leaf_iter_vars[self._leaf(var, "pragma")]
        if not isinstance(pragma_type, str):
            raise InvalidTypeError(f"pragma: its name is a text, not {type(pragma_type).__name__}")
        value = pragma_value if isinstance(pragma_value, str) else 1 if pragma_value is None else int(pragma_value)
        self.notes.append((leaf, f"pragma_{pragma_type}", value))

    def prefetch(self, tensor: Tensor, var: IterVar, offset: SupportsInt) -> None:
        """Note that a tensor's elements are wanted `offset` iterations ahead."""
        leaf = self.leaf_iter_vars[self._leaf(var, "prefetch")]
        self.notes.append((leaf, f"prefetch_{tensor.name}", int(offset)))

    def tensorize(self, var: IterVar, tensor_intrin: object) -> None:
        """Replace an axis and all inside of it by an intrinsic of `te.decl_tensor_intrin`."""
        from autosched.te.tensor_intrin import TensorIntrin

        if not isinstance(tensor_intrin, TensorIntrin):
            raise InvalidTypeError(
                f"tensorize takes a te.decl_tensor_intrin, not {type(tensor_intrin).__name__}",
                where=f"stage {self.op.name}",
            )
        self.intrins.append((self.leaf_iter_vars[self._leaf(var, "tensorize")], tensor_intrin))

    # Placement

    def compute_at(self, parent: Stage, scope: IterVar) -> None:
        """Compute what the parent's iterations of an axis need inside that axis."""
        if not isinstance(parent, Stage):
            raise InvalidTypeError(f"compute_at takes a stage, not {type(parent).__name__}", hint="use s[tensor]")
        if parent is self:
            raise InvalidValueError("compute_at: a stage cannot be inside itself", where=f"stage {self.op.name}")
        self._movable("compute_at")
        self.placement = ("at", parent, parent.leaf_iter_vars[parent._leaf(scope, "compute_at")])

    def compute_inline(self) -> None:
        """Put the expression into its consumers."""
        self._movable("compute_inline")
        if isinstance(self.op, ComputeOp) and self.op.reduce_axis:
            raise ScheduleError("compute_inline: a reduction is no expression", where=f"stage {self.op.name}")
        self.placement = ("inline", None, None)

    def compute_root(self) -> None:
        """Compute the whole tensor before its consumers begin."""
        self.placement = ("root", None, None)

    def _movable(self, action: str) -> None:
        if not isinstance(self.op, ComputeOp):
            raise ScheduleError(f"{action}: a placeholder is not computed", where=f"stage {self.op.name}")
        if self.is_output:
            raise ScheduleError(f"{action}: an output is computed whole", where=f"stage {self.op.name}")

    # Storage

    def set_scope(self, scope: str) -> None:
        """Say what memory the result lies in: "global", "local", "shared"."""
        if not isinstance(scope, str):
            raise InvalidTypeError("set_scope takes a text", where=f"stage {self.op.name}")
        self.scope = scope

    def storage_align(self, axis: IterVar, factor: int, offset: int) -> None:
        """Align the stride of an axis of the result."""
        self.storage.append((axis, int(factor), int(offset)))

    def transform_layout(self, mapping_function: Callable[..., object]) -> list[IterVar]:
        """Store the result by other indices, and compute it in their order; gives the axes of the new loops.

            s[B].transform_layout(lambda i, j: [i, j // 4, j % 4])   # stores B[i, j // 4, j % 4]

        An input changes its layout alone and gives no axes. Arguments are given in the new layout. The mapping is a
        bijection of the shape; `te.AXIS_SEPARATOR` may stand between its indices.
        Raises ScheduleError where axes were split, fused or reordered before, or the mapping is no bijection.
        """
        where = f"stage {self.op.name}"
        if not isinstance(self.op, ComputeOp | PlaceholderOp):
            raise ScheduleError("transform_layout: only inputs and computes have layouts", where=where)
        if self.layout is not None or len(self.leaf_iter_vars) != len(self.iter_vars) or self.relations:
            raise ScheduleError("transform_layout comes before axes are split, fused, reordered or mapped", where=where)
        shape = self.op.output(0).shape
        dtype = shape[0].dtype if shape else "int32"
        mapping, _ = IndexMap.from_func_with_separators(mapping_function, len(shape), dtype)
        if mapping.ndim != len(shape):
            raise ScheduleError(
                f"transform_layout: {mapping} takes {mapping.ndim} indices of {len(shape)}", where=where
            )
        try:
            mapping.inverse(shape)
            extents = mapping.map_shape(shape)
        except InvalidValueError as error:
            raise ScheduleError(f"transform_layout: {error.message}", where=where, hint=error.hint) from None
        if prod(map(E.as_int, extents)) != prod(map(E.as_int, shape)):
            raise ScheduleError(f"transform_layout: {mapping} is no bijection of the shape", where=where)
        self.layout = mapping_function
        if isinstance(self.op, PlaceholderOp):
            return []
        new = [_axis(f"axis{i}", extent, SPATIAL) for i, extent in enumerate(extents)]
        self.iter_vars = (*new, *self.op.reduce_axis)
        self.leaf_iter_vars = list(self.iter_vars)
        self.all_iter_vars += new
        return new

    def double_buffer(self) -> None:
        """Note that the result may be held twice, so that filling one half overlaps with reading the other."""
        self._note_all("double_buffer_scope")

    def rolling_buffer(self) -> None:
        """Note that the result may be a window that moves along."""
        self._note_all("rolling_buffer_scope")

    def _note_all(self, key: str) -> None:
        if self.leaf_iter_vars:
            self.notes.append((self.leaf_iter_vars[0], key, 1))

    def env_threads(self, threads: IterVar | Sequence[IterVar]) -> None:
        """Launch threads around the stage: only where a device back end uses them."""
        refuse("env_threads", hint="bind the axes", threads=threads)

    def set_store_predicate(self, predicate: object) -> None:
        """Restrict which threads store: only where a device back end uses them."""
        refuse("set_store_predicate", hint="rfactor sums by several threads", predicate=predicate is not None)


def _axis(name: str, extent: PrimExpr, kind: str) -> IterVar:
    return IterVar(Range(E.const(0, extent.dtype), extent), Var(name, extent.dtype), kind)


def _positive(value: object, action: str, stage: Stage) -> int:
    number = E.const_int(value) if isinstance(value, PrimExpr) else value
    if isinstance(number, bool) or not hasattr(number, "__index__"):
        raise InvalidTypeError(
            f"{action}: a factor is an integer, not {type(value).__name__}", where=f"stage {stage.op.name}"
        )
    assert number is not None
    if int(number) < 1:
        raise InvalidValueError(f"{action}: factor {number} must be at least 1", where=f"stage {stage.op.name}")
    return int(number)

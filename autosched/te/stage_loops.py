"""From a te schedule to a PrimFunc: every stage's wishes, carried out by the primitives of `tir.Schedule`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from autosched.errors import InvalidTypeError, InvalidValueError, ScheduleError
from autosched.te.prim_func import create_prim_func, topological
from autosched.te.schedule import Schedule
from autosched.te.stage import Fuse, Reorder, Split, Stage
from autosched.te.tensor import ComputeOp, Operation, PlaceholderOp, Tensor
from autosched.tir.expr import IterVar, Var
from autosched.tir.function import PrimFunc
from autosched.tir.functor import rewrite
from autosched.tir.schedule import BlockRV, LoopRV
from autosched.tir.schedule import Schedule as LoopSchedule
from autosched.tir.specialize import shape_vars, specialize
from autosched.tir.stmt import For, LoopKind, Stmt


def to_prim_func(
    schedule: Schedule, args: Sequence[Tensor | Var], name: str = "main", values: Mapping[Var, int] | None = None
) -> PrimFunc:
    """The scheduled loops of a te schedule; arguments in the order of `args`.

    args    tensors, and variables that stand for sizes
    values  numbers for the variables in tensors' shapes

    A schedule that asks for nothing leaves the choice of loops to the build: the result does not count as scheduled.

    Raises ValueError where `args` lacks an input or output, ScheduleError for a wish that would change the result.
    """
    tensors = _arguments(schedule, args)
    func = with_scalar_params(create_prim_func(tensors), args)
    if values:
        func = specialize(func, values)
    loops = _Loops(LoopSchedule(func), topological(tensors))
    stages = [stage for stage in schedule.stages if stage.op in loops.blocks]
    for stage in stages:
        if stage.placement[0] == "inline":
            loops.sch.compute_inline(loops.blocks[stage.op])
    kept = [stage for stage in stages if stage.placement[0] != "inline"]
    for stage in reversed(kept):
        loops.place(stage)
    for stage in kept:
        loops.mark(stage)
    done = loops.sch.mod["main"].with_attr("global_symbol", name)
    assert isinstance(done, PrimFunc)
    done = done.with_body(loops.with_unproven_kinds(done.body))
    if any(stage.is_changed for stage in schedule.stages):
        return done.with_attr("tir.is_scheduled", True)
    return done


def with_scalar_params(func: PrimFunc, args: Sequence[Tensor | Var]) -> PrimFunc:
    """The function with scalar parameters where `args` has variables: numbers, or sizes that callers give as well."""
    if not any(isinstance(arg, Var) for arg in args):
        return func
    handles = iter(func.params)
    params = [arg if isinstance(arg, Var) else next(handles) for arg in args]
    return dataclasses.replace(func, params=(*params, *handles))


def _arguments(schedule: Schedule, args: Sequence[Tensor | Var]) -> list[Tensor]:
    for index, arg in enumerate(args):
        if not isinstance(arg, Tensor | Var):
            raise InvalidTypeError(f"argument {index} is a {type(arg).__name__}, not a te tensor")
    given = [schedule.current(arg) for arg in args if isinstance(arg, Tensor)]
    listed = {t.op for t in given}
    for stage in schedule.stages:
        if isinstance(stage.op, PlaceholderOp) and stage.op not in listed:
            raise InvalidValueError(f"input '{stage.op.name}' is not among the arguments")
        if stage.is_output and stage.op not in listed:
            raise InvalidValueError(f"output '{stage.op.name}' is not among the arguments")
    return given


_KINDS = {"parallel": LoopKind.PARALLEL, "vectorize": LoopKind.VECTORIZED, "unroll": LoopKind.UNROLLED}


def replace_kind(loop: For, kind: LoopKind) -> For:
    """A loop of another kind."""
    return dataclasses.replace(loop, kind=kind)


class _Loops:
    """The blocks that operations have become, and the loops of axes."""

    def __init__(self, sch: LoopSchedule, order: Sequence[ComputeOp]):
        self.sch = sch
        self.blocks: dict[Operation, BlockRV] = dict(zip(order, sch.get_child_blocks("root"), strict=True))
        self.loops: dict[IterVar, LoopRV] = {}
        self.symbolic = bool(shape_vars(sch.func))
        self.unproven: dict[Var, LoopKind] = {}  # not judged before sizes are known; axes of computes are data-parallel

    def with_unproven_kinds(self, body: Stmt) -> Stmt:
        """Mark loops that the primitives cannot judge before sizes are known."""
        if not self.unproven:
            return body

        def step(x: Any) -> Any:
            return (
                replace_kind(x, self.unproven[x.loop_var]) if isinstance(x, For) and x.loop_var in self.unproven else x
            )

        return rewrite(body, step)

    def place(self, stage: Stage) -> None:
        """Move a stage's block to where it is computed, then change its loops; consumers come before producers."""
        block, outside = self.blocks[stage.op], 0
        how, parent, scope = stage.placement
        if how == "at":
            assert parent is not None and scope is not None
            if scope not in self.loops or scope not in parent.leaf_iter_vars:
                raise ScheduleError(
                    f"compute_at of '{stage.op.name}': '{scope.var.name}' is no loop of '{parent.op.name}'",
                    hint="give an axis that is not split or fused afterwards",
                )
            self.sch.compute_at(block, self.loops[scope], preserve_unit_loops=True)
            outside = len(self.sch.get_loops(block)) - len(stage.iter_vars)
        self.loops |= dict(zip(stage.iter_vars, self.sch.get_loops(block)[outside:], strict=True))
        for relation in stage.relations:
            self.change(relation)
        if stage.scope != "global":
            for index in range(stage.op.num_outputs):
                self.sch.set_scope(block, index, stage.scope)
        for axis, factor, offset in stage.storage:
            position = next((i for i, iv in enumerate(stage.iter_vars) if iv is axis), 0)
            self.sch.annotate(block, "buffer_dim_align", [0, position, factor, offset])

    def change(self, relation: Split | Fuse | Reorder) -> None:
        """Split, fuse or reorder loops."""
        match relation:
            case Split(parent, outer, inner, factor, nparts):
                self.loops[outer], self.loops[inner] = self.sch.split(self.loops[parent], [nparts, factor])
            case Fuse(axes, fused):
                self.loops[fused] = self.sch.fuse(*(self.loops[axis] for axis in axes))
            case Reorder(axes):
                self.sch.reorder(*(self.loops[axis] for axis in axes))

    def mark(self, stage: Stage) -> None:
        """Say how a stage's loops run, when all of them are where they stay.

        What was asked of an axis that was split or fused afterwards went with it, as in TVM.
        """
        leaves = set(stage.leaf_iter_vars)
        for axis, kind in ((a, k) for a, k in stage.kinds.items() if a in leaves):
            try:
                getattr(self.sch, kind)(self.loops[axis])
            except ScheduleError:
                if not self.symbolic:
                    raise
                self.unproven[self.sch.get(self.loops[axis]).loop_var] = _KINDS[kind]
        for axis, tag in ((a, t) for a, t in stage.binds.items() if a in leaves):
            self.sch.bind(self.loops[axis], tag)
        for axis, key, value in stage.notes:
            if axis in leaves:
                self.sch.annotate(self.loops[axis], key, value)

"""From a te schedule to a PrimFunc: every stage's wishes, carried out by the primitives of `tir.Schedule`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from autosched.errors import InvalidTypeError, InvalidValueError, ScheduleError
from autosched.ir.node import FrozenDict
from autosched.te.prim_func import UniqueNames, create_prim_func, repeated, topological
from autosched.te.scan import ScanOp
from autosched.te.schedule import Schedule
from autosched.te.stage import Fuse, Reorder, Split, Stage
from autosched.te.tensor import Operation, PlaceholderOp, Tensor
from autosched.te.tensor_intrin import TensorIntrin
from autosched.tir.axis import REDUCE, IterVar
from autosched.tir.buffer import Buffer
from autosched.tir.expr import ExprLike, Var
from autosched.tir.function import PrimFunc, shape_vars, specialize
from autosched.tir.functor import rewrite
from autosched.tir.schedule import BlockRV, LoopRV
from autosched.tir.schedule import Schedule as LoopSchedule
from autosched.tir.stmt import BlockRealize, For, LoopKind, Stmt


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
    interface = _interface(schedule, tensors)
    func = create_prim_func(interface)
    func = with_scalar_params(func, [a for a in args if isinstance(a, Var)])
    if values:
        func = specialize(func, values)
    loops = _Loops(LoopSchedule(func), topological(interface))
    stages = [stage for stage in schedule.stages if stage.op in loops.blocks]
    for stage in stages:
        if stage.placement[0] == "inline":
            loops.sch.compute_inline(loops.blocks[stage.op])
    kept = [stage for stage in stages if stage.placement[0] != "inline"]
    names = {tensor.op: buffer.name for tensor, buffer in zip(interface, func.buffers, strict=True)}
    for stage in schedule.stages:
        if stage.layout is not None and stage.placement[0] != "inline":
            loops.transform(stage, names)
    for stage in reversed(kept):
        loops.place(stage)
    for stage in kept:
        loops.mark(stage)
    done = with_arguments(loops.sch.func, args, schedule).with_attr("global_symbol", name)
    done = done.with_body(loops.with_unproven_kinds(done.body))
    if any(stage.is_changed for stage in schedule.stages):
        return done.with_attr("tir.is_scheduled", True)
    return done


def with_scalar_params(func: PrimFunc, variables: Sequence[Var]) -> PrimFunc:
    """The function with scalar parameters in front: numbers, or sizes that callers give as well."""
    return dataclasses.replace(func, params=(*variables, *func.params)) if variables else func


def _interface(schedule: Schedule, tensors: Sequence[Tensor]) -> list[Tensor]:
    """The inputs and outputs among the arguments: what lies between may move and vanish, also if callers see it."""
    found = [t for t in tensors if isinstance(t.op, PlaceholderOp) or schedule[t].is_output]
    unlisted = [s.op for s in schedule.stages if s.is_output and all(t.op is not s.op for t in found)]
    return found + [op.output(i) for op in unlisted for i in range(op.num_outputs)]


def with_arguments(func: PrimFunc, args: Sequence[Tensor | Var], schedule: Schedule) -> PrimFunc:
    """The function with its parameters in the order of `args`; intermediate results among them become visible."""
    names = UniqueNames()
    by_name = {b.name: b for b in func.buffers}
    own = {b.name: b for b in (func.root.alloc_buffers if isinstance(func.body, BlockRealize) else ())}
    params: list[Var] = []
    buffers: dict[Var, Buffer] = {}
    shown: list[Buffer] = []
    handles = {b.name: p for p, b in func.buffer_map.items()}
    for arg in args:
        if isinstance(arg, Var):
            params.append(arg)
            continue
        tensor = schedule.current(arg)
        name = names(tensor.name.replace(".", "_"))
        handle = handles.get(name, Var(f"var_{name}", "handle"))
        if name not in by_name:  # an intermediate result; one that was inlined is an argument that nobody writes
            by_name[name] = own.get(name) or Buffer(name, tensor.shape, tensor.dtype)
            shown.append(by_name[name])
        params.append(handle)
        buffers[handle] = by_name[name]
    mapped = FrozenDict(buffers)
    root = func.root
    unseen = tuple(b for b in func.buffers if b not in buffers.values())  # outputs that the caller does not ask for
    kept = tuple(b for b in root.alloc_buffers if b not in shown) + unseen
    body = dataclasses.replace(func.body, block=dataclasses.replace(root, alloc_buffers=kept))  # type: ignore[type-var]
    return dataclasses.replace(func, params=tuple(params), buffer_map=mapped, body=body)


def _arguments(schedule: Schedule, args: Sequence[Tensor | Var]) -> list[Tensor]:
    for index, arg in enumerate(args):
        if not isinstance(arg, Tensor | Var):
            raise InvalidTypeError(f"lower, build: argument {index} is a {type(arg).__name__}, not a te tensor")
    given = [schedule.current(arg) for arg in args if isinstance(arg, Tensor)]
    listed = {t.op for t in given}
    states = {t.op for stage in schedule.stages if isinstance(stage.op, ScanOp) for t in stage.op.state_placeholder}
    for stage in schedule.stages:
        if isinstance(stage.op, PlaceholderOp) and stage.op not in listed | states:
            raise InvalidValueError(f"lower, build: input '{stage.op.name}' is not among the arguments")
    return given


_KINDS = {"parallel": LoopKind.PARALLEL, "vectorize": LoopKind.VECTORIZED, "unroll": LoopKind.UNROLLED}


def replace_kind(loop: For, kind: LoopKind) -> For:
    """A loop of another kind."""
    return dataclasses.replace(loop, kind=kind)


class _Loops:
    """The blocks that operations have become, and the loops of axes."""

    def __init__(self, sch: LoopSchedule, order: Sequence[Operation]):
        self.sch = sch
        self.blocks: dict[Operation, BlockRV] = dict(
            zip(_in_program_order(order), sch.get_child_blocks("root"), strict=True)
        )
        self.recurrent = {op for scan in order if isinstance(scan, ScanOp) for op in repeated(scan, order)}
        self.loops: dict[IterVar, LoopRV] = {}
        self.symbolic = bool(shape_vars(sch.func))
        self.unproven_threads: dict[Var, str] = {}
        self.unproven: dict[Var, LoopKind] = {}  # not judged before sizes are known; axes of computes are data-parallel

    def with_unproven_kinds(self, body: Stmt) -> Stmt:
        """Mark loops that the primitives cannot judge before sizes are known."""
        if not self.unproven and not self.unproven_threads:
            return body

        def step(x: object) -> object:
            if isinstance(x, For) and x.loop_var in self.unproven_threads:
                return dataclasses.replace(x, kind=LoopKind.THREAD_BINDING, thread=self.unproven_threads[x.loop_var])
            return (
                replace_kind(x, self.unproven[x.loop_var]) if isinstance(x, For) and x.loop_var in self.unproven else x
            )

        return rewrite(body, step)

    def transform(self, stage: Stage, names: Mapping[Operation, str]) -> None:
        """Change the layout of a stage's buffers, and let its block iterate over their new indices.

        names  of the inputs' buffers
        """
        assert stage.layout is not None, "the caller looked"
        mapping = stage.layout
        if stage.op in self.blocks:
            block, ndim = self.blocks[stage.op], len(stage.op.output(0).shape)
            for index in range(stage.op.num_outputs):
                self.sch.transform_layout(block, ("write", index), mapping)

            def whole(*indices: Var) -> list[ExprLike]:
                own = mapping(*indices[:ndim])
                listed = own if isinstance(own, list | tuple) else [own]
                return [*(i for i in listed if not isinstance(i, str)), *indices[ndim:]]

            self.sch.transform_block_layout(block, whole)
            return
        readers = [op for op in self.blocks if stage.op in (t.op for t in op.input_tensors)]
        if not readers:
            raise ScheduleError(f"transform_layout: nothing reads '{stage.op.name}'")
        self.sch.transform_layout(self.blocks[readers[0]], names[stage.op], mapping)

    def place(self, stage: Stage) -> None:
        """Move a stage's block to where it is computed, then change its loops; consumers come before producers.

        Scopes and threads come first: what all threads share is computed for all of them.
        """
        block, outside = self.blocks[stage.op], 0
        if stage.scope != "global":
            for index in range(stage.op.num_outputs):
                self.sch.set_scope(block, index, stage.scope)
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
        for axis, factor, offset in stage.storage:
            position = next((i for i, iv in enumerate(stage.iter_vars) if iv is axis), 0)
            self.sch.annotate(block, "buffer_dim_align", [0, position, factor, offset])
        self.bind(stage)

    def bind(self, stage: Stage) -> None:
        """Bind a stage's loops to blocks and threads."""
        leaves = set(stage.leaf_iter_vars)
        for axis, tag in ((a, t) for a, t in stage.binds.items() if a in leaves):
            try:
                self.sch.bind(self.loops[axis], tag)
            except ScheduleError:
                if not self.symbolic:
                    raise
                self.unproven_threads[self.sch.get(self.loops[axis]).loop_var] = tag

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
                own = stage.op in self.recurrent and axis is not stage.iter_vars[0]  # a row's elements are independent
                if not self.symbolic and not own:
                    raise
                self.unproven[self.sch.get(self.loops[axis]).loop_var] = _KINDS[kind]
        for axis, key, value in stage.notes:
            if axis in leaves:
                self.sch.annotate(self.loops[axis], key, value)
        for axis, intrin in stage.intrins:
            self.tensorize(stage, axis, intrin)

    def tensorize(self, stage: Stage, axis: IterVar, intrin: TensorIntrin) -> None:
        """Put an intrinsic in place of an axis; where axes outside of it reduce, one that continues the sum."""
        leaves = stage.leaf_iter_vars
        place = next(i for i, leaf in enumerate(leaves) if leaf is axis)
        outside = [leaf for leaf in leaves[:place] if leaf.kind == REDUCE]
        if outside:
            self.sch.decompose_reduction(self.blocks[stage.op], self.loops[outside[0]])
        self.sch.tensorize_by(self.loops[axis], intrin.loop_intrin(whole=not outside))


def _in_program_order(order: Sequence[Operation]) -> list[Operation]:
    """The operations that have blocks, as these stand: what a recurrence repeats stands in its loop."""
    inside = {op: scan for scan in order if isinstance(scan, ScanOp) for op in repeated(scan, order)}
    found: list[Operation] = []
    for op in order:
        if isinstance(op, ScanOp):
            found += [x for x in order if inside.get(x) is op]
        elif op not in inside:
            found.append(op)
    return found

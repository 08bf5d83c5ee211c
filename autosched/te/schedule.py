"""te's schedule: a stage per operation. The loops are made by `tir.Schedule`, in `stage_loops`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn, TypeVar

from autosched.errors import InvalidTypeError, InvalidValueError
from autosched.te.dataflow import cached_computation, factored_reduction, reading_copy, rewire
from autosched.te.stage import Fuse as Fuse
from autosched.te.stage import Split as Split
from autosched.te.stage import Stage
from autosched.te.tensor import ComputeOp, Operation, Tensor
from autosched.tir.axis import IterVar

S = TypeVar("S", bound=Tensor | Operation)


class Schedule:
    """How the operations below some outputs are computed; `s[tensor]` is a tensor's stage.

    stages   a stage per operation, producers first
    outputs  the operations whose results are wanted
    """

    def __init__(self, outputs: Sequence[Operation]):
        self.outputs: list[Operation] = list(outputs)
        self.stages: list[Stage] = []
        self.groups: list[Group] = []
        self._of: dict[Operation, Stage] = {}
        for op in _operations(self.outputs):
            self._add(len(self.stages), op)
        for op in self.outputs:
            self._of[op].is_output = True

    def _add(self, position: int, op: Operation) -> Stage:
        stage = Stage(op)
        self.stages.insert(position, stage)
        self._of[op] = stage
        return stage

    @property
    def stage_map(self) -> dict[Operation, Stage]:
        """The stages by operation."""
        return dict(self._of)

    def __iter__(self) -> NoReturn:  # without it, Python would index for ever
        raise InvalidTypeError("a schedule cannot be iterated", hint="its stages are `s.stages`")

    def __getitem__(self, key: Tensor | Operation) -> Stage:
        op = key.op if isinstance(key, Tensor) else key
        if not isinstance(op, Operation):
            raise InvalidValueError(f"a schedule is indexed by a tensor or operation, not {type(key).__name__}")
        if op not in self._of:
            raise InvalidValueError(
                f"operation '{op.name}' is not in this schedule",
                hint=f"it has {', '.join(stage.op.name for stage in self.stages)}",
            )
        return self._of[op]

    def normalize(self) -> Schedule:
        """The schedule itself: nothing is left to be normalised before its loops are made."""
        return self

    def current(self, tensor: Tensor) -> Tensor:
        """The tensor that takes the place of one given before caches and factors came in."""
        return self[tensor].op.output(tensor.value_index)

    # Stages that come in between

    def cache_read(
        self,
        tensor: Tensor,
        scope: str,
        readers: Tensor | Operation | Sequence[Tensor | Operation],
    ) -> Tensor:
        """Let `readers` read a copy of a tensor that lies in `scope`; gives the copy."""
        _require_scope("cache_read", scope)
        _require_operations("cache_read", tensor, *_list(readers))
        try:
            stage, wanted = self[tensor], [self[reader] for reader in _list(readers)]
        except InvalidValueError as error:
            raise InvalidValueError(f"cache_read: {error.message}", hint=error.hint) from None
        source = stage.op.output(tensor.value_index)
        copy = reading_copy(source, scope)
        added = self._add(self.stages.index(stage) + 1, copy)
        added.scope = scope
        touched = [reader for reader in wanted if source in reader.op.input_tensors]
        if len(touched) != len(wanted):
            missing = next(reader for reader in wanted if reader not in touched)
            self.stages.remove(added)
            del self._of[copy]
            raise InvalidValueError(f"cache_read: '{missing.op.name}' does not read '{tensor.name}'")
        self._replace({source: copy.output(0)}, touched)
        return copy.output(0)

    def cache_write(self, tensor: Tensor | Sequence[Tensor], scope: str) -> Tensor | list[Tensor]:
        """Compute into a tensor of its own in `scope` and copy it from there; gives that tensor (or a list).

        Comes before the stage's axes are split: the computing axes are those of the new tensor's operation.
        """
        _require_scope("cache_write", scope)
        several = isinstance(tensor, list | tuple)
        tensors = _list(tensor)
        _require_operations("cache_write", *tensors)
        stages = {self[t] for t in tensors}
        if len(stages) != 1:
            raise InvalidValueError("cache_write takes outputs of one operation")
        (stage,) = stages
        if not isinstance(stage.op, ComputeOp):
            raise InvalidValueError(f"cache_write: '{stage.op.name}' is an input")
        if stage.relations or stage.layout:
            raise InvalidValueError(f"cache_write of '{stage.op.name}' comes before its axes are split or reordered")
        if len(tensors) != stage.op.num_outputs:
            raise InvalidValueError(f"cache_write takes all {stage.op.num_outputs} outputs of '{stage.op.name}'")
        cache, copy = cached_computation(stage.op, scope)
        added = self._add(self.stages.index(stage), cache)
        added.scope = scope
        self._exchange(stage, copy)
        results = [cache.output(t.value_index) for t in tensors]
        return results if several else results[0]

    def rfactor(self, tensor: Tensor, axis: IterVar, factor_axis: int = 0) -> Tensor | list[Tensor]:
        """Make a data-parallel axis of a part of a reduction: a new tensor of partial results comes in; gives it.

        axis  one of the stage's axes, made of its reduction; it is the new tensor's axis number `factor_axis`
        """
        stage = self[tensor]
        if not isinstance(axis, IterVar):
            raise InvalidTypeError(f"rfactor takes an axis, not {type(axis).__name__}")
        stage._leaf(axis, "rfactor")
        partial, final = factored_reduction(stage, axis, factor_axis)
        self._add(self.stages.index(stage), partial)
        self._exchange(stage, final)
        results = [partial.output(i) for i in range(partial.num_outputs)]
        return results[0] if len(results) == 1 else results

    def _exchange(self, stage: Stage, op: ComputeOp) -> None:
        """Let a stage compute `op` instead, and its readers read that."""
        old = stage.op
        scope = stage.scope
        stage.reset(op)
        stage.scope = scope
        self._of[op] = stage
        self._replace({old.output(i): op.output(i) for i in range(old.num_outputs)}, self.stages)

    def _replace(self, tensors: Mapping[Tensor, Tensor], readers: Sequence[Stage]) -> None:
        """Let `readers` read other tensors, and every stage the new outputs of the stages before it."""
        changed: dict[Tensor, Tensor] = {}
        for stage in self.stages:
            old = stage.op
            new = rewire(old, {**changed, **tensors} if stage in readers else changed)
            if new is not old:
                changed |= {old.output(i): new.output(i) for i in range(old.num_outputs)}
                stage.op = new
                self._of[new] = stage

    # Groups

    def create_group(
        self, outputs: Tensor | Sequence[Tensor], inputs: Tensor | Sequence[Tensor], include_inputs: bool = False
    ) -> Group:
        """The stages between inputs and outputs as one, to be placed together."""
        ends = [self[t] for t in _list(outputs)]
        starts = [self[t] for t in _list(inputs)]
        found: dict[Stage, None] = {}

        def reach(stage: Stage) -> bool:
            """Whether an input lies at or below; on the way, the stages in between are collected."""
            if stage in starts:
                if include_inputs:
                    found[stage] = None
                return True
            below = [reach(self[t]) for t in stage.op.input_tensors]
            if any(below):
                found[stage] = None
            return any(below)

        for end in ends:
            reach(end)
        group = Group([stage for stage in self.stages if stage in found])
        self.groups.append(group)
        return group

    def __repr__(self) -> str:
        return f"schedule({', '.join(stage.op.name for stage in self.stages)})"


class Group:
    """Stages that are placed together."""

    def __init__(self, stages: list[Stage]):
        self.stages = stages

    def compute_at(self, parent: Stage, scope: IterVar) -> None:
        """Place every stage of the group inside an axis."""
        for stage in self.stages:
            stage.compute_at(parent, scope)

    def compute_inline(self) -> None:
        """Put every stage of the group into its consumers."""
        for stage in self.stages:
            stage.compute_inline()

    def compute_root(self) -> None:
        """Compute every stage of the group whole."""
        for stage in self.stages:
            stage.compute_root()


def create_schedule(ops: Operation | Sequence[Operation] | Tensor) -> Schedule:
    """A schedule that computes these operations and all that they need, each whole and in plain loops."""
    outputs = []
    for op in _list(ops):
        op = op.op if isinstance(op, Tensor) else op
        if not isinstance(op, Operation):
            raise InvalidTypeError(f"create_schedule takes operations, not {type(op).__name__}", hint="use tensor.op")
        outputs.append(op)
    if not outputs:
        raise InvalidValueError("create_schedule needs at least one operation")
    return Schedule(outputs)


def _require_scope(action: str, scope: object) -> None:
    if not isinstance(scope, str):
        raise InvalidTypeError(f"{action}: argument 'scope' is a {type(scope).__name__}, expected a string")


def _require_operations(action: str, *given: object) -> None:
    for x in given:
        if not isinstance(x, Tensor | Operation):
            raise InvalidTypeError(f"{action} takes tensors, not {type(x).__name__}")


def _list(x: S | Sequence[S]) -> list[S]:
    return list(x) if isinstance(x, Sequence) else [x]


def _operations(outputs: Sequence[Operation]) -> list[Operation]:
    """All operations below the outputs, inputs first where they are first needed."""
    order: dict[Operation, None] = {}

    def visit(op: Operation) -> None:
        if op not in order:
            for tensor in op.input_tensors:
                visit(tensor.op)
            order[op] = None

    for op in outputs:
        visit(op)
    return list(order)

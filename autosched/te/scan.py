"""`te.scan`: recurrences along the first dimension."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import overload

from autosched.errors import InvalidTypeError, InvalidValueError, refuse
from autosched.ir.node import IGNORED
from autosched.te.tensor import OpaqueOperation, PlaceholderOp, Tensor
from autosched.tir import expr as E
from autosched.tir.axis import SCAN, IterVar, Range
from autosched.tir.expr import Var
from autosched.tir.simplify import Analyzer


@dataclass(frozen=True, eq=False)
class ScanOp(OpaqueOperation):
    """Output i starts as `init[i]`; row t of it is row t of `update[i]`, which reads earlier rows of `state[i]`."""

    init: tuple[Tensor, ...] = ()
    update: tuple[Tensor, ...] = ()
    state_placeholder: tuple[Tensor, ...] = ()
    inputs: tuple[Tensor, ...] = ()
    scan_axis: IterVar | None = None
    _cache: dict[int, tuple[Tensor, ...]] = field(default_factory=dict, repr=False, metadata=IGNORED)

    @property
    def num_outputs(self) -> int:
        return len(self.update)

    @property
    def input_tensors(self) -> tuple[Tensor, ...]:
        return (*self.init, *self.update)

    @property
    def _outputs(self) -> tuple[Tensor, ...]:
        if 0 not in self._cache:
            self._cache[0] = tuple(Tensor(s.shape, s.dtype, self, i) for i, s in enumerate(self.state_placeholder))
        return self._cache[0]

    def with_inputs(self, tensors: Mapping[Tensor, Tensor]) -> ScanOp:
        """The operation on other tensors in place of some."""
        init, update = (tuple(tensors.get(t, t) for t in ts) for ts in (self.init, self.update))
        return dataclasses.replace(self, init=init, update=update, _cache={})


def _tensors(what: str, given: object) -> list[Tensor]:
    found: list[Tensor] = []
    for t in given if isinstance(given, list | tuple) else [given]:
        if not isinstance(t, Tensor):
            raise InvalidTypeError(
                f"scan: argument '{what}' is a {type(t).__name__}, expected a te tensor or a list of them"
            )
        found.append(t)
    return found


@overload
def scan(
    init: Tensor, update: Tensor, state_placeholder: Tensor, inputs: Sequence[Tensor] | None = None,
    name: str = "scan", tag: str = "", attrs: object = None,
) -> Tensor: ...  # fmt: skip
@overload
def scan(
    init: Sequence[Tensor], update: Sequence[Tensor], state_placeholder: Sequence[Tensor],
    inputs: Sequence[Tensor] | None = None, name: str = "scan", tag: str = "", attrs: object = None,
) -> Tensor | list[Tensor]: ...  # fmt: skip
def scan(
    init: object, update: object, state_placeholder: object, inputs: Sequence[Tensor] | None = None, name: str = "scan",
    tag: str = "", attrs: object = None,
) -> Tensor | list[Tensor]:  # fmt: skip
    """A recurrence along the first dimension.

    init               the first rows of the result
    update             all rows, of which those behind the first come from earlier rows of `state_placeholder`
    state_placeholder  stands for the result while it is being computed
    Raises             TypeError and ValueError where the three do not fit each other

    X = te.placeholder((m, n));  state = te.placeholder((m, n))
    init = te.compute((1, n), lambda _, i: X[0, i])
    update = te.compute((m, n), lambda t, i: state[t - 1, i] + X[t, i])
    cumsum = te.scan(init, update, state, inputs=[X])
    """
    refuse("scan", attrs=attrs)
    del tag
    starts, steps, states = (
        _tensors("init", init),
        _tensors("update", update),
        _tensors("state_placeholder", state_placeholder),
    )
    if not len(starts) == len(steps) == len(states):
        raise InvalidValueError(f"scan: {len(starts)} init, {len(steps)} update and {len(states)} state tensors")
    for a, b, c in zip(starts, steps, states, strict=True):
        if not isinstance(c.op, PlaceholderOp):
            raise InvalidTypeError(f"scan: state '{c.name}' is no placeholder")
        if isinstance(b.op, PlaceholderOp) or isinstance(a.op, PlaceholderOp):
            raise InvalidTypeError("scan: init and update must be computed", hint="copy a placeholder with te.compute")
        if len({t.ndim for t in (a, b, c)}) != 1 or a.ndim == 0:
            raise InvalidValueError(
                "scan: init, update and state must have the same number of dimensions, at least one"
            )
        if len({t.dtype for t in (a, b, c)}) != 1:
            raise InvalidValueError("scan: init, update and state must have the same dtype")
        for x, y in zip(b.shape, c.shape, strict=True):
            if not Analyzer().can_prove_equal(x, y):
                raise InvalidValueError(f"scan: update '{b.name}' and state '{c.name}' have different shapes")
    start, end = starts[0].shape[0], steps[0].shape[0]
    axis = IterVar(Range(start, E.sub(end, start)), Var(f"{name}.idx", end.dtype), SCAN)
    op = ScanOp(name, tuple(starts), tuple(steps), tuple(states), tuple(inputs or ()), axis)
    results = [op.output(i) for i in range(op.num_outputs)]
    return results if len(results) > 1 else results[0]

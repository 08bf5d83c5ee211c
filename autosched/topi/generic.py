"""TVM's `topi.generic.schedule_*` (also `topi.x86`, `topi.cuda`): a schedule of outputs that asks for nothing.

The build then takes the best loops that are known, or its own default; what a user adds to the schedule counts instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autosched import te
from autosched.errors import InvalidTypeError
from autosched.te import Schedule, Tensor
from autosched.tir.expr import PrimExpr


def default_schedule(outs: Tensor | Sequence[Tensor], auto_inline: bool = False) -> Schedule:
    """The schedule of one output or several. Raises TypeError for anything but tensors."""
    del auto_inline
    tensors = [outs] if isinstance(outs, Tensor) else list(outs)
    for i, t in enumerate(tensors):
        if not isinstance(t, Tensor):
            raise InvalidTypeError(f"schedule: outs[{i}] is a {type(t).__name__}, expected a te tensor")
    return te.create_schedule([t.op for t in tensors])


def __getattr__(name: str) -> Callable[..., Schedule]:
    """`schedule_injective`, `schedule_reduce`, `schedule_conv2d_nchw` …: TVM has one for each operator."""
    if not name.startswith("schedule_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def schedule(*args: PrimExpr, **kwargs: PrimExpr) -> Schedule:
        outs = next((a for a in reversed((*args, *kwargs.values())) if isinstance(a, Tensor | list | tuple)), None)
        if outs is None:
            raise InvalidTypeError(f"{name} takes the output tensors")
        return default_schedule(outs)

    schedule.__name__ = name
    return schedule

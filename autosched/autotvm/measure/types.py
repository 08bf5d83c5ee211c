"""What is measured, and what came out."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from autosched.target import Target

if TYPE_CHECKING:
    pass


class MeasureErrorNo(IntEnum):
    """How a measurement ended."""

    NO_ERROR = 0
    INSTANTIATION_ERROR = 1
    COMPILE_HOST = 2
    COMPILE_DEVICE = 3
    RUNTIME_DEVICE = 4
    WRONG_ANSWER = 5
    BUILD_TIMEOUT = 6
    RUN_TIMEOUT = 7
    UNKNOWN_ERROR = 8


class MeasureInput(NamedTuple):
    """A configuration of a task on a target."""

    target: Target
    task: Any  # a Task that `create` made: its space, target and FLOPs are there
    config: Any  # a ConfigEntity of the task's space, with its index


class MeasureResult(NamedTuple):
    """Seconds of each repeat; on an error (traceback, exception), its number, what all took, and when it was."""

    costs: tuple[Any, ...]  # seconds; of an error its traceback and the exception
    error_no: int
    all_cost: float
    timestamp: float


class BuildResult(NamedTuple):
    """A built configuration: its module, or an error."""

    module: Any
    args: Sequence[object] | None
    error: tuple[object, ...] | None
    error_no: int
    time_cost: float

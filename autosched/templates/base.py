"""What a template is: it recognises a computation, offers a space of schedules for it, and applies one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from autosched.ir.node import FrozenDict
from autosched.space import Config, ConfigSpace
from autosched.target import Target
from autosched.templates.pack import Packing
from autosched.tir import PrimFunc

KERNEL_NAME = "autosched.name"  # attribute of a task's function: what a build calls its kernel


@dataclass(frozen=True)
class Anchor:
    """The block that a template schedules a function around.

    block    its name; "" where everything is element-wise
    op       the operator's name for people and records: "matmul", "conv2d", "reduce", "elementwise"
    sizes    the named extents that spaces and defaults speak of (M, N, K; OC, OW, …)
    details  what the template found on the way and needs again in `apply`
    """

    block: str
    op: str
    sizes: Mapping[str, int] = field(default_factory=FrozenDict)
    details: Any = None


@dataclass(frozen=True)
class Applied:
    """A function as one configuration schedules it.

    func   the scheduled PrimFunc; its parameters stand in the natural function's order
    packs  per parameter how the natural argument becomes the one that `func` takes; None: as it is
    trace  the schedule's trace as JSON
    """

    func: PrimFunc
    packs: tuple[Packing | None, ...]
    trace: str = ""


def schedule_attrs(config: Config, applied: Applied) -> dict[str, object]:
    """The attributes of a function that a template has scheduled: a build and a tuning compile the same function."""
    return {"tir.is_scheduled": True, "autosched.config": config.to_json(), "autosched.trace": applied.trace}


class Template(Protocol):
    """One way to schedule a kind of computation."""

    name: str

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        """The anchor, where this template can schedule the function."""

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        """The configurations that `apply` accepts; its default is `default`."""

    def default(self, anchor: Anchor, target: Target) -> Config:
        """A good configuration without any measurement."""

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        """Schedule the function. Raises ScheduleError or SpaceError for a configuration that does not fit."""


@runtime_checkable
class Estimates(Protocol):
    """A template that can say how long a configuration takes: where several match, the fastest default is taken."""

    def default(self, anchor: Anchor, target: Target) -> Config: ...

    def estimate(self, anchor: Anchor, config: Config, target: Target) -> float:
        """Expected cycles on one core."""

"""What a module says besides its functions: the devices that its values lie on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autosched.ir.node import Node
from autosched.target import Target


class GlobalInfo(Node):
    """Base of what stands in a module's `global_infos`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class DummyGlobalInfo(GlobalInfo):
    """An entry that says nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class VDevice(GlobalInfo):
    """A device that values lie on: a target, the number of its device, and the kind of memory."""

    target: Target | None = None  # a target's string or attributes are accepted
    vdevice_id: int = 0
    memory_scope: str = "global"

    def __post_init__(self) -> None:
        if isinstance(self.target, str | Mapping):
            object.__setattr__(self, "target", Target(self.target))

    def is_same(self, other: VDevice) -> bool:
        """Whether both are one device and memory."""
        mine = (self.target, self.vdevice_id, self.memory_scope)
        return mine == (other.target, other.vdevice_id, other.memory_scope)

"""Functions of a core whose loops a template writes itself: what is element-wise and left is a nest of its own."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.target import Target
from autosched.templates.core_nests import CoreNests
from autosched.templates.cpu.elementwise import inline_all, schedule_nest
from autosched.templates.cpu.sized import VECTORS
from autosched.templates.cpu.sized import schedule_nest as schedule_sized_nest
from autosched.tir import PrimFunc
from autosched.tir.stmt import Block


class Core(CoreNests):
    """See `CoreNests`."""

    def __init__(self, func: PrimFunc, names: Sequence[str], target: Target):
        self.target = target
        super().__init__(func, names)

    def inline(self) -> None:
        inline_all(self.schedule, self.func)

    def schedule_other(self, block: Block) -> None:
        lanes = self.target.lanes("float32")
        schedule_nest(self.schedule, block, 4 * lanes, lanes, True)


class OpenCore(Core):
    """The same of a function over symbols."""

    def schedule_other(self, block: Block) -> None:
        schedule_sized_nest(self.schedule, block, VECTORS * self.target.lanes("float32"))

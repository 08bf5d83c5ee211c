"""Schedule: TVM's primitives on a function of the loop level."""

from __future__ import annotations

from autosched.tir.schedule.primitives.buffers import Buffers
from autosched.tir.schedule.primitives.copies import Copies
from autosched.tir.schedule.primitives.looking import Looking
from autosched.tir.schedule.primitives.loops import Loops
from autosched.tir.schedule.primitives.moves import Moves
from autosched.tir.schedule.primitives.reductions import Reductions
from autosched.tir.schedule.primitives.sampling import Sampling
from autosched.tir.schedule.primitives.tiles import Tiles


class Schedule(Looking, Sampling, Loops, Moves, Copies, Buffers, Reductions, Tiles):
    """Rewrites a function step by step and records a trace. Blocks may be given by name wherever a BlockRV is taken.

    Each primitive checks that it keeps the result; it raises ScheduleError (leaving everything as it was) if it would
    not, and ValueError for a reference that is dead.

        sch = Schedule(func)
        i, j, k = sch.get_loops("C")
        i_0, i_1 = sch.split(i, [None, 4])
        sch.parallel(i_0)
    """

    @property
    def state(self) -> Schedule:
        """The schedule itself, which holds its state."""
        return self

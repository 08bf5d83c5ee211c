"""Functions of a core whose launches a template writes itself: what is element-wise and left is a launch of its own."""

from __future__ import annotations

import math

from autosched.templates.core_nests import CoreNests
from autosched.templates.cuda.elementwise import DEFAULT_THREADS, widest_vector
from autosched.templates.cuda.threads import bind_flat, fused, inline_injective, ordered_loops
from autosched.tir.stmt import Block

VECTOR = 4  # elements that a thread of an element-wise launch takes at most


class Core(CoreNests):
    """See `CoreNests`."""

    def inline(self) -> None:
        inline_injective(self.schedule, self.func)

    def schedule_other(self, block: Block) -> None:
        outer, _ = ordered_loops(self.schedule, block)
        vector = math.gcd(VECTOR, widest_vector(block))
        bind_flat(self.schedule, fused(self.schedule, outer, block.name_hint), DEFAULT_THREADS, vector)

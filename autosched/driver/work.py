"""How much arithmetic a function asks for, whatever algorithm computes it."""

from __future__ import annotations

import math

from autosched.codegen.lower.flops import count_flops
from autosched.ir import walk
from autosched.tir import Block, PrimFunc, as_int


def count_work(func: PrimFunc) -> int:
    """Floating-point operations of an unscheduled function as it is written: a multiply-add counts as two.

    This is what rates of direct and fast algorithms (Winograd) are compared by.
    """
    blocks = [x for x in walk(func.body) if isinstance(x, Block) and x.iter_vars]
    return sum(math.prod(as_int(iv.dom.extent) for iv in b.iter_vars) * count_flops(b.body) for b in blocks)

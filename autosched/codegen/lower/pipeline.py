"""The order of the lowering passes."""

from __future__ import annotations

from autosched.codegen.lower.align import buffer_alignments
from autosched.codegen.lower.compact import compact_buffers
from autosched.codegen.lower.dissolve import dissolve_blocks
from autosched.codegen.lower.guards import guard_reductions
from autosched.codegen.lower.inits import lower_inits
from autosched.codegen.lower.partition import partition_tidy
from autosched.codegen.lower.prefetch_copies import prefetch_copies
from autosched.codegen.lower.prefetch_next import spread_prefetches
from autosched.codegen.lower.prefetch_stores import prefetch_stores
from autosched.codegen.lower.prefetch_window import prefetch_windows
from autosched.codegen.lower.tidy import tidy
from autosched.tir.atomic import store_atomics
from autosched.tir.extrema import keep_nans
from autosched.tir.function import PrimFunc
from autosched.tir.separable import PIECES_FIRST
from autosched.tir.share import bind_shared_values
from autosched.tir.start_values import start_at_infinity
from autosched.tir.stmt import BlockRealize


def lower_func(func: PrimFunc, *, partition: bool = True) -> PrimFunc:
    """The function without blocks: loops, conditions, stores and allocations, simplified; a lowered one as it is.

    Every intermediate buffer is allocated in the innermost loop that holds all its uses, as large as that loop needs.
    Loops whose last iteration is ragged are split into full tiles, which have no conditions, and the rest, but
    not with `partition=False`, where they keep their conditions.
    """
    func = store_atomics(func)
    whole = bind_shared_values(func.body)
    if not isinstance(whole, BlockRealize):
        return func if whole is func.body else func.with_body(whole)
    body, buffers = dissolve_blocks(lower_inits(keep_nans(whole)))
    body = spread_prefetches(start_at_infinity(body), takes_turns=PIECES_FIRST in func.attrs)
    body = prefetch_windows(prefetch_copies(prefetch_stores(body)), frozenset(buffers))
    body = compact_buffers(tidy(guard_reductions(body)), buffers, buffer_alignments(func.body))
    body = tidy(body)
    return func.with_body(partition_tidy(body) if partition else body)

"""Emits prefetches: a loop's annotation names a buffer and how many iterations ahead to fetch it.

Into the first level of caches by "prefetch". "prefetch_l2" asks for the second alone, for what is further ahead: the
first can wait for 10 to 16 lines at once, the second for about 48 (Intel's cores). `Isa.fetches_into_l2` says where
the next panel of weights is asked for into the second alone.
"""

from __future__ import annotations

from typing import Any

from autosched.codegen.cpu.affine import Affine
from autosched.codegen.cpu.emitter import Emitter
from autosched.codegen.lower.loops import enter
from autosched.ir.node import preorder
from autosched.tir import expr as E
from autosched.tir.buffer import BufferLoad
from autosched.tir.dtypes import item_bytes
from autosched.tir.expr import const_int
from autosched.tir.functor import uses
from autosched.tir.prefetch import LINE_BYTES
from autosched.tir.stmt import For, Stmt

PREFETCH, PREFETCH_L2 = "prefetch", "prefetch_l2"  # annotations
_MOST_LINES = 64  # prefetched at once
_MOST_OFFSETS = 4096


def emit_prefetches(emitter: Emitter, loop: For, at: Affine) -> None:
    """The annotations {buffer name: iterations ahead} of a loop, as code at the start of its body."""
    for level, annotation in enumerate((PREFETCH, PREFETCH_L2), 1):
        for name, ahead in _prefetch_pairs(loop.annotations.get(annotation) or ()):
            emitter.env[loop.loop_var] = at.plus(Affine(ahead))
            loads = [n for n in preorder(loop.body) if isinstance(n, BufferLoad) and n.buffer.name == name]
            if loads:
                _prefetch_lines(emitter, loads[0], loop.body, level)
    emitter.env[loop.loop_var] = at


def _prefetch_lines(emitter: Emitter, load: BufferLoad, body: Stmt, level: int) -> None:
    """The cache lines that one load touches over all inner loops of constant extent."""
    place = emitter.places.get(load.buffer)
    if place is None or place.is_local:
        return
    inner = [n for n in preorder(body) if isinstance(n, For) and uses(load, {n.loop_var})]
    outside = emitter.analyzer
    for n in inner:
        emitter.analyzer = enter(emitter.analyzer, n)  # by their bounds // and % of axes that are one loop go away
        emitter.env[n.loop_var] = Affine(const_int(n.start) or 0)
    start = emitter.offset(place, load.indices)
    offsets = {0}
    for n in inner:  # where each inner loop takes the address, as far as it moves by equal steps
        emitter.env[n.loop_var] = Affine((const_int(n.start) or 0) + 1)
        step = emitter.sum(emitter.offset(place, load.indices), start, -1)
        emitter.env[n.loop_var] = Affine(const_int(n.start) or 0)
        count = const_int(n.extent) or 1
        if isinstance(step, Affine) and step.is_const and len(offsets) * count <= _MOST_OFFSETS:
            offsets = {o + step.const * i for o in offsets for i in range(count)}
    emitter.analyzer = outside
    line = LINE_BYTES // item_bytes(load.buffer.dtype)
    if isinstance(start, Affine):
        for at in sorted({o // line for o in offsets})[:_MOST_LINES]:
            emitter.prefetch(place, start.plus(Affine(at * line)), level)


def _prefetch_pairs(wanted: Any) -> list[tuple[str, int]]:
    """(buffer name, iterations ahead) from {name: ahead}, [name, ahead] or a list of such pairs."""
    if hasattr(wanted, "items"):
        pairs = list(wanted.items())
    elif not wanted:
        pairs = []
    else:
        pairs = [tuple(wanted)] if isinstance(wanted[0], str | E.StringImm) else [tuple(w) for w in wanted]
    return [(str(getattr(name, "value", name)), int(ahead)) for name, ahead in pairs]

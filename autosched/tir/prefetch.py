"""Annotations of loops that ask for lines ahead, and the loops that a share of them is for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from autosched.ir.node import Node, children
from autosched.tir.buffer import BufferLoad
from autosched.tir.expr import Call, const, const_int
from autosched.tir.stmt import Evaluate, For, LoopKind

PREFETCH_NEXT = "prefetch_next"  # {buffer: elements of its next panel}
PREFETCH_WINDOW = "prefetch_window"  # {buffer: tiles ahead}
PREFETCH_STEPS = "prefetch_steps"  # {buffer: steps ahead}, of those that each tile of the loop has
PREFETCH_WITHIN = "prefetch_within"  # {buffer: steps ahead} of the same tile, as of a scratch block
PREFETCH_STORES = "prefetch_stores"  # {stored buffer: the one that a piece reads before}
PREFETCH_RESULTS = "prefetch_results"  # {buffer that each tile of the loop stores, or reads as it stores: rows a step}
PREFETCH_COPIES = "prefetch_copies"  # {buffer of which a piece copies a part: the one that it reads then}
PREFETCHES = frozenset(
    {
        *(PREFETCH_NEXT, PREFETCH_WINDOW, PREFETCH_STEPS, PREFETCH_WITHIN),
        *(PREFETCH_STORES, PREFETCH_RESULTS, PREFETCH_COPIES),
    }
)
LINE_BYTES = 64  # of a cache line
# What lines are asked for. To own one is to store back what is in the element: of a line that another core has for
# reading too, prefetches get nothing on Zen 4, and each store to it takes 15 to 25 ns, but these go on meanwhile.
TO_READ, TO_WRITE, TO_OWN = range(3)
STEPS_AHEAD = 2  # of 16 channels each, which take 75 ns: three displace more of what the present ones read
PANEL = "panel"  # for elements: all below the buffer's first dimension, whatever their number


def request(
    first: BufferLoad, steps: Iterable[Sequence[int]] = ((0,),), purpose: int = TO_READ, is_far: bool = False
) -> Evaluate:
    """Asks for the lines of elements that lie so many indices from one, along as many of the last dimensions.

    They are no distances in memory: a scratch block's rows may be made longer later.
    purpose  TO_READ, TO_WRITE or TO_OWN: then nobody else may store to the elements, which are there
    is_far   whether so much is read before that some CPUs had better ask for them into the second level of caches alone
    """
    parts = [*map(tuple, steps)]
    numbers = (purpose, int(is_far), len(parts[0]), *(n for step in parts for n in step))
    return Evaluate(Call("prefetch", (first, *map(const, numbers)), "int32"))


def requested(call: Call) -> tuple[BufferLoad, list[tuple[int, ...]], int, bool]:
    """What `request` was given."""
    first, *numbers = call.args
    assert isinstance(first, BufferLoad)
    purpose, is_far, dims, *rest = (const_int(x) or 0 for x in numbers)
    return first, [tuple(rest[i : i + dims]) for i in range(0, len(rest), dims)], purpose, bool(is_far)


def wanted_by(loop: For, annotation: str) -> dict[str, str | int]:
    """What a loop asks for of each buffer, by name."""
    return {str(_plain(name)): _plain(what) for name, what in loop.annotations.get(annotation, {}).items()}


def _plain(x: Any) -> Any:
    return getattr(x, "value", x)  # of what was read from a script


def loops_to(passes: For, name: str) -> tuple[list[For], BufferLoad | None]:
    """The loops around a load of the buffer, and that load: `passes` and the serial ones inside of it."""

    def search(node: Node, around: tuple[For, ...]) -> tuple[list[For], BufferLoad] | None:
        if isinstance(node, BufferLoad) and node.buffer.name == name:
            return list(around), node
        if node is passes or (isinstance(node, For) and node.kind == LoopKind.SERIAL):
            assert isinstance(node, For)
            around = (*around, node)
        return next((found for c in children(node) if (found := search(c, around)) is not None), None)

    return search(passes, ()) or ([], None)

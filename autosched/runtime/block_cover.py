"""Which blocks a batch is divided into: few calls of kernels, each of which reads its weights once."""

from __future__ import annotations

import functools

Calls = tuple[tuple[int, int, int], ...]  # (parts of a block, first part, number of blocks), the largest blocks first

# What a block costs beside its parts, in parts. A product of 784 x 512 floats takes 14 us for one row, 23 for four, 41
# for eight; weights that the second-level cache does not hold cost more.
PASS, FAR_PASS = 3, 10
NEAR_BYTES = 2 << 20


def pass_cost(weight_bytes: int) -> int:
    """The cost of one block beside that of its parts, by the bytes that it reads whatever its size."""
    return FAR_PASS if weight_bytes > NEAR_BYTES else PASS


@functools.lru_cache(maxsize=4096)
def cover(sizes: tuple[int, ...], n_parts: int, cost: int, may_overlap: bool) -> Calls:
    """Blocks of some sizes that cover `n_parts`, at least cost: parts that are computed, and `cost` for each block.

    sizes        the largest first, the last one 1
    may_overlap  whether the last block may compute parts again that the one before has computed
    """
    largest = sizes[0]
    whole, rest = divmod(n_parts, largest)
    found = [largest] * whole + _least(sizes, rest, cost, n_parts if may_overlap else 0)
    calls: list[tuple[int, int, int]] = []
    first = 0
    for size in found:
        start = min(first, n_parts - size)
        if calls and calls[-1][0] == size and start == first:
            calls[-1] = (size, calls[-1][1], calls[-1][2] + 1)
        else:
            calls.append((size, start, 1))
        first = start + size
    return tuple(calls)


def cover_cost(sizes: tuple[int, ...], n_parts: int, cost: int, may_overlap: bool) -> int:
    """The cost of these blocks."""
    return sum((size + cost) * count for size, _, count in cover(sizes, n_parts, cost, may_overlap))


def _least(sizes: tuple[int, ...], n_parts: int, cost: int, longest: int) -> list[int]:
    """Sizes of blocks, the largest first, of `n_parts` together, or of more where one of at most `longest` is last."""
    best: list[tuple[int, tuple[int, ...]]] = [(0, ())]
    for n in range(1, n_parts + 1):
        options = [(best[n - size][0] + size + cost, (size, *best[n - size][1])) for size in sizes if size <= n]
        options += [(size + cost, (size,)) for size in sizes if n < size <= longest]
        best.append(min(options, key=lambda option: (option[0], len(option[1]))))
    *before, last = best[n_parts][1] or (0,)
    return [*sorted(before, reverse=True), last] if last else []

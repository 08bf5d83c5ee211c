"""Which blocks a batch is divided into: few passes over the weights that blocks read."""

from __future__ import annotations

import functools

Calls = tuple[tuple[int, int, int], ...]  # (parts of a block, first part, number of blocks), in order
Runs = tuple[tuple[int, int], ...]  # (parts of a block, number of blocks)

# What a block and a pass over the weights cost beside their parts, in parts. A product of 784 x 512 floats takes 14 us
# for one row, 23 for four, 41 for eight (Zen 4). In an MLP of 2.6 MB a second pass takes as long as 4 to 7 rows more
# (Sapphire Rapids). Weights that the second-level cache does not hold cost more.
BLOCK, PASS, FAR_PASS = 2, 5, 10
NEAR_BYTES = 2 << 20
LONGEST_RUN = 2  # times the largest block: rows that meet a panel of weights while both are in the cache


def pass_cost(weight_bytes: int) -> int:
    """The cost of a pass beside that of its parts, by the bytes that it reads whatever the number of parts."""
    return FAR_PASS if weight_bytes > NEAR_BYTES else PASS


def cover(sizes: tuple[int, ...], n_parts: int, cost: int, may_overlap: bool) -> Calls:
    """Runs of blocks of some sizes that cover `n_parts`, at least cost: see `cover_cost`.

    sizes        the largest first, the last one 1
    may_overlap  whether the last run may compute parts again that the one before has computed
    """
    calls, first = [], 0
    for size, count in _least(sizes, n_parts, cost, may_overlap)[1]:
        start = min(first, n_parts - size * count)
        calls.append((size, start, count))
        first = start + size * count
    return tuple(calls)


def cover_cost(sizes: tuple[int, ...], n_parts: int, cost: int, may_overlap: bool) -> int:
    """The cost of these runs: parts that are computed, `BLOCK` for each block, and `cost` for each pass.

    Smaller blocks take turns at each panel of weights, so that a run of them is one pass. Each of the largest ones is a
    pass, and has tiles as large as the next smaller block.
    """
    return _least(sizes, n_parts, cost, may_overlap)[0]


@functools.lru_cache(maxsize=4096)
def _least(sizes: tuple[int, ...], n_parts: int, cost: int, may_overlap: bool) -> tuple[int, Runs]:
    """(the least cost, the runs in the order in which they are placed: the one that overlaps is the last)."""
    largest, small = sizes[0], sizes[1:]
    most, rest = divmod(n_parts, largest)
    each = largest + cost + BLOCK * (-(-largest // small[0]) if small else 1)
    if rest == 0 or not small:
        return most * each, ((largest, most),) if most else ()
    spare = small[0] if may_overlap else 0
    table = _exact(small, cost, LONGEST_RUN * largest + spare)
    options: list[tuple[int, Runs]] = []
    if may_overlap and most:
        options.append(((most + 1) * each, ((largest, most), (largest, 1))))
    for whole in range(max(most - LONGEST_RUN + 1, 0), most + 1):
        first, before = whole * largest, ((largest, whole),) if whole else ()
        for parts in range(n_parts - first, n_parts - first + spare + 1):
            price, runs = table[parts]
            last = runs[-1][0] * runs[-1][1]
            if last <= n_parts and first + parts - last <= n_parts:
                options.append((whole * each + price, before + runs))
    return min(options, key=lambda option: (option[0], len(option[1])))


@functools.lru_cache(maxsize=64)
def _exact(sizes: tuple[int, ...], cost: int, most: int) -> list[tuple[int, Runs]]:
    """For 0 to `most` parts the least cost of runs that compute each once, and these runs."""
    best: list[tuple[int, Runs]] = [(0, ())]
    for n in range(1, most + 1):
        options = [
            (best[n - size * count][0] + (size + BLOCK) * count + cost, ((size, count), *best[n - size * count][1]))
            for size in sizes
            for count in range(1, n // size + 1)
        ]
        best.append(min(options, key=lambda option: (option[0], len(option[1]))))
    return [(price, tuple(sorted(runs, reverse=True))) for price, runs in best]

"""Which register tile suits a contraction: an analytic estimate, so that the untuned kernel is good already."""

from __future__ import annotations

import math
from dataclasses import dataclass

from autosched.target import CacheSizes, Target
from autosched.tir.prefetch import LINE_BYTES

FLOAT_BYTES = 4
FMA_PER_CYCLE, LOADS_PER_CYCLE, FMA_LATENCY = 2, 2, 4  # of the cores seen: Intel since Haswell, AMD since Zen 2
L2_BYTES_PER_CYCLE, L3_BYTES_PER_CYCLE = 32, 12  # sustained, while computing
TILE_OVERHEAD = 24  # cycles to start a tile: addresses, start values, epilogue
LOAD_COST = 0.3  # of loads per multiply-add: 4x3 reaches 96 GFLOP/s at n=1024, 6x2 88 (Zen 3), at equal estimates
# Of 32 registers: with 8 accumulators 0.93 of the peak, with 12 all of it; 14x2 as fast as 6x4 at n=512, 1536 (Zen 5).
LEAST_ACCUMULATORS, LATENCY_CYCLES = 12, 0.5
# Bytes of weights that a model does not find in the second cache, where a quarter of it is not less: with 2 MB of it
# ResNet-50 on two threads takes .97 of the time with 2**18 here that it has with 2**19, and .98 of that with 2**16,
# MobileNetV4 too (Emerald Rapids).
LEAST_COLD = 2**16
UNHIDDEN = 0.12  # of the time that a panel's vectors take to come from the caches beyond the first
# Of first-level caches: lines so far apart share a set; the ways of a set left to what passes by.
WAY_BYTES, PASSING_WAYS = 4096, 2

Pieces = list[tuple[int, int]]  # (size, how many)


@dataclass(frozen=True)
class RegisterTile:
    """`rows` times `vectors` accumulators."""

    rows: int
    vectors: int


def fits(rows: int, vectors: int, registers: int, is_whole: bool = False) -> bool:
    """Whether the accumulators, one row of vectors and one broadcast value stay in registers.

    is_whole  Words of bytes or 16-bit integers that all lanes share are no operand in memory but take a register, and
              LLVM loads those of all rows ahead: 14 x 2 sums spill 24 of them a step, 12 x 2 14, 10 x 2 and 7 x 3
              none (Zen 4); of 16 registers 6 x 2 sums spill 6, 4 x 2 and 3 x 3 none (AVX2).
    """
    shared = rows if is_whole else 1
    return rows * vectors + vectors + shared <= registers if rows > 1 else vectors + 2 <= registers


def adds_apart(target: Target) -> bool:
    """Whether cores add in units of their own, beside those of multiply-adds: AMD's."""
    return target.mcpu.startswith("znver")


def runs_in_halves(target: Target) -> bool:
    """Whether a vector takes narrower units twice: loads and sums then hide behind multiply-adds."""
    return target.unit_bits < target.vector_bits


def stores_wait(target: Target) -> bool:
    """Whether stores wait for lines that another core has read, which a request to write does not bring: Zen 4."""
    return target.mcpu == "znver4"


def cycles_per_vector(panel_bytes: float, target: Target, caches: CacheSizes | None = None) -> float:
    """Cycles to bring one vector of a panel that is read once a tile, from the cache that holds the whole panel.

    caches  the target's, for who asks often: looking them up takes longer than all else here
    """
    vector_bytes, caches = target.vector_bits / 8, caches or target.cache
    if panel_bytes <= caches.l1_bytes / 2:
        return 1 / LOADS_PER_CYCLE
    in_l2 = panel_bytes <= caches.l2_bytes * 5 / 8
    return vector_bytes / (L2_BYTES_PER_CYCLE if in_l2 else L3_BYTES_PER_CYCLE)


def is_cold(weight_bytes: int, caches: CacheSizes) -> bool:
    """Whether the weights of one of a model's layers come from beyond the second cache."""
    return weight_bytes > cold_bytes(caches)


def cold_bytes(caches: CacheSizes) -> int:
    """How many bytes of weights still come from the second cache."""
    return min(caches.l2_bytes // 4, LEAST_COLD)


def cycles_per_step(rows: int, vectors: int, cycles_a_vector: float = 0.0) -> float:
    """Cycles of one step of the reduction over a tile; the panel's vectors come at `cycles_a_vector`."""
    fmas, loads = rows * vectors, rows + vectors
    return max(fmas / FMA_PER_CYCLE, loads / LOADS_PER_CYCLE, FMA_LATENCY, vectors * cycles_a_vector)


def step_cycles(rows: int, vectors: int, cycles_a_vector: float, target: Target) -> float:
    """`cycles_per_step` with what is not hidden behind the multiply-adds, which tells the many shapes of tiles apart
    that 32 registers hold."""
    step = cycles_per_step(rows, vectors, cycles_a_vector)
    if target.num_registers <= 16:
        return step
    waiting = LATENCY_CYCLES if rows * vectors < LEAST_ACCUMULATORS else 0.0
    return step + waiting + UNHIDDEN * vectors * cycles_a_vector


def most_rows(row_bytes: int, target: Target) -> int:
    """How many rows, so many bytes apart, the first-level cache holds side by side: few if they share its sets.

    Rows of 1024 floats all share one: 14 of them unpacked reach 239 GFLOP/s, copied apart 254 (Zen 5, 12 ways).
    """
    if target.num_registers <= 16:
        return 16
    sets = WAY_BYTES // max(math.gcd(row_bytes, WAY_BYTES), LINE_BYTES)
    return sets * max(1, target.cache.l1_bytes // WAY_BYTES - PASSING_WAYS)


def pieces(extent: int, tile: int) -> Pieces:
    """(size, how many) of the whole tiles and of the last, smaller one."""
    full, rest = divmod(extent, tile)
    return ([(tile, full)] if full else []) + ([(rest, 1)] if rest else [])


def cycles(
    row_pieces: Pieces, vectors: int, n_vectors: int, steps: int, target: Target, caches: CacheSizes | None = None
) -> float:
    """Estimated cycles of a contraction over `steps`: tiles of so many rows, each so often, times [n_vectors]."""
    per_vector = cycles_per_vector(steps * vectors * target.vector_bits / 8, target, caches)
    return sum(
        count_m * count_n * (steps * step_cycles(r, v, per_vector, target) + TILE_OVERHEAD + r * v)
        for r, count_m in row_pieces
        for v, count_n in pieces(n_vectors, vectors)
    )


def choose_tile(
    m: int,
    n_vectors: int,
    steps: int,
    target: Target,
    multiple: int = 1,
    rows: int | None = None,
    most: int = 16,
    is_whole: bool = False,
    is_shared: bool = False,
) -> RegisterTile:
    """The tile of least estimated time, larger tiles winning ties.

    multiple   of which `vectors` is one
    rows       where they are given; else there are `most` of them
    is_whole   words of bytes or of 16-bit integers are multiplied
    is_shared  two threads take half of the tiles of rows each: the time of one that has all counts as much as that of
               two, of which the first has more where halves are not even
    """
    best: tuple[float, int, RegisterTile] | None = None
    caches = target.cache
    for vectors in range(multiple, max(multiple, min(n_vectors, 12)) + 1, multiple):
        for n in range(1, min(m, most, 16) + 1) if rows is None else (rows,):
            if not fits(n, vectors, target.num_registers, is_whole):
                continue
            estimate = cycles(pieces(m, n), vectors, n_vectors, steps, target, caches)
            if is_shared:
                half = pieces(min(-(-m // (2 * n)) * n, m), n)
                estimate += 2 * cycles(half, vectors, n_vectors, steps, target, caches)
            key = (round(estimate * (1 + LOAD_COST * (n + vectors) / (n * vectors))), -n * vectors)
            if best is None or key < best[:2]:
                best = (*key, RegisterTile(n, vectors))
    return best[2] if best else RegisterTile(rows or 1, multiple)


def default_unroll(accumulators: int, steps: int) -> int:
    """Steps in the innermost body: one for a tile that fills the pipelines (more only cost compile time), else 4."""
    if accumulators >= FMA_PER_CYCLE * FMA_LATENCY:
        return 1
    return next(u for u in (4, 2, 1) if steps % u == 0)

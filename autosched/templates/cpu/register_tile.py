"""Which register tile suits a contraction: an analytic estimate, so that the untuned kernel is good already."""

from __future__ import annotations

from dataclasses import dataclass

from autosched.target import Target

FMA_PER_CYCLE, LOADS_PER_CYCLE, FMA_LATENCY = 2, 2, 4  # of the cores seen: Intel since Haswell, AMD since Zen 2
TILE_OVERHEAD = 24  # cycles to start a tile: addresses, start values, epilogue


@dataclass(frozen=True)
class RegisterTile:
    """`rows` times `vectors` accumulators."""

    rows: int
    vectors: int


def fits(rows: int, vectors: int, registers: int) -> bool:
    """Whether the accumulators, one row of vectors and one broadcast value stay in registers."""
    return rows * vectors + vectors + 1 <= registers if rows > 1 else vectors + 2 <= registers


def cycles_per_step(rows: int, vectors: int) -> float:
    """Cycles of one step of the reduction over a tile."""
    fmas, loads = rows * vectors, rows + vectors
    return max(fmas / FMA_PER_CYCLE, loads / LOADS_PER_CYCLE, FMA_LATENCY)


def _pieces(extent: int, tile: int) -> list[tuple[int, int]]:
    """(size, how many) of the whole tiles and of the last, smaller one."""
    full, rest = divmod(extent, tile)
    return ([(tile, full)] if full else []) + ([(rest, 1)] if rest else [])


def cycles(rows: int, vectors: int, m: int, n_vectors: int, steps: int) -> float:
    """Estimated cycles of a contraction [m, n_vectors vectors] over `steps`."""
    return sum(
        count_m * count_n * (steps * cycles_per_step(r, v) + TILE_OVERHEAD + r * v)
        for r, count_m in _pieces(m, rows)
        for v, count_n in _pieces(n_vectors, vectors)
    )


def choose_tile(m: int, n_vectors: int, steps: int, target: Target, multiple: int = 1) -> RegisterTile:
    """The tile of least estimated time; `vectors` a multiple of `multiple`, larger tiles winning ties."""
    best: tuple[float, int, RegisterTile] | None = None
    for vectors in range(multiple, max(multiple, min(n_vectors, 12)) + 1, multiple):
        for rows in range(1, min(m, 16) + 1):
            if not fits(rows, vectors, target.num_registers):
                continue
            key = (round(cycles(rows, vectors, m, n_vectors, steps)), -rows * vectors)
            if best is None or key < best[:2]:
                best = (*key, RegisterTile(rows, vectors))
    return best[2] if best else RegisterTile(1, multiple)

"""In which order the pieces of a convolution run: an estimate of the bytes that the caches have to bring."""

from __future__ import annotations

from dataclasses import dataclass

from autosched.target import Target
from autosched.templates.cpu.register_tile import L2_BYTES_PER_CYCLE, L3_BYTES_PER_CYCLE

LEAST_TASKS = 16  # pieces of parallel work, so that some threads share them evenly


@dataclass(frozen=True)
class TaskOrder:
    """`outer` "weight": a panel of weights meets all data before the next; "data": a chunk of data meets all panels.

    chunk  how many tiles of rows make one piece of work
    """

    outer: str
    chunk: int


@dataclass(frozen=True)
class Traffic:
    """What a convolution reads: `data_bytes` in `tiles` tiles of rows, for each of `batch` images, and the weights."""

    batch: int
    tiles: int
    panels: int
    data_bytes: float
    weight_bytes: float


def cycles_per_byte(working_set: float, target: Target) -> float:
    """From the second-level cache what fits in half of it, from the third what is larger than it, mixed between."""
    half = target.cache.l2_bytes / 2
    share = min(max(working_set / half - 1, 0.0), 1.0)
    return (1 - share) / L2_BYTES_PER_CYCLE + share / L3_BYTES_PER_CYCLE


def cycles(traffic: Traffic, order: TaskOrder, target: Target) -> float:
    """Estimated cycles of one image's reads beyond the first-level cache."""
    data, weight, panels = traffic.data_bytes, traffic.weight_bytes, traffic.panels
    first = (data + weight) / L3_BYTES_PER_CYCLE
    panel = weight / panels
    if order.outer == "weight":
        return first + (panels - 1) * data * cycles_per_byte(data + panel, target)
    chunks = -(-traffic.tiles // order.chunk)
    chunk_bytes = data / chunks
    again = (panels - 1) * data * cycles_per_byte(chunk_bytes + panel, target)
    return first + again + (chunks - 1) * weight * cycles_per_byte(chunk_bytes + weight, target)


def choose_order(traffic: Traffic, target: Target) -> TaskOrder:
    """The order with the least traffic among those with enough pieces; larger pieces win ties."""
    chunks = [1 << p for p in range((traffic.tiles - 1).bit_length() + 1)]  # the last one holds all tiles
    enough = [c for c in chunks if traffic.batch * traffic.panels * -(-traffic.tiles // c) >= LEAST_TASKS] or [1]
    orders = [TaskOrder(outer, chunk) for outer in ("weight", "data") for chunk in reversed(enough)]
    return min(orders, key=lambda order: cycles(traffic, order, target))


__all__ = ["TaskOrder", "Traffic", "choose_order", "cycles", "cycles_per_byte"]

"""In which order pieces of an image's work run: bytes that the caches have to bring, and bytes that cross threads.

A thread gets a contiguous part of a phase's pieces (`codegen.native.loop`). Where the pieces' first axis are rows, it
has the same rows from layer to layer and reads what it wrote itself, but for a border. Where they are channels, it
reads all that the layer before wrote. Two cores without a common third-level cache (Zen 5, virtual) read what the other
one wrote at 35 GB/s, and write over what the other one has read at 8, where either has 190 alone; with a common one
these are 95 and 45.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from autosched.target import Target
from autosched.templates.cpu.register_tile import L2_BYTES_PER_CYCLE, L3_BYTES_PER_CYCLE
from autosched.tir import as_int
from autosched.tir.schedule import LoopRV, Schedule

LEAST_TASKS = 16  # pieces of parallel work, so that some threads share them evenly
LEAST_THREADS = 2  # that pieces are divided among evenly: what one core gets shall suit two, at no cost for one
# What one core reads of another one's data, with what writing there again costs later: where they share no third-level
# cache it is less than one (28x28x128 took as long on two such cores of a Zen 5 as on one), where they do about 8.
SHARED_BYTES_PER_CYCLE = 4
SHARED_WORTH = 0.05  # of one core's time, that it may cost to share less
CHANNEL_BLOCKS = (4, 8, 16, 32, 64)
LEAST_PIXELS = 128  # of an image whose rows are divided: smaller ones are divided unevenly, and have many channels


@dataclass(frozen=True)
class TaskOrder:
    """`outer` "weight": a panel of weights meets all data before the next; "data": a chunk of data meets all panels.

    chunk  how many tiles of rows make one piece of work
    """

    outer: str
    chunk: int


@dataclass(frozen=True)
class Traffic:
    """What a convolution reads: `data_bytes` in `tiles` tiles of rows, for each of `batch` images, and the weights.

    result_bytes  what it writes of each image
    cycles        that its products take on one core
    """

    batch: int
    tiles: int
    panels: int
    data_bytes: float
    weight_bytes: float
    result_bytes: float = 0.0
    cycles: float = 0.0


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


def shared_cycles(traffic: Traffic, order: TaskOrder) -> float:
    """For two threads: what they read of each other's data, or that both read all weights. 0 for several images."""
    if traffic.batch > 1:
        return 0.0
    if order.outer == "weight" or order.chunk >= traffic.tiles:
        return (traffic.data_bytes + traffic.result_bytes) / SHARED_BYTES_PER_CYCLE
    return traffic.weight_bytes / L3_BYTES_PER_CYCLE


def choose_order(traffic: Traffic, target: Target) -> TaskOrder:
    """The order with the least traffic among those with enough pieces; larger pieces win ties.

    Where one thread loses next to nothing, what two threads share counts as well, and how evenly.
    """
    threads = min(max(target.num_cores, LEAST_THREADS), LEAST_TASKS)

    def on_threads(order: TaskOrder, found: float) -> float:
        pieces = traffic.batch * traffic.panels * -(-traffic.tiles // order.chunk)
        return found + shared_cycles(traffic, order) + traffic.cycles * (unevenness(pieces, threads) - 1)

    worth = _worth(traffic, target, LEAST_TASKS)
    return min(worth, key=lambda order: on_threads(order, worth[order]))


def choose_even_order(traffic: Traffic, target: Target) -> TaskOrder:
    """The same for chunks of pixels: two cores have fewer pieces where they share less then, or more evenly.

    Of 14 tiles that are two halves instead of four chunks of 4, 4, 4 and 2.
    """
    order = choose_order(traffic, target)
    if target.num_cores > LEAST_THREADS:
        return order

    def on_threads(order: TaskOrder) -> float:
        share = _largest_share(traffic, order, LEAST_THREADS)
        return cycles(traffic, order, target) + shared_cycles(traffic, order) + traffic.cycles * (share - 1)

    other = min(_worth(traffic, target, LEAST_TASKS // 2), key=on_threads)
    return other if on_threads(other) < on_threads(order) - SHARED_WORTH * traffic.cycles else order


def _worth(traffic: Traffic, target: Target, least: int) -> dict[TaskOrder, float]:
    """The orders with so many pieces that cost one thread little more than the best of them: their `cycles`."""
    chunks = [1 << p for p in range((traffic.tiles - 1).bit_length() + 1)]  # the last one holds all tiles
    enough = [c for c in chunks if traffic.batch * traffic.panels * -(-traffic.tiles // c) >= least] or [1]
    orders = [TaskOrder(outer, chunk) for outer in ("weight", "data") for chunk in reversed(enough)]
    found = {order: cycles(traffic, order, target) for order in orders}
    limit = min(found.values()) + SHARED_WORTH * traffic.cycles
    return {order: time for order, time in found.items() if time <= limit}


def _largest_share(traffic: Traffic, order: TaskOrder, threads: int) -> float:
    """The most that a thread gets of a row of pieces, of which each has a part, by what it were if all had the same.

    The last chunk may be smaller than the others: of chunks of 4, 4, 4 and 2 tiles the first half is 8 / 7.
    """
    tiles, panels = traffic.tiles, traffic.panels
    chunks = -(-tiles // order.chunk)
    each = -(-tiles // chunks)  # as `schedule_tiles` cuts them

    def before(piece: int) -> int:
        image, piece = divmod(piece, panels * chunks)
        if order.outer == "weight":
            panel, chunk = divmod(piece, chunks)
            return (image * panels + panel) * tiles + min(chunk * each, tiles)
        chunk, panel = divmod(piece, panels)
        first = min(chunk * each, tiles)
        return (image * tiles + first) * panels + panel * (min(first + each, tiles) - first)

    count = traffic.batch * panels * chunks
    ends = [before(count * t // threads) for t in range(threads + 1)]
    return max(end - start for start, end in itertools.pairwise(ends)) * threads / ends[-1]


def unevenness(n_tasks: int, threads: int) -> float:
    """The time of equal pieces on several threads, by what it were if pieces were divisible: of 11 on 2, 12 / 11."""
    return -(-n_tasks // threads) * threads / n_tasks


def is_blocked_image(shape: Sequence[int]) -> bool:
    """Whether a shape is [n, channel block, rows, pixels, channels of a block] with pixels enough to divide by rows."""
    return len(shape) == 5 and shape[2] * shape[3] >= LEAST_PIXELS and shape[4] in CHANNEL_BLOCKS


def rows_first(sch: Schedule, loops: Sequence[LoopRV]) -> list[LoopRV]:
    """The loops over a blocked image, reordered so that threads divide its rows before its channels; others as is.

       for n, channel, row, pixel, lane
    -> for n, part of rows, channel, row, pixel, lane     # two parts, as one thread reads longer lines of memory then
    """
    shape = [as_int(sch.get(loop).extent) for loop in loops]
    if not is_blocked_image(shape):
        return list(loops)
    n, channel, row, pixel, lane = loops
    part, row = sch.split(row, [None, largest_divisor(shape[2], shape[2] // 2)])
    sch.reorder(n, part, channel, row, pixel, lane)
    return [n, part, channel, row, pixel, lane]


def largest_divisor(number: int, most: int) -> int:
    """The largest divisor of a number that is at most `most`, which may be 0: then it is 1."""
    return next((n for n in range(most, 1, -1) if number % n == 0), 1)


__all__ = [
    "TaskOrder", "Traffic", "choose_even_order", "choose_order", "cycles", "cycles_per_byte", "is_blocked_image",
    "largest_divisor", "rows_first", "shared_cycles", "unevenness",
]  # fmt: skip

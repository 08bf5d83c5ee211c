"""How long a convolution by Winograd's algorithm along rows is expected to take, and which tiles it gets by default."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from autosched.target import Target
from autosched.templates.cpu.register_tile import FLOAT_BYTES, cycles_per_step, fits, pieces
from autosched.templates.cpu.task_order import LEAST_THREADS, unevenness
from autosched.templates.cpu.winograd_cost import (
    L2_SHARE,
    LATENCY_CYCLES,
    LEAST_ACCUMULATORS,
    LEAST_TASKS,
    LEAST_WIDE_ACCUMULATORS,
    MOST_ROWS,
    TILE_OVERHEAD,
    Core,
    ceil_div,
    weight_cycles,
)
from autosched.templates.winograd_row_filter import OUTPUTS, RowFilter

# Of 7x7x3 with stride 2 at 224x224 on a Zen 5: 150 cycles for a row of inputs (one square turned, 26 vectors of
# products); 30 for the four outputs of a tile in a vector, half of which are stores that come all at once.
SQUARE_CYCLES, INPUT_CYCLES, OUTPUT_CYCLES = 5, 3, 14  # for each of a square's vectors; a product; four outputs
STORED_BYTES_PER_CYCLE = 16
CHUNKS = (1, 2, 4, 7, 8, 14, 16, 28, 32, 64)  # rows of the output in a piece of work


@dataclass(frozen=True)
class Units:
    """A row of inputs in units of `size`: some tiles, and whole vectors. `count` have tiles, `read` are read."""

    size: int
    tiles: int
    count: int
    read: int

    @staticmethod
    def of(f: RowFilter, tiles: int, lanes: int) -> Units:
        """tiles  of a row"""
        size = math.lcm(f.step, lanes)
        count = ceil_div(tiles * f.step, size)
        reach = count + (size - f.step + f.inputs - 1) // size
        return Units(size, size // f.step, count, ceil_div(reach, lanes) * lanes)


@dataclass(frozen=True)
class RowLayer:
    """A convolution: batch n, channels, output height and width, rows of the window, strides, distance of its rows."""

    n: int
    channels: int
    outputs: int
    height: int
    width: int
    window: int
    row_stride: int
    dilation: int
    filter: RowFilter

    @property
    def tiles(self) -> int:
        """Of a row."""
        return ceil_div(self.width, OUTPUTS)

    def input_rows(self, chunk: int) -> int:
        """Those that so many rows of the output are made of."""
        return (chunk - 1) * self.row_stride + (self.window - 1) * self.dilation + 1


@dataclass(frozen=True)
class RowPlan:
    """The knobs."""

    rows: int
    vectors: int
    chunk: int


def row_cycles(layer: RowLayer, plan: RowPlan, core: Core) -> float:
    """Cycles on one core: products, transforms of inputs, of those at the ends of chunks twice, and of outputs."""
    f, lanes = layer.filter, core.lanes
    units = Units.of(f, layer.tiles, lanes)
    panels, chunks = ceil_div(layer.outputs, plan.vectors * lanes), ceil_div(layer.height, plan.chunk)
    least = LEAST_ACCUMULATORS if core.registers <= 16 else LEAST_WIDE_ACCUMULATORS
    steps = layer.channels * layer.window * f.products
    tiles = f.common + bool(f.longer)  # register tiles, one for each point

    def tile_cycles(rows: int) -> float:
        latency = LATENCY_CYCLES if rows * plan.vectors < least else 0.0
        return steps * (cycles_per_step(rows, plan.vectors) + latency) + tiles * (TILE_OVERHEAD + rows * plan.vectors)

    products = sum(count * tile_cycles(rows) for rows, count in pieces(units.count, plan.rows)) * units.tiles * panels
    products *= layer.n * layer.height
    row = units.size * units.read / lanes * SQUARE_CYCLES
    row += units.tiles * ceil_div(units.count, lanes) * f.products * INPUT_CYCLES
    inputs = layer.n * chunks * layer.input_rows(plan.chunk) * layer.channels * row
    stores = OUTPUTS * lanes * FLOAT_BYTES / STORED_BYTES_PER_CYCLE
    outputs = layer.n * layer.height * layer.tiles * ceil_div(layer.outputs, lanes) * (OUTPUT_CYCLES + stores)
    return products + inputs + outputs + weight_cycles(steps * panels * plan.vectors * lanes, 1, products, core)


def _held_bytes(layer: RowLayer, plan: RowPlan, core: Core) -> int:
    """What the second-level cache shall hold: transformed inputs of a chunk, weights, products of a tile's row."""
    f, units = layer.filter, Units.of(layer.filter, layer.tiles, core.lanes)
    inputs = layer.input_rows(plan.chunk) * layer.channels * f.products * units.tiles * units.count
    columns = layer.input_rows(plan.chunk) * units.size * units.read
    width = ceil_div(layer.outputs, plan.vectors * core.lanes) * plan.vectors * core.lanes
    weights, products = layer.channels * layer.window * f.products * width, len(f.points) * units.count * width
    return FLOAT_BYTES * (inputs + columns + weights + products)


def row_plans(layer: RowLayer, core: Core) -> Iterator[RowPlan]:
    """Register tiles and chunks worth a thought: chunks stay in the second-level cache where one row does."""
    count = Units.of(layer.filter, layer.tiles, core.lanes).count
    room = L2_SHARE * core.caches.l2_bytes
    for rows, vectors in itertools.product(range(1, min(count, MOST_ROWS) + 1), range(1, 5)):
        if not fits(rows, vectors, core.registers) or (vectors - 1) * core.lanes >= layer.outputs:
            continue
        for chunk in CHUNKS:
            plan = RowPlan(rows, vectors, chunk)
            if chunk == 1 or (chunk <= layer.height and _held_bytes(layer, plan, core) <= room):
                yield plan


def best_row_plan(layer: RowLayer, target: Target) -> tuple[float, RowPlan]:
    """(cycles on one core, plan) of least estimated time on the target's cores, of LEAST_TASKS of them at most."""
    threads, core = min(max(target.num_cores, LEAST_THREADS), LEAST_TASKS), Core.of(target)

    def on_threads(found: tuple[float, RowPlan]) -> tuple[bool, float]:
        n_tasks = layer.n * ceil_div(layer.height, found[1].chunk)
        return found[1].chunk > 1 and n_tasks < LEAST_TASKS, found[0] * unevenness(n_tasks, threads)

    return min(((row_cycles(layer, plan, core), plan) for plan in row_plans(layer, core)), key=on_threads)

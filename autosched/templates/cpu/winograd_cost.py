"""How long convolutions are expected to take, in cycles of one core: which algorithm, and which tiles, by default.

The numbers are of the kind that the least-squares fit of a few dozen kernels gives; they rank, they do not predict.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from autosched.target import CacheSizes, Target
from autosched.templates.cpu.register_tile import (
    FLOAT_BYTES,
    FMA_PER_CYCLE,
    L2_BYTES_PER_CYCLE,
    L3_BYTES_PER_CYCLE,
    cycles_per_step,
    fits,
    pieces,
)
from autosched.templates.cpu.task_order import LEAST_THREADS, SHARED_BYTES_PER_CYCLE, SHARED_WORTH, unevenness
from autosched.templates.winograd_form import tiles_along
from autosched.templates.winograd_transform import TAPS

TILE_OVERHEAD = 24  # cycles of a register tile beside its steps: addresses, start values, stores, a branch missed
INPUT_CYCLES = {2: 50, 4: 150}  # to transform a tile's inputs, one vector of channels
OUTPUT_CYCLES = {2: 30, 4: 90}
STRIDED_INPUT_CYCLES, STRIDED_OUTPUT_CYCLES = {2: 60, 4: 250}, {2: 40, 4: 150}
# Weights of a model that no cache holds: Zen 3; and with wide vectors Zen 5, where it tells the cycles of F(4) and F(2)
# at 14x14x256 and 7x7x512 within 13 % (342 and 435 us, 948 and 586 us). A core of a server's mesh reads less:
# Emerald Rapids takes 1.1 to 1.9 ms for the 16.8 MB of F(2) at 7x7x512, by what else its memory serves, and F(2) is
# faster than F(4) at 14x14x256.
COLD_BYTES_PER_CYCLE, COLD_BYTES_PER_WIDE_CYCLE, COLD_BYTES_PER_MESH_CYCLE = 6, 10, 5
MESHES = ("skylake-avx512", "cascadelake", "cooperlake", "icelake-server", "sapphirerapids", "emeraldrapids",
          "graniterapids")  # fmt: skip
# Of one core's time, that reading less of each other's may cost there: 28x28x128 takes 1.05 of it on one thread with
# blocks of tiles, .62 on two (Emerald Rapids).
MESH_SHARED_WORTH = 0.12
MANY_WEIGHTS = 2  # times the second cache: 0.6 MB of F(4) at 13x13x64 come as fast as elsewhere, 9.4 MB do not
L2_SHARE = 0.9  # of the second-level cache, for transformed inputs and products
L2_VECTOR_CYCLES = 2  # to bring a vector from the second-level cache, sustained
APART = 0.4  # of the time to write transformed inputs to the third-level cache and read them again is not hidden
PANELS = (1, 2, 4, 8)  # of a chunk of output channels
MOST_BLOCKS, MOST_ROWS, MOST_VECTORS = 512, 14, 4
LEAST_TASKS = 8  # pieces of parallel work that are enough for any number of threads
FEW_TILES = LEAST_TASKS * MOST_ROWS  # fewer tiles may be as many blocks as there are threads
LEAST_ACCUMULATORS = 10  # with fewer, a step waits for the one before it now and then
LEAST_WIDE_ACCUMULATORS = 12  # of 32 registers: 5x2 takes 1.03 of the time of 5x4 (28x28x128, Zen 5)
LATENCY_CYCLES = 0.5
DIRECT_EFFICIENCY = 0.93  # of the peak, where a register tile suits the image


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


@dataclass(frozen=True)
class Layer:
    """A convolution of `taps` in each direction: batch n, channels, output height and width, channels in a block of
    the output.

    is_whole  whether bytes are convolved
    groups    how many convolutions of so many channels there are side by side
    """

    n: int
    channels: int
    outputs: int
    height: int
    width: int
    block: int
    is_whole: bool = False
    stride: int = 1
    dilation: int = 1
    taps: int = TAPS
    groups: int = 1

    @property
    def sizes(self) -> tuple[int, ...]:
        """The m that tiles may have: with the same points for all numbers of taps."""
        return tuple(m + TAPS - self.taps for m in INPUT_CYCLES)

    def products(self, m: int) -> int:
        """Of a tile, for each input and output channel."""
        return (m * self.stride + self.taps - self.stride) ** 2

    def weights(self, m: int) -> int:
        """Transformed ones: products of inputs of odd index share theirs where the stride is 2."""
        return (m + self.taps - 1) ** 2 * self.channels * self.outputs

    def transform_cycles(self, m: int, lanes: int) -> float:
        """Of a tile's inputs and outputs."""
        of_input, of_output = (
            (INPUT_CYCLES, OUTPUT_CYCLES) if self.stride == 1 else (STRIDED_INPUT_CYCLES, STRIDED_OUTPUT_CYCLES)
        )
        like = m + self.taps - TAPS  # outputs of three taps from as many inputs
        return self.channels / lanes * of_input[like] + self.outputs / lanes * of_output[like]

    def tiles(self, m: int) -> int:
        along = (tiles_along(size, m, self.dilation) for size in (self.height, self.width))
        return self.n * math.prod(along)


@dataclass(frozen=True)
class Plan:
    """The knobs that the estimate speaks of; `row_tiles` register tiles of rows make a block."""

    m: int
    rows: int
    vectors: int
    blocks: int
    panels: int
    tasks: str

    def row_tiles(self, tiles: int) -> int:
        return ceil_div(ceil_div(tiles, self.rows), self.blocks)

    def block_tiles(self, tiles: int) -> int:
        """Tiles in a block; several blocks are of one size."""
        return self.rows * self.row_tiles(tiles)

    def n_tasks(self, layer: Layer, lanes: int) -> int:
        """Pieces of parallel work: blocks of tiles, each of them times the chunks of output channels."""
        tiles = layer.tiles(self.m)
        blocks = ceil_div(tiles, self.block_tiles(tiles))
        if self.tasks == "tiles":
            return blocks
        return blocks * layer.groups * ceil_div(layer.outputs, self.vectors * lanes * self.panels)


@dataclass(frozen=True, slots=True)
class Core:
    """What the estimate reads of a target, for thousands of plans: asking the target takes as long as all else.

    lanes    floats in a vector
    is_mesh  whether it is one of a mesh of cores, see COLD_BYTES_PER_MESH_CYCLE and MESH_SHARED_WORTH
    """

    lanes: int
    registers: int
    caches: CacheSizes
    is_mesh: bool

    @staticmethod
    def of(target: Target) -> Core:
        return Core(target.lanes("float32"), target.num_registers, target.cache, target.mcpu in MESHES)


def winograd_cycles(layer: Layer, plan: Plan, core: Core) -> float:
    """Products, transforms, and what the caches beyond the second bring, partly while computing."""
    lanes, caches, size = core.lanes, core.caches, layer.products(plan.m)
    tiles = layer.tiles(plan.m)
    block = min(plan.block_tiles(tiles), tiles)
    blocks = -(-tiles // block)
    width = plan.vectors * lanes
    chunks = -(-layer.outputs // (width * plan.panels))
    inner = (plan.rows + width) * layer.channels * FLOAT_BYTES  # of one register tile's operands
    missing = min(max(inner / (0.6 * caches.l1_bytes) - 1, 0.0), 1.0)
    stall = 0.25 * missing * plan.vectors * L2_VECTOR_CYCLES

    least = LEAST_ACCUMULATORS if core.registers <= 16 else LEAST_WIDE_ACCUMULATORS

    def tile_cycles(rows: int) -> float:
        latency = LATENCY_CYCLES if rows * plan.vectors < least else 0.0
        step = cycles_per_step(rows, plan.vectors) + latency + stall
        return layer.channels * step + TILE_OVERHEAD + rows * plan.vectors

    products = sum(count * tile_cycles(rows) for rows, count in pieces(block, plan.rows))
    products *= size * blocks * chunks * plan.panels
    transforms = blocks * block * layer.transform_cycles(plan.m, lanes)
    held, room = size * block * FLOAT_BYTES * (layer.channels + width * plan.panels), L2_SHARE * caches.l2_bytes
    beyond = min(max(held / room - 1, 0.0), 1.0)
    again = size * blocks * block * layer.channels * FLOAT_BYTES * chunks * plan.panels
    if plan.tasks == "channels" and layer.groups == 1:  # all inputs are transformed before anything reads them
        held += size * (blocks - 1) * block * FLOAT_BYTES * layer.channels
        written = 2 * size * blocks * block * layer.channels * FLOAT_BYTES
        transforms += APART * written / L3_BYTES_PER_CYCLE if held > room else 0.0
    traffic = again * (beyond / L3_BYTES_PER_CYCLE + (1 - beyond) / (4 * L2_BYTES_PER_CYCLE))
    weights = weight_cycles(layer.groups * layer.weights(plan.m), blocks, layer.groups * products, core)
    return layer.groups * (products + transforms + 0.15 * traffic) + weights


def direct_cycles(points: int, vectors: int, steps: int, target: Target) -> float:
    """Direct convolution of so many points of the image, vectors of output channels and steps of the reduction."""
    core, products = Core.of(target), points * vectors * steps / FMA_PER_CYCLE / DIRECT_EFFICIENCY
    return products + weight_cycles(vectors * core.lanes * steps, 1, products, core)


def cold_bytes_per_cycle(core: Core, weight_bytes: int) -> int:
    """What one core reads of a layer's weights that no cache of its own holds."""
    if core.is_mesh and weight_bytes > MANY_WEIGHTS * core.caches.l2_bytes:
        return COLD_BYTES_PER_MESH_CYCLE
    return COLD_BYTES_PER_WIDE_CYCLE if core.lanes >= 16 else COLD_BYTES_PER_CYCLE


def weight_cycles(weights: int, times: int, products: float, core: Core) -> float:
    """Beyond computing: weights are cold when they come first; they come again from the second cache, or the third."""
    first = weights * FLOAT_BYTES / cold_bytes_per_cycle(core, weights * FLOAT_BYTES)
    is_near = weights * FLOAT_BYTES <= core.caches.l2_bytes * 5 / 8
    again = (times - 1) * weights * FLOAT_BYTES / (L2_BYTES_PER_CYCLE if is_near else L3_BYTES_PER_CYCLE)
    return 0.25 * first + 0.3 * again + 0.75 * max(0.0, first + again - products)


def shared_cycles(layer: Layer, plan: Plan) -> float:
    """For two threads: reading each other's transformed inputs; blocks of tiles and groups have their own."""
    if plan.tasks == "tiles" or layer.groups > 1:
        return 0.0
    return layer.products(plan.m) * layer.tiles(plan.m) * layer.channels * FLOAT_BYTES / SHARED_BYTES_PER_CYCLE


def _fits_l2(layer: Layer, plan: Plan, core: Core) -> bool:
    """Whether a block's transformed inputs, and the products of a chunk, stay in the second-level cache."""
    values = layer.channels + plan.vectors * core.lanes * plan.panels
    held = layer.products(plan.m) * plan.block_tiles(layer.tiles(plan.m)) * values * FLOAT_BYTES
    return held <= L2_SHARE * core.caches.l2_bytes


def is_chunk(layer: Layer, channels: int) -> bool:
    """Whether a chunk of output channels may have so many: whole blocks, or one group."""
    return channels % layer.block == 0 if layer.groups == 1 else channels == layer.outputs


def plans(layer: Layer, m: int, core: Core, threads: int = LEAST_TASKS) -> Iterator[Plan]:
    """Tiles and blocks worth a thought; with fewer blocks than threads the channels are divided, and groups always."""
    lanes, tiles = core.lanes, layer.tiles(m)
    for rows, vectors in itertools.product(range(1, min(tiles, MOST_ROWS) + 1), range(1, MOST_VECTORS + 1)):
        if not fits(rows, vectors, core.registers, layer.is_whole) or (vectors - 1) * lanes >= layer.outputs:
            continue
        panels = next((p for p in PANELS if is_chunk(layer, vectors * lanes * p)), None)
        if panels is None:
            continue
        row_tiles = -(-tiles // rows)
        for blocks in sorted({-(-row_tiles // r) for r in range(1, row_tiles + 1)} | {1}):
            if layer.groups > 1:
                yield Plan(m, rows, vectors, blocks, panels, "channels")
            elif blocks <= MOST_BLOCKS:
                plan = Plan(m, rows, vectors, blocks, panels, "tiles")
                if blocks >= LEAST_TASKS or (tiles < FEW_TILES and blocks >= threads and _fits_l2(layer, plan, core)):
                    yield plan
                if blocks < LEAST_TASKS:
                    yield Plan(m, rows, vectors, blocks, panels, "channels")


def best_plan(layer: Layer, largest: int, target: Target) -> tuple[float, Plan]:
    """(cycles on one core, plan) of least estimated time on the target's cores, of LEAST_TASKS of them at most.

    largest  the tile sizes of the wanted accuracy are those up to it
    """
    threads, core = min(max(target.num_cores, LEAST_THREADS), LEAST_TASKS), Core.of(target)
    worth = (p for m in layer.sizes if m <= largest for p in plans(layer, m, core, threads))

    found = [(winograd_cycles(layer, p, core), p) for p in worth]
    evened = [c * unevenness(p.n_tasks(layer, core.lanes), threads) for c, p in found]
    limit = (1 + (MESH_SHARED_WORTH if core.is_mesh else SHARED_WORTH)) * min(evened)
    shared = [c + shared_cycles(layer, p) if c <= limit else math.inf for c, (_, p) in zip(evened, found, strict=True)]
    return found[shared.index(min(shared))]

"""Convolutions of sm_90a by warpgroups, of 16-bit floats, and of float32 cut off to tf32 where a model allows it.

A first launch leaves the images with channels innermost and what the window meets beyond their edges:

    staged[parity, image, row, column, channel] = data[image, channel, row * stride + parity, …]        0 at the edges

A second one multiplies. What a tile of pixels meets at one place of the window is one box of it:

for part of the sums in blockIdx.z, tile of output channels in blockIdx.y, tile of pixels in blockIdx.x:
    one warp:      for place of the window, channels of 128 bytes:
                       weights, pixels = boxes of the packed weights, and of staged at the place    # `stages` ahead
    warpgroups:    for each of these: acc[channels, pixels] += weights * pixels
                   out[channels, pixels] = epilogue(acc)                                   # or parts[part, …] = acc
out = epilogue(sum of parts)                                                # a third launch, where there are parts

Where the window has one place, pixels of all images are one row, of which a tile takes any part.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from autosched.codegen.lower.fragments import GROUP_ACCUMULATOR
from autosched.codegen.lower.loops import WARP_STAGES
from autosched.ir.node import FrozenDict
from autosched.space import Config, ConfigSpace
from autosched.target import Target
from autosched.target.gpus import GpuFacts
from autosched.templates.base import Anchor, Applied
from autosched.templates.chain import Chain
from autosched.templates.cuda import tensor_window
from autosched.templates.cuda.contraction import expected_cycles
from autosched.templates.cuda.core_tiles import L2_BYTES_PER_CYCLE, LAUNCH_S
from autosched.templates.cuda.nests import block, bound, with_work_of
from autosched.templates.cuda.pointwise import pixel
from autosched.templates.cuda.product_form import MatrixForm, MatrixPack, find_matrix_form, result_of
from autosched.templates.cuda.spaces import device_space
from autosched.templates.cuda.tensor_matmul import STEPS, takes
from autosched.templates.cuda.tensor_window import TensorWindow, best_tile
from autosched.templates.cuda.threads import BLOCK_X, BLOCK_Y, BLOCK_Z, MOST_GRID_YZ, THREAD_X, THREAD_Y
from autosched.templates.cuda.warpgroup_matmul import (
    ARCH,
    ROW_BYTES,
    TENSOR_REACHED,
    registers_left,
    registers_of,
)
from autosched.templates.nests import index, loop, nested, unrolled
from autosched.tir import PrimFunc
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.dtypes import item_bytes
from autosched.tir.expr import Call, IntImm, PrimExpr, Var, const_int
from autosched.tir.function import make_root
from autosched.tir.functor import free_vars, substitute
from autosched.tir.schedule import Schedule
from autosched.tir.simplify import Analyzer, split_conditions
from autosched.tir.stmt import BufferStore, IfThenElse, LoopKind, Stmt, seq

LANES, PIECE_BYTES = 32, 16  # of the staging launch: a warp takes neighbouring pixels, a thread 16 bytes of channels
PIECES = ROW_BYTES // PIECE_BYTES
WIDE = "float32"  # of sums
LEAST_CHANNEL_BYTES, LEAST_ROWS, LEAST_WORK = 64, 32, 1 << 24
MOST_PLACES, MOST_STAGES, MOST_COLUMNS, MOST_HIGH = 49, 8, 256, 32
STAGED_BYTES_PER_CYCLE = 10.0  # of one SM: what is staged is read, written, and its sectors are filled in parts
FLAT_BYTES_PER_CYCLE = 4.5  # the same of windows of one place: what three of ResNet-50's took beyond their products
BARRIER_BYTES = 1024
SPLITS, LEAST_STEPS = (1, 2, 3, 4, 6, 8), 4  # parts of sums, boxes of one
SUM_THREADS, SUM_ROWS = 256, 4  # of a block that adds parts up; output channels of a thread
MEMORY_LATENCY = 600.0  # cycles
LEAST_STAGES, GROUP_THREADS, OTHER_REGISTERS = 3, 128, 88  # boxes on their way; of a warpgroup; beside a thread's sums
BETWEEN_TILES = 4000.0  # cycles that tensor cores wait between tiles: first copies, and results on their way
PIXELS, MOST_PLACED = 8, 128  # that a thread writes side by side; columns of a tile of which each has its own place
GATHERED, STAGED = 2.5, 3.0  # of what other templates' models expect: medians of ResNet-50's convolutions on an H200
ROWS = ((64, 1), (128, 2), (192, 3))  # of a tile, and its warpgroups


@dataclass(frozen=True)
class Side:
    """One dimension of the pixels; `out` and `place` are None where there is one output or one place.

    start   the index in the data of the first place of output 0
    """

    out: Var | None
    size: int
    place: Var | None
    places: int
    stride: int
    dilation: int
    start: int

    @property
    def parities(self) -> int:
        """Parts that the data is sorted into by its index modulo the stride: neighbouring outputs lie side by side."""
        return self.stride if self.places > 1 else 1

    @property
    def halo(self) -> int:
        """Further elements of a part that the last output's places meet."""
        return (self.places - 1) * self.dilation // self.stride


@dataclass(frozen=True)
class Window:
    """A convolution of images [N, C, H, W] with one group."""

    form: MatrixForm
    image: Var | None
    channel: Var
    y: Side
    x: Side

    @property
    def sizes(self) -> dict[str, int]:
        """Images, channels, pixels, and what the window is."""
        s = self.form.sizes
        pixels, places = self.y.size * self.x.size, self.y.places * self.x.places
        sizes = {"N": s["N"] // pixels, "O": s["M"], "I": s["K"] // places, "OH": self.y.size, "OW": self.x.size}
        sizes |= {"KH": self.y.places, "KW": self.x.places, "SH": self.y.stride, "SW": self.x.stride}
        return sizes | {"HY": self.y.halo, "HX": self.x.halo, "parities": self.y.parities * self.x.parities}


def find_window(func: PrimFunc) -> Window | None:
    """The convolution that a function is; None for any other function, and for one of groups."""
    form = find_matrix_form(func)
    if form is None or form.groups or form.whole or len(form.rows) != 1 or not form.dtype:
        return None
    data, weight = form.column_operand, form.row_operand
    outputs, terms = dict(form.columns), dict(form.terms)
    if len(data.indices) != 4 or len(weight.indices) != 4 or weight.buffer in form.blocks:
        return None
    image, channel = data.indices[:2]
    if not isinstance(channel, Var) or channel not in terms:
        return None
    if not (isinstance(image, Var) and image in outputs) and const_int(image) != 0:
        return None
    sides = [_side(i, outputs, terms) for i in data.indices[2:]]
    y, x = sides
    if y is None or x is None:
        return None
    used = [v for v in (image if isinstance(image, Var) else None, y.out, x.out) if v is not None]
    places = [v for v in (channel, y.place, x.place) if v is not None]
    if len(set(used)) != len(outputs) or len(set(places)) != len(terms):
        return None
    wanted = (form.rows[0][0], channel, y.place, x.place)
    if any(i is not v if v is not None else const_int(i) != 0 for i, v in zip(weight.indices, wanted, strict=True)):
        return None
    if weight.buffer.const_shape() != (form.sizes["M"], terms[channel], y.places, x.places):
        return None
    return Window(form, image if isinstance(image, Var) else None, channel, y, x)


def _side(i: PrimExpr, outputs: Mapping[Var, int], terms: Mapping[Var, int]) -> Side | None:
    """How an index of the data moves with one axis of the pixels and one of the window."""
    found = Analyzer().linear(i)
    factors = {atom: factor for factor, atom in found.terms.values()}
    out = next((v for v in factors if v in outputs), None)
    place = next((v for v in factors if v in terms), None)
    if factors.keys() - {out, place} or min(factors.values(), default=1) < 1:
        return None
    size = outputs[out] if isinstance(out, Var) else 1
    places = terms[place] if isinstance(place, Var) else 1
    stride = factors[out] if out is not None else 1
    return Side(
        out if isinstance(out, Var) else None, size, place if isinstance(place, Var) else None, places, stride,
        factors[place] if place is not None else 1, found.const,
    )  # fmt: skip


@dataclass(frozen=True)
class Tile:
    """Output channels, warpgroups, and pixels: images, rows, columns. Where the window has one place, columns alone."""

    rows: int
    groups: int
    images: int
    high: int
    wide: int

    @property
    def columns(self) -> int:
        return self.images * self.high * self.wide

    def count(self, s: Mapping[str, int]) -> int:
        """Tiles of pixels."""
        if _is_flat(s):
            return -(-s["N"] * s["OH"] * s["OW"] // self.wide)
        return s["N"] // self.images * -(-s["OH"] // self.high) * -(-s["OW"] // self.wide)

    def staged(self, s: Mapping[str, int]) -> tuple[int, int, int]:
        """Images, rows and columns of what is staged, for one parity."""
        if _is_flat(s):
            return 1, 1, self.count(s) * self.wide
        high, wide = -(-s["OH"] // self.high) * self.high, -(-s["OW"] // self.wide) * self.wide
        return s["N"], high + s["HY"], wide + s["HX"]


def _is_flat(s: Mapping[str, int]) -> bool:
    return s["KH"] * s["KW"] == 1


def _steps(s: Mapping[str, int]) -> int:
    """Boxes of a sum: places of the window, and channels of 128 bytes."""
    return s["KH"] * s["KW"] * -(-s["I"] * s["bytes"] // ROW_BYTES)


def choices(s: Mapping[str, int], chain: Chain) -> list[tuple[Tile, int]]:
    """The tiles and parts of sums that a default is chosen from.

    Where pixels of several images follow each other, a thread finds the place of each by divisions. The assembler does
    them all ahead of what follows the sums, and wide tiles have no registers for it.
    """
    parts = [n for n in SPLITS if n == 1 or (_steps(s) % n == 0 and _steps(s) >= n * LEAST_STEPS)]
    finds_places = bool(chain.after) and _is_flat(s) and s["OH"] * s["OW"] % PIXELS != 0
    most = MOST_PLACED if finds_places else MOST_COLUMNS
    return [(tile, n) for tile in tiles_for(s, registers_of(chain)) for n in parts if tile.columns <= most]


def _resident(tile: Tile, steps: int, waves: int, gpu: GpuFacts) -> tuple[int, int]:
    """(stages, blocks of a multiprocessor): where blocks follow each other, one multiplies while another one stores."""
    tile_bytes = (tile.rows + tile.columns) * ROW_BYTES
    stages = min(MOST_STAGES, (gpu.max_shared_memory_per_block - BARRIER_BYTES) // tile_bytes, max(2, steps))
    half = (gpu.shared_per_sm // 2 - gpu.reserved_shared - BARRIER_BYTES) // tile_bytes
    threads = GROUP_THREADS * tile.groups + LANES
    registers = threads * (tile.rows * tile.columns // (GROUP_THREADS * tile.groups) + OTHER_REGISTERS)
    if waves > 1 and half >= LEAST_STAGES and 2 * registers <= gpu.registers_per_sm:
        return min(stages, half), 2
    return stages, 1


def tiles_for(s: Mapping[str, int], registers: int) -> list[Tile]:
    """The tiles that a default is chosen from; threads keep so many registers beside their sums."""
    shapes: list[tuple[int, int, int]] = []
    if _is_flat(s):
        shapes = [(1, 1, wide) for wide in (64, 96, 128, 160, 192, 224, 256)]
    else:
        wides = {s["OW"], *(w for w in (8, 16, 32, 64) if w < s["OW"])}
        for wide in (w for w in wides if w <= MOST_COLUMNS):
            for high in range(1, min(MOST_COLUMNS // wide, s["OH"] + 7, MOST_HIGH) + 1):
                shapes.append((1, high, wide))
                if wide >= s["OW"] and high >= s["OH"]:
                    shapes += [(n, high, wide) for n in (2, 4, 8) if s["N"] % n == 0]
    found = []
    for rows, groups in ROWS:
        for images, high, wide in shapes:
            tile = Tile(rows, groups, images, high, wide)
            fits = tile.columns % 8 == 0 and 32 <= tile.columns <= MOST_COLUMNS
            if fits and rows < s["O"] + 64 and registers_left((rows, tile.columns, groups)) >= registers:
                found.append(tile)
    return found


def cycles(s: Mapping[str, int], tile: Tile, splits: int, gpu: GpuFacts, rate: str) -> float:
    """Cycles until the busiest SM has multiplied its tiles; staging, adding up parts and their launches included."""
    slabs = -(-s["I"] * s["bytes"] // ROW_BYTES)
    steps, count = _steps(s) // splits, -(-s["O"] // tile.rows) * tile.count(s)
    products = tile.rows * tile.columns * (ROW_BYTES // s["bytes"])
    step = max(
        products / (gpu.rates[rate] * TENSOR_REACHED), (tile.rows + tile.columns) * ROW_BYTES / L2_BYTES_PER_CYCLE
    )  # fmt: skip
    images, high, wide = tile.staged(s)
    staging = (FLAT_BYTES_PER_CYCLE if _is_flat(s) else STAGED_BYTES_PER_CYCLE) * gpu.sm_count
    staged = s["parities"] * images * high * wide * slabs * ROW_BYTES / staging
    waves = -(-count * splits // gpu.sm_count)
    between = BETWEEN_TILES / _resident(tile, steps, waves, gpu)[1]
    total = waves * (steps * step + between) + staged + LAUNCH_S * gpu.clock_hz
    if splits > 1:
        moved = 8 * splits * count * tile.rows * tile.columns
        total += LAUNCH_S * gpu.clock_hz + MEMORY_LATENCY + moved / (L2_BYTES_PER_CYCLE * gpu.sm_count)
    return total


def _rate(form: MatrixForm) -> str:
    """The name of a device's rate for a product."""
    return form.dtype.replace("float32", "tfloat32")


def _cycles_of_others(func: PrimFunc, form: MatrixForm, target: Target) -> float:
    """Cycles that other templates are expected to take, by what an H200 took for what they expect."""
    item = item_bytes(form.dtype)
    sizes = {**form.sizes, "bytes": item, "instruction": STEPS[form.dtype]}
    gathered = GATHERED * expected_cycles(sizes, target.gpu, form.dtype)
    anchor = TensorWindow().match(func, target)
    if anchor is None:
        return gathered
    staged = tensor_window.cycles(
        anchor.sizes, target.gpu, form.dtype, *best_tile(anchor.sizes, target.gpu, form.dtype)
    )
    return min(gathered, STAGED * staged)


class WarpgroupWindow:
    """Convolutions of many channels, by windows of several places, or of images that no box is cut from."""

    name = "warpgroup_window"

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        if target.gpu.arch != ARCH:
            return None
        found = find_window(func)
        if found is None or found.form.dtype == "int8" or not takes(func, found.form.dtype):
            return None
        s = {**found.sizes, "bytes": item_bytes(found.form.dtype)}
        places = s["KH"] * s["KW"]
        if s["I"] * s["bytes"] < LEAST_CHANNEL_BYTES or s["O"] < LEAST_ROWS or places > MOST_PLACES:
            return None
        if s["N"] * s["OH"] * s["OW"] * s["O"] * s["I"] * places < LEAST_WORK or s["N"] * s["parities"] > MOST_GRID_YZ:
            return None
        anchor = Anchor(found.form.chain.anchor.name_hint, "conv2d", s, found)
        found_choices = choices(s, found.form.chain)
        if not found_choices or _cycles_of_others(func, found.form, target) < min(
            cycles(s, *choice, target.gpu, _rate(found.form)) for choice in found_choices
        ):
            return None
        return anchor

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        return device_space(self, anchor, target)

    def default(self, anchor: Anchor, target: Target) -> Config:
        """The tile by which the busiest SM is done first."""
        s, form = anchor.sizes, anchor.details.form

        def cost(choice: tuple[Tile, int]) -> tuple[float, bool, int, int]:
            tile, splits = choice
            return cycles(s, tile, splits, target.gpu, _rate(form)), tile.wide != s["OW"], tile.rows, tile.columns

        tile, splits = min(choices(s, form.chain), key=cost)
        waves = -(-tile.count(s) * -(-s["O"] // tile.rows) * splits // target.gpu.sm_count)
        stages, _ = _resident(tile, _steps(s) // splits, waves, target.gpu)
        knobs = {"rows": tile.rows, "groups": tile.groups, "images": tile.images, "high": tile.high, "wide": tile.wide}
        return Config(self.name, {**knobs, "stages": stages, "splits": splits})

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        found = find_window(func)
        assert found is not None, "apply is called on a function that matched"
        made, pack = _Writer(func, found, config).function()
        packs = tuple(pack if b is found.form.row_operand.buffer else None for b in func.buffers)
        return Applied(with_work_of(made, func), packs, Schedule(func).trace.to_json_text())


class _Writer:
    """The statements of one configuration."""

    def __init__(self, func: PrimFunc, window: Window, config: Config):
        self.func, self.window, self.form = func, window, window.form
        self.stages, self.splits = int(config["stages"]), int(config["splits"])
        self.s = s = {**window.sizes, "bytes": item_bytes(window.form.dtype)}
        self.tile = tile = Tile(*(int(config[k]) for k in ("rows", "groups", "images", "high", "wide")))
        dtype, item = self.form.dtype, s["bytes"]
        self.span, self.piece = ROW_BYTES // item, PIECE_BYTES // item
        self.slabs, self.places = -(-s["I"] // self.span), s["KH"] * s["KW"]
        self.row_tiles = -(-s["O"] // tile.rows)
        images, self.high, self.wide = tile.staged(s)
        natural = self.form.row_operand.buffer.const_shape()
        depth = self.slabs * self.span
        matrix = (self.places, s["O"], s["I"])
        self.pack = MatrixPack(natural, natural, (2, 3, 0, 1), matrix, self.row_tiles * tile.rows, depth)
        self.packed = _buffer("packed", self.pack.packed_shape, dtype)
        self.staged = _buffer("staged", (s["parities"] * images, self.high, self.wide, depth), dtype)
        self.piece_of = _buffer("piece", (self.piece,), dtype, "local")
        self.weights = _buffer("weights", (tile.rows, self.span), dtype, "shared")
        self.pixels = _buffer("pixels", (tile.columns, self.span), dtype, "shared")
        sizes = (self.splits, self.row_tiles * tile.rows, tile.count(s) * tile.columns)
        self.parts = _buffer("parts", sizes, WIDE)
        self.total = _buffer("total", (math.gcd(s["O"], SUM_ROWS),), WIDE, "local")
        self.sums = _buffer("sums", (tile.rows // tile.groups, tile.columns), WIDE, GROUP_ACCUMULATOR)

    def function(self) -> tuple[PrimFunc, MatrixPack]:
        """(the function, how the weight is packed)."""
        natural = self.form.row_operand.buffer
        buffers = {p: self.packed if b is natural else b for p, b in self.func.buffer_map.items()}
        made = replace(self.func, buffer_map=FrozenDict(buffers))
        between = [self.staged, self.piece_of, self.weights, self.pixels, self.sums]
        launches = [self.staging(), self.products()]
        if self.splits > 1:
            between += [self.parts, self.total]
            launches.append(self.added_up())
        return made.with_body(make_root(seq(*launches), tuple(between))), self.pack

    # --- the first launch -----------------------------------------------------------------------------------------

    def staging(self) -> Stmt:
        """Channels innermost: a thread takes 16 bytes of them for one pixel, two threads the 32 bytes of a sector.

        Threads of a warp take 16 neighbouring pixels.
        """
        images, count = self.staged.const_shape()[0], self.high * self.wide

        def of_thread(image: Var, slab: Var, near: Var, warp: Var, lane: Var) -> Stmt:
            pixels = E.add(E.mul(E.floormod(warp, 2), index(LANES // 2)), E.floordiv(lane, 2))
            piece = E.add(E.mul(E.floordiv(warp, 2), index(2)), E.floormod(lane, 2))
            at = E.add(E.mul(near, index(LANES)), pixels)
            first = E.add(E.mul(slab, index(self.span)), E.mul(piece, index(self.piece)))
            row, column = (index(0), at) if self.high == 1 else (E.floordiv(at, self.wide), E.floormod(at, self.wide))
            stmt = self.staged_piece(image, row, column, first)
            return block("staging", stmt if count % LANES == 0 else IfThenElse(E.compare(E.LT, at, index(count)), stmt))

        blocks = ((BLOCK_Z, images), (BLOCK_Y, self.slabs), (BLOCK_X, -(-count // LANES)))
        return bound((*blocks, (THREAD_Y, PIECES), (THREAD_X, LANES)), of_thread)

    def staged_piece(self, image: PrimExpr, row: PrimExpr, column: PrimExpr, first: PrimExpr) -> Stmt:
        """A few neighbouring channels of one pixel, by registers; 0 beyond the data."""

        def element(lane: Var) -> tuple[list[PrimExpr], PrimExpr]:
            return self.element(image, row, column, E.add(first, lane))

        probe, zero = Var("lane", "int32"), E.const(0.0, self.form.dtype)
        outside = [c for c in element(probe)[0] if probe not in free_vars(c)]

        def load(lane: Var) -> Stmt:
            conditions, value = element(lane)
            inner = [c for c in conditions if lane in free_vars(c)]
            if inner:
                value = Call("if_then_else", (E.all_of(*inner), value, zero), self.form.dtype)
            return BufferStore(self.piece_of, value, (lane,))

        def store(lane: Var) -> Stmt:
            return BufferStore(
                self.staged, BufferLoad(self.piece_of, (lane,)), (image, row, column, E.add(first, lane))
            )

        loads = unrolled("lane", (self.piece,), load)
        if outside:
            zeros = unrolled("lane", (self.piece,), lambda lane: BufferStore(self.piece_of, zero, (lane,)))
            loads = IfThenElse(E.all_of(*outside), loads, zeros)
        return seq(loads, loop("lane", self.piece, store, LoopKind.VECTORIZED))

    def element(
        self, image: PrimExpr, row: PrimExpr, column: PrimExpr, channel: PrimExpr
    ) -> tuple[list[PrimExpr], PrimExpr]:
        """(what has to hold, an element of the data where it does) for a place of what is staged."""
        s, y, x, load = self.s, self.window.y, self.window.x, self.form.column_operand
        conditions = [] if s["I"] % self.span == 0 else [E.compare(E.LT, channel, index(s["I"]))]
        zero: PrimExpr = index(0)
        if _is_flat(s):
            if s["N"] * s["OH"] * s["OW"] % self.wide:
                conditions.append(E.compare(E.LT, column, index(s["N"] * s["OH"] * s["OW"])))
            number, row, column = pixel(column, (s["N"], s["OH"], s["OW"]))
            parity_y, parity_x = zero, zero
        else:
            number, parity = E.floormod(image, s["N"]), E.floordiv(image, s["N"])
            parity_y, parity_x = E.floordiv(parity, x.parities), E.floormod(parity, x.parities)
        places = []
        sides = ((y, row, parity_y), (x, column, parity_x))
        for dim, (side, at, parity) in enumerate(sides, 2):
            place = E.add(E.add(E.mul(at, index(side.stride)), parity), index(side.start))
            size = load.buffer.const_shape()[dim]
            conditions.append(E.compare(E.LT, place, index(size)))
            places.append(E.cast(load.indices[dim].dtype, place))
        values: dict[Var, PrimExpr] = {self.window.channel: channel}
        if self.window.image is not None:
            values[self.window.image] = number
        first = [substitute(i, {v: E.cast(v.dtype, e) for v, e in values.items()}) for i in load.indices[:2]]
        value = self.form.element(BufferLoad(load.buffer, (*first, *places)))
        while isinstance(value, Call) and value.op == "if_then_else" and _is_zero(value.args[2]):
            conditions += split_conditions(value.args[0])
            value = value.args[1]
        return conditions, value

    # --- the second launch ----------------------------------------------------------------------------------------

    def products(self) -> Stmt:
        """Boxes and products, and the results."""
        tile, count = self.tile, self.places * self.slabs // self.splits

        def of_thread(part: Var, channels: Var, pixels: Var, group: Var) -> Stmt:
            at, first = self.place(pixels), E.mul(channels, index(tile.rows))
            own = tile.rows // tile.groups

            def step(own_step: Var) -> Stmt:
                n = E.add(E.mul(part, index(count)), own_step)
                place, channel = E.floordiv(n, self.slabs), E.mul(E.floormod(n, self.slabs), index(self.span))
                return seq(
                    self.weight_box(place, first, channel), self.pixel_box(at, place, channel),
                    self.product(E.mul(group, index(own))),
                )  # fmt: skip

            def zero(i: Var, j: Var) -> Stmt:
                return BufferStore(self.sums, E.const(0.0, WIDE), (i, j))

            steps = loop("step", count, step, annotations={WARP_STAGES: self.stages})
            start = nested("row column", (own, tile.columns), zero)
            first_row = E.add(first, E.mul(group, index(own)))

            def store(i: Var, j: Var) -> Stmt:
                row, value = E.add(first_row, i), BufferLoad(self.sums, (i, j))
                if self.splits == 1:
                    return self.result(at, row, j, value)
                return BufferStore(self.parts, value, (part, row, E.add(E.mul(pixels, index(tile.columns)), j)))

            end = nested("row column", (own, tile.columns), store)
            return block("convolution", seq(start, steps, end))

        blocks = ((BLOCK_Z, self.splits), (BLOCK_Y, self.row_tiles), (BLOCK_X, tile.count(self.s)))
        return bound((*blocks, (THREAD_Y, tile.groups)), of_thread)

    def place(self, pixels: PrimExpr) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
        """The first image, row and column of a tile of pixels."""
        s, tile = self.s, self.tile
        if _is_flat(s):
            return index(0), index(0), E.mul(pixels, index(tile.wide))
        counts = s["N"] // tile.images, -(-s["OH"] // tile.high), -(-s["OW"] // tile.wide)
        at = pixel(pixels, counts)
        image, row, column = (E.mul(i, index(n)) for i, n in zip(at, (tile.images, tile.high, tile.wide), strict=True))
        return image, row, column

    def weight_box(self, place: PrimExpr, first: PrimExpr, channel: PrimExpr) -> Stmt:
        def element(i: Var, k: Var) -> Stmt:
            value = BufferLoad(self.packed, (place, E.add(first, i), E.add(channel, k)))
            return BufferStore(self.weights, value, (i, k))

        return nested("row channel", (self.tile.rows, self.span), element)

    def pixel_box(self, at: tuple[PrimExpr, PrimExpr, PrimExpr], place: PrimExpr, channel: PrimExpr) -> Stmt:
        """What the tile's pixels meet at a place of the window."""
        s, tile, y, x = self.s, self.tile, self.window.y, self.window.x
        places = E.floordiv(place, x.places), E.floormod(place, x.places)
        moved = [E.mul(p, index(side.dilation)) for p, side in zip(places, (y, x), strict=True)]
        far = [
            E.floordiv(m, side.stride) if side.places > 1 else index(0) for m, side in zip(moved, (y, x), strict=True)
        ]
        parity_y, parity_x = (
            E.floormod(m, side.stride) if side.parities > 1 else index(0) for m, side in zip(moved, (y, x), strict=True)
        )
        parity = E.add(E.mul(parity_y, index(x.parities)), parity_x)
        first = E.add(E.mul(parity, index(s["N"])), at[0]) if s["parities"] > 1 else at[0]

        def element(n: Var, row: Var, column: Var, k: Var) -> Stmt:
            source = (
                E.add(first, n), E.add(E.add(at[1], far[0]), row), E.add(E.add(at[2], far[1]), column),
                E.add(channel, k),
            )  # fmt: skip
            number = E.add(E.mul(E.add(E.mul(n, index(tile.high)), row), index(tile.wide)), column)
            return BufferStore(self.pixels, BufferLoad(self.staged, source), (number, k))

        return nested("image row column channel", (tile.images, tile.high, tile.wide, self.span), element)

    def product(self, first: PrimExpr) -> Stmt:
        """sums += weights * pixels, of a warpgroup's channels."""

        def one(i: Var, j: Var, k: Var) -> Stmt:
            a, b = BufferLoad(self.weights, (E.add(first, i), k)), BufferLoad(self.pixels, (j, k))
            factors = E.mul(E.cast(WIDE, a), E.cast(WIDE, b))
            return BufferStore(self.sums, E.add(BufferLoad(self.sums, (i, j)), factors), (i, j))

        rows = self.tile.rows // self.tile.groups
        return nested("row column channel", (rows, self.tile.columns, self.span), one)

    def result(
        self, at: tuple[PrimExpr, PrimExpr, PrimExpr], row: PrimExpr, j: PrimExpr, total: BufferLoad
    ) -> Stmt:  # fmt: skip
        """What is stored for an output channel and the j-th pixel of a tile, whose first one is at `at`."""
        s, tile, window = self.s, self.tile, self.window
        limits = [(row, s["O"], tile.rows)]
        if _is_flat(s):
            number = E.add(at[2], j)
            image, y, x = pixel(number, (s["N"], s["OH"], s["OW"]))
            limits.append((number, s["N"] * s["OH"] * s["OW"], tile.wide))
        else:
            inner = E.floormod(j, tile.high * tile.wide) if tile.images > 1 else j
            image = E.add(at[0], E.floordiv(j, tile.high * tile.wide)) if tile.images > 1 else at[0]
            if tile.wide == s["OW"]:  # whole rows: pixels of an image lie one behind the other
                number = E.add(E.mul(at[1], index(tile.wide)), inner)
                y, x = pixel(number, (s["OH"], s["OW"]))
                limits.append((number, s["OH"] * s["OW"], tile.high * tile.wide))
            else:
                y, x = (E.add(a, b) for a, b in zip(at[1:], pixel(inner, (tile.high, tile.wide)), strict=True))
                limits += [(y, s["OH"], tile.high), (x, s["OW"], tile.wide)]
        values: dict[Var, PrimExpr] = {self.form.rows[0][0]: E.cast(self.form.rows[0][0].dtype, row)}
        for v, e in ((window.image, image), (window.y.out, y), (window.x.out, x)):
            if v is not None:
                values[v] = E.cast(v.dtype, e)
        value, buffer, indices = result_of(self.form, values, total)
        stmt: Stmt = BufferStore(buffer, value, indices)
        inside = [E.compare(E.LT, e, index(size)) for e, size, n in limits if size % n]
        return IfThenElse(E.all_of(*inside), stmt) if inside else stmt

    # --- the third launch -----------------------------------------------------------------------------------------

    def added_up(self) -> Stmt:
        """The sums of parts: a thread for a pixel of a few output channels, whose place is found once."""
        tile, each = self.tile, self.total.const_shape()[0]
        count = tile.count(self.s) * tile.columns

        def of_thread(rows: Var, near: Var, lane: Var) -> Stmt:
            column, first = E.add(E.mul(near, index(SUM_THREADS)), lane), E.mul(rows, index(each))
            at, j = self.place(E.floordiv(column, tile.columns)), E.floormod(column, tile.columns)

            def start(r: Var) -> Stmt:
                return BufferStore(self.total, E.const(0.0, WIDE), (r,))

            def add(part: Var, r: Var) -> Stmt:
                value = E.add(BufferLoad(self.total, (r,)), BufferLoad(self.parts, (part, E.add(first, r), column)))
                return BufferStore(self.total, value, (r,))

            def store(r: Var) -> Stmt:
                return self.result(at, E.add(first, r), j, BufferLoad(self.total, (r,)))

            stmt = seq(
                unrolled("row", (each,), start), unrolled("part row", (self.splits, each), add),
                unrolled("row", (each,), store),
            )  # fmt: skip
            inside = E.compare(E.LT, column, index(count))
            return block("sums", stmt if count % SUM_THREADS == 0 else IfThenElse(inside, stmt))

        blocks = ((BLOCK_Y, self.s["O"] // each), (BLOCK_X, -(-count // SUM_THREADS)))
        return bound((*blocks, (THREAD_X, SUM_THREADS)), of_thread)


def _buffer(name: str, shape: tuple[int, ...], dtype: str, scope: str = "global") -> Buffer:
    return Buffer(name, tuple(map(index, shape)), dtype, scope=scope)


def _is_zero(e: PrimExpr) -> bool:
    return isinstance(e, E.FloatImm | IntImm) and e.value == 0


__all__ = ["WarpgroupWindow", "find_window"]

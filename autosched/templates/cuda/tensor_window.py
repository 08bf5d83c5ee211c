"""Convolutions of 16-bit floats on tensor cores, with what a tile of pixels needs in shared memory once for all places.

for group and image in blockIdx.z, tile of output channels in blockIdx.y, tile of pixels in blockIdx.x:
    for a few input channels:                                          # copies run one step ahead
        window = the pixels under the tile, channels innermost         # through registers, by all threads of the block
        weights = the tile's, of all places                            # asynchronously
        for kh, kw: acc += weights[kh, kw] * window[pixel * stride + (kh, kw) * dilation]      # a part for each warp
    out[channels, pixels] = epilogue(acc)

A product of gathered columns reads each pixel once for every place of the window; here it is read once, and the
instruction that loads a fragment takes its rows from shifted addresses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from autosched.codegen.lower.fragments import ACCUMULATOR, MATRIX_A, MATRIX_B
from autosched.ir.node import FrozenDict
from autosched.space import Config, ConfigSpace
from autosched.target import Target
from autosched.target.gpus import GpuFacts
from autosched.templates.base import Anchor, Applied
from autosched.templates.cuda.contraction import expected_cycles
from autosched.templates.cuda.core_tiles import L2_BYTES_PER_CYCLE, LANES_PER_CYCLE
from autosched.templates.cuda.nests import block, bound, copy_tile, with_work_of
from autosched.templates.cuda.product_form import HALVES, MatrixForm, MatrixPack, find_matrix_form, result_of
from autosched.templates.cuda.spaces import device_space
from autosched.templates.cuda.tensor_matmul import LEAST_CAPABILITY
from autosched.templates.cuda.threads import BLOCK_X, BLOCK_Y, BLOCK_Z, MOST_GRID_YZ, THREAD_X, THREAD_Y, THREAD_Z
from autosched.templates.nests import INDEX, index, loop, nested, unrolled
from autosched.tir import PrimFunc
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import Call, IntImm, PrimExpr, Var
from autosched.tir.function import make_root
from autosched.tir.functor import free_vars, substitute
from autosched.tir.schedule import Schedule
from autosched.tir.simplify import Analyzer, split_conditions
from autosched.tir.stmt import BufferStore, IfThenElse, LoopKind, Stmt, seq

LANES, STEP, VECTOR = 32, 16, 8  # of a warp; channels of an instruction; elements of 16 bytes
PADDING = 8  # elements between rows of shared memory: eight of them lie in different banks
WIDE = "float32"  # of sums
MOST_UNROLLED = 9  # places of a window
MOST_PLACES = 25
MOST_AHEAD = 64  # pixels on their way in a thread's registers
LEAST_CHANNELS, LEAST_PIXELS = 8, 4
BLOCKS_AT_ONCE, MEMORY_LATENCY, STEP_LATENCY = 2, 600.0, 60.0  # blocks of an SM whose waits overlap; cycles
STAGED = 4.0  # instructions for an element of the window
TILES = (
    (32, 4, 8, 1, 2), (32, 8, 8, 2, 2), (64, 8, 8, 2, 2), (64, 4, 16, 2, 2), (64, 8, 16, 2, 2), (128, 8, 8, 4, 1),
    (128, 8, 16, 2, 4), (64, 16, 16, 2, 4), (128, 4, 32, 2, 4),
)  # fmt: skip


@dataclass(frozen=True)
class Axis:
    """One dimension of the pixels: its size, the places of the window, how far outputs and places are apart.

    dim     of the data; `start` is the index there of the first place of output 0, without what other axes add
    """

    out: Var
    size: int
    place: Var
    places: int
    stride: int
    dilation: int
    dim: int
    start: PrimExpr

    def reach(self, outputs: int) -> int:
        """Pixels of the data under so many neighbouring outputs."""
        return (outputs - 1) * self.stride + (self.places - 1) * self.dilation + 1


@dataclass(frozen=True)
class Window:
    """A convolution of images [N, C, H, W], grouped ones too, with constant strides and dilations."""

    form: MatrixForm
    y: Axis
    x: Axis
    channel: Var
    pack: MatrixPack

    @property
    def sizes(self) -> dict[str, int]:
        """Groups, images, channels of a group, pixels, and what the window is."""
        s = self.form.sizes
        pixels = self.y.size * self.x.size
        places = self.y.places * self.x.places
        sizes = {"G": s["batch"], "N": s["N"] // pixels, "O": s["M"], "I": s["K"] // places}
        sizes |= {"OH": self.y.size, "OW": self.x.size, "KH": self.y.places, "KW": self.x.places}
        return sizes | {"SH": self.y.stride, "SW": self.x.stride, "DH": self.y.dilation, "DW": self.x.dilation}


def find_window(func: PrimFunc) -> Window | None:
    """The convolution that a function is; None for any other function."""
    form = find_matrix_form(func)
    if form is None or form.dtype not in HALVES or len(form.terms) != 3 or not 2 <= len(form.columns) <= 3:
        return None
    (kh, n_kh), (kw, n_kw), (channel, _) = form.terms
    load = form.column_operand
    axes = []
    for (out, size), (place, places) in zip(form.columns[-2:], ((kh, n_kh), (kw, n_kw)), strict=True):
        found = _axis(load, out, size, place, places)
        if found is None:
            return None
        axes.append(found)
    y, x = axes
    own = {kh, kw, y.out, x.out}
    others = [i for d, i in enumerate(load.indices) if d not in (y.dim, x.dim)]
    if y.dim == x.dim or x.dim != len(load.indices) - 1 or any(free_vars(i) & own for i in others):
        return None
    if free_vars(y.start) or free_vars(x.start) or not any(channel in free_vars(i) for i in others):
        return None
    plain = form.packing(1, 1)
    if plain is None:
        return None
    n_groups, n_rows, order = len(form.groups), len(form.rows), plain.order
    groups, rows, terms = order[:n_groups], order[n_groups : n_groups + n_rows], order[n_groups + n_rows :]
    s = form.sizes
    matrix = (s["batch"] * n_kh * n_kw, s["M"], s["K"] // (n_kh * n_kw))
    pack = replace(plain, order=(*groups, *terms[:-1], *rows, *terms[-1:]), matrix=matrix)
    return Window(form, y, x, channel, pack)


def _axis(load: BufferLoad, out: Var, size: int, place: Var, places: int) -> Axis | None:
    """How an index of the data moves with an axis of the pixels and one of the window."""
    dims = [d for d, i in enumerate(load.indices) if {out, place} & free_vars(i)]
    if len(dims) != 1 or not {out, place} <= free_vars(load.indices[dims[0]]):
        return None
    form = Analyzer().linear(load.indices[dims[0]])
    factors = {atom: factor for factor, atom in form.terms.values()}
    stride, dilation = factors.pop(out, 0), factors.pop(place, 0)
    if stride < 1 or dilation < 1 or factors:
        return None
    return Axis(out, size, place, places, stride, dilation, dims[0], index(form.const))


class TensorWindow:
    """Convolutions of float16 and bfloat16 with windows of several places, where staging them is expected to pay."""

    name = "tensor_window"

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        if target.gpu.compute_capability < LEAST_CAPABILITY:
            return None
        found = find_window(func)
        if found is None:
            return None
        s = found.sizes
        places = s["KH"] * s["KW"]
        if not 1 < places <= MOST_PLACES or min(s["I"], s["O"]) < LEAST_CHANNELS or s["OH"] * s["OW"] < LEAST_PIXELS:
            return None
        if s["G"] * s["N"] > MOST_GRID_YZ or not _fitting(s, target.gpu):
            return None
        anchor = Anchor(found.form.chain.anchor.name_hint, "conv2d", s, found)
        tile, step = best_tile(s, target.gpu, found.form.dtype)
        gathered = expected_cycles({**found.form.sizes, "bytes": 2, "instruction": STEP}, target.gpu, found.form.dtype)
        return anchor if cycles(s, target.gpu, found.form.dtype, tile, step) < gathered else None

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        return device_space(self, anchor, target)

    def default(self, anchor: Anchor, target: Target) -> Config:
        """The tile by which the busiest SM is done first."""
        tile, step = best_tile(anchor.sizes, target.gpu, anchor.details.form.dtype)
        names = ("rows", "high", "wide", "warps_m", "warps_n")
        stages = 2 if anchor.sizes["I"] > step else 1
        return Config(self.name, {**dict(zip(names, tile, strict=True)), "step": step, "stages": stages})

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        found = find_window(func)
        assert found is not None, "apply is called on a function that matched"
        made, pack = _Writer(func, found, config).function()
        natural = found.form.row_operand.buffer
        packs = tuple(pack if b is natural else None for b in func.buffers)
        return Applied(with_work_of(made, func), packs, Schedule(func).trace.to_json_text())


def shared_bytes(s: Mapping[str, int], tile: tuple[int, int, int], step: int, stages: int) -> int:
    """Bytes of a block's shared memory, for a tile of so many channels and rows and columns of pixels."""
    rows, high, wide = tile
    window = _reach(s, high, wide)
    return 2 * stages * (step + PADDING) * (rows * s["KH"] * s["KW"] + window)


def _reach(s: Mapping[str, int], high: int, wide: int) -> int:
    """Pixels of the data under a tile."""
    tall = (high - 1) * s["SH"] + (s["KH"] - 1) * s["DH"] + 1
    return tall * ((wide - 1) * s["SW"] + (s["KW"] - 1) * s["DW"] + 1)


def _fitting(s: Mapping[str, int], gpu: GpuFacts) -> list[tuple[tuple[int, int, int, int, int], int]]:
    """The tiles of `TILES` with steps that are in the space: half of them results, with registers for them."""
    found = []
    for tile in TILES:
        rows, high, wide, warps_m, warps_n = tile
        threads = LANES * warps_m * warps_n
        if rows >= 2 * s["O"] or high >= 2 * s["OH"] or wide >= s["OW"] + 8:
            continue
        for step in (32, STEP):
            ahead = _reach(s, high, wide) * step <= threads * MOST_AHEAD
            fits = shared_bytes(s, tile[:3], step, 2) <= gpu.max_shared_memory_per_block
            if ahead and fits and (step == STEP or s["I"] >= step):
                found.append((tile, step))
    return found


def best_tile(s: Mapping[str, int], gpu: GpuFacts, dtype: str) -> tuple[tuple[int, int, int, int, int], int]:
    """(channels, rows and columns of pixels, warps over channels and pixels) and the input channels of a step."""
    return min(_fitting(s, gpu), key=lambda choice: cycles(s, gpu, dtype, *choice))


def cycles(
    s: Mapping[str, int], gpu: GpuFacts, dtype: str, tile: tuple[int, int, int, int, int], step: int
) -> float:  # fmt: skip
    """Cycles until the busiest SM has computed its tiles: it multiplies, reads and stages, or waits for memory."""
    rows, high, wide, warps_m, warps_n = tile
    blocks = s["G"] * s["N"] * -(-s["O"] // rows) * -(-s["OH"] // high) * -(-s["OW"] // wide)
    busiest, steps, places = -(-blocks // gpu.sm_count), -(-s["I"] // step), s["KH"] * s["KW"]
    window = _reach(s, high, wide)
    multiplies = rows * high * wide * places * step / gpu.rates[dtype]
    reads = 2 * step * (rows * places + 2 * window) / L2_BYTES_PER_CYCLE  # rows of pixels are no whole sectors
    stages = STAGED * window * step / LANES_PER_CYCLE
    own = 4 * rows // (16 * warps_m) + 2 * high * wide // (8 * warps_n)  # passes over banks for a warp's fragments
    loads = float(warps_m * warps_n * places * step // STEP * own)
    resident = max(1, min(BLOCKS_AT_ONCE, gpu.shared_per_sm // max(1, shared_bytes(s, tile[:3], step, 2)), busiest))
    at_once = -(-busiest // resident)
    waits = at_once * ((steps + 1) * MEMORY_LATENCY)
    return float(max(busiest * steps * max(multiplies + stages / 2, reads, loads), waits))


class _Writer:
    """The statements of one configuration."""

    def __init__(self, func: PrimFunc, window: Window, config: Config):
        self.func, self.window, self.form, self.s = func, window, window.form, window.sizes
        self.rows, self.high, self.wide = int(config["rows"]), int(config["high"]), int(config["wide"])
        self.warps = int(config["warps_m"]), int(config["warps_n"])
        self.step, self.stages = int(config["step"]), int(config["stages"])
        self.threads = math.prod(self.warps) * LANES
        self.own = self.rows // self.warps[0], self.high * self.wide // self.warps[1]
        self.places = self.s["KH"] * self.s["KW"]
        self.depth = -(-self.s["I"] // self.step) * self.step
        self.row_tiles = -(-self.s["O"] // self.rows)
        self.pack = replace(window.pack, rows=self.row_tiles * self.rows, depth=self.depth)
        self.tall, self.broad = window.y.reach(self.high), window.x.reach(self.wide)
        dtype, pitch = self.form.dtype, self.step + PADDING
        shape = tuple(map(index, self.pack.packed_shape))
        self.packed = Buffer("packed", shape, dtype)
        self.shared = _shared("window", (self.tall, self.broad, self.step), pitch, dtype)
        self.weights = _shared("weights", (self.places * self.rows, self.step), pitch, dtype)
        items = self.tall * self.broad * self.step // VECTOR
        self.items, self.each = items, -(-items // self.threads)
        self.ahead = Buffer("ahead", (index(self.each), index(VECTOR)), dtype, scope="local")
        self.a = Buffer("channels", (index(self.own[0]), index(STEP)), dtype, scope=MATRIX_A)
        self.b = Buffer("pixels", (index(self.own[1]), index(STEP)), dtype, scope=MATRIX_B)
        self.sums = Buffer("sums", tuple(map(index, self.own)), WIDE, scope=ACCUMULATOR)
        self.buffers = (self.shared, self.weights, self.ahead, self.a, self.b, self.sums)

    def function(self) -> tuple[PrimFunc, MatrixPack]:
        """(the function, how the weight is packed)."""
        s = self.s
        across = -(-s["OW"] // self.wide)
        tiles = -(-s["OH"] // self.high) * across

        def of_thread(image: Var, channels: Var, tile: Var, z: Var, y: Var, lane: Var) -> Stmt:
            first = E.mul(E.floordiv(tile, index(across)), index(self.high))
            left = E.mul(E.floormod(tile, index(across)), index(self.wide))
            return self.tile((image, E.mul(channels, index(self.rows)), first, left), (z, y, lane))

        axes = (
            (BLOCK_Z, s["G"] * s["N"]), (BLOCK_Y, self.row_tiles), (BLOCK_X, tiles),
            (THREAD_Z, self.warps[0]), (THREAD_Y, self.warps[1]), (THREAD_X, LANES),
        )  # fmt: skip
        natural = self.form.row_operand.buffer
        buffers = {p: self.packed if b is natural else b for p, b in self.func.buffer_map.items()}
        made = replace(self.func, buffer_map=FrozenDict(buffers))
        return made.with_body(make_root(bound(axes, of_thread), self.buffers)), self.pack

    def tile(self, at: tuple[PrimExpr, ...], threads: tuple[Var, Var, Var]) -> Stmt:
        """A tile of the result; `at` is the image, and its first channel, row and column."""
        z, y, _ = threads
        notes: dict[str, object] = {}
        if self.stages > 1:  # the next window's pixels are on their way to registers while this one is multiplied
            notes = {"software_pipeline_stage": [0, 0, 0, 1], "software_pipeline_order": [0, 1, 3, 2]}
            notes["software_pipeline_async_stages"] = [0]

        def step(chunk: Var) -> Stmt:
            first = E.mul(chunk, index(self.step))
            return seq(
                block("fetch", self.fetch(at, first, threads)), block("weights", self.weight(at, first, threads)),
                block("window", self.store(threads)), block("products", self.products((z, y))),
            )  # fmt: skip

        zero = nested("row column", self.own, lambda i, j: BufferStore(self.sums, E.const(0.0, WIDE), (i, j)))
        chunks = loop("chunk", self.depth // self.step, step, annotations=notes)
        return block("convolution", seq(zero, chunks, self.end(at, (z, y))))

    # --- operands -------------------------------------------------------------------------------------------------

    def item(self, n: Var, threads: tuple[Var, Var, Var]) -> tuple[PrimExpr, PrimExpr, PrimExpr, PrimExpr]:
        """(number, row, column, first channel) of what a thread stages as its n-th: neighbours are side by side."""
        z, y, lane = threads
        thread = E.add(E.mul(E.add(E.mul(z, index(self.warps[1])), y), index(LANES)), lane)
        number = E.add(E.mul(n, index(self.threads)), thread)
        pixel = E.floormod(number, index(self.tall * self.broad))
        channel = E.mul(E.floordiv(number, index(self.tall * self.broad)), index(VECTOR))
        return number, E.floordiv(pixel, index(self.broad)), E.floormod(pixel, index(self.broad)), channel

    def each_item(self, body: Callable[[Var, tuple[PrimExpr, ...]], Stmt], threads: tuple[Var, Var, Var]) -> Stmt:
        def of_item(n: Var) -> Stmt:
            number, *place = self.item(n, threads)
            stmt = body(n, tuple(place))
            if self.items % self.threads:
                return IfThenElse(E.compare(E.LT, number, index(self.items)), stmt)
            return stmt

        return loop("item", self.each, of_item, LoopKind.UNROLLED)

    def fetch(self, at: tuple[PrimExpr, ...], first: PrimExpr, threads: tuple[Var, Var, Var]) -> Stmt:
        """The pixels of the next window to registers: eight channels of one pixel each; 0 beyond the data."""
        dtype = self.form.dtype

        def of_item(n: Var, place: tuple[PrimExpr, ...]) -> Stmt:
            row, column, channel = place

            def element(lane: Var) -> tuple[list[PrimExpr], PrimExpr]:
                return self.pixel(at, row, column, E.add(E.add(first, channel), lane))

            probe = Var("lane", INDEX)
            outside = [c for c in element(probe)[0] if probe not in free_vars(c)]

            def load(lane: Var) -> Stmt:
                conditions, value = element(lane)
                inner = [c for c in conditions if lane in free_vars(c)]
                zero = E.const(0.0, dtype)
                value = Call("if_then_else", (E.all_of(*inner), value, zero), dtype) if inner else value
                return BufferStore(self.ahead, value, (n, lane))

            zeros = unrolled("lane", (VECTOR,), lambda lane: BufferStore(self.ahead, E.const(0.0, dtype), (n, lane)))
            loads = unrolled("lane", (VECTOR,), load)
            return IfThenElse(E.all_of(*outside), loads, zeros) if outside else loads

        return self.each_item(of_item, threads)

    def pixel(
        self, at: tuple[PrimExpr, ...], row: PrimExpr, column: PrimExpr, channel: PrimExpr
    ) -> tuple[list[PrimExpr], PrimExpr]:
        """(what has to hold, an element of the window where it does)."""
        form, load = self.form, self.form.column_operand
        group, image = E.floordiv(at[0], index(self.s["N"])), E.floormod(at[0], index(self.s["N"]))
        values = {
            **form.decoded(form.groups, group),
            **form.decoded(form.columns[:-2], image),
            self.window.channel: channel,
        }
        indices = [substitute(i, {v: E.cast(v.dtype, e) for v, e in values.items()}) for i in load.indices]
        conditions = []
        if self.s["I"] % self.step:
            conditions.append(E.compare(E.LT, channel, index(self.s["I"])))
        for axis, first, own in ((self.window.y, at[2], row), (self.window.x, at[3], column)):
            place = E.add(E.add(E.mul(first, index(axis.stride)), own), axis.start)
            size = load.buffer.const_shape()[axis.dim]
            indices[axis.dim] = E.cast(load.indices[axis.dim].dtype, place)
            conditions.append(E.compare(E.LT, place, index(size)))
        value = form.element(BufferLoad(load.buffer, tuple(indices)))
        while isinstance(value, Call) and value.op == "if_then_else" and _is_zero(value.args[2]):
            conditions += split_conditions(value.args[0])
            value = value.args[1]
        return conditions, value

    def weight(self, at: tuple[PrimExpr, ...], first: PrimExpr, threads: tuple[Var, Var, Var]) -> Stmt:
        """The tile's weights of all places."""
        group = E.mul(E.floordiv(at[0], index(self.s["N"])), index(self.places))
        pairs = tuple(zip(threads, (*self.warps, LANES), strict=True))

        def value(line: PrimExpr, k: PrimExpr) -> PrimExpr:
            place, row = E.floordiv(line, index(self.rows)), E.floormod(line, index(self.rows))
            return BufferLoad(self.packed, (E.add(group, place), E.add(at[1], row), E.add(first, k)))

        return copy_tile(self.weights, self.places * self.rows, self.step, value, pairs, VECTOR)

    def store(self, threads: tuple[Var, Var, Var]) -> Stmt:
        """The pixels from registers to shared memory."""

        def of_item(n: Var, place: tuple[PrimExpr, ...]) -> Stmt:
            row, column, channel = place

            def one(lane: Var) -> Stmt:
                return BufferStore(self.shared, BufferLoad(self.ahead, (n, lane)), (row, column, E.add(channel, lane)))

            return loop("lane", VECTOR, one, LoopKind.VECTORIZED)

        return self.each_item(of_item, threads)

    # --- products and results -------------------------------------------------------------------------------------

    def products(self, warp: tuple[Var, Var]) -> Stmt:
        """acc += weights * window for all places of the window and channels of a step."""
        own_m, own_n = self.own
        first_m, first_n = E.mul(warp[0], index(own_m)), E.mul(warp[1], index(own_n))
        y, x = self.window.y, self.window.x

        def of_place(kh: Var, kw: Var, k_step: Var) -> Stmt:
            place = E.add(E.mul(kh, index(x.places)), kw)
            first = E.mul(k_step, index(STEP))

            def pixel(j: Var, k: Var) -> Stmt:
                at = E.add(first_n, j)
                row = E.add(E.mul(E.floordiv(at, index(self.wide)), index(y.stride)), E.mul(kh, index(y.dilation)))
                column = E.add(E.mul(E.floormod(at, index(self.wide)), index(x.stride)), E.mul(kw, index(x.dilation)))
                return BufferStore(self.b, BufferLoad(self.shared, (row, column, E.add(first, k))), (j, k))

            def channel(i: Var, k: Var) -> Stmt:
                line = E.add(E.add(E.mul(place, index(self.rows)), first_m), i)
                return BufferStore(self.a, BufferLoad(self.weights, (line, E.add(first, k))), (i, k))

            def product(i: Var, j: Var, k: Var) -> Stmt:
                factors = E.mul(_wide(BufferLoad(self.a, (i, k))), _wide(BufferLoad(self.b, (j, k))))
                return BufferStore(self.sums, E.add(BufferLoad(self.sums, (i, j)), factors), (i, j))

            return seq(
                nested("row k", (own_m, STEP), channel), nested("column k", (own_n, STEP), pixel),
                nested("row column k", (own_m, own_n, STEP), product),
            )  # fmt: skip

        extents = (y.places, x.places, self.step // STEP)
        if self.places <= MOST_UNROLLED:
            return unrolled("kh kw k_step", extents, of_place)
        return nested("kh kw k_step", extents, of_place)

    def end(self, at: tuple[PrimExpr, ...], warp: tuple[Var, Var]) -> Stmt:
        """The result, of what each warp has summed up."""
        own_m, own_n = self.own
        s, form = self.s, self.form
        group, image = E.floordiv(at[0], index(s["N"])), E.floormod(at[0], index(s["N"]))

        def store(i: Var, j: Var) -> Stmt:
            row = E.add(at[1], E.add(E.mul(warp[0], index(own_m)), i))
            pixel = E.add(E.mul(warp[1], index(own_n)), j)
            y = E.add(at[2], E.floordiv(pixel, index(self.wide)))
            x = E.add(at[3], E.floormod(pixel, index(self.wide)))
            values = {
                **form.decoded(form.groups, group),
                **form.decoded(form.rows, row),
                **form.decoded(form.columns[:-2], image),
            }
            values |= {v: E.cast(v.dtype, e) for v, e in ((self.window.y.out, y), (self.window.x.out, x))}
            value, buffer, indices = result_of(form, values, BufferLoad(self.sums, (i, j)))
            limits = [
                E.compare(E.LT, place, index(size))
                for place, size, tile in ((row, s["O"], self.rows), (y, s["OH"], self.high), (x, s["OW"], self.wide))
                if size % tile
            ]
            stmt = BufferStore(buffer, value, indices)
            return IfThenElse(E.all_of(*limits), stmt) if limits else stmt

        return nested("row column", (own_m, own_n), store)


def _shared(name: str, shape: tuple[int, ...], pitch: int, dtype: str) -> Buffer:
    """A buffer in shared memory whose innermost rows are `pitch` elements apart."""
    strides = (*(index(math.prod(shape[d + 1 : -1]) * pitch) for d in range(len(shape) - 1)), index(1))
    return Buffer(name, tuple(map(index, shape)), dtype, strides=strides, scope="shared")


def _wide(e: PrimExpr) -> PrimExpr:
    return E.cast(WIDE, e)


def _is_zero(e: PrimExpr) -> bool:
    return isinstance(e, E.FloatImm | IntImm) and e.value == 0


__all__ = ["TensorWindow", "find_window"]

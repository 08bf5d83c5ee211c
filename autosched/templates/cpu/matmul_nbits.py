"""Products with weights of 2, 4 or 8 bits in groups: out[m, n] += a[m, k] * (integer[n, k] - zero) * scale[n, group].

Words are packed into panels [N / width, K / integers in a word, width], so that a vector holds one word of each column
and its integers are unpacked by shifts, in registers. Few rows, where the time is that of the weight's bytes, sum up
each group by itself and multiply its scale in once:

    for n panel in parallel:
        for group: part = 0; for word: for integer in word: part[:, :] += a[m, k] * unpacked; tile += part * scale

Four panels are read side by side, and lines 4 KiB ahead are asked for. One row times 4096² weights of 4 bits then takes
0.58 of the time: 0.79 of the speed of reading alone at 18 GB/s, where unpacking, three operations for each vector,
holds it back, and all of it at 9 GB/s (a shared Granite Rapids). AMD's cores read one stream faster: one panel as wide
as four, in order, with lines 8 KiB ahead, takes 0.81 of the time of four streams (Zen 5, a busy machine).

More rows multiply scales into the weights, in registers or, many rows, in a panel in scratch that all of them read.
"""

from __future__ import annotations

from collections.abc import Sequence

from autosched.space import Config, ConfigSpace, KnobValue, load_space
from autosched.target import Target
from autosched.templates.base import Anchor, Applied
from autosched.templates.chain import require, schedule_epilogue
from autosched.templates.classify import spatial
from autosched.templates.nbits_form import DEQUANTIZED, GROUP_SUMS, WORD_BYTES, NBits, find_nbits
from autosched.templates.pack import Pack, repack
from autosched.tir import Buffer, PrimFunc, as_int
from autosched.tir.schedule import LoopRV, Schedule

AHEAD_KIB, IN_ORDER_KIB = 4, 8  # of weights: of several streams, and of one
MOST_UNPACKED_ROWS = 16  # more rows than these share a panel that is unpacked once


class MatmulNBits:
    """Floats times integers in groups."""

    name = "matmul_nbits"

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        found = find_nbits(func)
        if found is None:
            return None
        anchor = found.chain.anchor
        m, n = (as_int(iv.dom.extent) for iv in spatial(anchor))
        few = found.chain.before[0].name_hint == GROUP_SUMS
        sizes = {"M": m, "N": n, "K": found.weight.const_shape()[1] * found.per_word, "few": int(few)}
        return Anchor(anchor.name_hint, "matmul_nbits", sizes, found)

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        machine = {"lanes": target.lanes("float32"), "registers": target.num_registers}
        space = load_space(target.backend, self.name, {**anchor.sizes, **machine})
        return space.with_default(self.default(anchor, target))

    def default(self, anchor: Anchor, target: Target) -> Config:
        m, n, few = (anchor.sizes[s] for s in ("M", "N", "few"))
        lanes, registers = target.lanes("float32"), target.num_registers
        panel = m > MOST_UNPACKED_ROWS
        most = (registers - 2) // 2 if few else registers - 4
        vectors = min(4 if m <= 2 else 2, -(-n // lanes))
        rows = min(m, max(1, (most - vectors) // vectors if few else most // vectors - 1), 16)
        while rows * vectors * (1 + few) + vectors + 2 > registers:
            vectors, rows = (vectors - 1, rows) if vectors > 1 else (vectors, rows - 1)
        tiles = -(-m // rows)
        rows = -(-m // tiles)
        in_order = reads_in_order(target)
        side_by_side = few and vectors <= n // lanes and not in_order
        streams = next(s for s in (4, 2, 1) if vectors % s == 0) if side_by_side else 1
        knobs: dict[str, KnobValue] = {"rows": rows, "vectors": vectors, "streams": streams, "words": 1}
        ahead = IN_ORDER_KIB if in_order else AHEAD_KIB
        return Config(self.name, {**knobs, "panel": panel, "ahead": ahead if few else 0})

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        found = find_nbits(func)
        assert found is not None, "apply is called on a function that matched"
        before = func
        width = config["vectors"] * target.lanes("float32")
        require(not (config["panel"] and config["streams"] > 1), "a panel in scratch is read in one stream")
        packs: list[Pack | None] = [None] * len(func.params)
        packed = []
        for buffer in (found.weight, *found.factors):
            pack = Pack(buffer.const_shape(), (width // config["streams"], 0), (0, 2, 1))
            place = next(i for i, b in enumerate(before.buffers) if b is buffer)
            packs[place] = pack
            func = repack(func, buffer, pack)
            packed.append(func.buffers[place])
        sch = Schedule(func)
        if found.chain.before[0].name_hint == GROUP_SUMS:
            _schedule_groups(sch, found, config, width, packed)
        else:
            _schedule_product(sch, found, config, width)
        return Applied(sch.func, tuple(packs), sch.trace.to_json_text())


def reads_in_order(target: Target) -> bool:
    """Whether weights are read fastest in the order in which they lie, not by several streams: on AMD's cores."""
    return target.mcpu.startswith("znver")


def _schedule_tiles(sch: Schedule, found: NBits, config: Config, width: int) -> tuple[str, LoopRV]:
    """Compute the anchor in tiles of each panel of columns; (the anchor's name, the parallel loop over panels)."""
    out = schedule_epilogue(sch, found.chain)
    m, n = sch.get_loops(out)
    m_tile, m_in = sch.split(m, [None, config["rows"]])
    n_panel, n_in = sch.split(n, [None, width])
    sch.reorder(n_panel, m_tile, m_in, n_in)
    sch.parallel(n_panel)
    sch.unroll(m_in)
    sch.vectorize(n_in)
    anchor = found.chain.anchor.name_hint
    sch.compute_at(anchor, m_tile, True)
    return anchor, n_panel


def _schedule_groups(sch: Schedule, found: NBits, config: Config, width: int, packed: Sequence[Buffer]) -> None:
    """Few rows: the sums of a group in registers beside the tile's.

    packed  the weight and its factors in panels
    """
    anchor, _ = _schedule_tiles(sch, found, config, width)
    *_, m_in, n_in, group = sch.get_loops(anchor)
    sch.reorder(group, m_in, n_in)
    _vectors(sch, m_in, n_in, config, [group])
    sch.set_scope(GROUP_SUMS, 0, "local")
    sch.compute_at(GROUP_SUMS, group, True)
    *_, m_in, n_in, _one, k = sch.get_loops(GROUP_SUMS)
    steps = sch.split(k, [None, found.per_word * config["words"]])
    sch.unroll(steps[1])
    _vectors(sch, m_in, n_in, config, list(steps))
    if config["ahead"]:
        _fetch_ahead(sch, packed, config, width, group, steps[0])
    sch.decompose_reduction(anchor, group)
    sch.decompose_reduction(GROUP_SUMS, steps[0])


def _fetch_ahead(
    sch: Schedule, packed: Sequence[Buffer], config: Config, width: int, group: LoopRV, step: LoopRV
) -> None:
    """Ask for the words `ahead` KiB after those that a step reads, and for the factors of the groups that hold them."""
    weight, *factors = packed
    words = config["ahead"] * 1024 // (WORD_BYTES * width)
    sch.annotate(step, "prefetch", {weight.name: max(1, words // config["words"])})
    depth = weight.const_shape()[1]
    sch.annotate(group, "prefetch", {b.name: max(1, words * b.const_shape()[1] // depth) for b in factors})


def _schedule_product(sch: Schedule, found: NBits, config: Config, width: int) -> None:
    """Weights unpacked and scaled, in registers or in a panel in scratch, then multiplied as floats are."""
    anchor, n_panel = _schedule_tiles(sch, found, config, width)
    if config["panel"]:
        sch.transform_layout(DEQUANTIZED, ("write", 0), lambda j, k: (k, j))
        sch.compute_at(DEQUANTIZED, n_panel)
        *_, j, k = sch.get_loops(DEQUANTIZED)
        word, inner = sch.split(k, [None, found.per_word])
        sch.reorder(word, inner, j)
        sch.unroll(inner)
        sch.vectorize(j)
    else:
        sch.compute_inline(DEQUANTIZED)
    *_, m_in, n_in, k = sch.get_loops(anchor)
    steps = sch.split(k, [None, found.per_word * config["words"]])
    sch.unroll(steps[1])
    _vectors(sch, m_in, n_in, config, list(steps))
    sch.decompose_reduction(anchor, steps[0])


def _vectors(sch: Schedule, m_in: LoopRV, n_in: LoopRV, config: Config, outer: list[LoopRV]) -> None:
    """Rows and panels unrolled inside of the loops `outer`, a panel's width vectorised."""
    panels = []
    if config["streams"] > 1:
        panel, n_in = sch.split(n_in, [config["streams"], None])
        panels.append(panel)
    sch.reorder(*outer, m_in, *panels, n_in)
    for loop in (m_in, *panels):
        sch.unroll(loop)
    sch.vectorize(n_in)

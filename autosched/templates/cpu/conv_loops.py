"""The loops of a convolution with blocked channels: pieces of parallel work, in each tiles of rows and pixels."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from autosched.space import Config
from autosched.tir import Buffer
from autosched.tir.prefetch import PANEL, PREFETCH_NEXT, PREFETCH_RESULTS, PREFETCH_STEPS, STEPS_AHEAD
from autosched.tir.schedule import LoopRV, Schedule

MOST_STEPS = 8  # in which a tile asks for what it stores: each then asks for a few lines, and they are there in time


def schedule_tiles(
    sch: Schedule,
    anchor: str,
    loops: Sequence[LoopRV],
    config: Config,
    image: tuple[int, int],
    weight: Buffer,
    within: Sequence[LoopRV] = (),
    groups: int = 1,
    ahead: str = "",
    results: str = "",
    steps: int = 1,
) -> LoopRV:
    """Cut the output into tiles, compute the anchor in each, and return the loop over pieces of work.

        for n, oc, oh, ow, ob
     -> for (n, oc, chunk) in parallel:     # or (n, chunk, oc), or (n, chunk) and oc inside of it
            for oh_tile, ow_tile: for within, oh_in, ow_in (unrolled), ob (vectorised)

    A piece of work that copies its data meets all panels, but of a convolution in groups one: others read other data.

    loops   n, panels of output channels (one loop or more), rows, pixels, channels of a block
    image   rows and pixels of each; a chunk is one of rows of tiles, or of tiles in a single row
    within  loops over blocks of a panel
    groups  of channels
    ahead   the data's name, where its lines are asked for a few steps before they are read
    results the block that stores a tile, where its lines are asked for in the tile's steps; so many are these
    """
    n, *panels, oh, ow, ob = loops
    height, width = image
    count = -(-width // config["ow_tile"]) if height == 1 else -(-height // config["oh_tile"])
    per_chunk = -(-count // -(-count // config["chunk"]))  # of 14 tiles in chunks of 8, two chunks of 7
    if height == 1:
        oh_tile, oh_in = sch.split(oh, [None, 1])
        chunk, ow_tile, ow_in = sch.split(ow, [None, per_chunk, config["ow_tile"]])
    else:
        chunk, oh_tile, oh_in = sch.split(oh, [None, per_chunk, config["oh_tile"]])
        ow_tile, ow_in = sch.split(ow, [None, config["ow_tile"]])
    meets_all = config["padding"] == "task" and groups == 1
    tasks = (*panels, chunk) if config["outer"] == "weight" and not meets_all else (chunk, *panels)
    sch.reorder(n, *tasks, oh_tile, ow_tile, *within, oh_in, ow_in, ob)
    task = sch.fuse(n, chunk) if meets_all else sch.fuse(n, *tasks)
    sch.parallel(task)
    for loop in (*within, oh_in, ow_in):
        sch.unroll(loop)
    sch.vectorize(ob)
    sch.compute_at(anchor, ow_tile, True)
    if config["prefetch"]:
        sch.annotate(ow_tile if height == 1 else oh_tile, PREFETCH_NEXT, {f"{weight.name}_packed": PANEL})
    if ahead:
        sch.annotate(ow_tile, PREFETCH_STEPS, {ahead: STEPS_AHEAD})
    if results:
        _ask_for_results(sch, results, ow_tile, config["ow_tile"], steps)
    return task


def _ask_for_results(sch: Schedule, out: str, tile: LoopRV, pixels: int, steps: int) -> None:
    """Let tiles ask for the lines that a block stores, and for those of the images of the same size that it reads.

    tile    the loop over tiles; each sums `steps` times, then stores `pixels`
    """
    block = sch.get(sch.get_block(out))
    result = block.writes[0].buffer
    images = [x.buffer.name for x in block.reads if x.buffer.scope == "global" and _size(x.buffer) == _size(result)]
    rows = -(-pixels // max(min(steps, MOST_STEPS), 1))
    sch.annotate(tile, PREFETCH_RESULTS, dict.fromkeys((result.name, *images), rows))


def _size(buffer: Buffer) -> int:
    return prod(buffer.const_shape())


__all__ = ["schedule_tiles"]

"""The loops of a convolution with blocked channels: pieces of parallel work, in each tiles of rows and pixels."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.space import Config
from autosched.tir import Buffer
from autosched.tir.prefetch import PANEL, PREFETCH_NEXT, PREFETCH_STEPS, STEPS_AHEAD
from autosched.tir.schedule import LoopRV, Schedule


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
    return task


__all__ = ["schedule_tiles"]

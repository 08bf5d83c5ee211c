"""Random primitives on a schedule, driven by a stream of choices (hypothesis or a seeded generator)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autosched.errors import InvalidValueError, ScheduleError
from autosched.ir import structural_key
from autosched.tir.schedule import Schedule

Choose = Callable[[int], int]  # n -> a number in [0, n)

PRIMITIVES = (
    "split", "split", "split", "fuse", "reorder", "reorder", "parallel", "vectorize", "unroll", "compute_inline",
    "reverse_compute_inline", "compute_at", "compute_at", "compute_at", "reverse_compute_at", "reverse_compute_at",
    "cache_read", "cache_write", "set_scope", "decompose_reduction", "decompose_reduction", "rfactor",
    "transform_layout", "transform_block_layout", "annotate", "add_unit_loop", "blockize", "pad_einsum",
    "decompose_padding", "reindex", "reindex_cache_read", "reindex_cache_write", "cache_index", "read_at", "write_at",
    "rolling_buffer", "rolling_buffer", "fuse_reduction_epilogue", "loop_partition", "merge", "reorder_block_iter_var",
    "storage_align", "set_axis_separator",
)  # fmt: skip

SCOPES = ("local", "global")

MAPS: dict[int, list[Callable[..., Any]]] = {
    1: [lambda i: (i // 2, i % 2), lambda i: (i,), lambda i: (i // 4, i % 4)],
    2: [
        lambda i, j: (j, i),
        lambda i, j: (i // 2, j, i % 2),
        lambda i, j: (i, j // 4, j % 4),
        lambda i, j: (i * 16 + j,),
    ],
    3: [lambda a, b, c: (c, a, b), lambda a, b, c: (a, b // 2, c, b % 2)],
    4: [lambda a, b, c, d: (a, b // 2, c, d, b % 2), lambda a, b, c, d: (a, c, d, b)],
    5: [lambda a, b, c, d, e: (a, c, d, b, e)],
}


def step(sch: Schedule, choose: Choose) -> str:
    """One random primitive on random operands; returns what was tried. Raises what the primitive raises."""
    name = PRIMITIVES[choose(len(PRIMITIVES))]
    blocks = list(sch._tree("main").leaf_names)
    reductions = [b for b in blocks if sch._tree("main").block(b).init is not None]
    if name in ("decompose_reduction", "rfactor") and choose(4):
        blocks = reductions or blocks
    block = blocks[choose(len(blocks))]
    loops = sch.get_loops(block)

    def loop() -> Any:
        if not loops:
            raise ScheduleError("no loop")
        return loops[choose(len(loops))]

    match name:
        case "split":
            x = loop()
            factors: list[int | None] = [
                [None, 2],
                [None, 3],
                [None, 4],
                [2, None],
                [None, 2, 2],
                [3, 4],
                [8, 1],
                [None, 5],
            ][choose(8)]
            sch.split(x, factors)
        case "fuse":
            n = choose(max(len(loops) - 1, 1))
            sch.fuse(*loops[n : n + 2 + choose(2)])
        case "reorder":
            order = list(loops)
            for i in range(len(order) - 1, 0, -1):
                j = choose(i + 1)
                order[i], order[j] = order[j], order[i]
            sch.reorder(*order[: 2 + choose(3)])
        case "parallel" | "vectorize" | "unroll":
            getattr(sch, name)(loop())
        case "compute_inline" | "reverse_compute_inline":
            getattr(sch, name)(block)
        case "compute_at" | "reverse_compute_at":
            related = (sch.get_consumers if name == "compute_at" else sch.get_producers)(block)
            near = [sch.get(b).name_hint for b in related] if choose(4) else []
            around = near or blocks
            theirs = sch.get_loops(around[choose(len(around))])
            if not theirs:
                raise ScheduleError("no loop")
            getattr(sch, name)(
                block,
                theirs[choose(len(theirs))],
                preserve_unit_loops=bool(choose(2)),
                index=(-1, -1, -2, 0)[choose(4)],
            )
        case "cache_read":
            readers = [b for b in blocks if choose(2)] if choose(2) else []
            sch.cache_read(block, choose(2), SCOPES[choose(2)], readers)
        case "cache_write":
            readers = [b for b in blocks if choose(2)] if choose(2) else []
            sch.cache_write(block, 0, SCOPES[choose(2)], readers)
        case "set_scope":
            sch.set_scope(block, 0, SCOPES[choose(2)])
        case "decompose_reduction":
            sch.decompose_reduction(block, loop())
        case "rfactor":
            sch.rfactor(loop(), choose(3) - 1)
        case "transform_layout":
            written = sch.get(sch.get_block(block)).writes[0].buffer
            if any(written is b for b in sch.func.buffers):
                raise ScheduleError("the results would have another shape")
            maps = MAPS[min(written.ndim, 5)]
            sch.transform_layout(block, ("write", 0), maps[choose(len(maps))], pad_value=0.0 if choose(2) else None)
        case "transform_block_layout":
            ndim = len(sch.get(sch.get_block(block)).iter_vars)
            if ndim not in MAPS:
                raise ScheduleError("no map")
            sch.transform_block_layout(block, MAPS[ndim][choose(len(MAPS[ndim]))])
        case "annotate":
            sch.annotate(block, "note", choose(5))
        case "add_unit_loop":
            sch.add_unit_loop(block)
        case _:
            special(sch, name, block, loop, choose)
    return f"{name} {block}"


def special(sch: Schedule, name: str, block: str, loop: Callable[[], Any], choose: Choose) -> None:
    """The primitives for special occasions."""
    node = sch.get(sch.get_block(block))
    ndim = len(node.iter_vars)
    match name:
        case "blockize":
            sch.blockize(block if choose(4) == 0 else loop(), preserve_unit_iters=bool(choose(2)))
        case "pad_einsum":
            sch.pad_einsum(block, [1 + choose(4) for _ in range(ndim)])
        case "decompose_padding":
            sch.decompose_padding(block, loop())
        case "reindex":
            sch.reindex(block, (("read", "write")[choose(2)], choose(2)))
        case "reindex_cache_read" | "reindex_cache_write":
            order = list(range(ndim))
            if choose(2):
                order.reverse()
            cut = choose(3)
            getattr(sch, name)(
                block, choose(2), SCOPES[choose(2)],
                lambda *v: [x for i in order for x in ((v[i] // 2, v[i] % 2) if i == cut else (v[i],))],
            )  # fmt: skip
        case "cache_index":
            sch.cache_index(block, SCOPES[choose(2)], choose(2))
        case "read_at" | "write_at":
            getattr(sch, name)(loop(), block, choose(2), SCOPES[choose(2)])
        case "rolling_buffer":
            sch.rolling_buffer(block, 0)
        case "fuse_reduction_epilogue":
            consumers = sch.get_consumers(block)
            if not consumers:
                raise ScheduleError("no consumer")
            sch.fuse_reduction_epilogue(block, consumers[choose(len(consumers))])
        case "loop_partition":
            sch.loop_partition(loop(), [[2, None], [None, 1], [1, None, 2]][choose(3)])
        case "merge":
            sch.merge(loop(), loop())
        case "reorder_block_iter_var":
            sch.reorder_block_iter_var(block, list(reversed(range(ndim))))
        case "storage_align":
            sch.storage_align(block, 0, choose(2), 8, choose(2))
        case "set_axis_separator":
            sch.set_axis_separator(block, ("write", 0), [1] if choose(2) else [])


def take_steps(sch: Schedule, n_steps: int, choose: Choose) -> tuple[int, int]:
    """Several steps; those refused must leave the function as it was. Returns (applied, refused)."""
    applied = refused = 0
    for _ in range(n_steps):
        before = sch.func
        key = structural_key(before)
        try:
            step(sch, choose)
            applied += 1
        except (ScheduleError, InvalidValueError):
            refused += 1
            assert structural_key(sch.func) == key == structural_key(before), "a refused primitive changed the function"
    return applied, refused

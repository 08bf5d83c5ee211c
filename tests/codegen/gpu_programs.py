"""Small functions scheduled for a GPU, which several tests compile."""

from __future__ import annotations

from autosched import te
from autosched.tir import PrimFunc
from autosched.tir.schedule import Schedule


def product(m: int, n: int, k: int, dtype: str = "float32") -> PrimFunc:
    """D = max(A @ B + bias, 0), with float32 sums."""
    a, b = te.placeholder((m, k), dtype, name="A"), te.placeholder((k, n), dtype, name="B")
    bias = te.placeholder((n,), "float32", name="bias")
    axis = te.reduce_axis((0, k), "k")
    c = te.compute(
        (m, n),
        lambda i, j: te.sum(a[i, axis].astype("float32") * b[axis, j].astype("float32"), axis=axis), name="C",
    )  # fmt: skip
    d = te.compute((m, n), lambda i, j: te.if_then_else(c[i, j] + bias[j] > 0.0, c[i, j] + bias[j], 0.0), name="D")
    return te.create_prim_func([a, b, bias, d])


def tiled_product(
    m: int, n: int, k: int, tile: tuple[int, int, int] = (64, 64, 8), per_thread: tuple[int, int] = (8, 4),
    scope: str = "shared", dtype: str = "float32", unroll: bool = True,
) -> Schedule:  # fmt: skip
    """A tile of the result for each block, through shared memory, with a register tile for each thread."""
    (rows, columns, depth), (own_rows, own_columns) = tile, per_thread
    threads = rows // own_rows, columns // own_columns
    s = Schedule(product(m, n, k, dtype))
    i, j = s.get_loops("D")
    by, ty, i1 = s.split(i, [None, threads[0], own_rows])
    bx, tx, j1 = s.split(j, [None, threads[1], own_columns])
    s.reorder(by, bx, ty, tx, i1, j1)
    for loop, axis in ((by, "blockIdx.y"), (bx, "blockIdx.x"), (ty, "threadIdx.y"), (tx, "threadIdx.x")):
        s.bind(loop, axis)
    s.compute_at("C", tx, preserve_unit_loops=True)
    s.set_scope("C", 0, "local")
    s.vectorize(j1)
    ii, jj, kk = s.get_loops("C")[-3:]
    outer, inner = s.split(kk, [None, depth])
    s.reorder(outer, inner, ii, jj)
    if unroll:
        s.unroll(inner)
    s.vectorize(jj)
    for which in (0, 1):
        copy = s.cache_read("C", which, scope)
        s.compute_at(copy, outer, preserve_unit_loops=True)
        share(s, s.fuse(*s.get_loops(copy)[-2:]), *threads)
    return s


def share(s: Schedule, loop, ty: int, tx: int, vector: int = 4) -> None:  # type: ignore[no-untyped-def]
    """Let the threads of a block copy together, each some elements side by side."""
    _, y, x, v = s.split(loop, [None, ty, tx, vector])
    s.bind(y, "threadIdx.y")
    s.bind(x, "threadIdx.x")
    s.vectorize(v)


def elementwise(shape: tuple[int, ...], vector: int = 4, dtype: str = "float32") -> Schedule:
    """B = A * 2 + 1, some elements side by side for each thread."""
    a = te.placeholder(shape, dtype, name="A")
    b = te.compute(shape, lambda *i: a[i] * te.const(2, dtype) + te.const(1, dtype), name="B")
    s = Schedule(te.create_prim_func([a, b]))
    loop = s.fuse(*s.get_loops("B"))
    bx, tx, v = s.split(loop, [None, 128, vector])
    s.bind(bx, "blockIdx.x")
    s.bind(tx, "threadIdx.x")
    s.vectorize(v)
    return s


def tensor_core_product(
    m: int, n: int, k: int, dtype: str = "float16", tile: tuple[int, int, int] = (64, 64, 32),
    warps: tuple[int, int] = (2, 2), step: int = 16, transposed: bool = False, pad: int = 8, stages: int = 0,
    swizzle: bool = False,
) -> Schedule:  # fmt: skip
    """D = A @ B + bias by tensor cores: a tile for each block, through shared memory, a part of it for each warp."""
    (rows, columns, depth), (wm, wn) = tile, warps
    total = "int32" if dtype == "int8" else "float32"
    a = te.placeholder((m, k), dtype, name="A")
    b = te.placeholder((n, k) if transposed else (k, n), dtype, name="B")
    bias, axis = te.placeholder((n,), total, name="bias"), te.reduce_axis((0, k), "k")

    def term(i, j):  # type: ignore[no-untyped-def]
        other = b[j, axis] if transposed else b[axis, j]
        return te.sum(a[i, axis].astype(total) * other.astype(total), axis=axis)

    c = te.compute((m, n), term, name="C")
    d = te.compute((m, n), lambda i, j: c[i, j] + bias[j], name="D")
    s = Schedule(te.create_prim_func([a, b, bias, d]))
    i, j = s.get_loops("D")
    by, wy, i1 = s.split(i, [None, wm, rows // wm])
    bx, wx, j1 = s.split(j, [None, wn, columns // wn])
    s.reorder(by, bx, wy, wx, i1, j1)
    for loop, axis_name in ((by, "blockIdx.y"), (bx, "blockIdx.x"), (wy, "threadIdx.z"), (wx, "threadIdx.y")):
        s.bind(loop, axis_name)
    s.compute_at("C", wx, preserve_unit_loops=True)
    s.set_scope("C", 0, "wmma.accumulator")
    ii, jj, kk = s.get_loops("C")[-3:]
    outer, middle, inner = s.split(kk, [None, depth // step, step])
    s.reorder(outer, middle, ii, jj, inner)
    for which, scope in ((0, "wmma.matrix_a"), (1, "wmma.matrix_b")):
        fragment = s.cache_read("C", which, scope)
        s.compute_at(fragment, middle, preserve_unit_loops=True)
        copy = s.cache_read(fragment, 0, "shared")
        s.compute_at(copy, outer, preserve_unit_loops=True)
        if swizzle:
            s.storage_swizzle(copy, 0)
        elif pad:
            s.storage_align(copy, 0, 0, 16 // ITEM[dtype] * 2, pad)
        fused = s.fuse(*s.get_loops(copy)[-2:])
        vector = 16 // ITEM[dtype]
        _, z, y, x, v = s.split(fused, [None, wm, wn, 32, vector])
        for loop, axis_name in ((z, "threadIdx.z"), (y, "threadIdx.y"), (x, "threadIdx.x")):
            s.bind(loop, axis_name)
        s.vectorize(v)
    if stages:
        s.annotate(outer, "software_pipeline_stage", [0, 0, stages - 1])
        s.annotate(outer, "software_pipeline_order", [0, 1, 2])
        s.annotate(outer, "software_pipeline_async_stages", [0])
    return s


def warpgroup_product(
    m: int, n: int, k: int, dtype: str = "float16", tile: tuple[int, int, int] = (128, 64, 64), groups: int = 2,
    stages: int = 2, transposed: bool = False, cluster: tuple[int, int] = (1, 1),
    blocks: int = 0,
) -> Schedule:  # fmt: skip
    """D = A @ B + bias by warpgroups, fed by a warp that copies; `cluster` of blocks along m and n.

    blocks   so many of them, or clusters, compute all tiles; 0: one for each tile
    """
    rows, columns, depth = tile
    total = "int32" if dtype == "int8" else "float32"
    a = te.placeholder((m, k), dtype, name="A")
    b = te.placeholder((n, k) if transposed else (k, n), dtype, name="B")
    bias, axis = te.placeholder((n,), total, name="bias"), te.reduce_axis((0, k), "k")

    def term(i, j):  # type: ignore[no-untyped-def]
        other = b[j, axis] if transposed else b[axis, j]
        return te.sum(a[i, axis].astype(total) * other.astype(total), axis=axis)

    c = te.compute((m, n), term, name="C")
    d = te.compute((m, n), lambda i, j: c[i, j] + bias[j], name="D")
    s = Schedule(te.create_prim_func([a, b, bias, d]))
    i, j = s.get_loops("D")
    by, cy, group, i1 = s.split(i, [None, cluster[0], groups, rows // groups])
    bx, cx, j1 = s.split(j, [None, cluster[1], columns])
    s.reorder(by, bx, cy, cx, group, i1, j1)
    s.bind(group, "threadIdx.y")
    if blocks:
        turn, bx = s.split(s.fuse(by, bx), [None, blocks])
        s.reorder(bx, turn)
    else:
        s.bind(by, "blockIdx.y")
    s.bind(bx, "blockIdx.x")
    for loop, axis_name, size in ((cy, "clusterCtaIdx.y", cluster[0]), (cx, "clusterCtaIdx.x", cluster[1])):
        if size > 1:
            s.bind(loop, axis_name)
    s.compute_at("C", group, preserve_unit_loops=True)
    s.set_scope("C", 0, "wgmma.accumulator")
    ii, jj, kk = s.get_loops("C")[-3:]
    outer, inner = s.split(kk, [None, depth])
    s.reorder(outer, ii, jj, inner)
    for which in (0, 1):
        s.compute_at(s.cache_read("C", which, "shared"), outer, preserve_unit_loops=True)
    s.annotate(outer, "warp_specialized_stages", stages)
    return s


ITEM = {"float16": 2, "bfloat16": 2, "float32": 4, "int8": 1}

"""Matrix products whose tiles read several panels of packed weights side by side."""

from collections.abc import Callable

import numpy as np
import pytest

from autosched import te
from autosched.codegen import compile_func
from autosched.codegen.lower import lower_func
from autosched.codegen.native import native_object
from autosched.ir.node import preorder
from autosched.runtime import Module
from autosched.space import Config
from autosched.target import Target
from autosched.templates import apply_config, default_config, space_for
from autosched.tir import For, IfThenElse, PrimFunc
from autosched.tir.evaluate import evaluate
from autosched.tir.expr import Call
from autosched.tir.prefetch import requested
from tests.spread import spread
from tests.templates.cases import dense, relu

pytestmark = pytest.mark.host(runs=True)

HOST = Target("cpu")
V3, V4 = Target("llvm -mcpu=x86-64-v3"), Target("llvm -mcpu=x86-64-v4")


def residual(m: int, k: int, n: int, transposed: bool) -> PrimFunc:
    """relu(a @ b + r) with b [k, n] or [n, k]."""
    a, b = te.placeholder((m, k), name="a"), te.placeholder((n, k) if transposed else (k, n), name="b")
    r, axis = te.placeholder((m, n), name="r"), te.reduce_axis((0, k), "k")
    right = (lambda j: b[j, axis]) if transposed else (lambda j: b[axis, j])
    c = te.compute((m, n), lambda i, j: te.sum(a[i, axis] * right(j), axis=axis), name="matmul")
    d = te.compute((m, n), lambda i, j: c[i, j] + r[i, j], name="T_add")
    return te.create_prim_func([a, b, r, relu(d)], "int64")


def check(func: PrimFunc, **knobs: object) -> None:
    """The configuration is of the space, keeps its sums in registers, and computes what the function says."""
    config = Config("matmul", {**default_config(func, HOST).knobs, **knobs})
    assert space_for(func, HOST).with_default(config).default == config
    applied = apply_config(func, config, HOST)
    kernel = compile_func(applied.func, HOST, name="k")
    report = kernel.report()
    assert report.sum_spills == 0 and report.scalar_loops == 0, report
    rng = np.random.default_rng(0)
    natural = [rng.standard_normal(b.const_shape()).astype("float32") for b in func.buffers]
    arrays = [p.pack(a) if p is not None else a for p, a in zip(applied.packs, natural, strict=True)]
    arrays[-1].fill(np.nan)
    Module({"k": kernel.kernel}, native_object(), threads=2)(*arrays)
    np.testing.assert_allclose(arrays[-1], evaluate(func, natural[:-1])[0], rtol=0, atol=1e-4)


LANES = HOST.lanes("float32")
RAGGED = 31 * LANES + 2  # columns: the last tile is ragged, and so is its second panel
CASES: dict[str, Callable[[int], PrimFunc]] = {
    "bias and relu": lambda m: dense(m, 40, RAGGED),
    "nothing behind": lambda m: dense(m, 40, 24 * LANES, epilogue=False),
    "residual": lambda m: residual(m, 40, 16 * LANES + 2, False),
    "[n, k] weight": lambda m: residual(m, 40, RAGGED, True),
}


@spread(2, "rows, vectors, streams", [(1, 8, 4), (1, 12, 6), (1, 4, 2), (2, 4, 2), (4, 3, 3)])
@pytest.mark.parametrize("name", CASES)
def test_panels_side_by_side(name: str, rows: int, vectors: int, streams: int) -> None:
    func = CASES[name](rows if rows == 1 else rows + 1)
    check(func, rows=rows, vectors=vectors, streams=streams, chunk=1, prefetch=rows == 2, unroll_k=2)


def test_a_panel_of_several_is_as_wide_as_its_share() -> None:
    func = dense(1, 32, 256)
    config = default_config(func, V3).with_knobs(rows=1, vectors=8, streams=4, chunk=1)
    assert apply_config(func, config, V3).packs[1].packed_shape == (16, 32, 16)  # type: ignore[union-attr]


@pytest.mark.parametrize("target", [V3, V4])
def test_the_default_reads_large_weights_of_few_rows_in_streams(target: Target) -> None:
    chosen = {m: default_config(dense(m, 768, 3072), target)["streams"] for m in (1, 4, 128)}
    assert chosen[1] == 4 and chosen[4] > 1 and chosen[128] == 1
    assert default_config(dense(1, 64, 256), target)["streams"] == 1  # these stay in a cache


@pytest.mark.parametrize(("target", "most"), [(V3, 14), (V4, 14)])
def test_few_rows_meet_a_large_weight_in_one_pass_that_asks_ahead(target: Target, most: int) -> None:
    for m in range(1, most + 1):
        chosen = default_config(dense(m, 768, 3072), target)
        assert chosen["rows"] == m and chosen["ahead"] > 0 and not chosen["prefetch"]
    for func in (dense(most + 1, 768, 3072), dense(1, 64, 256)):
        assert default_config(func, target)["ahead"] == 0


@pytest.mark.parametrize("m", [15, 16])
def test_rows_whose_tile_would_be_one_vector_wide_meet_a_panel_in_halves(m: int) -> None:
    chosen = default_config(dense(m, 768, 3072), V4)
    assert chosen["rows"] == 8 and chosen["vectors"] > 1 and chosen["chunk"] == 2 and chosen["prefetch"]
    narrow = default_config(dense(m, 768, 3072), Target("llvm -mcpu=znver4"))
    assert narrow["vectors"] == 1 and narrow["rows"] == 8


@spread(2, "ahead", [2, 16])
@pytest.mark.parametrize("name", CASES)
def test_lines_are_asked_for_ahead(name: str, ahead: int) -> None:
    """Also beyond the end of the weight, where lines are asked for but not read."""
    check(CASES[name](3), rows=2, vectors=4, streams=2, chunk=1, prefetch=False, unroll_k=2, ahead=ahead)


def test_weights_from_memory_are_asked_for_into_the_second_level_first_where_that_is_faster() -> None:
    zen4 = Target("llvm -mcpu=znver4")
    few, many = dense(4, 64, 256), dense(16, 64, 256)
    streams = default_config(few, zen4).with_knobs(rows=4, vectors=4, streams=2, chunk=1, unroll_k=2, prefetch=False)
    panels = default_config(many, zen4).with_knobs(rows=8, vectors=3, chunk=2, unroll_k=1, prefetch=True, ahead=0)
    for func, config in ((few, streams.with_knobs(ahead=1, far=4)), (many, panels.with_knobs(far=0))):
        asm = {t: compile_func(apply_config(func, config, t).func, t, name="k").asm for t in (zen4, V4)}
        assert (asm[zen4].count("prefetcht1") > 0) and (asm[V4].count("prefetcht1") > 0) == (func is few)
    large = dense(4, 768, 3072)
    assert [(c["ahead"], c["far"]) for c in (default_config(large, t) for t in (zen4, V4))] == [(1, 4), (8, 0)]


def test_each_line_of_a_step_is_asked_for_once() -> None:
    func = dense(4, 64, 256)
    default = default_config(func, V4).with_knobs(rows=4, vectors=4, streams=2, chunk=1, unroll_k=2, prefetch=False)
    kernels = [compile_func(apply_config(func, default.with_knobs(ahead=n), V4).func, V4, name="k") for n in (0, 4)]
    assert [kernel.asm.count("prefetcht0") for kernel in kernels] == [0, 8]  # two vectors of two panels, twice


@spread(2, "m", [47, 12])
@pytest.mark.parametrize(("k", "asks"), [(48, True), (47, False), (16, False)])
def test_each_line_of_a_tile_of_rows_is_asked_for_once(m: int, k: int, asks: bool) -> None:
    func, knobs = dense(m, k, RAGGED), {"rows": 6, "vectors": 2, "chunk": 2, "unroll_k": 1, "prefetch": False}
    applied = apply_config(func, default_config(func, HOST).with_knobs(**knobs), HOST)
    requests = [x for x in preorder(lower_func(applied.func, partition=False).body) if isinstance(x, Call)]
    assert [len(requested(x)[1]) for x in requests if x.op == "prefetch"] == ([6] if asks else [])
    check(func, **knobs)


def test_a_record_without_the_knob_has_one_panel() -> None:
    func = dense(128, 768, 768)
    space, default = space_for(func, V3), default_config(func, V3)
    old = Config("matmul", {name: value for name, value in default.knobs.items() if name != "streams"})
    assert not space.why_not(old)
    assert space.to_config(space.to_rows([old])[0]) == default
    assert apply_config(func, old, V3).trace == apply_config(func, default, V3).trace


@spread(2, "chunk", [1, 4, 8])
@pytest.mark.parametrize("order", ["nm", "mn", "mnm"])
def test_orders_of_tiles(order: str, chunk: int) -> None:
    check(dense(47, 40, RAGGED), order=order, chunk=chunk)


@pytest.mark.parametrize(
    ("rows", "k", "n", "order"),
    [
        (16, 64, 256, "nm"),  # all stays in the caches
        (256, 64, 256, "mnm"),  # two threads find their halves of the rows there
        (1024, 64, 256, "mnm"),  # the weight stays, and rows and results go by
        (1024, 1024, 1024, "nm"),  # neither stays in the second-level cache, and the last one holds the rows
        (2**20, 1024, 1024, "mnm"),  # it does not
    ],
)
def test_what_stays_in_a_cache_meets_all_that_goes_by(
    rows: int, k: int, n: int, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOSCHED_HOST_CACHES", "32K,1M,32M")
    assert default_config(dense(rows, k, n), V4)["order"] == order


@pytest.mark.parametrize(
    ("rows", "k", "n", "tile", "order", "chunk"),
    [
        (196, 2048, 512, 9, "nm", 11),
        (60, 2048, 512, 9, "nm", 4),  # few rows in a power of two
        (196, 64, 512, 9, "mnm", 11),  # a weight that the caches keep: two threads find there what they wrote
        (196, 64, 100, 6, "mnm", 9),  # of few panels: in quarters
    ],
)
def test_many_rows_meet_panels_in_even_chunks(
    rows: int, k: int, n: int, tile: int, order: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOSCHED_HOST_CACHES", "48K,2M,64M")
    config = default_config(dense(rows, k, n), V4)
    assert (config["rows"], config["order"], config["chunk"]) == (tile, order, chunk)


@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_sums_of_64_bits_stay_in_registers(dtype: str) -> None:
    a, b = te.placeholder((40, 50), dtype, name="a"), te.placeholder((50, 90), dtype, name="b")
    k = te.reduce_axis((0, 50), "k")
    func = te.create_prim_func([a, b, te.compute((40, 90), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k))], "int64")
    for target in (V3, V4):
        applied = apply_config(func, default_config(func, target), target)
        assert compile_func(applied.func, target, name="k").report().sum_spills == 0


def test_one_column_is_summed_along_its_rows() -> None:
    """A register tile would hold one number a vector; short rows keep it."""
    assert default_config(dense(40, 2 * LANES, 1), HOST).template != "matmul"
    assert default_config(dense(40, 2 * LANES - 1, 1), HOST).template == "matmul"
    func = dense(40, 70, 1)
    applied = apply_config(func, default_config(func, HOST), HOST)
    kernel = compile_func(applied.func, HOST, name="k")
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(b.const_shape()).astype("float32") for b in func.buffers]
    Module({"k": kernel.kernel}, native_object(), threads=2)(*arrays)
    np.testing.assert_allclose(arrays[-1], evaluate(func, arrays[:-1])[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("prefetch", [False, True])
def test_a_last_chunk_of_part_of_a_tile_is_that_part_alone(prefetch: bool) -> None:
    func = dense(50, 24, 64)  # 16 tiles of 3 rows, and two thirds of one
    config = default_config(func, V4).with_knobs(rows=3, vectors=2, chunk=16, unroll_k=1, order="nm", prefetch=prefetch)
    body = lower_func(apply_config(func, config, V4).func).body
    steps = [loop for loop in preorder(body) if isinstance(loop, For) and loop.extent.value == 24]
    assert len(steps) == 2  # of whole tiles, and of two rows
    assert not any(isinstance(node, IfThenElse) for step in steps for node in preorder(step))

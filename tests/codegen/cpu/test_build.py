"""Whole kernels against NumPy in float64, on this CPU and on older ones."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from autosched import te
from autosched.codegen import compile_func, lower_func
from autosched.env import child_environment
from autosched.errors import CodegenError
from autosched.target import Target
from autosched.target.host import host_cpu
from autosched.tir import BufferStore, IfThenElse, SeqStmt, call, const, if_then_else, maximum
from tests.codegen.programs import aligned, buffer, function, loop, matmul, pack, run, with_kinds

GOLDEN = Path(__file__).parent / "golden"
TARGETS = ["cpu", "llvm -mcpu=x86-64", "llvm -mcpu=x86-64-v2", "llvm -mcpu=x86-64-v3"]


def runnable(target):
    return Target(target).features <= host_cpu().features | {
        "64bit",
        "cx8",
        "cmov",
        "mmx",
        "sse",
        "sse2",
        "crc32",
        "fxsr",
    }


def run_matmul(target, m, n, k, rows, vectors, pieces=1):
    lanes = Target(target).lanes("float32")
    rng = np.random.default_rng(m * n + k)
    a, b = rng.standard_normal((m, k)).astype("f"), rng.standard_normal((k, n)).astype("f")
    bias, c = rng.standard_normal(n).astype("f"), aligned((m, n))
    compiled = compile_func(matmul(m, n, k, rows, vectors, lanes), target, name="dense")
    run(compiled, [a, pack(b, vectors * lanes), bias, c], pieces)
    reference = np.maximum(a.astype("d") @ b + bias, 0)
    np.testing.assert_allclose(c, reference, rtol=1e-5, atol=1e-5 * abs(reference).max())
    return compiled


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m, n, k, rows, vectors", [(6, 16, 3, 6, 2), (13, 37, 10, 6, 2), (5, 9, 1, 4, 3)])
def test_matmul_tiles_of_all_remainders(target, m, n, k, rows, vectors):
    if not runnable(target):
        pytest.skip("this machine lacks the instruction sets")
    run_matmul(target, m, n, k, rows, vectors)


@pytest.mark.parametrize("n", range(17, 33))
def test_matmul_columns_that_do_not_fill_a_vector(n):
    run_matmul("cpu", 7, n, 5, 6, 2)


def test_tasks_may_run_in_pieces():
    compiled = run_matmul("cpu", 13, 100, 10, 6, 2, pieces=3)
    (phase,) = compiled.kernel.phases
    assert phase.n_tasks == -(-100 // (2 * Target("cpu").lanes("float32")))


def test_a_register_tile_uses_fused_multiply_adds_and_does_not_spill():
    target = "llvm -mcpu=x86-64-v3"
    report = compile_func(matmul(12, 32, 64, 6, 2, 8), target, name="dense").report()
    assert (report.vector_bits, report.fmas, report.spills, report.loops) == (256, 12, 0, 1)
    wide = compile_func(matmul(28, 64, 64, 14, 2, 16), "llvm -mcpu=x86-64-v4", name="dense").report()
    assert (wide.vector_bits, wide.fmas, wide.spills) == (512, 28, 0)


def test_a_tile_that_needs_too_many_registers_is_seen_to_spill():
    report = compile_func(matmul(16, 32, 64, 8, 3, 8), "llvm -mcpu=x86-64-v3", name="dense").report()
    assert report.spills > 0


def test_the_source_is_as_in_the_golden_file():
    compiled = compile_func(matmul(13, 24, 8, 6, 2, 8), "llvm -mcpu=x86-64-v3", name="dense", config='{"rows": 6}')
    assert compiled.source == (GOLDEN / "dense.txt").read_text()


def test_equal_input_gives_equal_bytes():
    one, two = (compile_func(matmul(13, 24, 8, 6, 2, 8), "cpu", name="dense", use_cache=False).kernel for _ in range(2))
    assert one.object_code == two.object_code
    assert one.source == two.source


@pytest.mark.parametrize("extent", [1, 2, 3, 7, 8, 9, 16, 100, 1003])
def test_a_vectorised_loop_of_any_extent(extent):
    a = te.placeholder((3, extent), name="A")
    c = te.compute((3, extent), lambda i, j: te.exp(a[i, j]) * 2 + a[i, extent - 1 - j], name="C")
    func = with_kinds(te.create_prim_func([a, c]), i="parallel", j="vectorized")
    x, y = np.linspace(-3, 3, 3 * extent).reshape(3, extent).astype("f"), aligned((3, extent))
    guard = aligned((extent + 64,))
    guard[:] = 7
    run(compile_func(func, "cpu"), [x, y])
    np.testing.assert_allclose(y, np.exp(x.astype("d")) * 2 + x[:, ::-1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("extent", [5, 13, 31])
def test_masked_stores_leave_what_follows_alone(extent):
    x, y = np.ones(extent, "f"), aligned((extent + 16,))
    y[:] = 7
    a, c = buffer("A", extent), buffer("C", extent)
    func = function([a, c], loop("i", extent, lambda i: BufferStore(c, a[i] + 1.0, (i,)), "vectorized"))
    run(compile_func(func, "cpu"), [x, y])
    assert (y[:extent] == 2).all()
    assert (y[extent:] == 7).all()


def test_strided_transposed_and_gathered_loads():
    a, index = te.placeholder((20, 12), name="A"), te.placeholder((20,), "int64", name="index")
    c = te.compute((12, 10), lambda i, j: a[j * 2, i] + a[index[j], i] + a[j // 3, 11 - i], name="C")
    func = with_kinds(te.create_prim_func([a, index, c]), i="serial", j="vectorized")
    x, y = np.arange(240, dtype="f").reshape(20, 12), aligned((12, 10))
    which = np.array([3, 19, 0, 5, 5, 7, 1, 2, 11, 4] * 2, "int64")
    run(compile_func(func, "cpu"), [x, which, y])
    j = np.arange(10)
    expected = x[j * 2].T + x[which[:10]].T + x[j // 3][:, ::-1].T
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("kind", ["serial", "vectorized", "unrolled"])
def test_conditions_guard_loads_out_of_bounds(kind):
    a = te.placeholder((9,), name="A")
    c = te.compute((13,), lambda i: te.if_then_else(te.all(i >= 2, i < 11), a[i - 2], 5.0), name="C")
    func = with_kinds(te.create_prim_func([a, c]), i=kind)
    x, y = np.arange(9, dtype="f"), aligned((13,))
    run(compile_func(func, "cpu"), [x, y])
    np.testing.assert_array_equal(y, np.pad(x, 2, constant_values=5))


def test_padding_pooling_and_integers():
    a = te.placeholder((4, 7, 7), name="A")
    pad = te.compute(
        (4, 9, 9),
        lambda c, i, j: te.if_then_else(
            te.all(i >= 1, i < 8, j >= 1, j < 8), a[c, i - 1, j - 1], te.min_value("float32")
        ),
        name="pad",
    )
    r, s = te.reduce_axis((0, 3), "r"), te.reduce_axis((0, 3), "s")
    out = te.compute((4, 4, 4), lambda c, i, j: te.max(pad[c, i * 2 + r, j * 2 + s], axis=[r, s]), name="out")
    x, y = np.random.default_rng(0).standard_normal((4, 7, 7)).astype("f"), aligned((4, 4, 4))
    run(compile_func(te.create_prim_func([a, out]), "cpu", name="pool"), [x, y])
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))[:, ::2, ::2]
    np.testing.assert_array_equal(y, windows.max((3, 4)))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "int64", "int8", "uint8", "bool"])
def test_every_dtype_is_copied_compared_and_converted(dtype):
    a, b = te.placeholder((37,), dtype, name="A"), te.placeholder((37,), dtype, name="B")
    c = te.compute((37,), lambda i: te.if_then_else(a[i] < b[i], a[i], b[i]), name="C")
    d = te.compute((37,), lambda i: c[i].astype("float32") + (a[i] >= b[i]).astype("float32"), name="D")
    func = with_kinds(te.create_prim_func([a, b, c, d]), i="vectorized")
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, 2 if dtype == "bool" else 100, 37).astype(dtype) for _ in range(2))
    y[::5] = x[::5]
    low, sums = aligned((37,), dtype, 0), aligned((37,))
    run(compile_func(func, "cpu"), [x, y, low, sums])
    np.testing.assert_array_equal(low, np.minimum(x, y))
    np.testing.assert_array_equal(sums, np.minimum(x, y).astype("f") + (x >= y))


def softmax(rows, columns, lanes):
    """All four steps in one parallel loop over rows, with partial maxima and sums in vectors."""
    x, y = buffer("X", rows, columns), buffer("Y", rows, columns)
    high, top = buffer("row_max_lanes", rows, lanes), buffer("row_max", rows)
    power, sums, total = buffer("power", rows, columns), buffer("row_sum_lanes", rows, lanes), buffer("row_sum", rows)
    vectors = -(-columns // lanes)

    def row(i):
        def chunks(name, body):
            def one(c):
                return loop(
                    "lane", lanes, lambda v: IfThenElse(c * lanes + v < columns, body(v, c * lanes + v)), "vectorized"
                )

            return loop(name, vectors, one)

        def across(target, source, start, combine):
            first = BufferStore(target, const(start), (i,))
            rest = loop(
                "lane", lanes, lambda v: BufferStore(target, combine(target[i], source[i, v]), (i,)), "unrolled"
            )
            return SeqStmt((first, rest))

        def start(target, value):
            return loop("lane", lanes, lambda v: BufferStore(target, const(value), (i, v)), "vectorized")

        return SeqStmt((
            start(high, -3e38),
            chunks("j", lambda v, j: BufferStore(high, maximum(high[i, v], x[i, j]), (i, v))),
            across(top, high, -3e38, maximum),
            start(sums, 0.0),
            chunks("j", lambda v, j: BufferStore(power, call("exp", x[i, j] - top[i]), (i, j))),
            chunks("j", lambda v, j: BufferStore(sums, sums[i, v] + power[i, j], (i, v))),
            across(total, sums, 0.0, lambda p, q: p + q),
            chunks("j", lambda v, j: BufferStore(y, power[i, j] / total[i], (i, j))),
        ))  # fmt: skip

    return function([x, y], loop("i", rows, row, "parallel"), [high, top, power, sums, total])


@pytest.mark.parametrize("columns", [3, 8, 70, 1000])
def test_softmax_rows(columns):
    compiled = compile_func(softmax(5, columns, Target("cpu").lanes("float32")), "cpu", name="softmax")
    x, y = np.random.default_rng(0).standard_normal((5, columns)).astype("f") * 3, aligned((5, columns))
    run(compiled, [x, y], pieces=2)
    power = np.exp(x.astype("d") - x.max(1, keepdims=True))
    np.testing.assert_allclose(y, power / power.sum(1, keepdims=True), rtol=2e-6, atol=1e-9)
    assert compiled.kernel.scratch_bytes == 0  # nothing is shared: each row's values are its own


def test_reductions_without_a_start_of_their_own():
    a = te.placeholder((6, 11), name="A")
    k = te.reduce_axis((0, 11), "k")
    total = te.compute((6,), lambda i: te.sum(te.if_then_else(a[i, k] > 0, a[i, k], 0.0), axis=k), name="total")
    x, y = np.random.default_rng(1).standard_normal((6, 11)).astype("f"), aligned((6,))
    run(compile_func(te.create_prim_func([a, total]), "cpu"), [x, y])
    np.testing.assert_allclose(y, np.where(x > 0, x, 0).astype("d").sum(1), rtol=1e-5)


def test_argmax_keeps_both_values_together():
    a = te.placeholder((4, 13), name="A")
    k = te.reduce_axis((0, 13), "k")
    better = te.comm_reducer(
        lambda x, y: (te.if_then_else(x[1] >= y[1], x[0], y[0]), te.if_then_else(x[1] >= y[1], x[1], y[1])),
        lambda t0, t1: (te.const(-1, t0), te.min_value(t1)),
    )
    where, top = te.compute((4,), lambda i: better((k.var, a[i, k]), axis=k), name="best")
    x = np.random.default_rng(1).standard_normal((4, 13)).astype("f")
    at, value = aligned((4,), "int32"), aligned((4,))
    run(compile_func(te.create_prim_func([a, where, top]), "cpu"), [x, at, value])
    np.testing.assert_array_equal(at, x.argmax(1))
    np.testing.assert_array_equal(value, x.max(1))


def test_a_prefetch_annotation_becomes_prefetch_instructions():
    def update(k):
        return loop("j", 64, lambda j: BufferStore(c, c[j] + b[k, j], (j,)), "vectorized")

    b, c = buffer("B", 40, 64), buffer("C", 64)
    func = function([b, c], loop("k", 40, update, annotations={"prefetch": {"B": 8}, "prefetch_l2": {"B": 30}}))
    compiled = compile_func(func, "llvm -mcpu=x86-64-v3", name="column_sums")
    assert compiled.asm.count("prefetcht0") == compiled.asm.count("prefetcht1") == 4  # 64 floats are 4 cache lines
    x, y = np.ones((40, 64), "f"), np.zeros(64, "f")
    run(compiled, [x, y])
    assert (y == 40).all()


def test_what_cannot_be_expressed_is_said():
    a = te.placeholder((4,), name="A")
    func = function(
        [buffer("A", 4), out := buffer("C", 4)],
        loop("i", 4, lambda i: BufferStore(out, call("zeta", const(1.0)), (i,))),
    )
    with pytest.raises(CodegenError, match="zeta"):
        compile_func(func, "cpu")
    bound = with_kinds(te.create_prim_func([a, te.compute((4,), lambda i: a[i], name="D")]), i="thread_binding")
    with pytest.raises(CodegenError, match="bound"):
        compile_func(bound, "cpu")


def test_lowering_twice_changes_nothing():
    once = lower_func(matmul(13, 24, 8, 6, 2, 8))
    assert lower_func(once) is once


def test_memory_may_be_less_aligned_than_a_vector():
    compiled = compile_func(matmul(6, 16, 4, 6, 2, 8), "cpu", name="dense")
    rng = np.random.default_rng(0)
    raw = [rng.standard_normal(n + 1).astype("f") for n in (24, 64, 16, 96)]
    a, b, bias, c = (r[1:] for r in raw)
    run(compiled, [a, b, bias, c])
    expected = np.maximum(a.reshape(6, 4).astype("d") @ b.reshape(4, 16) + bias, 0)
    np.testing.assert_allclose(c.reshape(6, 16), expected, rtol=1e-5, atol=1e-5)


def test_select_of_a_row_by_a_scalar_condition():
    a, c = buffer("A", 4, 16), buffer("C", 4, 16)

    def element(i):
        return loop("j", 16, lambda j: BufferStore(c, if_then_else(i % 2 < 1, a[i, j], 0.0), (i, j)), "vectorized")

    x, y = np.arange(64, dtype="f").reshape(4, 16), aligned((4, 16))
    run(compile_func(function([a, c], loop("i", 4, element)), "cpu"), [x, y])
    np.testing.assert_array_equal(y, np.where(np.arange(4)[:, None] % 2 < 1, x, 0))


DIGEST = """
import hashlib, sys
sys.path.insert(0, ".")
from tests.codegen.programs import matmul
from autosched.codegen import compile_func
compiled = compile_func(matmul(13, 25, 8, 6, 2, 8), "cpu", name="dense", use_cache=False)
print(hashlib.sha256(compiled.kernel.object_code).hexdigest())
"""


def test_equal_input_gives_equal_bytes_in_every_process():
    digests = {
        subprocess.run(
            [sys.executable, "-c", DIGEST],
            env=child_environment({"PYTHONHASHSEED": seed}),
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_a_fused_loop_is_vectorised_where_quotients_and_remainders_cancel():
    a, c = buffer("A", 8, 9), buffer("C", 8, 9)

    def element(f):
        return BufferStore(c, a[f // 9, f % 9] * 2.0, (f // 9, f % 9))

    compiled = compile_func(
        function([a, c], loop("f", 72, element, "vectorized")), "llvm -mcpu=x86-64-v3", name="fused"
    )
    assert "vinsertps" not in compiled.asm
    x, y = np.arange(72, dtype="f").reshape(8, 9), aligned((8, 9))
    run(compiled, [x, y])
    np.testing.assert_array_equal(y, x * 2)


def test_scalars_are_arrays_without_dimensions():
    a = te.placeholder((), name="A")
    c = te.compute((5,), lambda i: a[()] + 1.0, name="C")
    x, y = np.array(3, "f"), aligned((5,))
    run(compile_func(te.create_prim_func([a, c]), "cpu"), [x, y])
    assert (y == 4).all()

"""Primitives that copy, pad, reindex and retype: each keeps the result, replays, and refuses what it cannot do."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import autosched
from autosched.errors import InvalidTypeError, InvalidValueError, ScheduleError
from autosched.ir import structural_equal
from autosched.script import tir as T
from autosched.tir import IndexMap, PrimFunc, Schedule, TensorIntrin
from autosched.tir.verify import verify
from tests.tir.programs import PROGRAMS, assert_same_result, run

Step = Callable[[Schedule], object]


@T.prim_func
def padded(x: T.Buffer((12,), "float32"), y: T.Buffer((18,), "float32")):
    for i in range(18):
        with T.block("y"):
            vi = T.axis.spatial(18, i)
            y[vi] = T.if_then_else(vi >= 3 and vi < 15, x[vi - 3], T.float32(0.5))


@T.prim_func
def pools(A: T.Buffer((12, 12), "float32"), C: T.Buffer((8, 8), "float32")):
    B = T.alloc_buffer((10, 10))
    for i, j, kh, kw in T.grid(10, 10, 3, 3):
        with T.block("B"):
            vi, vj, vh, vw = T.axis.remap("SSRR", [i, j, kh, kw])
            with T.init():
                B[vi, vj] = T.float32(-100)
            B[vi, vj] = T.max(B[vi, vj], A[vi + vh, vj + vw])
    for i, j, kh, kw in T.grid(8, 8, 3, 3):
        with T.block("C"):
            vi, vj, vh, vw = T.axis.remap("SSRR", [i, j, kh, kw])
            with T.init():
                C[vi, vj] = T.float32(-100)
            C[vi, vj] = T.max(C[vi, vj], B[vi + vh, vj + vw])


@T.prim_func
def biased(A: T.Buffer((5, 6), "float32"), B: T.Buffer((5,), "float32"), D: T.Buffer((5,), "float32")):
    S = T.alloc_buffer((5,))
    for i, k in T.grid(5, 6):
        with T.block("S"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                S[vi] = T.float32(0)
            S[vi] = S[vi] + A[vi, vk]
    for i in range(5):
        with T.block("D"):
            vi = T.axis.spatial(5, i)
            D[vi] = S[vi] + B[vi]


@T.prim_func
def resize(A: T.Buffer((3, 5, 5), "float32"), B: T.Buffer((3, 10, 10), "float32")):
    for c, i, j in T.grid(3, 10, 10):
        with T.block("B"):
            vc, vi, vj = T.axis.remap("SSS", [c, i, j])
            B[vc, vi, vj] = A[vc, vi // 4 + vj // 4, vj // 2]


@T.prim_func
def inplace(A: T.Buffer((16,), "float32")):
    for i in range(16):
        with T.block("A"):
            vi = T.axis.spatial(16, i)
            T.reads(A[vi])
            T.writes(A[vi])
            A[vi] = A[vi] + T.float32(1)


def rolling(sch: Schedule) -> None:
    outer, _ = sch.split(sch.get_loops("C")[0], [None, 4])
    sch.compute_at("B", outer)
    sch.rolling_buffer("B", 0)


@T.prim_func
def neighbours(A: T.Buffer((6, 8), "float32"), D: T.Buffer((6,), "float32"), C: T.Buffer((6, 8), "float32")):
    B = T.alloc_buffer((6, 8))
    for m in range(6):
        for i in range(8):
            with T.block("B"):
                vm, vi = T.axis.remap("SS", [m, i])
                B[vm, vi] = A[vm, vi] * T.float32(2)
        for i in range(8):
            with T.block("C"):
                vm, vi = T.axis.remap("SS", [m, i])
                C[vm, vi] = B[vm, 7 - vi] + T.float32(1)
        for k in range(8):
            with T.block("D"):
                vm, vk = T.axis.remap("SR", [m, k])
                with T.init():
                    D[vm] = T.float32(0)
                D[vm] = D[vm] + B[vm, vk]


@T.prim_func
def tails(A: T.Buffer((10,), "float32"), C: T.Buffer((10,), "float32")):
    B = T.alloc_buffer((10,))
    for m in range(3):
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(10, m * 4 + i)
                T.where(m * 4 + i < 10)
                B[vi] = A[vi] * T.float32(2)
        for i in range(4):
            with T.block("C"):
                vi = T.axis.spatial(10, m * 4 + i)
                T.where(m * 4 + i < 10)
                C[vi] = B[vi] + T.float32(1)


@T.prim_func
def reduced(A: T.Buffer((6, 8), "float32"), C: T.Buffer((8,), "float32")):
    B = T.alloc_buffer((8,))
    for k in range(6):
        for i in range(8):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = T.float32(0)
                B[vi] = B[vi] + A[vk, vi]
        for i in range(8):
            with T.block("C"):
                vi, vk = T.axis.remap("SS", [i, k])
                C[vi] = B[vi]


def tiles(sch: Schedule) -> None:
    i, j, k = sch.get_loops("C")
    (i_0, i_1), (j_0, j_1), (k_0, k_1) = (sch.split(x, [None, 2]) for x in (i, j, k))
    sch.reorder(i_0, j_0, k_0, i_1, j_1, k_1)
    sch.blockize(i_1)


MATMUL = PROGRAMS["matmul"](4, 6, 8)
CASES: dict[str, tuple[PrimFunc, Step, str]] = {
    "blockize": (MATMUL, tiles, 'T.block("C_o")'),
    "blockize all": (MATMUL, lambda s: s.blockize(s.get_loops("C")[0]), "v_i_o = T.axis.spatial(1, 0)"),
    "blockize without units": (
        MATMUL, lambda s: s.blockize(s.get_loops("C")[1], preserve_unit_iters=False), 'T.block("C_o")',
    ),
    "blockize two": (neighbours, lambda s: s.blockize(["B", "C"]), 'T.block("outer_B_C_")'),
    "blockize two of three": (neighbours, lambda s: s.blockize([s.get_block("C"), s.get_block("D")]), "outer_C_D_"),
    "blockize tails": (tails, lambda s: s.blockize(["B", "C"], preserve_unit_iters=False), "outer_B_C_"),
    "pad_einsum": (PROGRAMS["matmul"](5, 6, 7), lambda s: s.pad_einsum("C", [4, 4, 4]), "A_pad = T.alloc_buffer("),
    "decompose_padding": (padded, lambda s: s.decompose_padding("y", s.get_loops("y")[0]), "for i in range(12)"),
    "reindex read": (resize, lambda s: s.reindex("B", ("read", 0)), "A_reindex"),
    "reindex write": (MATMUL, lambda s: s.reindex("C", "C"), "C_reindex"),
    "reindex_cache_read": (
        MATMUL, lambda s: s.reindex_cache_read("C", 0, "local", lambda i, j, k: (k, i)), "A_local = T.alloc_buffer(",
    ),
    "reindex_cache_write": (
        MATMUL, lambda s: s.reindex_cache_write("C", 0, "global", lambda i, j, k: (j // 2, i, j % 2)),
        "C_global = T.alloc_buffer((3, 4, 2))",
    ),
    "cache_inplace": (inplace, lambda s: s.cache_inplace("A", 0, "local"), "A_local"),
    "cache_index": (resize, lambda s: s.cache_index("B", "global"), "index_var_0"),
    "read_at": (MATMUL, lambda s: s.read_at(s.get_loops("C")[0], "C", 0, "local"), 'T.block_attr({"auto_copy": 1})'),
    "write_at": (MATMUL, lambda s: s.write_at(s.get_loops("C")[0], "C", 0, "local"), "C_local"),
    "rolling_buffer": (pools, rolling, "B = T.alloc_buffer((6, 10))"),
    "fuse_reduction_epilogue": (biased, lambda s: s.fuse_reduction_epilogue("S", "D"), "D[vi] = B[vi]"),
    "unsafe_set_dtype": (biased, lambda s: s.unsafe_set_dtype("S", 0, "float64"), 'T.alloc_buffer((5,), "float64")'),
    "set_axis_separator": (pools, lambda s: s.set_axis_separator("B", ("write", 0), [1]), "axis_separators=[1]"),
    "transform_layout with a separator": (
        pools,
        lambda s: s.transform_layout("B", ("write", 0), lambda i, j: (i // 2, j, IndexMap.AXIS_SEPARATOR, i % 2)),
        "axis_separators=[2]",
    ),
    "annotate_buffer_access": (
        resize, lambda s: s.annotate_buffer_access("B", 0, "read", lambda c, i, j: ((c, c + 1), (0, 5), (0, 5))),
        "T.reads(A[vc, 0:5, 0:5])",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_keeps_the_result_and_replays(name: str) -> None:
    func, step, text = CASES[name]
    sch = Schedule(func)
    step(sch)
    assert text in sch.func.script()
    verify(sch.func)
    assert_same_result(func, sch.func)
    again = Schedule(func)
    sch.trace.apply_json_to_schedule(sch.trace.as_json(), again)
    assert structural_equal(again.func, sch.func)
    typed = Schedule(func)
    exec("\n".join(sch.trace.as_python()), {"sch": typed})
    assert structural_equal(typed.func, sch.func)


COMPILED = (
    "blockize", "blockize two", "blockize tails", "rolling_buffer", "pad_einsum", "cache_index",
    "fuse_reduction_epilogue",
)  # fmt: skip


@pytest.mark.parametrize("name", COMPILED)
def test_runs_compiled(name: str) -> None:
    func, step, _ = CASES[name]
    sch = Schedule(func)
    step(sch)
    module = autosched.build(sch.mod)
    rng = np.random.default_rng(0)
    arrays = [rng.random(b.const_shape(), np.float32) for b in func.buffers]
    plain = [a.copy() for a in arrays]
    from autosched.tir import interpret

    interpret(func, plain)
    given = [autosched.nd.array(a) for a in arrays]
    module(*given)
    np.testing.assert_allclose(given[-1].numpy(), plain[-1], rtol=1e-5)


REFUSED: dict[str, tuple[PrimFunc, Step, str]] = {
    "blockize of the root": (pools, lambda s: s.blockize("root"), "root block is one already"),
    "blockize of blocks apart": (neighbours, lambda s: s.blockize(["B", "D"]), "'C' stands among"),
    "blockize of blocks in different loops": (pools, lambda s: s.blockize(["B", "root"]), "beside each other"),
    "blockize over a reduction": (reduced, lambda s: s.blockize(["B", "C"]), "reduces over loop 'k'"),
    "a ring in parallel": (pools, lambda s: (rolling(s), s.parallel(s.get_loops("B")[0])), "ring"),
    "pad_einsum of a maximum": (pools, lambda s: s.pad_einsum("B", [2, 2, 2, 2]), "no sum"),
    "pad_einsum numbers": (MATMUL, lambda s: s.pad_einsum("C", [2, 2]), "2 numbers for 3"),
    "decompose_padding of a copy": (inplace, lambda s: s.decompose_padding("A", s.get_loops("A")[0]), "not a complete"),
    "decompose_padding of no choice": (resize, lambda s: s.decompose_padding("B", s.get_loops("B")[0]), "no choice"),
    "reindex outside": (padded, lambda s: s.reindex("y", ("read", 0)), "stay inside"),
    "reindex over a reduction": (
        MATMUL, lambda s: s.reindex_cache_write("C", 0, "local", lambda i, j, k: (i, k)), "reduced over",
    ),
    "reindex that loses elements": (
        MATMUL, lambda s: s.reindex_cache_read("C", 0, "local", lambda i, j, k: (k // 2, i)), "two elements in one",
    ),
    "cache_inplace of an output": (MATMUL, lambda s: s.cache_inplace("C", 0, "local"), "does not both read and write"),
    "rolling without overlap": (MATMUL, lambda s: s.rolling_buffer("C", 0), "an output"),
    "epilogue of another kind": (pools, lambda s: s.fuse_reduction_epilogue("B", "C"), "not a complete"),
    "dtype of an argument": (MATMUL, lambda s: s.unsafe_set_dtype("C", 0, "float16"), "interface"),
    "separators out of order": (pools, lambda s: s.set_axis_separator("B", "B", [2, 1]), "ascending"),
    "access of an unknown kind": (pools, lambda s: s.annotate_buffer_access("B", 0, "x", lambda *v: v), "neither"),
    "hidden access out of range": (pools, lambda s: s.unsafe_hide_buffer_access("B", "read", [3]), "1 regions"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_and_changes_nothing(name: str) -> None:
    func, step, message = REFUSED[name]
    sch = Schedule(func)
    before = sch.func
    with pytest.raises(ScheduleError, match=message):
        step(sch)
    assert sch.func is before or name.startswith("a ring")


def test_can_decompose_padding() -> None:
    sch = Schedule(padded)
    assert sch.can_decompose_padding("y", sch.get_loops("y")[0])
    sch = Schedule(resize)
    assert not sch.can_decompose_padding("B", sch.get_loops("B")[0])


@T.prim_func
def dot_desc(a: T.handle, b: T.handle, c: T.handle) -> None:
    A = T.match_buffer(a, (4,), offset_factor=1)
    B = T.match_buffer(b, (4,), offset_factor=1)
    C = T.match_buffer(c, (1,), offset_factor=1)
    with T.block("root"):
        T.reads(C[0], A[0:4], B[0:4])
        T.writes(C[0])
        for i in range(4):
            with T.block("update"):
                vi = T.axis.remap("R", [i])
                C[0] = C[0] + A[vi] * B[vi]


@T.prim_func
def dot_impl(a: T.handle, b: T.handle, c: T.handle) -> None:
    A = T.match_buffer(a, (4,), offset_factor=1)
    B = T.match_buffer(b, (4,), offset_factor=1)
    C = T.match_buffer(c, (1,), offset_factor=1)
    with T.block("root"):
        T.reads(C[0], A[0:4], B[0:4])
        T.writes(C[0])
        C[0] = C[0] + A[0] * B[0] + A[1] * B[1] + A[2] * B[2] + A[3] * B[3]


TensorIntrin.register("test.dot4", dot_desc, dot_impl, override=True)


@T.prim_func
def dots(A: T.Buffer((6, 8), "float32"), B: T.Buffer((5, 8), "float32"), C: T.Buffer((6, 5), "float32")):
    for i, j, k in T.grid(6, 5, 8):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + B[vj, vk] * A[vi, vk]


@pytest.mark.parametrize("decomposed", [True, False])
def test_tensorize(decomposed: bool) -> None:
    sch = Schedule(dots)
    k_0, k_1 = sch.split(sch.get_loops("C")[2], [None, 4])
    if decomposed:
        sch.decompose_reduction("C", k_0)
    sch.tensorize(k_1, "test.dot4")
    assert "T.match_buffer" in sch.func.script()
    verify(sch.func)
    for x, y in zip(run(dots), run(sch.func), strict=True):
        np.testing.assert_allclose(y, x, rtol=1e-5)
    again = Schedule(dots)
    sch.trace.apply_json_to_schedule(sch.trace.as_json(), again)
    assert structural_equal(again.func, sch.func)
    back = autosched.script.from_source(sch.func.script())
    assert structural_equal(back, sch.func)


def test_tensorize_says_what_differs() -> None:
    sch = Schedule(dots)
    _, k_1 = sch.split(sch.get_loops("C")[2], [None, 2])
    with pytest.raises(ScheduleError, match="extent 2, the intrinsic's has 4"):
        sch.tensorize(k_1, "test.dot4")
    with pytest.raises(InvalidValueError, match=r"no TensorIntrin 'test\.none'"):
        sch.tensorize(k_1, "test.none")
    with pytest.raises(InvalidTypeError, match="registered name"):
        sch.tensorize(k_1, dot_desc)  # type: ignore[arg-type]


def test_intrinsics_are_checked_when_they_are_registered() -> None:
    with pytest.raises(InvalidTypeError, match="'desc'"):
        TensorIntrin.register("test.x", 5, dot_impl)  # type: ignore[arg-type]
    with pytest.raises(InvalidValueError, match="registered already"):
        TensorIntrin.register("test.dot4", dot_desc, dot_impl)
    with pytest.raises(InvalidValueError, match="3 parameters"):
        TensorIntrin.register("test.y", dot_desc, inplace)
    assert TensorIntrin.get("test.none", allow_missing=True) is None


def test_the_initialisation_of_a_decomposed_sum_may_be_vectorised() -> None:
    sch = Schedule(MATMUL)
    i, j, k = sch.get_loops("C")
    sch.reorder(i, k, j)
    init = sch.decompose_reduction("C", k)
    sch.vectorize(sch.get_loops(init)[-1])
    with pytest.raises(ScheduleError, match="not a complete block"):
        sch.vectorize(j)
    assert_same_result(MATMUL, sch.func)


def test_blockize_of_several_prints_as_tvm_does() -> None:
    """TVM's own example: the loop around becomes a variable that each block takes over."""

    @T.prim_func
    def before(A: T.Buffer((128, 128), "float32"), B: T.Buffer((128, 128), "float32")):
        for m in T.serial(6):
            for i, j in T.grid(3, 1):
                with T.block("B"):
                    vm, vi, vj = T.axis.remap("SSS", [m, i, j])
                    B[vi, vj] = A[vi, vj] * T.float32(2)
            for i, j in T.grid(128, 64):
                with T.block("C"):
                    vm, vi, vj = T.axis.remap("SSS", [m, i, j])
                    B[vi, vj + 64] = A[vi, vj + 64] * T.float32(3)

    @T.prim_func
    def after(A: T.Buffer((128, 128), "float32"), B: T.Buffer((128, 128), "float32")):
        for m in T.serial(6):
            with T.block("outer_B_C_"):
                vm = T.axis.spatial(6, m)
                T.reads(A[0:128, 0:128])
                T.writes(B[0:128, 0:128])
                for i, j in T.grid(3, 1):
                    with T.block("B"):
                        vm_i = T.axis.spatial(6, vm)
                        vi, vj = T.axis.remap("SS", [i, j])
                        B[vi, vj] = A[vi, vj] * T.float32(2)
                for i, j in T.grid(128, 64):
                    with T.block("C"):
                        vm_i = T.axis.spatial(6, vm)  # noqa: F841
                        vi, vj = T.axis.remap("SS", [i, j])
                        B[vi, vj + 64] = A[vi, vj + 64] * T.float32(3)

    sch = Schedule(before)
    made = sch.blockize([sch.get_block("B"), sch.get_block("C")], preserve_unit_iters=False)
    assert structural_equal(sch.func.with_attr("global_symbol", "after"), after)
    assert sch.get(made).name_hint == "outer_B_C_"
    assert [sch.get(b).name_hint for b in sch.get_child_blocks(made)] == ["B", "C"]
    with pytest.raises(ScheduleError):
        sch.parallel(sch.get_loops(made)[0])  # each m writes the same elements

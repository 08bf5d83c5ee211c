"""Matrix products of warps: what becomes of fragments, and what cannot be one."""

import numpy as np
import pytest

from autosched.codegen import compile_func
from autosched.codegen.cuda.emulate.kernel import run_kernel
from autosched.codegen.lower.device import lower_device
from autosched.errors import CodegenError
from autosched.ir.node import FrozenDict, preorder
from autosched.target import Target
from autosched.templates.cuda.nests import bound, with_statements
from autosched.templates.nests import nested
from autosched.testing.gpu import run_serially
from autosched.tir import Call
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer
from autosched.tir.expr import IntImm, Var
from autosched.tir.function import PrimFunc, make_root
from autosched.tir.stmt import BufferStore, seq
from tests.codegen.gpu_programs import tensor_core_product

ml_dtypes = pytest.importorskip("ml_dtypes")
STEP = {"float16": 16, "bfloat16": 16, "float32": 8, "int8": 32}
PAD = {"float16": 8, "bfloat16": 8, "float32": 4, "int8": 16}


def product(dtype="float16", transposed=False, sizes=(70, 66, 64), tile=(32, 32, 32)):
    return tensor_core_product(*sizes, dtype, tile, step=STEP[dtype], transposed=transposed, pad=PAD[dtype]).func


def calls(func, name):
    found = (x for launch in lower_device(func).launches for x in preorder(launch.body) if isinstance(x, Call))
    return [x for x in found if x.op == name]


@pytest.mark.parametrize(
    "dtype, transposed", [("float16", False), ("bfloat16", True), ("float32", False), ("int8", True)]
)
def test_the_schedule_keeps_the_product(dtype, transposed):
    rng, total = np.random.default_rng(0), "int32" if dtype == "int8" else "float32"
    kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    a, b, bias = (rng.integers(-8, 8, shape) for shape in ((70, 64), (66, 64) if transposed else (64, 66), (66,)))
    out = np.zeros((70, 66), total)
    run_serially(product(dtype, transposed), a.astype(kind), b.astype(kind), bias.astype(total), out)
    np.testing.assert_array_equal(out, a @ (b.T if transposed else b) + bias)


@pytest.mark.parametrize("dtype, kind", [("float16", "f16"), ("bfloat16", "bf16"), ("float32", "tf32"), ("int8", "s8")])
def test_one_instruction_for_each_dtype(dtype, kind):
    assert {x.args[0].value for x in calls(product(dtype), "mma_sync")} == {kind}


def test_rows_are_loaded_as_matrices():
    first, second = calls(product(), "ldmatrix")
    assert [(x.args[1].value, bool(x.args[2].value)) for x in (first, second)] == [(4, False), (4, True)]
    assert not any(x.args[2].value for x in calls(product(transposed=True), "ldmatrix"))


def test_columns_of_other_sizes_are_loaded_word_by_word():
    assert len(calls(product("float32"), "ldmatrix")) == 1  # of A; k is not contiguous in B
    assert len(calls(product("float32", transposed=True), "ldmatrix")) == 2


def test_values_of_float32_are_rounded():
    assert calls(product("float32"), "to_tf32")
    assert not calls(product(), "to_tf32")


def test_no_fragment_is_left():
    scopes = {
        getattr(n, "buffer", None) and n.buffer.scope
        for launch in lower_device(product()).launches
        for n in preorder(launch.body)
    }
    assert not any(s and s.startswith("wmma") for s in scopes)


def test_a_ragged_reduction_is_refused():
    with pytest.raises(CodegenError, match="pad the reduction"):
        lower_device(product(sizes=(64, 64, 40)))


def test_tiles_that_are_no_multiples_are_refused():
    with pytest.raises(CodegenError, match="no multiple of 16 x 8"):
        lower_device(product(tile=(16, 32, 32)))


def test_a_warp_has_32_lanes():
    s = tensor_core_product(64, 64, 64)
    loop = s.get_loops("A_shared")[-2]
    assert s.get(loop).thread == "threadIdx.x"
    s.bind(loop, "vthread.x")
    s.bind(s.get_loops("B_shared")[-2], "vthread.x")
    with pytest.raises(CodegenError, match="the lanes of a matrix product are threadIdx.x"):
        lower_device(s.func)


def rows_of_an_accumulator(combine):
    """Out[i] = combination of the elements of row i of an accumulator that holds A."""
    a, out = Buffer("A", (IntImm(16), IntImm(8))), Buffer("Out", (IntImm(16),))
    acc = Buffer("acc", (IntImm(16), IntImm(8)), scope="wmma.accumulator")
    rows = Buffer("rows", (IntImm(16),), scope="wmma.rows")

    body = bound((("blockIdx.x", 1), ("threadIdx.x", 32)), lambda _, lane: seq(
        nested("i j", (16, 8), lambda i, j: BufferStore(acc, a[i, j], (i, j))),
        nested("i", (16,), lambda i: BufferStore(rows, E.const(1.0, "float32"), (i,))),
        nested("i j", (16, 8), lambda i, j: BufferStore(rows, combine(rows[i], acc[i, j]), (i,))),
        nested("i", (16,), lambda i: BufferStore(out, rows[i], (i,))),
    ))  # fmt: skip
    params = [Var(b.name, "handle") for b in (a, out)]
    func = PrimFunc(tuple(params), FrozenDict(zip(params, (a, out), strict=True)), make_root(seq(), ()))
    return with_statements(func, body, [acc, rows])


@pytest.mark.parametrize("combine, reduce", [(E.add, np.add), (E.maximum, np.maximum), (E.minimum, np.minimum)])
def test_rows_of_an_accumulator_are_combined(combine, reduce):
    kernel = compile_func(rows_of_an_accumulator(combine), Target("cuda -arch=sm_90a"), name="rows").kernel
    a, out = np.random.default_rng(0).standard_normal((16, 8)).astype("f"), np.zeros(16, "f")
    run_kernel(kernel, [a, out])
    np.testing.assert_allclose(out, reduce(reduce.reduce(a, 1), np.float32(1)), rtol=1e-6)


def test_rows_that_are_combined_otherwise_are_refused():
    with pytest.raises(CodegenError, match="by none of"):
        lower_device(rows_of_an_accumulator(E.sub))

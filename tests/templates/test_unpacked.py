"""Products whose matrix comes with the call read it as it is, where that is faster than packing it."""

from __future__ import annotations

import numpy as np
import pytest

import autosched
from autosched.driver.build.graph import prepare
from autosched.ir import IRModule
from autosched.relax import BlockBuilder, op
from autosched.relax.expr import Constant, Tuple, Var
from autosched.relax.struct_info import TensorStructInfo
from autosched.target import Target
from autosched.templates.product import UNPACKED
from autosched.templates.workload import describe
from autosched.tir import PrimFunc

CPU = Target("cpu")
RNG = np.random.default_rng(0)


def product(rows: int, steps: int, columns: int, constant: bool = False) -> IRModule:
    x, y = (Var(n, TensorStructInfo(s, "float32")) for n, s in (("x", (rows, steps)), ("y", (steps, columns))))
    builder = BlockBuilder()
    with builder.function("main", [x] if constant else [x, y]):
        with builder.dataflow():
            matrix = Constant(RNG.standard_normal((steps, columns)).astype("float32")) if constant else y
            out = builder.emit_output(op.matmul(x, matrix))
        builder.emit_func_output(out)
    return builder.get()


def functions(module: IRModule) -> list[PrimFunc]:
    prepared = prepare(module, CPU, {})
    return [f for _, f in prepared.functions_items() if isinstance(f, PrimFunc)]


@pytest.mark.parametrize(
    ("rows", "columns", "constant", "unpacked"),
    [(1, 300, False, True), (128, 300, False, True), (129, 300, False, False), (1, 300, True, False),
     (32, 1024, False, True), (33, 1024, False, False)],
)  # fmt: skip
def test_few_rows_read_a_matrix_that_no_call_knows(rows: int, columns: int, constant: bool, unpacked: bool) -> None:
    (func,) = functions(product(rows, 40, columns, constant))
    assert bool(func.attrs.get(UNPACKED)) is unpacked


def test_a_function_that_one_call_gives_a_constant_packs_it() -> None:
    x, y = (Var(n, TensorStructInfo((8, 8), "float32")) for n in "xy")
    builder = BlockBuilder()
    with builder.function("main", [x, y]):
        with builder.dataflow():
            first = builder.emit(op.matmul(x, y))
            out = builder.emit_output(op.matmul(first, Constant(np.eye(8, dtype="float32"))))
        builder.emit_func_output(Tuple((out,)))
    assert [bool(f.attrs.get(UNPACKED)) for f in functions(builder.get())] == [False]


def test_records_tell_the_two_apart() -> None:
    given, known = (functions(product(4, 40, 300, constant))[0] for constant in (False, True))
    assert describe(given, CPU) != describe(known, CPU)


@pytest.mark.host(runs=True)
@pytest.mark.parametrize("rows", [1, 3, 17, 65, 130])
@pytest.mark.parametrize(("steps", "columns"), [(33, 70), (7, 1), (64, 1), (1, 5)])
def test_products_of_what_comes_with_the_call(rows: int, steps: int, columns: int) -> None:
    built = autosched.build(product(rows, steps, columns), target="cpu")
    a, b = (RNG.standard_normal(s).astype("float32") for s in ((rows, steps), (steps, columns)))
    assert not any("pack" in name for name in built.kernels) or rows > 128
    np.testing.assert_allclose(built(a, b).numpy(), a.astype("float64") @ b, rtol=0, atol=2e-5)

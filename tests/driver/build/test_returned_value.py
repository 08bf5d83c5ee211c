"""Functions that return numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import autosched
from autosched.errors import CodegenError
from autosched.ir import IRModule
from autosched.script import from_source

SUM = """
@T.prim_func
def total(a: T.int32, b: T.int32) -> T.int32:
    T.ret(a + b)
"""
CHOICE = """
@T.prim_func
def choose(A: T.Buffer((4,), "float32"), x: T.float32) -> T.float32:
    if x > T.float32(0):
        T.ret(A[0] + x)
    else:
        T.ret(A[1])
"""
TWICE = """
@T.prim_func
def twice(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")) -> T.int32:
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = A[vi] * T.float32(2)
    T.ret(T.int32(7))
"""


def test_a_sum_is_given_back() -> None:
    built = autosched.build(from_source(SUM), "llvm")
    assert (built(3, 4), built["total"](5, -9)) == (7, -4)


def test_both_branches_return() -> None:
    built = autosched.build(from_source(CHOICE), "llvm")
    data = np.arange(1, 5, dtype=np.float32)
    assert (built(data, 0.5), built(data, -0.5)) == (1.5, 2.0)


def test_outputs_are_written_as_well_and_others_stay(tmp_path: Path) -> None:
    built = autosched.build(IRModule({"twice": from_source(TWICE), "total": from_source(SUM)}), "llvm")
    data, out = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    assert built["twice"](data, out) == 7
    np.testing.assert_array_equal(out, data * 2)
    built.export_library(str(tmp_path / "lib.so"))
    assert autosched.runtime.load_module(str(tmp_path / "lib.so"))["total"](2, 3) == 5


@pytest.mark.parametrize(
    "body", ["    if a > 0:\n        T.ret(a)\n    T.ret(0)", "    for i in range(4):\n        T.ret(a)"]
)
def test_a_return_that_others_follow_is_refused(body: str) -> None:
    with pytest.raises(CodegenError, match=r"T\.ret"):
        autosched.build(from_source(f"@T.prim_func\ndef f(a: T.int32) -> T.int32:\n{body}\n"), "llvm")

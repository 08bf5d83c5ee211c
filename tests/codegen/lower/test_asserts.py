"""T.Assert in kernels: a condition that does not hold ends the run with an error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import autosched
from autosched.codegen.lower.asserts import lower_asserts
from autosched.errors import AssertionFailedError, CodegenError
from autosched.runtime import cuda
from autosched.runtime.cuda.devices import use_driver
from autosched.script import from_source
from autosched.tir import AssertStmt, PrimFunc

EACH = """
@T.prim_func
def main(a: T.handle, b: T.handle):
    A = T.match_buffer(a, (64,), "float32")
    B = T.match_buffer(b, (64,), "float32")
    for i in T.{kind}(64):
        with T.block("B"):
            v = T.axis.spatial(64, i)
            assert A[v] >= T.float32(0), "no roots of negative numbers"
            B[v] = T.sqrt(A[v])
"""
BEFORE = """
@T.prim_func
def main(a: T.handle, n: T.handle, b: T.handle):
    A = T.match_buffer(a, (64,), "float32")
    N = T.match_buffer(n, (1,), "int32")
    B = T.match_buffer(b, (64,), "float32")
    assert N[0] <= 64, "too many"
    for i in T.serial(64):
        B[i] = A[i] * T.float32(2)
"""
THREADS = """
@T.prim_func
def main(a: T.handle, b: T.handle):
    A = T.match_buffer(a, (64,), "float32")
    B = T.match_buffer(b, (64,), "float32")
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            with T.block("B"):
                v = T.axis.spatial(64, bx * 32 + tx)
                assert A[v] >= T.float32(0), "no roots of negative numbers"
                B[v] = T.sqrt(A[v])
"""


def func(text: str) -> PrimFunc:
    found = from_source(text)
    assert isinstance(found, PrimFunc)
    return found


@pytest.mark.parametrize("kind", ["serial", "parallel", "vectorized"])
def test_a_condition_of_each_element(kind: str) -> None:
    module = autosched.build(func(EACH.format(kind=kind)), "cpu")
    a, b = np.arange(64, dtype="float32"), np.zeros(64, "float32")
    module(a, b)
    np.testing.assert_allclose(b, np.sqrt(a), rtol=1e-6)
    a[37] = -1
    with pytest.raises(AssertionFailedError, match="Assert fail: .*A.*no roots of negative numbers") as caught:
        module(a, b)
    assert isinstance(caught.value, AssertionError) and isinstance(caught.value, RuntimeError)
    a[37] = 4
    module(a, b)
    assert b[37] == 2


def test_a_condition_before_the_loops_and_in_an_artifact(tmp_path: Path) -> None:
    module = autosched.build(func(BEFORE), "cpu")
    module.export_library(tmp_path / "m.asx")
    for loaded in (module, autosched.runtime.load_module(str(tmp_path / "m.asx"))):
        a, n, b = np.ones(64, "float32"), np.array([64], "int32"), np.zeros(64, "float32")
        loaded(a, n, b)
        assert (b == 2).all()
        n[0] = 65
        with pytest.raises(AssertionFailedError, match="too many"):
            loaded(a, n, b)


def test_what_is_known_to_hold_costs_nothing() -> None:
    known = func(BEFORE.replace("N[0] <= 64", "64 <= 64"))
    assert not any(k.checks for k in autosched.build(known, "cpu").kernels.values())
    assert not any(isinstance(x, AssertStmt) for x in autosched.ir.node.preorder(lower_asserts(known.body)))


def test_threads_of_a_gpu_report_it() -> None:
    pytest.importorskip("numba_cuda", reason="the CUDA packages are an extra")
    from autosched.codegen.cuda.emulate.driver import EmulatorDriver

    module = autosched.build(func(THREADS), "nvidia/nvidia-h200")
    with use_driver(EmulatorDriver):
        a = np.arange(64, dtype="float32")
        given = [autosched.nd.array(a, cuda(0)), autosched.nd.array(np.zeros(64, "float32"), cuda(0))]
        module(*given)
        np.testing.assert_allclose(given[1].numpy(), np.sqrt(a), rtol=1e-6)
        a[40] = -4
        given[0][:] = a
        module(*given)
        with pytest.raises(AssertionFailedError, match="no roots"):
            given[1].numpy()
    with pytest.raises(CodegenError, match=r"T\.Assert outside of a GPU's threads"):
        text = THREADS.replace("    for bx", '    assert A[0] > T.float32(0), "positive"\n    for bx')
        autosched.build(func(text), "nvidia/nvidia-h200")

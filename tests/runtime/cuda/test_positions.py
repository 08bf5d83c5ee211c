"""Positions that come at run time, on the emulated device: reported as on a CPU, where results come to the host."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import autosched
from autosched import te
from autosched.errors import CodegenError, IndexOutOfRangeError
from autosched.relax import op
from autosched.runtime import Executable, GraphExecutor, GraphModule, cuda
from autosched.script import from_source
from tests.driver.programs import one_call
from tests.spread import spread

pytestmark = pytest.mark.usefixtures("emulated")
H200 = "nvidia/nvidia-h200"
TABLE = np.random.default_rng(0).random((7, 40), "float32")
GOOD = np.array([0, -7, 6, -1, 2])


@pytest.fixture(scope="module")
def built() -> Executable:
    pytest.importorskip("numba_cuda", reason="the CUDA packages are an extra")
    module = one_call(lambda x, i: op.take(x, i, 0), ((7, 40), "float32"), ((5,), "int64"))
    return autosched.build(module, target=H200, records=[])


@pytest.fixture
def executable(built: Executable) -> Executable:
    return Executable.from_contents(built.contents())


@spread(2, "bad", [7, -8, 10**12, 2**32 + 3, -(2**63)])
def test_a_position_out_of_range_is_an_error_that_names_it(executable: Executable, bad: int) -> None:
    positions = GOOD.copy()
    positions[3] = bad
    out = executable(TABLE, positions)
    with pytest.raises(IndexError, match=rf"take along axis 0: index {bad} is out of range \[-7, 7\)") as caught:
        out.numpy()
    assert isinstance(caught.value, IndexOutOfRangeError) and "node" in str(caught.value)
    np.testing.assert_array_equal(executable(TABLE, GOOD).numpy(), TABLE[GOOD])  # the next run is fine


def test_every_executor_and_a_loaded_artifact_report_it(executable: Executable, tmp_path: Path) -> None:
    positions = np.where(GOOD == 2, 9, GOOD)
    executable.save(tmp_path / "m.asx")
    loaded = autosched.load(tmp_path / "m.asx")
    module, executor = GraphModule(executable), GraphExecutor(executable, cuda(0))

    def run_module() -> None:
        module.run(x0=TABLE, x1=positions)
        module.get_output(0).numpy()

    def run_executor() -> None:
        executor.set_input("x0", TABLE)
        executor.set_input("x1", positions)
        for _ in range(3):  # captured
            executor.run()
        cuda(0).sync()

    for run in (lambda: loaded(TABLE, positions).numpy(), run_module, run_executor):
        with pytest.raises(IndexError, match="index 9 is out of range"):
            run()
    executor.set_input("x1", GOOD)
    executor.run()
    np.testing.assert_array_equal(executor.get_output(0).numpy(), TABLE[GOOD])


def test_clipping_stays_a_choice() -> None:
    module = one_call(lambda x, i: op.take(x, i, 0), ((7, 40), "float32"), ((5,), "int64"))
    clipped = autosched.build(module, target=H200, records=[], indices="clip")
    out = clipped(TABLE, np.array([0, -9, 6, 100, -2])).numpy()
    np.testing.assert_array_equal(out, TABLE[[0, 0, 6, 6, 5]])


def test_scattered_updates_out_of_range_are_reported() -> None:
    module = one_call(
        lambda x, i, u: op.scatter_elements(x, i, u, 0), ((4, 3), "float32"), ((2, 3), "int64"), ((2, 3), "float32")
    )
    executable = autosched.build(module, target=H200, records=[])
    x, u = np.zeros((4, 3), "float32"), np.ones((2, 3), "float32")
    good = np.array([[0, 1, 2], [3, -4 + 2, 0]])
    want = x.copy()
    np.put_along_axis(want, good, u, 0)
    np.testing.assert_array_equal(executable(x, good, u).numpy(), want)
    with pytest.raises(IndexError, match="index 4 is out of range"):
        executable(x, np.where(good == 3, 4, good), u).numpy()


GATHER = """
@T.prim_func
def main(a: T.handle, i: T.handle, b: T.handle):
    A = T.match_buffer(a, (10,), "float32")
    I = T.match_buffer(i, (40,), "int32")
    B = T.match_buffer(b, (40,), "float32")
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        for tx in T.thread_binding(20, thread="threadIdx.x"):
            with T.block("B"):
                v = T.axis.spatial(40, bx * 20 + tx)
                B[v] = A[I[v]]
"""


def test_accesses_that_are_not_proved_are_checked_on_demand() -> None:
    func = from_source(GATHER)
    module = autosched.build(func, target=H200, checks=True)
    a, at = np.arange(10, dtype="float32"), np.arange(40, dtype="int32") % 10
    given = [autosched.nd.array(v, cuda(0)) for v in (a, at, np.zeros(40, "float32"))]
    module(*given)
    np.testing.assert_array_equal(given[2].numpy(), a[at])
    at[33] = 10
    given[1] = autosched.nd.array(at, cuda(0))
    module(*given)
    with pytest.raises(IndexError, match=r"load of A\[I\[.*\]\], dimension 0: index 10 is out of range \[0, 10\)"):
        given[2].numpy()
    plain = autosched.build(func, target=H200)
    assert not any(k.checks for k in plain.kernels.values())


def test_what_is_proved_has_no_check_and_what_surely_leaves_is_refused() -> None:
    x = te.placeholder((30,), name="x")
    module = autosched.build(
        te.create_prim_func([x, te.compute((30,), lambda i: x[i] + 1, name="y")]), H200, checks=True
    )
    assert not any(k.checks for k in module.kernels.values())
    bad = GATHER.replace("A[I[v]]", "A[v % 10 + 10]")
    with pytest.raises(CodegenError, match=r"out of range \[0, 10\)"):
        autosched.build(from_source(bad), target=H200, checks=True)

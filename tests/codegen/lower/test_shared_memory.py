"""Where shared buffers lie in a block's memory."""

import numpy as np

from autosched import te, topi
from autosched.codegen.lower.device import lower_device
from autosched.script import from_source
from autosched.space import Config
from autosched.target import Target
from autosched.templates import apply_config
from autosched.testing.gpu import run_serially
from autosched.tir.schedule import Schedule
from tests.codegen.gpu_programs import tiled_product


def reversed_plus_one(source, n):
    return lambda i: source[n - 1 - i] + 1.0


def chain(n=256, steps=4):
    """Each step reverses what the one before left in shared memory."""
    a = te.placeholder((n,), name="A")
    stage = a
    for step in range(steps):
        stage = te.compute((n,), reversed_plus_one(stage, n), name=f"S{step}")
    s = Schedule(te.create_prim_func([a, stage]))
    bx, tx = s.split(s.get_loops(f"S{steps - 1}")[0], [None, n])
    s.bind(bx, "blockIdx.x")
    s.bind(tx, "threadIdx.x")
    for step in reversed(range(steps - 1)):
        s.compute_at(f"S{step}", bx)
        s.set_scope(f"S{step}", 0, "shared")
        s.bind(s.get_loops(f"S{step}")[-1], "threadIdx.x")
    return s.func


def test_buffers_that_do_not_live_at_one_time_share_bytes():
    (launch,) = lower_device(chain(steps=5)).launches
    assert len(launch.shared) == 4
    assert launch.shared_bytes == 2 * 256 * 4


def test_the_barriers_of_shared_bytes_are_right():
    a, out = np.arange(256, dtype="f"), np.zeros(256, "f")
    run_serially(chain(steps=5), a, out)
    np.testing.assert_array_equal(out, a[::-1] + 5)


def test_buffers_of_one_loop_lie_side_by_side():
    (launch,) = lower_device(tiled_product(128, 128, 64).func).launches
    assert sorted(launch.shared.values()) == [0, 64 * 8 * 4]
    assert not launch.wants_dynamic


def test_more_than_48_kib_are_sized_at_the_launch():
    (launch,) = lower_device(tiled_product(128, 128, 256, (128, 128, 64), (8, 8)).func).launches
    assert launch.shared_bytes == 2 * 128 * 64 * 4
    assert launch.wants_dynamic


LAST_ROWS = """
from tvm.script import tir as T

@T.prim_func
def main(X: T.Buffer((6, 16), "float32"), Y: T.Buffer((6, 16), "float32")):
    X_shared = T.alloc_buffer((6, 16), scope="shared")
    top = T.alloc_buffer((6,), scope="local")
    for bx in T.thread_binding(3, thread="blockIdx.x"):
        for r in range(6):
            for tx in T.thread_binding(40, thread="threadIdx.x"):
                with T.block("X_shared"):
                    i, j = T.axis.remap("SS", [r, tx])
                    T.where(tx < 16)
                    X_shared[i, j] = X[i, j]
        for tx in T.thread_binding(40, thread="threadIdx.x"):
            for k in range(16):
                with T.block("top"):
                    i = T.axis.spatial(6, (bx * 40 + tx) // 16)
                    r = T.axis.reduce(16, k)
                    T.where((bx * 40 + tx) // 16 < 6)
                    with T.init():
                        top[i] = T.float32(-3e38)
                    top[i] = T.max(top[i], X_shared[i, r])
            with T.block("Y"):
                i = T.axis.spatial(6, (bx * 40 + tx) // 16)
                j = T.axis.spatial(16, (bx * 40 + tx) % 16)
                T.where(bx * 40 + tx < 96)
                Y[i, j] = X_shared[i, j] - top[i]
"""


def test_reads_whose_condition_was_dropped_stay_in_the_block_s_memory():
    """Threads of the last block without a row sum up what nobody uses: rows 6 and 7, which X does not have."""
    func = from_source(LAST_ROWS)
    (launch,) = lower_device(func).launches
    assert launch.shared_bytes == 8 * 16 * 4
    x, y = np.random.default_rng(0).standard_normal((6, 16)).astype("f"), np.zeros((6, 16), "f")
    run_serially(func, x, y)  # accesses are checked
    np.testing.assert_array_equal(y, x - x.max(1, keepdims=True))


def test_threads_that_copy_nothing_need_no_memory():
    """30 of 1024 threads copy vectors of a tile; without their condition, which names the lanes, all would reach it."""
    a, b = te.placeholder((6, 28), name="a"), te.placeholder((28, 10), name="b")
    func = te.create_prim_func([a, b, topi.matmul(a, b)])
    knobs = {"rows": 32, "columns": 256, "per_row": 4, "per_column": 2, "step": 8, "stages": 3, "wave_parts": 1}
    target = Target("cuda -arch=sm_90a")
    (launch,) = lower_device(apply_config(func, Config("matmul", knobs), target).func).launches
    assert launch.shared_bytes < 48 * 1024  # three stages of some 8 terms of 36 rows and of 256 columns


def test_one_thread_of_many_fills_its_register():
    """A condition that leaves one value of a thread's number changes nothing about which register it has."""
    a, b = te.placeholder((3, 10, 7), name="a"), te.placeholder((3, 7, 3), name="b")
    func = te.create_prim_func([a, b, topi.matmul(a, b)])
    knobs = {"rows": 16, "columns": 256, "per_row": 16, "per_column": 1, "step": 32, "stages": 1, "wave_parts": 1}
    made = apply_config(func, Config("matmul", knobs), Target("cuda -arch=sm_90a")).func
    rng = np.random.default_rng(0)
    x, y, out = (rng.standard_normal(s).astype("f") for s in ((3, 10, 7), (3, 7, 3), (3, 10, 3)))
    run_serially(made, x, y, out)
    np.testing.assert_allclose(out, x @ y, rtol=1e-5, atol=1e-5)

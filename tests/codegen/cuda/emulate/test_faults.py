"""Every planted fault is found and named; with the checks off, one of the two orders gives wrong numbers."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from autosched.codegen.cuda.emulate import Checks, EmulationError
from autosched.errors import CodegenError

from .kernels import BOTH, F32, I32, NO_CHECKS, integers, launch, ptx

cuda = pytest.importorskip("numba.cuda")
from numba import float32, types  # noqa: E402


def product_without_first_barrier(a, b, c):
    left, right = cuda.shared.array((16, 16), float32), cuda.shared.array((16, 16), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for step in range(4):
        left[y, x], right[y, x] = a[y * 64 + step * 16 + x], b[(step * 16 + y) * 16 + x]
        for q in range(16):
            total += left[y, q] * right[q, x]
        cuda.syncthreads()
    c[y * 16 + x] = total


def product_without_second_barrier(a, b, c):
    left, right = cuda.shared.array((16, 16), float32), cuda.shared.array((16, 16), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for step in range(4):
        left[y, x], right[y, x] = a[y * 64 + step * 16 + x], b[(step * 16 + y) * 16 + x]
        cuda.syncthreads()
        for q in range(16):
            total += left[y, q] * right[q, x]
    c[y * 16 + x] = total


@pytest.mark.parametrize("kernel", [product_without_first_barrier, product_without_second_barrier])
@pytest.mark.parametrize("order", BOTH)
def test_a_missing_barrier_is_a_race(kernel, order):
    a, b, c = integers(16, 64), integers(64, 16, seed=1), np.zeros((16, 16), np.float32)
    with pytest.raises(EmulationError, match="without a synchronisation between them") as caught:
        launch(kernel, (F32, F32, F32), (1,), (16, 16), [a, b, c], order=order, checks=Checks(unset=False))
    assert caught.value.kind == "race"
    assert "shared memory" in str(caught.value) and "block (0, 0, 0)" in str(caught.value)


@pytest.mark.parametrize("kernel", [product_without_first_barrier, product_without_second_barrier])
def test_a_missing_barrier_gives_wrong_numbers_in_an_order(kernel):
    a, b = integers(16, 64), integers(64, 16, seed=1)
    right = []
    for order in BOTH:
        c = np.zeros((16, 16), np.float32)
        launch(kernel, (F32, F32, F32), (1,), (16, 16), [a, b, c], order=order, checks=NO_CHECKS)
        right.append(np.array_equal(c, a @ b))
    assert not all(right)


def shift(a, b, by):
    b[cuda.threadIdx.x] = a[cuda.threadIdx.x + by]


def shift_write(a, b, by):
    b[cuda.threadIdx.x + by] = a[cuda.threadIdx.x]


@pytest.mark.parametrize(
    "kernel, by, offset, thread", [(shift, 1, 128, 31), (shift, -1, -4, 0), (shift_write, 1, 128, 31)]
)
def test_out_of_bounds_of_an_array(kernel, by, offset, thread):
    a, b = integers(32), np.zeros(32, np.float32)
    with pytest.raises(EmulationError, match="out of bounds") as caught:
        launch(kernel, (F32, F32, types.int64), (1,), (32,), [a, b, by])
    assert f"thread ({thread}, 0, 0)" in str(caught.value) and f"offset {offset} of the 128 bytes" in str(caught.value)
    assert caught.value.kind == "bounds"


def test_the_line_of_the_source_is_named():
    a, b = integers(32), np.zeros(32, np.float32)
    with pytest.raises(EmulationError, match=f"line {shift.__code__.co_firstlineno + 1}"):
        launch(shift, (F32, F32, types.int64), (1,), (32,), [a, b, 1], lineinfo=True)


def shared_index(a, k):
    values = cuda.shared.array(32, float32)
    others = cuda.shared.array(32, float32)
    values[cuda.threadIdx.x] = 1
    others[cuda.threadIdx.x + k] = 2
    cuda.syncthreads()
    a[cuda.threadIdx.x] = values[cuda.threadIdx.x] + others[(cuda.threadIdx.x + k) % 32]


def local_index(a, k):
    values = cuda.local.array(4, float32)
    for j in range(4):
        values[j] = j
    a[cuda.threadIdx.x] = values[k]


@pytest.mark.parametrize("kernel, space", [(shared_index, "shared memory"), (local_index, "local memory")])
def test_out_of_bounds_of_shared_and_local_memory(kernel, space):
    a = np.zeros(32, np.float32)
    launch(kernel, (F32, types.int64), (1,), (32,), [a, 0])
    with pytest.raises(EmulationError, match="out of bounds") as caught:
        launch(kernel, (F32, types.int64), (1,), (32,), [a, 4 if kernel is local_index else 32])
    assert space in str(caught.value)


def unwritten(a):
    values = cuda.shared.array(32, float32)
    if cuda.threadIdx.x < 31:
        values[cuda.threadIdx.x] = 1
    cuda.syncthreads()
    a[cuda.threadIdx.x] = values[31 - cuda.threadIdx.x]


def test_reading_shared_memory_that_nobody_wrote():
    with pytest.raises(EmulationError, match="nobody wrote") as caught:
        launch(unwritten, (F32,), (1,), (32,), [np.zeros(32, np.float32)])
    assert caught.value.kind == "unset" and "thread (0, 0, 0)" in str(caught.value)


def same_place(a):
    a[0] = cuda.threadIdx.x


def same_place_of_blocks(a):
    a[cuda.threadIdx.x] = cuda.blockIdx.x


def read_of_others(a, b):
    b[cuda.blockIdx.x] = a[1 - cuda.blockIdx.x]
    a[cuda.blockIdx.x] = 1


def test_races_in_global_memory():
    a, b = np.zeros(32, np.float32), np.zeros(32, np.float32)
    for kernel, kinds, grid, arrays in (
        (same_place, (F32,), 1, [a]),
        (same_place_of_blocks, (F32,), 2, [a]),
        (read_of_others, (F32, F32), 2, [a, b]),
    ):
        with pytest.raises(EmulationError, match="race") as caught:
            launch(kernel, kinds, (grid,), (32 if grid == 1 or kernel is same_place_of_blocks else 1,), arrays)
        assert caught.value.kind == "race"
    launch(same_place_of_blocks, (F32,), (1,), (32,), [a])


def equal_stores(a, b):
    """All threads of all blocks store the same; in shared memory too, which a barrier tells the others."""
    values = cuda.shared.array(1, float32)
    a[0] = b[5]
    values[0] = b[7]
    cuda.syncthreads()
    a[1 + cuda.threadIdx.x] = values[0]


def one_differs(a, b):
    a[0] = 1 if cuda.threadIdx.x < 63 else 2


def half_differs(a, b):
    values = cuda.shared.array(1, float32)
    values[0] = b[cuda.threadIdx.x // 32]
    cuda.syncthreads()
    a[cuda.threadIdx.x] = values[0]


def read_at_once(a, b):
    values = cuda.shared.array(1, float32)
    values[0] = b[7]
    a[cuda.threadIdx.x] = values[cuda.threadIdx.x // 64]


def one_stores_more(a, b):
    values = cuda.shared.array(1, float32)
    values[0] = 3
    if cuda.threadIdx.x == 0:
        values[0] = 4
    cuda.syncthreads()
    a[cuda.threadIdx.x] = values[0]


def read_before_one_of_them(a, b):
    """Thread 1 reads what was there; only its own warp waits for that, and thread 32 stores the same as thread 0."""
    values = cuda.shared.array(1, float32)
    if cuda.threadIdx.x == 0:
        values[0] = 2
    cuda.syncthreads()
    if cuda.threadIdx.x == 1:
        a[0] = values[0]
    cuda.syncwarp()
    if cuda.threadIdx.x % 32 == 0:
        values[0] = 3


def stored_by_blocks_and_read(a, b):
    a[0] = 3
    cuda.syncthreads()
    b[cuda.blockIdx.x] = a[0]


@pytest.mark.parametrize("order", BOTH)
def test_equal_stores_are_no_race_and_all_others_are(order):
    a, b = np.zeros(65, np.float32), integers(64)
    launch(equal_stores, (F32, F32), (2,), (64,), [a, b], order=order)
    np.testing.assert_array_equal(a, [b[5], *[b[7]] * 64])
    assert b[0] != b[1]
    for kernel in (one_differs, half_differs, read_at_once, one_stores_more, read_before_one_of_them):
        with pytest.raises(EmulationError, match="without a synchronisation") as caught:
            launch(kernel, (F32, F32), (1,), (64,), [a, b], order=order)
        assert caught.value.kind == "race", kernel
    with pytest.raises(EmulationError, match="without a synchronisation"):
        launch(stored_by_blocks_and_read, (F32, F32), (2,), (64,), [a, b], order=order)


def unsynchronised_warp(a, b):
    values = cuda.shared.array(32, float32)
    values[cuda.threadIdx.x] = a[cuda.threadIdx.x]
    b[cuda.threadIdx.x] = values[31 - cuda.threadIdx.x]


def synchronised_warp(a, b):
    values = cuda.shared.array(64, float32)
    values[cuda.threadIdx.x] = a[cuda.threadIdx.x]
    cuda.syncwarp()
    b[cuda.threadIdx.x] = values[cuda.threadIdx.x ^ 31]


def test_lanes_need_a_synchronisation_of_the_warp():
    a, b = integers(64), np.zeros(64, np.float32)
    with pytest.raises(EmulationError, match="race"):
        launch(unsynchronised_warp, (F32, F32), (1,), (32,), [a, b], checks=Checks(unset=False))
    launch(synchronised_warp, (F32, F32), (1,), (64,), [a, b])
    np.testing.assert_array_equal(b, a[np.arange(64) ^ 31])


def warp_sync_between_warps(a, b):
    values = cuda.shared.array(64, float32)
    values[cuda.threadIdx.x] = a[cuda.threadIdx.x]
    cuda.syncwarp()
    b[cuda.threadIdx.x] = values[63 - cuda.threadIdx.x]


@pytest.mark.parametrize("order", BOTH)
def test_a_synchronisation_of_warps_does_not_order_two_of_them(order):
    a, b = integers(64), np.zeros(64, np.float32)
    with pytest.raises(EmulationError, match="race"):
        launch(warp_sync_between_warps, (F32, F32), (1,), (64,), [a, b], order=order, checks=Checks(unset=False))


def half_a_barrier(a):
    if cuda.threadIdx.x < 40:
        cuda.syncthreads()
    a[cuda.threadIdx.x] = 1


def split_barrier(a):
    if cuda.threadIdx.x < 40:
        a[cuda.threadIdx.x] = 1
        cuda.syncthreads()
        a[cuda.threadIdx.x] = 3
    else:
        a[cuda.threadIdx.x] = 2
        cuda.syncthreads()
        a[cuda.threadIdx.x] = 4


def early_exit(a):
    if cuda.threadIdx.x < 30:
        a[cuda.threadIdx.x] = cuda.shfl_sync(0xFFFFFFFF, a[cuda.threadIdx.x], 0)


def outside_mask(a):
    a[cuda.threadIdx.x] = cuda.shfl_sync(0xFFFF, a[cuda.threadIdx.x], 0)


@pytest.mark.parametrize(
    "kernel, message, kind",
    [
        (half_a_barrier, "deadlock", "deadlock"),
        (split_barrier, "another instruction", "diverged"),
        (early_exit, "already ended", "exited"),
        (outside_mask, "not in the mask", "mask"),
    ],
)
def test_threads_that_do_not_come_together(kernel, message, kind):
    with pytest.raises(EmulationError, match=message) as caught:
        launch(kernel, (F32,), (1,), (64,), [np.zeros(64, np.float32)])
    assert caught.value.kind == kind


def spin_arrays(flag, out):
    while load_volatile(flag) == 0:
        pass
    out[0] = 1


load_volatile = ptx("ld.volatile.global.u32 $0, [$1];", "r", "l")


def test_a_loop_that_waits_for_ever_ends():
    with pytest.raises(EmulationError, match="what never comes"):
        launch(spin_arrays, (I32, I32), (1,), (1,), [np.zeros(1, np.int32), np.zeros(1, np.int32)])


wide_load = ptx("ld.global.v4.f32 {$0, $1, $2, $3}, [$4];", "ffff", "l")


def misaligned(a, b):
    x, y, z, w = wide_load(a)
    b[0] = x + y + z + w


def test_wide_accesses_have_to_be_aligned():
    a, b = integers(8), np.zeros(1, np.float32)
    launch(misaligned, (F32, F32), (1,), (1,), [a, b])
    assert b[0] == a[:4].sum()
    buffer = np.zeros(8, np.float32)

    with pytest.raises(EmulationError, match="not a multiple of 16"):
        launch(misaligned_by_one, (F32, F32), (1,), (1,), [buffer, b])


def misaligned_by_one(a, b):
    x, y, z, w = wide_load(element(a))
    b[0] = x + y + z + w


element = ptx("add.u64 $0, $1, 4;", "l", "l")


def test_read_only_arrays_are_not_written():
    a = np.zeros(32, np.float32)
    a.flags.writeable = False
    with pytest.raises(EmulationError, match="read-only"):
        launch(same_place_of_blocks, (F32,), (1,), (32,), [a])


unknown = ptx("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;", "", "")
unknown_modifier = ptx("mul.rz.f32 $0, $1, $1;", "f", "f")
clock = ptx("mov.u32 $0, %clock;", "r", "")


def uses_unknown(a):
    unknown()


def uses_modifier(a):
    a[0] = unknown_modifier(a[0])


def uses_clock(a):
    a[0] = clock()


@pytest.mark.parametrize(
    "kernel, name", [(uses_unknown, "tcgen05"), (uses_modifier, r"\.rz"), (uses_clock, "special register %clock")]
)
def test_what_the_emulator_does_not_know_is_refused_by_name(kernel, name):
    with pytest.raises(CodegenError, match=name):
        launch(kernel, (F32,), (1,), (1,), [np.zeros(1, np.float32)])


def test_errors_cross_processes():
    error = EmulationError("what", where="where", hint="do", kind="race")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.kind) == (str(error), "race")

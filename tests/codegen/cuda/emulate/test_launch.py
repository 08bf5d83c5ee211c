"""Kernels of numba.cuda on the emulator: right results in both orders, odd sizes too."""

from __future__ import annotations

import math

import numpy as np
import pytest

from autosched.codegen.cuda.emulate import EmulationError, Trace, program, run_launch
from autosched.errors import CodegenError, InvalidValueError

from .kernels import BOTH, F32, F64, I32, integers, launch, text_of

cuda = pytest.importorskip("numba.cuda")
from numba import float32, int32, types  # noqa: E402


def scale(a, b, n):
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if i < n:
        b[i] = a[i] * 2


def test_one_thread_an_element():
    a = integers(1000)
    b = np.zeros_like(a)
    launch(scale, (F32, F32, types.int64), (8,), (128,), [a, b, 1000])
    np.testing.assert_array_equal(b, a * 2)


def gemm(a, b, c, m, n, k):
    left, right = cuda.shared.array((16, 16), float32), cuda.shared.array((16, 17), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    row, column = cuda.blockIdx.y * 16 + y, cuda.blockIdx.x * 16 + x
    total = float32(0)
    for step in range((k + 15) // 16):
        left[y, x] = a[row * k + step * 16 + x] if row < m and step * 16 + x < k else 0
        right[y, x] = b[(step * 16 + y) * n + column] if step * 16 + y < k and column < n else 0
        cuda.syncthreads()
        for q in range(16):
            total += left[y, q] * right[q, x]
        cuda.syncthreads()
    if row < m and column < n:
        c[row * n + column] = total


GEMM = (F32, F32, F32, types.int64, types.int64, types.int64)


@pytest.mark.parametrize("order", BOTH)
@pytest.mark.parametrize("m, n, k", [(64, 64, 64), (33, 17, 50), (1, 1, 1)])
def test_product_of_matrices(order, m, n, k):
    a, b, c = integers(m, k), integers(k, n, seed=1), np.zeros((m, n), np.float32)
    launch(gemm, GEMM, (-(-n // 16), -(-m // 16)), (16, 16), [a, b, c, m, n, k], order=order)
    np.testing.assert_array_equal(c, a @ b)


def indices(out):
    t, b = cuda.threadIdx, cuda.blockIdx
    block = b.x + cuda.gridDim.x * (b.y + cuda.gridDim.y * b.z)
    thread = t.x + cuda.blockDim.x * (t.y + cuda.blockDim.y * t.z)
    place = block * cuda.blockDim.x * cuda.blockDim.y * cuda.blockDim.z + thread
    out[place * 3], out[place * 3 + 1], out[place * 3 + 2] = block, thread, cuda.laneid


def test_special_registers():
    out = np.full((2 * 3 * 2, 5 * 3 * 2, 3), -1, np.int32)
    launch(indices, (I32,), (2, 3, 2), (5, 3, 2), [out])
    assert (out[:, :, 0] == np.arange(12)[:, None]).all()
    assert (out[:, :, 1] == np.arange(30)).all()
    assert (out[:, :, 2] == np.arange(30) % 32).all()


def reduction(a, out, n):
    warps = cuda.shared.array(8, float32)
    i = cuda.threadIdx.x
    total = float32(0)
    while i < n:
        total += a[cuda.blockIdx.x * n + i]
        i += cuda.blockDim.x
    for distance in (16, 8, 4, 2, 1):
        total += cuda.shfl_down_sync(0xFFFFFFFF, total, distance)
    if cuda.laneid == 0:
        warps[cuda.threadIdx.x // 32] = total
    cuda.syncthreads()
    if cuda.threadIdx.x < 32:
        total = warps[cuda.threadIdx.x] if cuda.threadIdx.x < 8 else float32(0)
        for distance in (4, 2, 1):
            total += cuda.shfl_xor_sync(0xFFFFFFFF, total, distance)
        if cuda.threadIdx.x == 0:
            out[cuda.blockIdx.x] = total


@pytest.mark.parametrize("order", BOTH)
def test_reduction_by_shuffles(order):
    a = integers(5, 1001)
    out = np.zeros(5, np.float32)
    launch(reduction, (F32, F32, types.int64), (5,), (256,), [a, out, 1001], order=order)
    np.testing.assert_array_equal(out, a.sum(1))


def warp_functions(a, out):
    i = cuda.threadIdx.x
    value = a[i]
    out[i] = cuda.ballot_sync(0xFFFFFFFF, value > 0)
    out[32 + i] = cuda.any_sync(0xFFFFFFFF, value == 3)
    out[64 + i] = cuda.all_sync(0xFFFFFFFF, value > -100)
    out[96 + i] = cuda.match_any_sync(0xFFFFFFFF, value)
    out[128 + i] = cuda.shfl_sync(0xFFFFFFFF, value, i * 7)
    out[160 + i] = cuda.shfl_up_sync(0xFFFFFFFF, value, 3)
    out[192 + i] = cuda.shfl_down_sync(0xFFFFFFFF, value, 3)
    out[224 + i] = cuda.activemask()
    out[256 + i] = cuda.eq_sync(0xFFFFFFFF, value > 0)


def test_votes_matches_and_shuffles():
    a = integers(32, kind=np.int32)
    out = np.zeros((9, 32), np.int32)
    launch(warp_functions, (I32, I32), (1,), (32,), [a, out])
    lanes = np.arange(32)
    mask = sum(1 << int(k) for k in lanes[a > 0])
    assert (out[0].view(np.uint32) == mask).all()
    assert (out[1] == (a == 3).any()).all() and (out[2] == 1).all()
    same = [sum(1 << int(k) for k in lanes[a == v]) for v in a]
    assert (out[3].view(np.uint32) == np.array(same, np.uint32)).all()
    assert (out[4] == a[lanes * 7 % 32]).all()
    assert (out[5] == a[np.where(lanes >= 3, lanes - 3, lanes)]).all()
    assert (out[6] == a[np.where(lanes < 29, lanes + 3, lanes)]).all()
    assert (out[7].view(np.uint32) == 0xFFFFFFFF).all()
    assert (out[8] == 0).all()


def histogram(a, counts, n):
    mine = cuda.shared.array(16, int32)
    i = cuda.threadIdx.x
    if i < 16:
        mine[i] = 0
    cuda.syncthreads()
    place = cuda.blockIdx.x * cuda.blockDim.x + i
    if place < n:
        cuda.atomic.add(mine, a[place], 1)
    cuda.syncthreads()
    if i < 16:
        cuda.atomic.add(counts, i, mine[i])


@pytest.mark.parametrize("order", BOTH)
def test_histogram_by_atomics(order):
    a = np.random.default_rng(0).integers(0, 16, 1000).astype(np.int32)
    counts = np.zeros(16, np.int32)
    text, symbol = text_of(histogram, I32, types.Array(types.int32, 1, "C"), types.int64)
    arguments = [a, 0, 0, 16, 4, counts, 16, 4, 1000]
    run_launch(text, symbol, (8,), (128,), 0, arguments, order=order)
    np.testing.assert_array_equal(counts, np.bincount(a, minlength=16))


def float_atomics(values, out):
    i = cuda.threadIdx.x
    cuda.atomic.add(out, 0, values[i])
    cuda.atomic.max(out, 1, values[i])
    cuda.atomic.min(out, 2, values[i])
    cuda.atomic.sub(out, 3, values[i])


def test_atomics_of_floats():
    for kind, name in ((np.float32, types.float32), (np.float64, types.float64)):
        a = integers(64, kind=kind)
        out = np.zeros(4, kind)
        text, symbol = text_of(float_atomics, types.CPointer(name), types.Array(name, 1, "C"))
        run_launch(text, symbol, (1,), (64,), 0, [a, 0, 0, 4, a.itemsize, out, 4, a.itemsize])
        np.testing.assert_array_equal(out, [a.sum(), a.max(), a.min(), -a.sum()])


def last_block_sums(a, partial, counter, out):
    shared = cuda.shared.array(1, int32)
    i = cuda.threadIdx.x
    partial[cuda.blockIdx.x * 32 + i] = a[cuda.blockIdx.x * 32 + i] * 2
    cuda.threadfence()
    cuda.syncthreads()
    if i == 0:
        shared[0] = cuda.atomic.add(counter, 0, 1)
    cuda.syncthreads()
    if shared[0] == cuda.gridDim.x - 1:
        total = float32(0)
        for b in range(cuda.gridDim.x):
            total += partial[b * 32 + i]
        out[i] = total


def test_blocks_that_tell_each_other_by_a_counter_do_not_race():
    a, partial = integers(6, 32), np.zeros((6, 32), np.float32)
    out, counter = np.zeros(32, np.float32), np.zeros(1, np.int32)
    text, symbol = text_of(last_block_sums, F32, F32, types.Array(types.int32, 1, "C"), F32)
    run_launch(text, symbol, (6,), (32,), 0, [a, partial, 0, 0, 1, 4, counter, 1, 4, out])
    np.testing.assert_array_equal(out, a.sum(0) * 2)


def last_block_sums_unfenced(a, partial, counter, out):
    shared = cuda.shared.array(1, int32)
    i = cuda.threadIdx.x
    partial[cuda.blockIdx.x * 32 + i] = a[cuda.blockIdx.x * 32 + i] * 2
    cuda.syncthreads()
    if i == 0:
        shared[0] = cuda.atomic.add(counter, 0, 1)
    cuda.syncthreads()
    if shared[0] == cuda.gridDim.x - 1:
        total = float32(0)
        for b in range(cuda.gridDim.x):
            total += partial[b * 32 + i]
        out[i] = total


def test_without_a_fence_they_race():
    a, partial = integers(6, 32), np.zeros((6, 32), np.float32)
    out, counter = np.zeros(32, np.float32), np.zeros(1, np.int32)
    text, symbol = text_of(last_block_sums_unfenced, F32, F32, types.Array(types.int32, 1, "C"), F32)
    with pytest.raises(EmulationError, match="race"):
        run_launch(text, symbol, (6,), (32,), 0, [a, partial, 0, 0, 1, 4, counter, 1, 4, out])


def functions(a, out):
    i = cuda.threadIdx.x
    x = a[i]
    out[i] = math.exp(x)
    out[32 + i] = math.log(abs(x) + 1)
    out[64 + i] = math.sin(x * 1000)
    out[96 + i] = math.tanh(x)
    out[128 + i] = math.erf(x)
    out[160 + i] = math.sqrt(abs(x))
    out[192 + i] = math.pow(abs(x), x)
    out[224 + i] = math.floor(x)
    out[256 + i] = math.fmod(x, types.float32(0.7))
    out[288 + i] = math.atan2(x, types.float32(0.5))


@pytest.mark.parametrize("kind, pointer", [(np.float32, F32), (np.float64, F64)])
def test_functions_of_libdevice(kind, pointer):
    a = np.random.default_rng(0).standard_normal(32).astype(kind)
    out = np.zeros((10, 32), kind)
    launch(functions, (pointer, pointer), (1,), (32,), [a, out])
    x = a.astype(np.float64)
    expected = [np.exp(x), np.log(abs(x) + 1), np.sin(x * 1000), np.tanh(x), [math.erf(v) for v in x], np.sqrt(abs(x))]
    expected += [abs(x) ** x, np.floor(x), np.fmod(x, np.float64(np.float32(0.7))), np.arctan2(x, 0.5)]
    np.testing.assert_allclose(out, np.array(expected), rtol=20 * np.finfo(kind).eps, atol=np.finfo(kind).eps)


def transpose(a, b, n, pad):
    tile = cuda.shared.array((32, 33), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    for k in range(y, 32, 8):
        if cuda.blockIdx.x * 32 + x < n and cuda.blockIdx.y * 32 + k < n:
            tile[k, x] = a[(cuda.blockIdx.y * 32 + k) * n + cuda.blockIdx.x * 32 + x]
    cuda.syncthreads()
    for k in range(y, 32, 8):
        if cuda.blockIdx.y * 32 + x < n and cuda.blockIdx.x * 32 + k < n:
            b[(cuda.blockIdx.x * 32 + k) * n + cuda.blockIdx.y * 32 + x] = tile[x, k]


def unpadded_transpose(a, b, n, pad):
    tile = cuda.shared.array((32, 32), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    for k in range(y, 32, 8):
        tile[k, x] = a[(cuda.blockIdx.y * 32 + k) * n + cuda.blockIdx.x * 32 + x]
    cuda.syncthreads()
    for k in range(y, 32, 8):
        b[(cuda.blockIdx.x * 32 + k) * n + cuda.blockIdx.y * 32 + x] = tile[x, k]


TRANSPOSE = (F32, F32, types.int64, types.int64)


def test_transpose():
    a = integers(50, 50)
    b = np.zeros_like(a)
    launch(transpose, TRANSPOSE, (2, 2), (32, 8), [a, b, 50, 0])
    np.testing.assert_array_equal(b, a.T)


@pytest.mark.parametrize("kernel, passes", [(transpose, 1), (unpadded_transpose, 32)])
def test_trace_counts_bank_conflicts_and_sectors(kernel, passes):
    a = integers(64, 64)
    b, trace = np.zeros_like(a), Trace()
    launch(kernel, TRANSPOSE, (2, 2), (32, 8), [a, b, 64, 0], trace=trace)
    found = {(access.space, access.writes): access for access in trace.accesses()}
    assert found["shared", False].per_request == passes
    assert found["shared", True].per_request == 1
    assert found["global", False].per_request == found["global", True].per_request == 4
    assert found["global", True].requests == 32 and found["global", True].efficiency == 1
    assert "shared" in trace.report()


def strided(a, b):
    b[cuda.threadIdx.x] = a[cuda.threadIdx.x * 8]


def test_trace_counts_sectors_of_strided_reads():
    a, b, trace = integers(256), np.zeros(32, np.float32), Trace()
    launch(strided, (F32, F32), (1,), (32,), [a, b], trace=trace)
    reads = next(access for access in trace.accesses() if not access.writes)
    assert (reads.transactions, reads.ideal) == (32, 4)


def dynamic(a, b):
    shared = cuda.shared.array(0, float32)
    shared[cuda.threadIdx.x] = a[cuda.threadIdx.x]
    cuda.syncthreads()
    b[cuda.threadIdx.x] = shared[cuda.blockDim.x - 1 - cuda.threadIdx.x]


def test_dynamic_shared_memory():
    a = integers(64)
    b = np.zeros_like(a)
    launch(dynamic, (F32, F32), (1,), (64,), [a, b], shared_bytes=256)
    np.testing.assert_array_equal(b, a[::-1])
    with pytest.raises(EmulationError, match="out of bounds"):
        launch(dynamic, (F32, F32), (1,), (64,), [a, b], shared_bytes=252)


def local(a, b, k):
    mine = cuda.local.array(8, float32)
    for j in range(8):
        mine[j] = a[cuda.threadIdx.x * 8 + j]
    cuda.syncthreads()
    b[cuda.threadIdx.x] = mine[(cuda.threadIdx.x + k) % 8]


def test_local_arrays():
    a, b = integers(32, 8), np.zeros(32, np.float32)
    launch(local, (F32, F32, types.int64), (1,), (32,), [a, b, 3])
    np.testing.assert_array_equal(b, a[np.arange(32), (np.arange(32) + 3) % 8])


TABLE = np.arange(16, dtype=np.float32) ** 2


def constant(b):
    table = cuda.const.array_like(TABLE)
    b[cuda.threadIdx.x] = table[cuda.threadIdx.x % 16]


def test_constant_memory():
    b = np.zeros(32, np.float32)
    launch(constant, (F32,), (1,), (32,), [b])
    np.testing.assert_array_equal(b, np.tile(TABLE, 2))


def counted(a, out):
    i = cuda.threadIdx.x
    out[i] = cuda.syncthreads_count(1 if a[i] > 0 else 0)
    out[64 + i] = cuda.syncthreads_or(1 if a[i] > 6 else 0)
    out[128 + i] = cuda.syncthreads_and(1 if a[i] > -9 else 0)


def test_barriers_that_count():
    a, out = integers(64, kind=np.int32), np.zeros((3, 64), np.int32)
    launch(counted, (I32, I32), (1,), (64,), [a, out])
    assert (out[0] == (a > 0).sum()).all() and (out[1] != 0).all() == (a > 6).any() and (out[2] == 1).all()


def test_wrong_calls_are_refused():
    a = integers(8)
    with pytest.raises(InvalidValueError, match="takes 3 arguments"):
        launch(scale, (F32, F32, types.int64), (1,), (8,), [a, a])
    with pytest.raises(InvalidValueError, match="threads"):
        launch(scale, (F32, F32, types.int64), (1,), (64, 32), [a, a, 8])
    with pytest.raises(InvalidValueError, match="contiguous"):
        launch(scale, (F32, F32, types.int64), (1,), (8,), [a[::2], a, 8])
    with pytest.raises(InvalidValueError, match="order"):
        launch(scale, (F32, F32, types.int64), (1,), (8,), [a, a, 8], order="random")
    with pytest.raises(CodegenError, match="no kernel"):
        run_launch(text_of(scale, F32, F32, types.int64)[0], "other", (1,), (1,), 0, [])


def test_programs_that_were_dropped_are_compiled_again(monkeypatch):
    monkeypatch.setattr(program, "_KEPT_PROGRAMS", 1)
    a, b = integers(64), np.zeros(64, np.float32)
    for _ in range(3):
        launch(scale, (F32, F32, types.int64), (1,), (64,), [a, b, 64])
        np.testing.assert_array_equal(b, a * 2)
        launch(dynamic, (F32, F32), (1,), (64,), [a, b], shared_bytes=256)
        np.testing.assert_array_equal(b, a[::-1])

"""Inline PTX on the emulator: matrix instructions, asynchronous copies, conversions, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from autosched.codegen.cuda.emulate import Checks, EmulationError

from .kernels import BOTH, F16, F32, I32, NO_CHECKS, address, integers, launch, moved, ptx, shared_address

cuda = pytest.importorskip("numba.cuda")
from numba import float32, int32, types, uint16  # noqa: E402

mma_tf32 = ptx(
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {$0,$1,$2,$3}, {$4,$5,$6,$7}, {$8,$9}, {$10,$11,$12,$13};",
    "ffff",
    "rrrrrrffff",
)
to_tf32 = ptx("cvt.rna.tf32.f32 $0, $1;", "r", "f")
bits_of = ptx("mov.b32 $0, $1;", "r", "f")
copy16 = ptx("cp.async.cg.shared.global [$0], [$1], 16;", "", "rl")
copy16_or_zero = ptx("cp.async.cg.shared.global [$0], [$1], 16, $2;", "", "rlr")
commit = ptx("cp.async.commit_group;", "", "")
wait0, wait1 = ptx("cp.async.wait_group 0;", "", ""), ptx("cp.async.wait_group 1;", "", "")


def product(wait_for_previous, wait_for_last, barrier_before, barrier_after):
    """C = A B of 32 x 16 by 64 steps: 4 warps, two stages of tf32 tiles brought by asynchronous copies."""

    def kernel(a, b, c, k):
        left, right = cuda.shared.array((2, 32, 8), float32), cuda.shared.array((2, 8, 16), float32)
        i = cuda.threadIdx.x
        lane, warp = i % 32, i // 32
        g, t = lane // 4, lane % 4
        row, column = warp // 2 * 16, warp % 2 * 8
        d0 = d1 = d2 = d3 = float32(0)
        from_left, from_right = shared_address(address(left)), shared_address(address(right))
        if i < 64:
            copy16(from_left + i * 16, moved(a, (i // 2) * k + i % 2 * 4))
        elif i < 96:
            copy16(from_right + (i - 64) * 16, moved(b, (i - 64) * 4))
        commit()
        for step in range(k // 8):
            stage = step % 2
            if step + 1 < k // 8:
                if i < 64:
                    copy16(from_left + (1 - stage) * 1024 + i * 16, moved(a, (i // 2) * k + (step + 1) * 8 + i % 2 * 4))
                elif i < 96:
                    copy16(from_right + (1 - stage) * 512 + (i - 64) * 16, moved(b, (step + 1) * 128 + (i - 64) * 4))
                commit()
                if wait_for_previous:
                    wait1()
            elif wait_for_last:
                wait0()
            if barrier_before:
                cuda.syncthreads()
            a0, a1 = to_tf32(left[stage, row + g, t]), to_tf32(left[stage, row + g + 8, t])
            a2, a3 = to_tf32(left[stage, row + g, t + 4]), to_tf32(left[stage, row + g + 8, t + 4])
            b0, b1 = to_tf32(right[stage, t, column + g]), to_tf32(right[stage, t + 4, column + g])
            d0, d1, d2, d3 = mma_tf32(a0, a1, a2, a3, b0, b1, d0, d1, d2, d3)
            if barrier_after:
                cuda.syncthreads()
        c[(row + g) * 16 + column + 2 * t], c[(row + g) * 16 + column + 2 * t + 1] = d0, d1
        c[(row + g + 8) * 16 + column + 2 * t], c[(row + g + 8) * 16 + column + 2 * t + 1] = d2, d3

    return kernel


PRODUCT = (F32, F32, F32, types.int32)


@pytest.mark.parametrize("order", BOTH)
def test_double_buffered_product_on_tensor_cores(order):
    a, b, c = integers(32, 64), integers(64, 16, seed=1), np.zeros((32, 16), np.float32)
    launch(right_product, PRODUCT, (1,), (128,), [a, b, c, 64], order=order)
    np.testing.assert_array_equal(c, a @ b)


right_product = product(True, True, True, True)
WRONG = {
    "pending": [product(False, True, True, True), product(True, False, True, True)],
    "race": [product(True, True, False, True), product(True, True, True, False)],
}


@pytest.mark.parametrize("kind, kernel", [(kind, kernel) for kind, kernels in WRONG.items() for kernel in kernels])
def test_planted_faults_are_found(kind, kernel):
    a, b = integers(32, 64), integers(64, 16, seed=1)
    right = []
    for order in BOTH:
        c = np.zeros((32, 16), np.float32)
        with pytest.raises(EmulationError) as caught:
            launch(kernel, PRODUCT, (1,), (128,), [a, b, c, 64], order=order, checks=Checks(unset=False))
        assert caught.value.kind in ("race", "pending") and (kind == "race" or caught.value.kind == "pending")
        launch_quietly(kernel, [a, b, c, 64], order)
        right.append(np.array_equal(c, a @ b))
    assert not all(right), "with the checks off, an order gives wrong numbers"


def launch_quietly(kernel, arrays, order):
    try:
        launch(kernel, PRODUCT, (1,), (128,), arrays, order=order, checks=NO_CHECKS)
    except EmulationError as error:
        assert error.kind == "pending"


def rounded(a, out):
    out[cuda.threadIdx.x] = to_tf32(a[cuda.threadIdx.x])


def test_tf32_keeps_ten_bits_and_rounds_halves_away():
    a = np.array([1, 1 + 2**-10, 1 + 2**-11, 1 + 2**-12, -1 - 2**-11, 0, np.inf], np.float32)
    out = np.zeros(7, np.float32)
    launch(rounded, (F32, I32), (1,), (7,), [a, out.view(np.int32)])
    np.testing.assert_array_equal(out, np.array([1, 1 + 2**-10, 1 + 2**-10, 1, -1 - 2**-10, 0, np.inf], np.float32))


def tf32_ignores_low_bits(a, b, out):
    lane = cuda.laneid
    d0, d1, d2, d3 = mma_tf32(
        bits_of(a[lane]), 0, 0, 0, bits_of(b[lane]), 0, float32(0), float32(0), float32(0), float32(0)
    )
    out[lane * 2], out[lane * 2 + 1] = d0, d1


def test_a_product_without_rounding_first_cuts_its_operands():
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(32).astype(np.float32) for _ in range(2))
    out = np.zeros((8, 8), np.float32)
    launch(tf32_ignores_low_bits, (F32, F32, F32), (1,), (32,), [a, b, out])
    cut = [(v.view(np.uint32) & 0xFFFFE000).view(np.float32).astype(np.float64) for v in (a, b)]
    np.testing.assert_allclose(out, cut[0].reshape(8, 4) @ cut[1].reshape(8, 4).T, rtol=1e-6)


mma_f16 = ptx(
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {$0,$1,$2,$3}, {$4,$5,$6,$7}, {$8,$9}, {$10,$11,$12,$13};",
    "ffff",
    "rrrrrrffff",
)
mma_bf16 = ptx(
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {$0,$1,$2,$3}, {$4,$5,$6,$7}, {$8,$9}, {$10,$11,$12,$13};",
    "ffff",
    "rrrrrrffff",
)
mma_s8 = ptx(
    "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {$0,$1,$2,$3}, {$4,$5,$6,$7}, {$8,$9}, {$10,$11,$12,$13};",
    "rrrr",
    "rrrrrrrrrr",
)
mma_half_sums = ptx(
    "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {$0,$1}, {$2,$3,$4,$5}, {$6,$7}, {$8,$9};", "rr", "rrrrrrrr"
)
load4 = ptx("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0,$1,$2,$3}, [$4];", "rrrr", "r")
load2_transposed = ptx("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {$0,$1}, [$2];", "rr", "r")
load1 = ptx("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {$0}, [$1];", "r", "r")
store4 = ptx("stmatrix.sync.aligned.m8n8.x4.shared.b16 [$0], {$1,$2,$3,$4};", "", "rrrrr")


def halves(is_bfloat, sums):
    def kernel(a, b, c):
        left, right = cuda.shared.array((16, 16), uint16, 16), cuda.shared.array((16, 8), uint16, 16)
        i = cuda.threadIdx.x
        for k in range(i, 256, 32):
            left[k // 16, k % 16] = a[k]
        for k in range(i, 128, 32):
            right[k // 8, k % 8] = b[k]
        cuda.syncwarp()
        # Row i % 16 of A; the matrices are rows 0-7 and 8-15 of the left half, then of the right half.
        a0, a1, a2, a3 = load4(shared_address(address(left)) + (i % 16) * 32 + i // 16 * 16)
        b0, b1 = load2_transposed(shared_address(address(right)) + (i % 16) * 16)
        zero = float32(0)
        if is_bfloat:
            d0, d1, d2, d3 = mma_bf16(a0, a1, a2, a3, b0, b1, zero, zero, zero, zero)
        else:
            d0, d1, d2, d3 = mma_f16(a0, a1, a2, a3, b0, b1, zero, zero, zero, zero)
        g, t = i // 4, i % 4
        c[g * 8 + 2 * t], c[g * 8 + 2 * t + 1] = d0, d1
        c[(g + 8) * 8 + 2 * t], c[(g + 8) * 8 + 2 * t + 1] = d2, d3

    return kernel


@pytest.mark.parametrize("is_bfloat", [False, True])
def test_product_of_halves_through_ldmatrix(is_bfloat):
    a, b, c = integers(16, 16), integers(16, 8, seed=1), np.zeros((16, 8), np.float32)
    if is_bfloat:
        bits = [(v.view(np.uint32) >> 16).astype(np.uint16) for v in (a, b)]
    else:
        bits = [v.astype(np.float16).view(np.uint16) for v in (a, b)]
    launch(halves(is_bfloat, "f32"), (F16, F16, F32), (1,), (32,), [*bits, c])
    np.testing.assert_array_equal(c, a @ b)


def product_of_bytes(a, b, c):
    i = cuda.threadIdx.x
    g, t = i // 4, i % 4
    d0, d1, d2, d3 = mma_s8(
        a[g * 8 + t],
        a[(g + 8) * 8 + t],
        a[g * 8 + t + 4],
        a[(g + 8) * 8 + t + 4],
        b[g * 8 + t],
        b[g * 8 + t + 4],
        1,
        2,
        3,
        4,
    )
    c[g * 8 + 2 * t], c[g * 8 + 2 * t + 1] = d0, d1
    c[(g + 8) * 8 + 2 * t], c[(g + 8) * 8 + 2 * t + 1] = d2, d3


def test_product_of_bytes():
    a, b = integers(16, 32, kind=np.int8, limit=128), integers(8, 32, seed=1, kind=np.int8, limit=128)
    c = np.zeros((16, 8), np.int32)
    launch(product_of_bytes, (I32, I32, I32), (1,), (32,), [a.view(np.int32), b.view(np.int32), c])
    begun = np.tile([[1, 2]], (8, 4)), np.tile([[3, 4]], (8, 4))
    np.testing.assert_array_equal(c, a.astype(np.int32) @ b.astype(np.int32).T + np.concatenate(begun))


def half_sums(a, b, c):
    i = cuda.threadIdx.x
    g, t = i // 4, i % 4
    d0, d1 = mma_half_sums(
        a[g * 8 + t], a[(g + 8) * 8 + t], a[g * 8 + t + 4], a[(g + 8) * 8 + t + 4], b[g * 8 + t], b[g * 8 + t + 4], 0, 0
    )
    c[g * 4 + t], c[(g + 8) * 4 + t] = d0, d1


def test_product_with_half_sums():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((16, 16)).astype(np.float16), rng.standard_normal((8, 16)).astype(np.float16)
    c = np.zeros((16, 8), np.float16)
    launch(half_sums, (I32, I32, I32), (1,), (32,), [a.view(np.int32), b.view(np.int32), c.view(np.int32)])
    np.testing.assert_array_equal(c, (a.astype(np.float64) @ b.astype(np.float64).T).astype(np.float16))


def matrices(a, out):
    shared, back = cuda.shared.array((32, 8), uint16, 16), cuda.shared.array((32, 8), uint16, 16)
    i = cuda.threadIdx.x
    for k in range(i, 256, 32):
        shared[k // 8, k % 8] = a[k]
    cuda.syncwarp()
    v0, v1, v2, v3 = load4(shared_address(address(shared)) + i * 16)
    store4(shared_address(address(back)) + i * 16, v0, v1, v2, v3)
    cuda.syncwarp()
    for k in range(i, 256, 32):
        out[k] = back[k // 8, k % 8]


def test_stmatrix_reverses_ldmatrix():
    a = np.arange(256, dtype=np.uint16)
    out = np.zeros_like(a)
    launch(matrices, (F16, F16), (1,), (32,), [a, out])
    np.testing.assert_array_equal(out, a)


def partial_copy(a, out, n):
    shared = cuda.shared.array(16, float32)
    i = cuda.threadIdx.x
    if i < 4:
        left = min(max(n - i * 4, 0), 4) * 4
        copy16_or_zero(shared_address(address(shared)) + i * 16, moved(a, min(i * 4, n - 1) // 4 * 4), left)
    commit()
    wait0()
    cuda.syncthreads()
    out[i] = shared[i]


@pytest.mark.parametrize("order", BOTH)
def test_copies_fill_with_zeros_what_they_do_not_take(order):
    a, out = integers(10), np.zeros(16, np.float32)
    launch(partial_copy, (F32, F32, types.int32), (1,), (16,), [a, out, 10], order=order)
    np.testing.assert_array_equal(out, np.concatenate([a, np.zeros(6)]))


def too_far(a, out):
    shared = cuda.shared.array(16, float32)
    copy16(shared_address(address(shared)) + cuda.threadIdx.x * 16, moved(a, cuda.threadIdx.x * 4))
    commit()
    wait0()


def test_copies_are_checked():
    for n, threads, space in ((10, 3, "global memory"), (32, 5, "shared memory")):
        with pytest.raises(EmulationError, match="out of bounds") as caught:
            launch(too_far, (F32, F32), (1,), (threads,), [integers(n), integers(4)])
        assert space in str(caught.value) and "cp.async" in str(caught.value)


def generic_as_shared(a, out):
    shared = cuda.shared.array(16, float32)
    copy16(address(shared), moved(a, 0))


def test_a_generic_address_is_no_shared_address():
    with pytest.raises(EmulationError, match="out of bounds"):
        launch(generic_as_shared, (F32, F32), (1,), (1,), [integers(16), integers(4)])


two_halves = ptx("cvt.rn.f16x2.f32 $0, $1, $2;", "r", "ff")
two_bfloats = ptx("cvt.rn.bf16x2.f32 $0, $1, $2;", "r", "ff")
one_half = ptx("cvt.rn.f16.f32 $0, $1;", "h", "f")
float_of_half = ptx("cvt.f32.f16 $0, $1;", "f", "h")
fused_halves = ptx("fma.rn.f16x2 $0, $1, $2, $3;", "r", "rrr")
select = ptx(
    "{ .reg .pred p; setp.gt.f32 p, $1, 0f00000000; selp.b32 $0, $2, $3, p; @!p add.s32 $0, $0, 100; }", "r", "frr"
)
permute = ptx("prmt.b32 $0, $1, $2, $3;", "r", "rrr")
logic = ptx("lop3.b32 $0, $1, $2, $3, 0xCA;", "r", "rrr")
loop = ptx("{ .reg .pred p; .reg .u32 n; mov.u32 n, $1; mov.u32 $0, 0; AGAIN: add.u32 $0, $0, n; sub.u32 n, n, 1; setp.ne.u32 p, n, 0; @p bra AGAIN; }", "r", "r")  # fmt: skip  # noqa: E501


def conversions(a, out):
    i = cuda.threadIdx.x
    x, y = a[i], a[i + 32]
    out[i] = two_halves(x, y)
    out[32 + i] = two_bfloats(x, y)
    out[64 + i] = bits_of(float_of_half(one_half(x)))
    out[96 + i] = fused_halves(two_halves(x, y), two_halves(y, x), two_halves(x, x))
    out[128 + i] = select(x, 1, 2)
    out[160 + i] = permute(bits_of(x), bits_of(y), 0x5140)
    out[192 + i] = logic(bits_of(x), bits_of(y), i)
    out[224 + i] = loop(i + 1)


def test_conversions_and_logic():
    a = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    out = np.zeros((8, 32), np.int32)
    launch(conversions, (F32, I32), (1,), (32,), [a, out])
    x, y = a[:32], a[32:]
    low, high = y.astype(np.float16), x.astype(np.float16)
    np.testing.assert_array_equal(out[0].view(np.float16).reshape(32, 2), np.stack([low, high], 1))
    bfloats = out[1].view(np.uint16).reshape(32, 2).astype(np.uint32) << 16
    np.testing.assert_allclose(bfloats.view(np.float32), np.stack([y, x], 1), rtol=2**-8)
    np.testing.assert_array_equal(out[2].view(np.float32), x.astype(np.float16).astype(np.float32))
    wide = [v.astype(np.float64) for v in (low, high)]
    fused = np.stack([wide[0] * wide[1] + wide[1], wide[1] * wide[0] + wide[1]], 1).astype(np.float16)
    np.testing.assert_array_equal(out[3].view(np.float16).reshape(32, 2), fused)
    np.testing.assert_array_equal(out[4], np.where(x > 0, 1, 102))
    bits = [v.view(np.uint32) for v in (x, y)]
    bytes_ = [bits[0] & 255, bits[1] & 255, bits[0] >> 8 & 255, bits[1] >> 8 & 255]
    np.testing.assert_array_equal(out[5].view(np.uint32), sum(b << 8 * k for k, b in enumerate(bytes_)))
    chosen = (bits[0] & bits[1]) | (~bits[0] & np.arange(32, dtype=np.uint32))
    np.testing.assert_array_equal(out[6].view(np.uint32), chosen)
    np.testing.assert_array_equal(out[7], np.arange(1, 33) * np.arange(2, 34) // 2)


named = ptx("bar.sync 1, 64;", "", "")
arrive, await_ = ptx("bar.arrive 2, 64;", "", ""), ptx("bar.sync 2, 64;", "", "")


def producers_and_consumers(a, out):
    """Warp 0 fills, tells barrier 2 and goes on; warp 1 waits there. Warps 2 and 3 have barrier 1."""
    shared, others = cuda.shared.array(32, float32), cuda.shared.array(64, float32)
    i = cuda.threadIdx.x
    if i < 32:
        shared[i] = a[i]
        arrive()
    elif i < 64:
        await_()
        out[i] = shared[63 - i]
    else:
        others[i - 64] = a[i]
        named()
        out[i] = others[127 - i]


@pytest.mark.parametrize("order", BOTH)
def test_named_barriers(order):
    a, out = integers(128), np.zeros(128, np.float32)
    launch(producers_and_consumers, (F32, F32), (1,), (128,), [a, out], order=order)
    np.testing.assert_array_equal(out[32:64], a[31::-1])
    np.testing.assert_array_equal(out[64:], a[:63:-1])


reduce_max = ptx("redux.sync.max.s32 $0, $1, 0xffffffff;", "r", "r")
chosen = ptx("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.b32 $0, 1, 0, p; }", "r", "")


def warp_reductions(a, out):
    out[cuda.threadIdx.x] = reduce_max(a[cuda.threadIdx.x])
    out[32 + cuda.threadIdx.x] = chosen()


def test_redux_and_elect():
    a, out = integers(32, kind=np.int32), np.zeros((2, 32), np.int32)
    launch(warp_reductions, (I32, I32), (1,), (32,), [a, out])
    assert (out[0] == a.max()).all()
    np.testing.assert_array_equal(out[1], [1] + [0] * 31)


add_to = ptx("red.global.add.f32 [$0], $1;", "", "lf")
swap = ptx("atom.global.cas.b32 $0, [$1], $2, $3;", "r", "lrr")
add_halves = ptx("red.global.add.noftz.f16x2 [$0], $1;", "", "lr")


def atomics(sums, flags, pairs):
    add_to(moved(sums, 0), float32(cuda.threadIdx.x))
    if swap(moved(flags, 0), 0, cuda.threadIdx.x + 1) == 0:
        flags[1] = cuda.threadIdx.x + 1
    add_halves(moved(pairs, 0), int32(0x40003C00))


def test_atomic_instructions():
    sums, flags, pairs = np.zeros(1, np.float32), np.zeros(2, np.int32), np.zeros(2, np.float16)
    launch(atomics, (F32, I32, I32), (1,), (64,), [sums, flags, pairs.view(np.int32)])
    assert sums[0] == 63 * 32 and flags[0] == flags[1] == 1
    np.testing.assert_array_equal(pairs, [64, 128])

"""Instructions of compute capability 9: mbarriers, bulk copies, wgmma, clusters."""

from __future__ import annotations

import numpy as np
import pytest

from autosched.codegen.cuda.emulate import Checks, EmulationError

from .kernels import BOTH, F16, F32, address, integers, launch, moved, ptx, shared_address

cuda = pytest.importorskip("numba.cuda")
from numba import float32, int64, types, uint16  # noqa: E402

init = ptx("mbarrier.init.shared::cta.b64 [$0], $1;", "", "rr")
expect = ptx("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [$0], $1;", "", "rr")
arrive = ptx("mbarrier.arrive.shared::cta.b64 $0, [$1];", "l", "r")
wait = ptx(
    "{ .reg .pred p; AGAIN: mbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1; @p bra DONE; bra AGAIN; DONE: }",
    "",
    "rr",
)
bulk = ptx("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], $2, [$3];", "", "rlrr")


def pipeline(waits, expected):
    """Thread 0 brings rows of 128 numbers in turn into two stages; all add them up."""

    def kernel(a, out, n):
        stages = cuda.shared.array((2, 128), float32, 128)
        full, empty = cuda.shared.array(2, int64), cuda.shared.array(2, int64)
        i = cuda.threadIdx.x
        data, filled, emptied = (
            shared_address(address(stages)),
            shared_address(address(full)),
            shared_address(address(empty)),
        )
        if i == 0:
            for k in range(2):
                init(filled + 8 * k, 1)
                init(emptied + 8 * k, 128)
        cuda.syncthreads()
        total = float32(0)
        if i == 0:
            for k in range(2):
                expect(filled + 8 * k, expected)
                bulk(data + 512 * k, moved(a, k * 128), 512, filled + 8 * k)
        for step in range(n):
            k, phase = step % 2, step // 2 % 2
            if waits:
                wait(filled + 8 * k, phase)
            total += stages[k, 127 - i]
            arrive(emptied + 8 * k)
            if i == 0 and step + 2 < n:
                wait(emptied + 8 * k, phase)
                expect(filled + 8 * k, expected)
                bulk(data + 512 * k, moved(a, (step + 2) * 128), 512, filled + 8 * k)
        out[i] = total

    return kernel


KINDS = (F32, F32, types.int32)
right = pipeline(True, 512)


@pytest.mark.parametrize("order", BOTH)
def test_a_pipeline_of_bulk_copies(order):
    a, out = integers(7, 128), np.zeros(128, np.float32)
    launch(right, KINDS, (1,), (128,), [a, out, 7], order=order)
    np.testing.assert_array_equal(out, a.sum(0)[::-1])


@pytest.mark.parametrize(
    "kernel, order, kinds",
    [
        (pipeline(False, 512), "late", ("pending",)),
        (pipeline(False, 512), "ahead", ("race",)),
        (pipeline(True, 528), "late", ("deadlock",)),
    ],
)
def test_faults_of_pipelines(kernel, order, kinds):
    with pytest.raises(EmulationError) as caught:
        launch(
            kernel, KINDS, (1,), (128,), [integers(7, 128), integers(128), 7], order=order, checks=Checks(unset=False)
        )
    assert caught.value.kind in kinds


def uninitialised(out):
    barrier = cuda.shared.array(1, int64)
    barrier[0] = 0
    arrive(shared_address(address(barrier)))


def test_an_mbarrier_has_to_be_initialised():
    with pytest.raises(EmulationError, match="not initialised"):
        launch(uninitialised, (F32,), (1,), (1,), [integers(4)])


REGISTERS = ", ".join(f"${k}" for k in range(8))
MOVE = "".join(f"mov.f32 ${k}, ${k + 8}; " for k in range(8))
wgmma = ptx(
    "{ .reg .pred p; setp.ne.b32 p, $18, 0; " + MOVE + "wgmma.fence.sync.aligned; "
    f"wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {{{REGISTERS}}}, $16, $17, p, 1, 1, 0, 0; "
    "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; }",
    "ffffffff",
    "ffffffffllr",
)


def swizzled(mode):
    """C = A B^T of 64 x 64 by 16 x 64 halves; rows of K are permuted as `mode` of the descriptor has it."""
    line = 256 >> mode  # bytes of a row

    def kernel(a, b, c):
        left, right = cuda.shared.array(64 * 64, uint16, 1024), cuda.shared.array(16 * 64, uint16, 1024)
        i = cuda.threadIdx.x
        for k in range(i, 64 * 64, 128):
            row, byte = k // 64, k % 64 * 2
            place = byte // line * (64 * line) + row * line + byte % line
            place ^= ((place >> 7) & (line // 16 - 1)) << 4
            left[place // 2] = a[k]
        for k in range(i, 16 * 64, 128):
            row, byte = k // 64, k % 64 * 2
            place = byte // line * (16 * line) + row * line + byte % line
            place ^= ((place >> 7) & (line // 16 - 1)) << 4
            right[place // 2] = b[k]
        cuda.syncthreads()
        d0 = d1 = d2 = d3 = d4 = d5 = d6 = d7 = float32(0)
        from_left, from_right = shared_address(address(left)), shared_address(address(right))
        layout = (int64(mode) << 62) | (int64(line * 8 // 16) << 32) | (int64(1) << 16)
        for step in range(4):
            part, inside = step * 32 // line, step * 32 % line
            one = layout | ((from_left + part * 64 * line + inside) >> 4)
            two = layout | ((from_right + part * 16 * line + inside) >> 4)
            d0, d1, d2, d3, d4, d5, d6, d7 = wgmma(d0, d1, d2, d3, d4, d5, d6, d7, one, two, step)
        warp, g, t = i // 32, i % 32 // 4, i % 4
        top = (warp * 16 + g) * 16 + 2 * t
        c[top], c[top + 1], c[top + 128], c[top + 129] = d0, d1, d2, d3
        c[top + 8], c[top + 9], c[top + 136], c[top + 137] = d4, d5, d6, d7

    return kernel


@pytest.mark.parametrize("mode", [1, 2, 3])
def test_wgmma_of_permuted_rows(mode):
    a, b = integers(64, 64, kind=np.float16), integers(16, 64, seed=1, kind=np.float16)
    c = np.zeros((64, 16), np.float32)
    launch(swizzled(mode), (F16, F16, F32), (1,), (128,), [a.view(np.uint16), b.view(np.uint16), c])
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32).T)


rank = ptx("mov.u32 $0, %cluster_ctarank;", "r", "")
peer = ptx("mapa.shared::cluster.u32 $0, $1, $2;", "r", "rr")
load_of_peer = ptx("ld.shared::cluster.f32 $0, [$1];", "f", "r")
cluster_arrive = ptx("barrier.cluster.arrive.release.aligned;", "", "")
cluster_wait = ptx("barrier.cluster.wait.acquire.aligned;", "", "")


def exchange(synchronised):
    def kernel(a, out):
        shared = cuda.shared.array(32, float32)
        i = cuda.threadIdx.x
        shared[i] = a[cuda.blockIdx.x * 32 + i]
        if synchronised:
            cluster_arrive()
            cluster_wait()
        else:
            cuda.syncthreads()
        out[cuda.blockIdx.x * 32 + i] = load_of_peer(peer(shared_address(address(shared)) + 4 * i, 1 - rank()))
        if synchronised:
            cluster_arrive()
            cluster_wait()

    return kernel


synchronised_exchange = exchange(True)


@pytest.mark.parametrize("order", BOTH)
def test_blocks_of_a_cluster_read_each_other(order):
    a = integers(4, 32)
    out = np.zeros_like(a)
    launch(synchronised_exchange, (F32, F32), (4,), (32,), [a, out], order=order, cluster=(2, 1, 1))
    np.testing.assert_array_equal(out, a[[1, 0, 3, 2]])


def test_a_barrier_of_the_block_does_not_order_a_cluster():
    a = integers(4, 32)
    with pytest.raises(EmulationError, match="race"):
        launch(exchange(False), (F32, F32), (4,), (32,), [a, a.copy()], cluster=(2, 1, 1), checks=Checks(unset=False))

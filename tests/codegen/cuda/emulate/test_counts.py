"""What a block executes is counted exactly where it can be told by hand, and the model's time follows it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="the CUDA packages are an extra")

from numba import cuda, float32, types

from autosched.codegen.cuda.device_model import LAUNCH_S, REACHED, hot_loop, predict, straight_code
from autosched.codegen.cuda.emulate.counts import BlockCounts, count_block
from autosched.codegen.cuda.emulate.trace import bank_passes
from autosched.codegen.cuda.user_kernel import UserOptions, compile_user_kernel
from autosched.runtime.cuda.kernel import Launch, LaunchResources
from autosched.target import Target

TARGET = Target("nvidia/nvidia-h200")
ARRAY = types.Array(types.float32, 1, "C")
USED = LaunchResources(32, 0, 0, 0, 1.0)


def counted(function: object, n: int) -> BlockCounts:
    """The counts of the middle one of four blocks of 64 threads, for two arrays of n floats."""
    made = compile_user_kernel(function, (ARRAY, ARRAY), TARGET, UserOptions())  # type: ignore[arg-type]
    x, out = np.ones(n, np.float32), np.zeros(n, np.float32)
    words = [word for a in (x, out) for word in (0, 0, n, 4, a, n, 4)]
    return count_block(made.kernel.llvm, made.kernel.launches[0].symbol, (4, 1, 1), (64, 1, 1), 0, words)


def plain(x, out):
    i = cuda.grid(1)
    out[i] = x[i] * x[i] + float32(1)


def strided(x, out):
    i = cuda.grid(1)
    out[i] = x[i * 32]


def turned(x, out):
    square = cuda.shared.array((32, 32), float32)
    row = cuda.threadIdx.x // 32
    column = cuda.threadIdx.x % 32
    for k in range(0, 32, 2):
        square[column, row + k] = x[(row + k) * 32 + column]
    cuda.syncthreads()
    for k in range(0, 32, 2):
        out[(row + k) * 32 + column] = square[row + k, column]


def test_requests_in_order_take_the_sectors_of_their_bytes() -> None:
    found = counted(plain, 256)
    assert found.threads == 64 and found.kinds["load"] >= 64 and found.kinds["store"] == 64
    assert found.sectors == found.least_sectors == 2 * 64 * 4 // 32
    assert found.kinds["float32"] == 2 * 64


def test_strided_reads_and_bank_conflicts_show() -> None:
    found = counted(strided, 256 * 32)
    assert found.sectors == 64 + 8, "each lane of a read its own sector, and whole lines written"
    turn = counted(turned, 32 * 32)
    assert turn.least_passes == 64 and turn.passes == 32 * 32 + 32, "32 ways when written, one when read"


def test_loops_count_each_time() -> None:
    def sums(x, out):
        total = float32(0)
        for k in range(x.size // 256):
            total += x[k * 256 + cuda.grid(1)]
        out[cuda.grid(1)] = total

    assert counted(sums, 256 * 10).kinds["float32"] == 64 * 10


def test_the_time_is_that_of_the_slowest_part() -> None:
    launch, gpu = Launch("k", (1320, 1, 1), (256, 1, 1)), TARGET.gpu
    memory = BlockCounts(256, {"load": 256, "store": 256}, 0, 64000, 64000, 0, 0, 1)
    n_bytes = 1320 * 64000 * 32
    found = predict(memory, launch, USED, gpu, n_bytes, "k\n}")
    assert found.limit == "memory" and found.seconds == LAUNCH_S + n_bytes / (REACHED * gpu.memory_bandwidth)
    sums = dataclasses.replace(memory, kinds={"float32": 128 * 100000}, sectors=1, least_sectors=1)
    found = predict(sums, launch, USED, gpu, 0, "k\n}")
    assert found.parts["arithmetic"] == pytest.approx(10 * 100000 / gpu.clock_hz) == found.seconds - LAUNCH_S
    conflicts = dataclasses.replace(sums, passes=32 * 100000)
    assert predict(conflicts, launch, USED, gpu, 0, "k\n}").limit == "shared"


def test_the_inner_loop_of_ptx() -> None:
    body = "\n".join(["\tfma.rn.f32 %f1, %f2, %f3, %f1;"] * 16 + ["\tadd.s32 %r1, %r1, 4;"] * 4 + ["\tmov.u32 %r2, 1;"])
    assert hot_loop(f".entry k()\n{{\n$L_1:\n{body}\n\tld.shared.f32 %f2, [%r1];\n}}", "k") == (21 / 16, 4 / 16)
    assert hot_loop(".entry k()\n{\n\tfma.rn.f32 %f1, %f2, %f3, %f1;\n}", "k") is None


def test_a_pass_serves_twice_the_lanes_where_all_read_what_a_neighbour_reads():
    lane = np.arange(32)
    request, size = np.zeros(32, np.int64), np.full(32, 16, np.int64)
    apart = 16 * lane  # each lane its own 16 bytes
    assert bank_passes(request, lane, apart, size) == (4, 4)
    for pairs in (16 * (lane // 2), 16 * (lane % 2 + lane // 4 * 2)):  # neighbours at distance 1, and at distance 2
        passes, _ = bank_passes(request, lane, pairs, size)
        assert passes == 2
    mixed = np.where(lane < 16, 16 * (lane // 2), 16 * (lane % 2 + lane // 4 * 2))
    assert bank_passes(request, lane, mixed, size)[0] == 4


def test_an_inner_loop_ends_at_its_branch():
    line = "\tfma.rn.f32 \t%f1, %f2, %f3, %f1;\n"
    ptx = (
        ".entry k(\n)\n{\n$L1:\n" + 20 * line + "\t@%p1 bra \t$L1;\n" + 40 * "\tst.global.f32 \t[%rd1], %f1;\n" + "\n}"
    )
    assert hot_loop(ptx, "k") == (21 / 20, 0.0)


def test_a_loop_of_few_operations_is_taken_whole():
    inside = "\t@%p2 bra \t$L2;\n" + 30 * "\tadd.s32 \t%r1, %r1, 4;\n" + "$L2:\n\tfma.rn.f32 \t%f1, %f2, %f3, %f1;\n"
    ptx = ".entry k(\n)\n{\n$L1:\n" + inside + "\t@%p1 bra \t$L1;\n" + 9 * "\tst.global.f32 \t[%rd1], %f1;\n" + "\n}"
    assert hot_loop(ptx, "k") == (32.0, 30.0) and straight_code(ptx, "k") is None


def test_code_without_a_loop_runs_once():
    """Each division by a constant is a few instructions there, and what all results share is computed once."""
    ptx = ".entry k(\n)\n{\n\t@%p1 bra \t$L1;\n" + 12 * "\tadd.s32 \t%r1, %r1, 4;\n" + "$L1:\n\tret;\n\n}"
    assert hot_loop(ptx, "k") is None and straight_code(ptx, "k") == (14, 12)
    counts = BlockCounts(256, {"integer": 256 * 900, "float32": 256 * 9}, 0, 288, 288, 0, 0, 1)
    launch = Launch("k", (1320, 1, 1), (256, 1, 1))
    found = predict(counts, launch, USED, TARGET.gpu, 1, ptx)
    assert found.parts["arithmetic"] == pytest.approx(10 * 256 * 12 / 64 / TARGET.gpu.clock_hz)

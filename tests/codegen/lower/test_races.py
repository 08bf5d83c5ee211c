"""Threads of a launch that meet at one element of an array."""

import numpy as np
import pytest

from autosched.codegen.lower.device import lower_device
from autosched.errors import CodegenError
from autosched.script import tir as T
from autosched.testing.gpu import run_serially


@T.prim_func
def sums_of_pairs(A: T.Buffer((16,), "float32"), B: T.Buffer((8,), "float32")):
    for tx in T.thread_binding(16, thread="threadIdx.x"):
        B[tx // 2] = B[tx // 2] + A[tx]


@T.prim_func
def tiles_that_overlap(A: T.Buffer((2048, 3), "float32"), B: T.Buffer((2048, 2), "float32")):
    for bx in T.thread_binding(256, thread="blockIdx.x"):
        for i in range(9):
            for tx in T.thread_binding(2, thread="threadIdx.x"):
                if bx * 8 + i < 2048:
                    B[bx * 8 + i, tx] = B[bx * 8 + i, tx] + A[bx * 8 + i, tx]


@T.prim_func
def border_and_inside(A: T.Buffer((8,), "float32"), B: T.Buffer((10,), "float32")):
    for _bx in T.thread_binding(1, thread="blockIdx.x"):
        for tx in T.thread_binding(10, thread="threadIdx.x"):
            B[tx] = 0.0
        for i in range(8):
            B[i + 1] = A[i]


@T.prim_func
def mirrored(A: T.Buffer((100000,), "float32"), B: T.Buffer((100000,), "float32"), C: T.Buffer((100000,), "float32")):
    for bx in T.thread_binding(100000, thread="blockIdx.x"):
        B[bx] = A[bx] + 1.0
        C[bx] = B[99999 - bx]


@T.prim_func
def other_blocks(A: T.Buffer((40,), "float32"), B: T.Buffer((20,), "float32")):
    for bx in T.thread_binding(5, thread="blockIdx.x"):
        for tx in T.thread_binding(8, thread="threadIdx.x"):
            if bx * 4 + tx < 20:
                B[bx * 4 + tx] = A[bx * 8 + tx]


@T.prim_func
def of_an_open_size(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    for bx in T.thread_binding((n + 31) // 32, thread="blockIdx.x"):
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            if bx * 32 + tx < n:
                B[(bx * 32 + tx) // 2] += A[bx * 32 + tx]


@T.prim_func
def mirrored_in_place(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    with T.block("root"):
        S = T.alloc_buffer((8,), "float32", scope="shared")
        for tx in T.thread_binding(8, thread="threadIdx.x"):
            S[tx] = A[tx]
            S[tx] = S[7 - tx] + 1.0
            B[tx] = S[tx]


@T.prim_func
def copies_that_overlap(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8,), "float32")):
    with T.block("root"):
        S = T.alloc_buffer((11,), "float32", scope="shared")
        for tx in T.thread_binding(8, thread="threadIdx.x"):
            for i in range(4):
                S[tx + i] = A[tx, i]
            B[tx] = S[tx]


@T.prim_func
def a_histogram(A: T.Buffer((64,), "int32"), B: T.Buffer((8,), "float32")):
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            B[A[bx * 32 + tx]] = B[A[bx * 32 + tx]] + 1.0


@T.prim_func
def masked_sums(A: T.Buffer((64,), "int32"), B: T.Buffer((8,), "float32")):
    for tx in T.thread_binding(64, thread="threadIdx.x"):
        if tx < 60 and A[tx] > 0:
            B[tx // 8] = B[tx // 8] + 1.0


@pytest.mark.parametrize(
    "func, said",
    [
        (a_histogram, "several threads may add up to one element of 'B', which data name"),
        (masked_sums, "several threads may add up to one element of 'B', which data name"),
        (sums_of_pairs, "several threads may add up to one element of 'B'"),
        (tiles_that_overlap, "several threads may add up to one element of 'B'"),
        (border_and_inside, "write different values to one element of 'B'"),
        (mirrored, "read elements of 'B' that others of the launch write"),
        (of_an_open_size, "several threads may add up to one element of 'B'"),
        (mirrored_in_place, "read elements of 'S' that others of the launch write"),
        (copies_that_overlap, "write different values to one element of 'S'"),
        (other_blocks, "write different values to one element of 'B'"),
    ],
)
def test_threads_that_meet_are_refused(func, said):
    with pytest.raises(CodegenError, match=said):
        lower_device(func)


def test_sums_at_places_of_data_that_do_not_meet():
    """Rows of their own, one thread for all, atomic sums; stores by a permutation, which is the program's word."""

    @T.prim_func
    def of_rows(A: T.Buffer((64,), "int32"), B: T.Buffer((64, 8), "float32")):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            if A[tx] > 0:
                B[tx, A[tx]] = B[tx, A[tx]] + 1.0

    @T.prim_func
    def of_one(A: T.Buffer((64,), "int32"), B: T.Buffer((8,), "float32")):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            for i in range(64):
                if tx == 0 and A[i] > 0:
                    B[A[i]] = B[A[i]] + 1.0

    @T.prim_func
    def atomic(A: T.Buffer((64,), "int32"), B: T.Buffer((8,), "float32")):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            T.evaluate(T.atomic_add(T.address_of(B[A[tx]]), T.float32(1)))

    @T.prim_func
    def permuted(A: T.Buffer((64,), "int32"), B: T.Buffer((64,), "int32")):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            B[A[tx]] = tx

    for func in (of_rows, of_one, atomic, permuted):
        lower_device(func)


def test_threads_that_store_the_same_may_meet():
    @T.prim_func
    def twice(A: T.Buffer((20,), "float32"), B: T.Buffer((20,), "float32")):
        for bx in T.thread_binding(5, thread="blockIdx.x"):
            for tx in T.thread_binding(8, thread="threadIdx.x"):
                if bx * 4 + tx < 20:
                    B[bx * 4 + tx] = A[bx * 4 + tx] * 2.0

    a, b = np.arange(20, dtype="f"), np.zeros(20, "f")
    run_serially(twice, a, b)
    np.testing.assert_array_equal(b, a * 2)


def test_turns_in_shared_memory():
    """What one thread writes in an iteration another one writes in the next: a barrier stands between them."""

    @T.prim_func
    def turns(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4, 8), "float32")):
        with T.block("root"):
            S = T.alloc_buffer((8,), "float32", scope="shared")
            for tx in T.thread_binding(8, thread="threadIdx.x"):
                for i in range(4):
                    S[(tx + i) % 8] = A[i, tx]
                    B[i, tx] = S[7 - tx]

    a, b = np.arange(32, dtype="f").reshape(4, 8), np.zeros((4, 8), "f")
    run_serially(turns, a, b)
    np.testing.assert_array_equal(b, [np.roll(row, i)[::-1] for i, row in enumerate(a)])


def test_elements_of_their_own():
    """Each thread stores, reads and stores again, under a condition of the expression too."""

    @T.prim_func
    def own(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        for bx in T.thread_binding(4, thread="blockIdx.x"):
            for tx in T.thread_binding(8, thread="threadIdx.x"):
                for i in range(2):
                    B[bx * 16 + i * 8 + tx] = A[bx * 16 + i * 8 + tx]
                for i in range(2):
                    B[bx * 16 + i * 8 + tx] += T.if_then_else(i > 0, B[bx * 16 + tx], T.float32(1))

    a, b = np.arange(64, dtype="f"), np.zeros(64, "f")
    run_serially(own, a, b)
    expected = a.reshape(4, 2, 8).copy()
    expected[:, 0] += 1
    expected[:, 1] += expected[:, 0]
    np.testing.assert_array_equal(b, expected.ravel())

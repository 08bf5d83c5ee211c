import ctypes
import dataclasses

import numpy as np
import pytest

from autosched import te, topi
from autosched.codegen.compile import compile_func
from autosched.runtime import load_objects
from autosched.target import Target
from autosched.templates import apply_config, default_config
from autosched.templates.cpu.task_order import (
    TaskOrder,
    Traffic,
    choose_even_order,
    choose_order,
    cycles,
    cycles_per_byte,
    shared_cycles,
)
from tests.templates.cases import conv, relu

TARGET = Target("llvm -mcpu=x86-64-v3")
L2 = TARGET.cache.l2_bytes


def test_small_weights_meet_chunks_of_large_data():
    order = choose_order(Traffic(1, 28, 8, 6 * L2, L2 / 8), TARGET)
    assert order.outer == "data"
    assert order.chunk < 4  # a chunk, the weights and the panel fit in the cache


def test_large_weights_are_read_once():
    assert choose_order(Traffic(1, 7, 11, L2 / 4, 16 * L2), TARGET).outer == "weight"


def test_there_is_work_for_some_threads():
    traffic = Traffic(1, 28, 2, L2 / 8, L2 / 8)
    chunk = choose_order(traffic, TARGET).chunk
    assert traffic.panels * -(-traffic.tiles // chunk) >= 16
    assert choose_order(dataclasses.replace(traffic, tiles=3), TARGET).chunk == 1


def test_larger_working_sets_cost_more():
    assert cycles_per_byte(L2 / 4, TARGET) == cycles_per_byte(L2 / 2, TARGET)
    assert cycles_per_byte(L2 / 2, TARGET) < cycles_per_byte(0.75 * L2, TARGET) < cycles_per_byte(L2, TARGET)
    traffic = Traffic(1, 28, 8, 6 * L2, L2 / 8)
    assert cycles(traffic, TaskOrder("data", 1), TARGET) < cycles(traffic, TaskOrder("data", 28), TARGET)


def test_one_piece_may_hold_all_tiles():
    order = choose_order(Traffic(1, 10, 32, L2 / 4, 16 * L2), TARGET)
    assert order == TaskOrder("weight", 16)


def test_two_threads_have_rows_of_their_own_where_one_loses_nothing():
    traffic = Traffic(1, 28, 8, L2 / 8, L2 / 16, 4 * L2, 1e9)
    order = choose_order(traffic, TARGET)
    assert order.outer == "data" and order.chunk < traffic.tiles
    assert shared_cycles(traffic, order) < shared_cycles(traffic, TaskOrder("weight", order.chunk))
    assert choose_order(dataclasses.replace(traffic, weight_bytes=64 * L2), TARGET).outer == "weight"


def test_threads_have_equally_many_pieces():
    traffic = Traffic(1, 4, 21, L2 / 8, 2 * L2, L2 / 8, 1e6)
    assert choose_order(traffic, TARGET) == TaskOrder("weight", 2)
    assert choose_order(dataclasses.replace(traffic, panels=20), TARGET) == TaskOrder("weight", 4)


def test_images_of_a_batch_are_not_shared():
    traffic = Traffic(2, 28, 8, L2, L2)
    assert shared_cycles(traffic, TaskOrder("weight", 4)) == shared_cycles(traffic, TaskOrder("data", 4)) == 0


def scaled(channels, size):
    data = te.placeholder((1, channels, size, size, 16), name="data")
    scale = te.placeholder((1, channels, 1, 1, 16), name="scale")
    made = te.compute(data.shape, lambda n, c, y, x, b: data(n, c, y, x, b) * scale(0, c, 0, 0, b), name="scaled")
    return te.create_prim_func([data, scale, relu(made)])


def added(channels, size):
    a, b = (te.placeholder((1, channels, size, size, 16), name=name) for name in "ab")
    return te.create_prim_func([a, b, te.compute(a.shape, lambda *i: a(*i) + b(*i), name="added")])


def max_pool(channels, size):
    data = te.placeholder((1, channels, size, size, 16), name="data")
    window = {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1, 1, 1), "dilation": (1, 1)}
    out = topi.max_pool2d(data, **window, ceil_mode=False)
    return te.create_prim_func([data, out])


def rows_of_threads(func):
    """By thread and row, whether a thread writes some of it, and whether all, where two divide the last phase."""
    target = Target("cpu")
    kernel = compile_func(apply_config(func, default_config(func, target), target).func, target).kernel
    phase, found = kernel.phases[-1], []
    body = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 3)(load_objects([kernel])[phase.symbol])
    for thread in range(2):
        arrays = [np.zeros(arg.shape, arg.dtype) for arg in kernel.args]
        arrays[-1].fill(np.nan)
        arrays.append(np.zeros(kernel.scratch_size(2), np.uint8))
        slots = np.array([*(a.ctypes.data for a in arrays), *kernel.numbers], np.int64)
        body(slots.ctypes.data, phase.n_tasks * thread // 2, phase.n_tasks * (thread + 1) // 2, thread)
        is_written = ~np.isnan(arrays[-2][0]).swapaxes(0, 1).reshape(arrays[-2].shape[2], -1)
        found.append((is_written.any(1), is_written.all(1)))
    return found


@pytest.mark.parametrize(
    "func",
    [scaled(4, 28), scaled(6, 14), scaled(3, 13), added(4, 56), max_pool(4, 56), conv(1, 64, 28, 256, 1, 1, 0)],
)
def test_a_thread_writes_the_same_rows_of_an_image_in_all_kernels(func):
    (some, whole), (other_some, other_whole) = rows_of_threads(func)
    assert (some | other_some).all()
    assert (some & other_some).sum() <= 1, "one row may belong to both"
    half = len(some) // 2
    assert whole[: half - 2].all() and other_whole[half + 2 :].all()


@pytest.mark.parametrize(("cores", "expected"), [(2, TaskOrder("data", 8)), (4, TaskOrder("weight", 4))])
def test_two_cores_have_halves_of_an_image_in_fewer_pieces(cores, expected):
    """Four chunks of 14 tiles are uneven; 336 channels of 14x14 to 128, as in a DenseNet."""
    target = Target(f"llvm -mcpu=x86-64-v4 -num-cores={cores}")
    size = 4 * 14 * 14
    traffic = Traffic(1, 14, 4, 336 * size, 4 * 336 * 128, 128 * size, 14 * 14 * 336 * 128 / 32)
    assert choose_even_order(traffic, target) == expected

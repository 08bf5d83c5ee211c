import dataclasses

from autosched.target import Target
from autosched.templates.cpu.task_order import TaskOrder, Traffic, choose_order, cycles, cycles_per_byte

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

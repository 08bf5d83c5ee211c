"""Which plan a Winograd convolution gets: its pieces of work divide evenly among the target's threads."""

from __future__ import annotations

import pytest

from autosched.target import Target
from autosched.templates.cpu.task_order import unevenness
from autosched.templates.cpu.winograd_cost import (
    LEAST_TASKS,
    Core,
    Layer,
    Plan,
    best_plan,
    direct_cycles,
    plans,
    winograd_cycles,
)

LAYERS = [Layer(1, 64, 64, 56, 56, 8), Layer(1, 128, 128, 28, 28, 8), Layer(1, 256, 256, 14, 14, 8),
          Layer(1, 512, 512, 7, 7, 8), Layer(1, 64, 128, 112, 112, 8), Layer(4, 64, 64, 31, 45, 8)]  # fmt: skip


def target(mcpu: str, cores: int) -> Target:
    return Target(f"llvm -mcpu={mcpu} -num-cores={cores} -l1-bytes=32768 -l2-bytes=524288 -l3-bytes=33554432")


def test_pieces_that_do_not_divide_leave_threads_waiting():
    assert unevenness(8, 2) == unevenness(8, 4) == unevenness(7, 1) == 1
    assert unevenness(11, 2) == pytest.approx(12 / 11)
    assert unevenness(3, 4) == pytest.approx(4 / 3)


def test_pieces_are_blocks_of_tiles_and_where_few_chunks_of_channels():
    layer, lanes = LAYERS[0], 8
    assert Plan(4, 6, 2, 11, 1, "tiles").n_tasks(layer, lanes) == 11
    assert Plan(4, 6, 2, 3, 1, "channels").n_tasks(layer, lanes) == 3 * 4
    assert Plan(4, 6, 2, 3, 2, "channels").n_tasks(layer, lanes) == 3 * 2


@pytest.mark.parametrize("cores", [2, 4])
@pytest.mark.parametrize("mcpu", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("layer", LAYERS, ids=lambda x: f"{x.height}x{x.width}x{x.outputs}")
def test_the_default_divides_among_the_threads(layer: Layer, mcpu: str, cores: int) -> None:
    cpu = target(mcpu, cores)
    cycles, plan = best_plan(layer, 4, cpu)
    assert cycles == winograd_cycles(layer, plan, Core.of(cpu))  # of one core: what is compared with other templates
    assert unevenness(plan.n_tasks(layer, cpu.lanes("float32")), cores) <= 1.04


def test_two_threads_have_transformed_inputs_of_their_own_where_that_costs_one_little():
    sizes = "-num-cores=2 -l1-bytes=49152 -l2-bytes=1048576 -l3-bytes=33554432"
    cpu, few = Target(f"llvm -mcpu=x86-64-v4 {sizes}"), Layer(1, 128, 128, 28, 28, 16)
    cycles, plan = best_plan(few, 4, cpu)
    assert (plan.tasks, plan.blocks) == ("tiles", 2)
    core = Core.of(cpu)
    assert cycles <= 1.05 * min(winograd_cycles(few, p, core) for m in (2, 4) for p in plans(few, m, core))
    many_weights = Layer(1, 256, 256, 14, 14, 16)
    assert best_plan(many_weights, 4, cpu)[1].tasks == "channels"  # two blocks would read 9.4 MB twice
    eight = Target(f"llvm -mcpu=x86-64-v4 {sizes.replace('cores=2', 'cores=8')}")
    assert best_plan(few, 4, eight)[1].n_tasks(few, 16) >= LEAST_TASKS


def test_one_core_gets_what_two_would():
    for layer in LAYERS:
        assert best_plan(layer, 4, target("x86-64-v3", 1)) == best_plan(layer, 4, target("x86-64-v3", 2))


def test_many_cores_ask_for_no_more_pieces_than_some():
    plan = best_plan(LAYERS[0], 4, target("x86-64-v3", 128))[1]
    assert plan == best_plan(LAYERS[0], 4, target("x86-64-v3", LEAST_TASKS))[1]


@pytest.mark.parametrize("l1_kib", [32, 48])
@pytest.mark.parametrize("l2_kib", [1024, 2048])
def test_with_wide_vectors_large_tiles_win_unless_their_weights_are_too_many(l1_kib: int, l2_kib: int) -> None:
    sizes = f"-l1-bytes={l1_kib * 1024} -l2-bytes={l2_kib * 1024} -l3-bytes=33554432"
    cpu = Target(f"llvm -mcpu=x86-64-v4 -num-cores=2 {sizes}")
    layers = [Layer(1, 64, 64, 56, 56, 16), Layer(1, 128, 128, 28, 28, 16), Layer(1, 256, 256, 14, 14, 16)]
    assert [best_plan(layer, 4, cpu)[1].m for layer in layers] == [4, 4, 4]
    assert best_plan(Layer(1, 512, 512, 7, 7, 16), 4, cpu)[1].m == 2


def test_where_cold_weights_come_slowly_smaller_tiles_win_earlier() -> None:
    sizes = "-num-cores=2 -l1-bytes=49152 -l2-bytes=2097152 -l3-bytes=314572800"
    layers = [Layer(1, 64, 64, 56, 56, 16), Layer(1, 128, 128, 28, 28, 16), Layer(1, 256, 256, 14, 14, 16)]
    found = {
        mcpu: [best_plan(layer, 4, Target(f"llvm -mcpu={mcpu} {sizes}"))[1].m for layer in layers]
        for mcpu in ("x86-64-v4", "emeraldrapids")
    }
    assert found == {"x86-64-v4": [4, 4, 4], "emeraldrapids": [4, 4, 2]}
    cpu = Target(f"llvm -mcpu=emeraldrapids {sizes}")
    assert best_plan(Layer(1, 512, 512, 7, 7, 16), 4, cpu)[0] < direct_cycles(49, 32, 9 * 512, cpu)


def test_inputs_that_barely_fit_the_second_cache_are_transformed_in_blocks() -> None:
    sizes = "-num-cores=2 -l1-bytes=49152 -l2-bytes=2097152 -l3-bytes=314572800"
    plan = best_plan(Layer(1, 64, 64, 56, 56, 16), 4, Target(f"llvm -mcpu=emeraldrapids {sizes}"))[1]
    assert plan.tasks == "tiles"

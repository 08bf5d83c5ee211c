"""The thread count is a knob wherever there are several threads; a record without it still counts."""

from __future__ import annotations

import pytest

import autosched
from autosched.driver.build.choose import choose_all, make_task
from autosched.driver.task_space import default_of, space_of
from autosched.frontend.onnx import from_onnx
from autosched.records import ApplyConfig
from autosched.target import Target
from autosched.templates import apply_config, space_for
from autosched.templates.thread_knob import split_threads, thread_counts, with_threads
from benchmarks.models import get_model
from tests.driver.programs import matmul

CPU = Target("cpu")


@pytest.mark.parametrize(("budget", "counts"), [(1, (1,)), (2, (1, 2)), (3, (1, 2, 3)), (8, (1, 2, 4, 8))])
def test_thread_counts(budget: int, counts: tuple[int, ...]) -> None:
    assert thread_counts(budget) == counts


def test_every_space_has_the_knob_where_there_are_several_threads() -> None:
    for func in (matmul(128, 256, 784), matmul(1, 10, 16)):
        task, alone = make_task(func, CPU, threads=4), make_task(func, CPU, threads=1)
        space = space_of(task)
        assert space.count() == 3 * space_for(func, CPU).count() and space.default == default_of(task)
        assert space_of(alone).count() == space_for(func, CPU).count() and default_of(alone).get("threads") is None
        config, threads = split_threads(space.default)
        assert config in space_for(func, CPU) and threads in (1, 2, 4)


def test_the_default_of_a_small_kernel_has_one_thread() -> None:
    assert default_of(make_task(matmul(1, 10, 16), CPU, threads=2))["threads"] == 1
    assert default_of(make_task(matmul(256, 512, 784), CPU, threads=2))["threads"] == 2


def test_schedules_do_not_see_the_knob() -> None:
    func = matmul(32, 48, 64)
    config = default_of(make_task(func, CPU, threads=2))
    assert apply_config(func, config, CPU).trace == apply_config(func, split_threads(config)[0], CPU).trace


@pytest.mark.parametrize("threads", [1, 2])
def test_the_build_splits_as_the_record_says(threads: int) -> None:
    module = from_onnx(get_model("mlp", 128))
    tasks = autosched.driver.extract_tasks(module, CPU, threads=2)
    configs = {t.key: with_threads(default_of(t), threads, 2) for t in tasks}
    built = autosched.build(module, target="cpu", records=ApplyConfig(configs), threads=2)
    assert {node.threads for node in built.graph.nodes} == {threads}
    assert f"threads={threads}" in built.manifest["report"][0]["config"]


def test_a_record_without_the_knob_is_used_and_the_estimate_decides() -> None:
    func = matmul(256, 512, 784)
    task = make_task(func, CPU, threads=2)
    plain, _ = split_threads(default_of(task))
    (choice,) = choose_all(autosched.IRModule({"f": func}), CPU, ApplyConfig({task.key: plain}), threads=2).values()
    assert choice.config == plain and choice.threads is None and not choice.found.reason.startswith("invalid")

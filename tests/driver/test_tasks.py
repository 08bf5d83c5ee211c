"""The tasks of a model: equal workloads once, with how often they occur; what is known of each."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import autosched
from autosched.driver import extract_tasks, list_tasks
from autosched.frontend.onnx import from_onnx
from autosched.records import make_record, open_store
from autosched.target import Target
from autosched.task import Measurement, Status, Trial
from autosched.templates import default_config
from tests.driver.programs import matmul
from tests.frontend.onnx_models import make, node

CPU = Target("cpu")


def three_layers() -> autosched.IRModule:
    """Two equal layers, and a larger one before them."""
    rng = np.random.default_rng(0)
    shapes = {"w0": (16, 32), "w1": (32, 32), "w2": (32, 32)}
    weights = {name: rng.standard_normal(shape, "float32") for name, shape in shapes.items()}
    nodes = [
        node("MatMul", "x w0", "a"), node("Sigmoid", "a", "b"),
        node("MatMul", "b w1", "c"), node("Relu", "c", "d"),
        node("MatMul", "d w2", "e"), node("Relu", "e", "y"),
    ]  # fmt: skip
    return from_onnx(make(nodes, {"x": (8, 16)}, ["y"], weights))


def test_equal_workloads_are_one_task_and_the_largest_comes_first() -> None:
    tasks = extract_tasks(three_layers(), CPU, threads=2)
    matmuls = [task for task in tasks if task.workload.op == "matmul"]
    assert [task.weight for task in matmuls] == [2, 1] and tasks[0] is matmuls[0]
    assert len({task.key for task in tasks}) == len(tasks) and all(task.threads == 2 for task in tasks)
    assert all(task.func is not None and task.name for task in tasks)


def test_functions_of_one_workload_are_one_task() -> None:
    module = autosched.IRModule({"first": matmul(), "second": matmul(), "other": matmul(8, 8, 8)})
    tasks = extract_tasks(module, CPU)
    assert [(task.weight, task.name) for task in tasks] == [(2, "first"), (1, "other")]


def test_params_make_weights_of_inputs() -> None:
    """A bound parameter is a constant, which may be folded away; the tasks are those that `build` needs."""
    module = from_onnx(make([node("MatMul", "x w", "y")], {"x": (4, 8), "w": (8, 4)}, ["y"]))
    (task,) = extract_tasks(module, CPU, params={"w": np.ones((8, 4), "float32")})
    with autosched.ApplyConfig({task.key: default_config(task.func, CPU)}):
        executable = autosched.build(module, target="cpu", params={"w": np.ones((8, 4), "float32")})
    assert [row["origin"] for row in executable.manifest["report"]] == ["given"]


def test_the_list_says_what_the_records_know(tmp_path: Path) -> None:
    module, database = three_layers(), tmp_path / "r.db"
    task = extract_tasks(module, CPU, threads=1)[0]
    trial = Trial(default_config(task.func, CPU), Measurement(Status.OK, (1e-6,), "a test"))
    with open_store(database) as store:
        store.add([make_record(task, trial, is_winner=True, is_default=True)])
    rows = list_tasks(module, "cpu", threads=1, records=database)
    assert [row["index"] for row in rows] == list(range(len(rows)))
    assert [row["record"] for row in rows if row["templates"] == ["matmul"]] == ["verified here", "none"]
    assert rows[0]["weight"] == 2 and rows[0]["configs"] > 100 and rows[0]["name"].startswith(task.name)

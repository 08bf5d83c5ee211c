"""Whole models against ONNX Runtime: untuned, tuned, at one and two threads, before and after save and load."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import autosched
from autosched.driver import TuneOptions, build_report, extract_tasks, list_tasks
from autosched.frontend.onnx import from_onnx
from autosched.records import ApplyConfig, FallbackContext, open_store
from autosched.runtime import Executable, GraphModule
from autosched.target import Target
from autosched.task import Status
from autosched.templates import space_for
from benchmarks.models import EXPORTED, LIGHT, get_model, make_inputs
from tests.driver.programs import TUNED_HERE

if TYPE_CHECKING:
    import onnx

ort = pytest.importorskip("onnxruntime")

pytestmark = pytest.mark.early
QUICK = ("squeezenet", "mlp")


Inputs = dict[str, np.ndarray]


def quick_or_slow(names: Sequence[str]) -> list[Any]:
    return [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in names]


def reference(model: onnx.ModelProto, inputs: Inputs) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


def outputs(executable: Executable, inputs: Inputs, threads: int) -> list[np.ndarray]:
    module = GraphModule(executable, threads=threads)
    for name, value in inputs.items():
        module.set_input(name, value)
    module.run()
    module.run()  # a second run finds the arena used
    return [module.get_output(i).numpy() for i in range(module.get_num_outputs())]


def assert_agrees(results: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> None:
    for ours, theirs in zip(results, expected, strict=True):
        assert ours.shape == theirs.shape
        assert np.abs(ours - theirs).max() <= 1e-4 * np.abs(theirs).max() + 1e-5


def check_executable(executable: Executable, inputs: Inputs, expected: Sequence[np.ndarray], tmp_path: Path) -> None:
    """At one and two threads, before and after save and load."""
    for threads in (1, 2):
        assert_agrees(outputs(executable, inputs, threads), expected)
    executable.save(tmp_path / "model.asx")
    loaded = autosched.load(tmp_path / "model.asx")
    for threads in (1, 2):
        assert_agrees(outputs(loaded, inputs, threads), expected)


@pytest.mark.parametrize("name", quick_or_slow([*LIGHT, *EXPORTED]))
def test_untuned_model_agrees_with_onnxruntime(name: str, tmp_path: Path) -> None:
    model = get_model(name, softmax=False)
    inputs = make_inputs(model, seed=3)
    executable = autosched.build(from_onnx(model), target="cpu", records=FallbackContext())
    check_executable(executable, inputs, reference(model, inputs), tmp_path)


@pytest.mark.parametrize("name", quick_or_slow(EXPORTED))
def test_batch_of_three(name: str, tmp_path: Path) -> None:
    model = get_model(name, batch=3, softmax=False)
    inputs = make_inputs(model, seed=4, batch=3)
    executable = autosched.build(from_onnx(model), target="cpu", records=FallbackContext())
    check_executable(executable, inputs, reference(model, inputs), tmp_path)


@pytest.mark.parametrize("name", quick_or_slow(EXPORTED))
def test_older_exporter(name: str, tmp_path: Path) -> None:
    model = get_model(name, softmax=False, exporter="legacy")
    inputs = make_inputs(model, seed=6)
    executable = autosched.build(from_onnx(model), target="cpu", records=FallbackContext())
    check_executable(executable, inputs, reference(model, inputs), tmp_path)


def sample_tasks(module: autosched.IRModule, most: int = 8) -> tuple[int, ...]:
    """The two largest tasks of each kind of kernel: indices of `list_tasks`."""
    kinds: dict[tuple[str, ...], list[int]] = {}
    for row in list_tasks(module, "cpu", threads=1):
        kinds.setdefault(tuple(row["templates"]), []).append(row["index"])
    return tuple(sorted(index for found in kinds.values() for index in found[:2])[:most])


def check_tuned(model: onnx.ModelProto, inputs: Inputs, tmp_path: Path) -> None:
    """Tune a sample of the tasks, a few trials each, and compare what is built from the records."""
    module, database = from_onnx(model), tmp_path / "records.db"
    tasks = sample_tasks(module)
    options = TuneOptions(trials=8 * len(tasks), threads=1, tasks=tasks)
    report = autosched.tune(module, "cpu", records=database, options=options)
    assert 2 * len(tasks) < report.n_trials <= 8 * len(tasks)
    with open_store(database) as store:  # a busy machine may be too slow; a schedule may refuse a configuration
        assert {r.measurement.status for r in store.records()} <= {Status.OK, Status.TIMEOUT, Status.INVALID}
    assert all(task.state.startswith("done") for task in report.tasks)
    with autosched.ApplyHistoryBest(database):
        executable = autosched.build(module, target="cpu", threads=1)
    n_recorded = sum(row["trust"] in TUNED_HERE for row in executable.manifest["report"])
    assert n_recorded >= len(tasks) and f"{n_recorded} from records" in build_report(executable).summary
    check_executable(executable, inputs, reference(model, inputs), tmp_path)


@pytest.mark.parametrize("name", ["mlp", *(pytest.param(n, marks=pytest.mark.slow) for n in (*LIGHT, *EXPORTED[1:]))])
def test_tuned_model_agrees_with_onnxruntime(name: str, tmp_path: Path) -> None:
    model = get_model(name, softmax=False)
    check_tuned(model, make_inputs(model, seed=5), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPORTED)
def test_tuned_batch_of_three(name: str, tmp_path: Path) -> None:
    model = get_model(name, batch=3, softmax=False)
    check_tuned(model, make_inputs(model, seed=7, batch=3), tmp_path)


@pytest.mark.parametrize("name", ["mlp", *(pytest.param(n, marks=pytest.mark.slow) for n in (*LIGHT, *EXPORTED[1:]))])
def test_any_configurations_give_the_same_result(name: str, tmp_path: Path) -> None:
    """Tuning may choose any configuration of any task: here all are drawn at random."""
    model = get_model(name, softmax=False)
    inputs, module, target = make_inputs(model, seed=8), from_onnx(model), Target("cpu")
    rng = np.random.default_rng(9)
    tasks = extract_tasks(module, target, threads=2)
    configs = {task.key: space_for(task.func, target).sample(rng, 1)[0] for task in tasks}
    executable = autosched.build(module, target=target, records=ApplyConfig(configs), threads=2)
    assert {row["origin"] for row in executable.manifest["report"]} == {"given"}
    check_executable(executable, inputs, reference(model, inputs), tmp_path)

"""Whole models against ONNX Runtime: untuned, tuned, at one and two threads, before and after save and load."""

from __future__ import annotations

import numpy as np
import pytest

import autosched
from autosched.driver import TuneOptions
from autosched.frontend.onnx import from_onnx
from autosched.records import FallbackContext
from autosched.runtime import Executable, GraphModule
from benchmarks.models import EXPORTED, LIGHT, get_model, make_inputs

ort = pytest.importorskip("onnxruntime")

QUICK = ("squeezenet", "mlp")


def quick_or_slow(names):
    return [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in names]


def reference(model, inputs) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


def outputs(executable: Executable, inputs, threads: int) -> list[np.ndarray]:
    module = GraphModule(executable, threads=threads)
    for name, value in inputs.items():
        module.set_input(name, value)
    module.run()
    module.run()  # a second run finds the arena used
    return [module.get_output(i).numpy() for i in range(module.get_num_outputs())]


def assert_agrees(results, expected) -> None:
    for ours, theirs in zip(results, expected, strict=True):
        assert ours.shape == theirs.shape
        assert np.abs(ours - theirs).max() <= 1e-4 * np.abs(theirs).max() + 1e-5


def check_executable(executable: Executable, inputs, expected, tmp_path) -> None:
    for threads in (1, 2):
        assert_agrees(outputs(executable, inputs, threads), expected)
    executable.save(tmp_path / "model.asx")
    assert_agrees(outputs(autosched.load(tmp_path / "model.asx"), inputs, 2), expected)


@pytest.mark.parametrize("name", quick_or_slow([*LIGHT, *EXPORTED]))
def test_untuned_model_agrees_with_onnxruntime(name, tmp_path):
    model = get_model(name, softmax=False)
    inputs = make_inputs(model, seed=3)
    executable = autosched.build(from_onnx(model), target="cpu", records=FallbackContext())
    check_executable(executable, inputs, reference(model, inputs), tmp_path)


@pytest.mark.parametrize("name", quick_or_slow(EXPORTED))
def test_batch_of_three(name, tmp_path):
    model = get_model(name, batch=3, softmax=False)
    inputs = make_inputs(model, seed=4, batch=3)
    executable = autosched.build(from_onnx(model), target="cpu", records=FallbackContext())
    check_executable(executable, inputs, reference(model, inputs), tmp_path)


@pytest.mark.parametrize("name", quick_or_slow(EXPORTED))
def test_older_exporter(name, tmp_path):
    model = get_model(name, softmax=False, exporter="legacy")
    inputs = make_inputs(model, seed=6)
    executable = autosched.build(from_onnx(model), target="cpu", records=FallbackContext())
    check_executable(executable, inputs, reference(model, inputs), tmp_path)


@pytest.mark.parametrize("name", ["mlp", *(pytest.param(n, marks=pytest.mark.slow) for n in (*LIGHT, *EXPORTED[1:]))])
def test_tuned_model_agrees_with_onnxruntime(name, tmp_path):
    model = get_model(name, softmax=False)
    inputs = make_inputs(model, seed=5)
    module, database = from_onnx(model), tmp_path / "records.db"
    report = autosched.tune(module, "cpu", records=database, options=TuneOptions(trials=24, threads=1))
    assert report.n_trials == 24
    with autosched.ApplyHistoryBest(database):
        executable = autosched.build(module, target="cpu", threads=1)
    assert any(row["trust"] == "verified here" for row in executable.manifest["report"])
    check_executable(executable, inputs, reference(model, inputs), tmp_path)

"""Candidates of real templates, compiled by the real code generator, measured by real workers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from autosched import te, topi
from autosched.codegen.cpu.instructions import COUNTS
from autosched.driver.tune.hints import describe_with
from autosched.runtime.cache import kernel_cache
from autosched.space import Config
from autosched.target import Target
from autosched.task import Status, Task, Workload
from autosched.templates.kernel import KernelRequest
from autosched.templates.registry import default_config, space_for
from autosched.tir import PrimFunc
from autosched.tuner.measure import MeasureOptions
from autosched.tuner.measure.builder import LocalBuilder
from autosched.tuner.measure.local import LocalMeasurer
from autosched.tuner.measure.nursery import Nursery, has_nurseries

pytestmark = pytest.mark.early

TARGET = Target("cpu")


def dense(m: int = 33, n: int = 37, depth: int = 40) -> PrimFunc:
    a, b = te.placeholder((m, depth), name="A"), te.placeholder((depth, n), name="B")
    k = te.reduce_axis((0, depth), "k")
    return te.create_prim_func([a, b, te.compute((m, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")])


def conv() -> PrimFunc:
    data, weight = te.placeholder((1, 1, 9, 9, 16), name="data"), te.placeholder((32, 16, 3, 3), name="weight")
    out = topi.conv2d(data, weight, (1, 1), (1, 1, 1, 1), (1, 1), 1, "NCHW16c", "NCHW16c")
    return te.create_prim_func([data, weight, out])


def softmax() -> PrimFunc:
    data = te.placeholder((6, 50), name="data")
    return te.create_prim_func([data, topi.softmax(data, -1)])


def task_of(func: PrimFunc) -> Task:
    shapes = tuple(buffer.const_shape() for buffer in func.buffers)
    return Task(Workload("test", ("float32",) * len(shapes), shapes), TARGET, func=func)


@pytest.fixture(scope="module")
def measurer() -> Iterator[LocalMeasurer]:
    with LocalMeasurer(TARGET, MeasureOptions(builders=1, run_timeout_s=5)) as measurer:
        yield measurer


@pytest.mark.parametrize("make", [dense, conv, softmax])
def test_the_default_and_samples_are_right(measurer: LocalMeasurer, make: object) -> None:
    func = make()  # type: ignore[operator]
    configs = [default_config(func, TARGET), *space_for(func, TARGET).sample(np.random.default_rng(0), 2)]
    trials = list(measurer.measure(task_of(func), configs))
    assert [t.config for t in trials] == configs
    assert trials[0].is_ok, trials[0].measurement.error
    for trial in trials:
        assert trial.measurement.status in (Status.OK, Status.INVALID), trial.measurement.error
    assert trials[0].measurement.how["build_s"] > 0
    loops = describe_with(task_of(func))
    assert loops is not None and np.allclose(trials[0].measurement.how["loops"], loops(configs[:1])[0], atol=1e-3)
    assert "instructions" not in trials[0].measurement.how  # running one takes less time than looking at its code


def test_instructions_of_a_long_kernel_are_counted(measurer: LocalMeasurer) -> None:
    func = dense(512, 512, 1024)
    (trial,) = measurer.measure(task_of(func), [default_config(func, TARGET)])
    counts = dict(zip(COUNTS, trial.measurement.how["instructions"], strict=True))
    assert counts["instructions"] > counts["hot_loads"] > 0 and counts["stores"] > 0
    assert counts["hot_fmas"] > 0


def test_a_template_that_does_not_fit_is_refused(measurer: LocalMeasurer) -> None:
    (trial,) = measurer.measure(task_of(dense()), [Config("no_such_template", {"rows": 1})])
    assert trial.measurement.status is Status.INVALID
    assert "'no_such_template' does not fit" in trial.measurement.error and "matmul" in trial.measurement.error


def test_an_impossible_knob_is_a_failure_with_its_text(measurer: LocalMeasurer) -> None:
    func = dense()
    config = default_config(func, TARGET)
    (trial,) = measurer.measure(task_of(func), [Config(config.template, {})])
    assert trial.measurement.status is Status.INVALID and trial.measurement.error


def test_losers_leave_no_compiled_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the default and the finalists, which a build may want, go to the kernel cache."""
    monkeypatch.setenv("AUTOSCHED_CACHE_DIR", str(tmp_path))
    func = dense()
    default = default_config(func, TARGET)
    others = [c for c in space_for(func, TARGET).sample(np.random.default_rng(0), 9) if c != default][:3]
    with LocalMeasurer(TARGET, MeasureOptions(builders=1, run_timeout_s=5)) as measurer:
        before = kernel_cache().entries()
        assert all(trial.is_ok for trial in measurer.measure(task_of(func), [default, *others]))
        assert kernel_cache().entries() == before
        assert all(one.measurement.is_ok for one in measurer.compare(task_of(func), [default, others[0]], rounds=2))
    assert len(kernel_cache().entries()) == len(before) + 2


def test_what_was_measured_is_compared_as_it_was_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finalist is compiled once; a build finds it in the kernel cache all the same."""
    monkeypatch.setenv("AUTOSCHED_CACHE_DIR", str(tmp_path))
    tasks, names = [task_of(dense()), task_of(softmax())], list[str]()
    defaults = [default_config(task.func, TARGET) for task in tasks]
    with LocalMeasurer(TARGET, MeasureOptions(builders=1, run_timeout_s=5)) as measurer:
        for task, default in zip(tasks, defaults, strict=True):
            assert [trial.is_ok for trial in measurer.measure(task, [default])] == [True]
        monkeypatch.setattr(LocalBuilder, "build", lambda *_, **__: names.append("built") or ())
        for task, default in zip(tasks, defaults, strict=True):
            (found,) = measurer.compare(task, [default], rounds=2)
            assert found.measurement.is_ok and not names
    for task, default in zip(tasks, defaults, strict=True):
        request = KernelRequest(task.func, str(task.func.attrs.get("global_symbol", "main")), default)
        assert request.make(TARGET, request.key(TARGET)).from_cache


def test_the_runner_never_imports_numba() -> None:
    code = "import sys, autosched.tuner.measure.run_role, autosched.templates.pack; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.skipif(not has_nurseries(), reason="workers are new processes on this system")
def test_builders_for_a_cpu_are_forks_of_one_process_and_the_runner_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autosched.tuner.measure.local.Nursery", Nursery)  # one of its own, which ends with it
    with LocalMeasurer(TARGET, MeasureOptions(builders=2, run_timeout_s=5)) as measurer:
        builders = [worker.pid for worker in measurer.builder.pool.workers]
        (nursery,) = {parent_of(pid) for pid in builders}
        others = set(measurer.process_ids) - set(builders)
        assert len(builders) == 2 and nursery != os.getpid() and parent_of(nursery) == os.getpid()
        assert others and all(parent_of(pid) == os.getpid() for pid in others)
    assert not Path(f"/proc/{nursery}").exists()

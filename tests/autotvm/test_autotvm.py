"""AutoTVM from end to end: a template's space, tuning, logs, and the best of them applied."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest

import autosched
from autosched import autotvm, te
from autosched.errors import RecordError
from autosched.target import Target

N = 32
QUICK = autotvm.measure_option("local", autotvm.LocalRunner(number=1, repeat=1, cooldown_interval=0))


@autotvm.template("tests/matmul")
def matmul(n: int, dtype: str) -> tuple[te.Schedule, list[te.Tensor]]:
    a, b = te.placeholder((n, n), name="A", dtype=dtype), te.placeholder((n, n), name="B", dtype=dtype)
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c.op)
    y, x = c.op.axis
    cfg = autotvm.get_config()
    cfg.define_split("tile_y", y, num_outputs=2)
    cfg.define_split("tile_x", x, num_outputs=2, filter=lambda e: e.size[-1] <= 16)
    cfg.define_annotate("unroll", [y], policy="try_unroll")
    yo, yi = cfg["tile_y"].apply(s, c, y)
    xo, xi = cfg["tile_x"].apply(s, c, x)
    s[c].reorder(yo, xo, k, yi, xi)
    cfg["unroll"].apply(s, c, [yi])
    return s, [a, b, c]


@pytest.fixture(scope="module")
def task() -> autotvm.task.Task:
    return autotvm.task.create("tests/matmul", args=(N, "float32"), target="llvm")


@pytest.fixture(scope="module")
def log(task: autotvm.task.Task, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("autotvm") / "matmul.log"
    monitor = autotvm.callback.Monitor()
    tuner = autotvm.tuner.RandomTuner(task)
    tuner.tune(4, QUICK, callbacks=[autotvm.callback.log_to_file(str(path)), monitor])
    assert tuner.best_flops == pytest.approx(max(monitor.trial_scores())) and tuner.best_config is not None
    return path


def test_a_task_knows_its_space_and_work(task: autotvm.task.Task) -> None:
    assert task.workload == ("tests/matmul", N, "float32") and task.flop == 2 * N**3
    assert len(task.config_space) == 6 * 5 * 2 and list(task.config_space.space_map) == ["tile_y", "tile_x", "unroll"]
    second = task.config_space.get(1)
    assert second["tile_y"].size == [-1, 2] and second["tile_x"].size == [-1, 1]  # the first knob changes fastest
    with pytest.raises(IndexError, match="out of range"):
        task.config_space.get(len(task.config_space))
    s, tensors = task.instantiate(second)
    assert [iv.var.name for iv in s[tensors[-1]].leaf_iter_vars][:2] == ["i.outer", "j.outer"]


def test_log_lines_are_tvm_s(task: autotvm.task.Task, log: Path) -> None:
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(lines) == 4
    assert list(lines[0]) == ["input", "config", "result", "version", "tvm_version"]
    assert lines[0]["input"] == ["llvm -keys=cpu", "tests/matmul", [N, "float32"], {}]
    assert lines[0]["config"]["entity"][0][:2] == ["tile_y", "sp"] and lines[0]["version"] == 0.2
    for inp, res in autotvm.record.load_from_file(log):
        assert inp.task.workload == task.workload and isinstance(res.costs, tuple) and res.error_no == 0
        assert autotvm.record.encode(inp, res) in log.read_text()


def test_the_best_of_a_log_is_applied(task: autotvm.task.Task, log: Path, tmp_path: Path) -> None:
    records = list(autotvm.record.load_from_file(log))
    best = min(records, key=lambda pair: float(np.mean(pair[1].costs)))[0].config
    with autotvm.apply_history_best(str(log)) as context, Target("llvm"):
        assert context.query(Target("llvm"), task.workload) == best
        assert context.query(Target("llvm -keys=cpu"), ("other", 3)).is_fallback
        s, tensors = matmul(N, "float32")
        built = autosched.build(s, tensors)
    a, b = np.random.default_rng(0).random((2, N, N), dtype=np.float32)
    out = np.zeros((N, N), np.float32)
    built(a, b, out)
    np.testing.assert_allclose(out, a @ b, rtol=1e-4)
    with pytest.raises(RuntimeError, match="Need a target context"):
        context.query(None, task.workload)
    autotvm.record.pick_best(str(log), str(tmp_path / "best.log"))
    (pair,) = autotvm.record.load_from_file(tmp_path / "best.log")
    assert pair[0].config == best
    context.update(Target("llvm"), task.workload, task.config_space.get(0))
    assert context.query(Target("llvm"), task.workload).index == 0


def test_without_a_log_the_template_falls_back(caplog: pytest.LogCaptureFixture) -> None:
    with Target("llvm"):
        matmul(N, "float32")
        matmul(N, "float32")
    messages = [r.message for r in caplog.records if "Cannot find config for target=llvm" in r.message]
    assert len(messages) == 1
    with pytest.raises(AssertionError, match="keyword"):
        matmul(N, dtype="float32")


@pytest.mark.parametrize("kind", ["GATuner", "XGBTuner", "GridSearchTuner"])
def test_tuners_try_what_was_not_tried(task: autotvm.task.Task, kind: str, log: Path) -> None:
    tuner = getattr(autotvm.tuner, kind)(task)
    tuner.load_history(autotvm.record.load_from_file(log))
    tried: list[int] = []
    tuner.tune(5, QUICK, callbacks=[lambda t, inputs, results: tried.extend(i.config.index for i in inputs)])
    assert len(tried) == len(set(tried)) == 5
    with pytest.raises(ValueError, match="si_prefix"):
        tuner.tune(1, QUICK, si_prefix="Q")


def test_early_stopping(task: autotvm.task.Task) -> None:
    tried: list[int] = []
    tuner = autotvm.tuner.GridSearchTuner(task)
    option = autotvm.measure_option(autotvm.LocalBuilder(n_parallel=1), QUICK["runner"])
    tuner.tune(60, option, early_stopping=2, callbacks=[lambda t, i, r: tried.append(t.best_iter)])
    assert len(tried) == tuner.best_iter + 2 or len(tried) == 60


def test_errors_are_results(task: autotvm.task.Task) -> None:
    builder, runner = QUICK["builder"], QUICK["runner"]
    config = task.config_space.get(0)
    config.raise_error("too large")
    inp = autotvm.MeasureInput(task.target, task, config)
    (res,) = runner.run([inp], builder.build([inp]))
    assert res.error_no == autotvm.MeasureErrorNo.INSTANTIATION_ERROR and "too large" in str(res.costs[1])
    assert json.loads(autotvm.record.encode(inp, res))["result"][0] == [1e9]
    for wrong in (("x", "local"), ("local", 3)):
        with pytest.raises(ValueError, match="Invalid"):
            autotvm.measure_option(*wrong)


def test_lines_that_are_none() -> None:
    assert autotvm.record.decode('{"v": 0.1}') is None
    with pytest.raises(RecordError, match="malformed"):
        autotvm.record.decode('{"input": 3}')
    with pytest.raises(RuntimeError, match="protocol"):
        autotvm.record.decode("{}", protocol="pickle")
    with pytest.raises(RuntimeError, match="missing task"):
        autotvm.task.create("tests/nobody", (), "llvm")


@pytest.mark.slow
def test_a_candidate_that_crashes_costs_itself(task: autotvm.task.Task) -> None:
    """The worker dies of a signal with one candidate; the next one is measured by another worker."""
    runner = autotvm.LocalRunner(timeout=60, number=1, repeat=1, cooldown_interval=0)
    inp = autotvm.MeasureInput(task.target, task, task.config_space.get(0))
    (built,) = autotvm.LocalBuilder().build([inp])

    class Broken:
        def save(self, path: str) -> None:
            Path(path).write_text("no module")

    results = runner.run([inp, inp], [built._replace(module=Broken()), built])
    assert results[0].error_no == autotvm.MeasureErrorNo.RUNTIME_DEVICE and results[1].error_no == 0
    pool = runner._timer.pool
    assert pool is not None
    (worker,) = pool.workers
    os.kill(worker.pid, signal.SIGSEGV)
    worker._process.wait(10)
    (after,) = runner.run([inp], [built])
    assert after.error_no == 0 and after.costs[0] > 0
    (hanging,) = pool.workers
    assert hanging is not worker and hanging.pause()
    pool._timeout_s = 0.3
    (late,) = runner.run([inp], [built])
    assert late.error_no == autotvm.MeasureErrorNo.RUN_TIMEOUT and "not finished after 0.3 s" in late.costs[0]


def test_builders_and_runners_of_one_s_own() -> None:
    from autosched.autotvm.measure import Builder, Runner, create_measure_batch

    class OwnBuilder(Builder):
        def build(self, measure_inputs):  # type: ignore[no-untyped-def]
            return [("built", i, self.build_kwargs) for i in measure_inputs]

    class OwnRunner(Runner):
        def get_build_kwargs(self):  # type: ignore[no-untyped-def]
            return {"speed": 3}

        def run(self, measure_inputs, build_results):  # type: ignore[no-untyped-def]
            return [(self.task, built) for built in build_results]

    option = autotvm.measure_option(OwnBuilder(n_parallel=2), OwnRunner())
    batch = create_measure_batch("task", option)
    assert batch.n_parallel == 2
    assert batch([7]) == [("task", ("built", 7, {"speed": 3}))]


@pytest.mark.parametrize(
    ("make", "option"),
    [
        (lambda: autotvm.LocalBuilder(build_func="ndk"), "build_func"),
        (lambda: autotvm.LocalBuilder(build_kwargs={"a": 1}), "build_kwargs"),
        (lambda: autotvm.LocalBuilder(runtime="crt"), "runtime"),
        (lambda: autotvm.LocalRunner(module_loader=print), "module_loader"),
    ],
)
def test_options_that_are_not_available_are_named(make, option: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=option):
        make()

"""`build` from Python: what it takes, whose configurations it uses, what it says about them."""

from __future__ import annotations

import dataclasses
import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import autosched
from autosched import te
from autosched.driver import build_report
from autosched.driver.build.choose import choose, make_task
from autosched.errors import RecordError, ScheduleError, ShapeError, TargetError, UsageError
from autosched.frontend.onnx import from_onnx
from autosched.records import Record, default_reader, make_record, open_store, write_lines
from autosched.space import Config
from autosched.target import Target
from autosched.task import Measurement, Status, Task, Trial
from autosched.templates import Applied, default_config, space_for
from autosched.tir import PrimFunc
from tests.driver.programs import ROOT, matmul
from tests.frontend.onnx_models import make, node

CPU = Target("cpu")


def task_of(func: PrimFunc) -> Task:
    return make_task(func, CPU, threads=1)


def other_config(func: PrimFunc, seed: int = 0) -> Config:
    """A configuration that is not the default."""
    found = space_for(func, CPU).sample(np.random.default_rng(seed), 5)
    return next(config for config in found if config != default_config(func, CPU))


def winner(func: PrimFunc, config: Config) -> Record:
    trial = Trial(config, Measurement(Status.OK, (1e-6,), "a test"))
    return make_record(task_of(func), trial, is_winner=True)


def config_of(module: autosched.Module) -> Config:
    """The configuration that a function was built with."""
    return next(Config.from_json(k.config) for name, k in module.kernels.items() if not name.startswith("main_pack"))


def check_matmul(module: autosched.Module, func: PrimFunc) -> None:
    (m, k), (_, n), _ = (b.const_shape() for b in func.buffers)
    rng = np.random.default_rng(0)
    a, b, c = (
        rng.standard_normal((m, k), "float32"),
        rng.standard_normal((k, n), "float32"),
        np.zeros((m, n), "float32"),
    )
    module["main"](a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-5)


# ---- what can be built


def test_a_prim_func() -> None:
    func = matmul()
    check_matmul(autosched.build(func, target="cpu"), func)
    check_matmul(autosched.build(func, "cpu"), func)  # TVM's order for modules
    check_matmul(autosched.build(func, target=Target("cpu"), threads=2, accuracy="strict"), func)


def test_tensors_in_the_order_of_the_arguments() -> None:
    a, b = te.placeholder((5, 7), name="a"), te.placeholder((5, 7), name="b")
    c = te.compute((5, 7), lambda i, j: a[i, j] - b[i, j] * 2.0, name="c")
    x, y, out = np.full((5, 7), 3, "float32"), np.ones((5, 7), "float32"), np.zeros((5, 7), "float32")
    autosched.build([a, b, c], target="cpu", name="minus")["minus"](x, y, out)
    np.testing.assert_array_equal(out, 1)
    autosched.build([b, a, c], target="cpu")["main"](y, x, out)
    np.testing.assert_array_equal(out, 1)


def test_a_module_of_functions_that_all_pack_their_weights() -> None:
    """Each function has packers of its own: equal names of buffers do not meet."""
    functions = {"small": matmul(4, 48, 32), "large": matmul(16, 96, 64)}
    module = autosched.build(autosched.IRModule(functions), target="cpu")
    for name, func in functions.items():
        (m, k), (_, n), _ = (b.const_shape() for b in func.buffers)
        out = np.zeros((m, n), "float32")
        module[name](np.ones((m, k), "float32"), np.ones((k, n), "float32"), out)
        np.testing.assert_array_equal(out, k)


def small_model() -> autosched.IRModule:
    weights = {"w": np.full((8, 4), 2, "float32")}
    return from_onnx(make([node("MatMul", "x w", "h"), node("Relu", "h", "y")], {"x": (3, 8)}, ["y"], weights))


def test_a_model() -> None:
    executable = autosched.build(small_model(), target="cpu")
    np.testing.assert_array_equal(executable(np.ones((3, 8), "float32")).numpy(), np.full((3, 4), 16))


def test_params_bind_by_name() -> None:
    nodes = [node("MatMul", "x w", "h"), node("Add", "h bias", "y")]
    module = from_onnx(make(nodes, {"x": (3, 8), "w": (8, 4), "bias": (4,)}, ["y"]))
    w, bias = np.full((8, 4), 2, "float32"), np.arange(4, dtype="float32")
    executable = autosched.build(module, target="cpu", params={"bias": bias, "w": w})
    np.testing.assert_array_equal(executable(np.ones((3, 8), "float32")).numpy(), np.full((3, 4), 16) + bias)
    half = autosched.build(module, target="cpu", params={"w": w})
    np.testing.assert_array_equal(half(x=np.ones((3, 8), "float32"), bias=bias).numpy(), np.full((3, 4), 16) + bias)
    with pytest.raises(UsageError, match=r"no parameters 'v', 'z'; there are x, w, bias") as error:
        autosched.build(module, target="cpu", params={"z": w, "w": w, "v": w})
    assert error.value.exit_code == 2
    with pytest.raises(ShapeError, match="bias"):
        autosched.build(module, target="cpu", params={"bias": w})
    with pytest.raises(UsageError, match="relax function"):
        autosched.build(matmul(), target="cpu", params={"w": w})


def test_wrong_use() -> None:
    with pytest.raises(UsageError, match="accuracy"):
        autosched.build(matmul(), target="cpu", accuracy="some")
    with pytest.raises(TargetError, match="no code generator"):
        autosched.build(matmul(), target="opencl")
    with pytest.raises(RecordError, match="no tuning database"):
        autosched.build(matmul(), target="cpu", records="none.db")


# ---- where configurations come from


def test_history_from_a_database_a_log_and_records(tmp_path: Path) -> None:
    func, database, log = matmul(), tmp_path / "r.db", tmp_path / "r.jsonl"
    configs = [other_config(func, seed) for seed in range(3)]
    with open_store(database) as store:
        store.add([winner(func, configs[0])])
    write_lines(log, [winner(func, configs[1])])
    sources = {
        "path": (database, configs[0]),
        "text": (str(log), configs[1]),
        "first of a list": ([log, database], configs[1]),
        "records": ([winner(func, configs[2])], configs[2]),
        "one record": (winner(func, configs[2]), configs[2]),
        "records, then a database": (iter([winner(matmul(8, 8, 8), configs[2]), database]), configs[0]),
    }
    for name, (source, expected) in sources.items():
        with autosched.ApplyHistoryBest(source):
            built = autosched.build(func, target="cpu", threads=1)
        assert config_of(built) == expected, name
        check_matmul(built, func)
    assert config_of(autosched.build(func, target="cpu", threads=1, records=database)) == configs[0]
    assert config_of(autosched.build(func, target="cpu", threads=1)) == default_config(func, CPU)


def test_layers_user_database_over_shipped_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given before the user's before what is shipped; each answers for what those before it do not know."""
    given, own, shipped = matmul(8, 16, 8), matmul(16, 32, 16), matmul(24, 48, 32)
    configs = {f: other_config(f) for f in (given, own, shipped)}
    wrong = {f: default_config(f, CPU) for f in (given, own)}  # what a lower layer says and nobody may hear
    family = CPU.fingerprint().family
    write_lines(tmp_path / "logs" / family / "matmul.jsonl", [
        winner(shipped, configs[shipped]), winner(own, wrong[own]), winner(given, wrong[given]),
    ])  # fmt: skip
    monkeypatch.setattr("autosched.records.shipped.tuning_logs_folder", lambda: tmp_path / "logs")
    monkeypatch.setenv("AUTOSCHED_DB", str(tmp_path / "user.db"))
    with open_store(tmp_path / "user.db") as store:
        store.add([winner(own, configs[own]), winner(given, wrong[given])])
    with autosched.ApplyHistoryBest([winner(given, configs[given])]):
        for func, config in configs.items():
            assert config_of(autosched.build(func, target="cpu", threads=1)) == config
        with autosched.FallbackContext():
            assert config_of(autosched.build(own, target="cpu", threads=1)) == wrong[own]
            with autosched.ApplyHistoryBest([]):  # nothing below a FallbackContext is asked
                assert config_of(autosched.build(own, target="cpu", threads=1)) == wrong[own]
    assert config_of(autosched.build(own, target="cpu", threads=1)) == configs[own]
    found = default_reader().best(task_of(shipped))
    assert found.config == configs[shipped] and found.origin.startswith("shipped")


def test_an_unusable_record_gives_the_default_and_is_counted(tmp_path: Path) -> None:
    module, func = small_model(), matmul(3, 4, 8)
    with autosched.ApplyConfig(Config("matmul", {"rows": 10**6})):
        executable = autosched.build(module, target="cpu")
    report = build_report(executable)
    assert "1 default, 1 with an unusable record" in report.summary
    assert "invalid configuration" in str(report.rows[0]["reason"])
    with autosched.ApplyConfig(Config("conv3d", {})):
        check_matmul(autosched.build(func, target="cpu"), func)


def test_a_record_that_can_no_longer_be_applied_is_a_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in the template's space, and the schedule refuses it: the template was another one then."""
    func = matmul()
    good, bad = other_config(func, 1), other_config(func, 2)
    module = importlib.import_module("autosched.driver.build.choose")
    real = module.apply_config

    def apply_config(func: PrimFunc, config: Config, target: Target) -> Applied:
        if config == bad:
            raise ScheduleError("no such loop")
        return real(func, config, target)

    monkeypatch.setattr(module, "apply_config", apply_config)
    task = task_of(func)
    choice = choose(task, autosched.ApplyHistoryBest(winner(func, bad)), "main")
    assert choice.is_default and choice.config == default_config(func, CPU)
    assert choice.found.reason == "1 given records: invalid record: no such loop"
    older = dataclasses.replace(winner(func, good), time=1.0)
    assert choose(task, autosched.ApplyHistoryBest([winner(func, bad), older]), "main").config == good


def test_the_report_says_where_each_kernel_is_from() -> None:
    nodes = [node("MatMul", "x w", "h"), node("Softmax", "h", "s", axis=1), node("Transpose", "s", "y", perm=[1, 0])]
    weights = {"w": np.ones((8, 4), "float32")}
    module = from_onnx(make(nodes, {"x": (3, 8)}, ["y"], weights))
    plain = build_report(autosched.build(module, target="cpu", threads=1, records=autosched.FallbackContext()))
    n = len(plain.rows)
    assert plain.summary.startswith(f"{n} kernels: {n} default") and "compiled in" in plain.summary
    tasks = autosched.driver.extract_tasks(module, CPU, threads=1)
    row = next(r for r in plain.rows if r["template"] == "matmul")
    task = next(t for t in tasks if str(t.workload) == row["workload"])
    config = next(c for c in space_for(task.func, CPU).sample(np.random.default_rng(0), 9) if str(c) != row["config"])
    record = make_record(task, Trial(config, Measurement(Status.OK, (2e-6,), "a test")), is_winner=True)
    with autosched.ApplyHistoryBest([record]):
        report = build_report(autosched.build(module, target="cpu", threads=1))
    assert report.summary.startswith(f"{n} kernels: 1 from records (1 verified here), {n - 1} default")
    row = next(r for r in report.rows if r["template"] == "matmul")
    assert (row["trust"], row["origin"], row["expected_s"]) == ("verified here", "1 given records", 2e-6)
    assert row["config"] == str(config)
    assert {r["origin"] for r in report.rows} == {"1 given records", "template default"}


# ---- two at once

BUILDER = """
import sys, numpy as np, autosched
from tests.driver.programs import matmul
if __name__ == "__main__":
    sys.stdin.readline()
    module = autosched.build(matmul(20, 40, 30), target="cpu")
    out = np.zeros((20, 40), "float32")
    module["main"](np.ones((20, 30), "float32"), np.ones((30, 40), "float32"), out)
    print(float(out.min()), float(out.max()), module.kernels["main_kernel"].phases[0].symbol)
"""


@pytest.mark.slow
def test_two_builds_of_one_kernel_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOSCHED_CACHE_DIR", str(tmp_path))
    pipe = subprocess.PIPE
    processes = [
        subprocess.Popen([sys.executable, "-c", BUILDER], stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=ROOT)
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    results = [process.communicate(timeout=120) for process in processes]
    assert all(process.returncode == 0 for process in processes), results
    assert results[0][0] == results[1][0] and results[0][0].startswith("30.0 30.0 ")
    assert not list(tmp_path.rglob("*.tmp*"))

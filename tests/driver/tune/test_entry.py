"""Tuning: what is measured first, what becomes a winner, what failures cost, what is resumed."""

from __future__ import annotations

import dataclasses
import importlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import autosched
from autosched.driver import TuneOptions, build_report, list_tasks
from autosched.driver.build.choose import make_task
from autosched.driver.tune.report import TuneReport
from autosched.driver.tune.turns import default_first
from autosched.errors import InvalidValueError, RecordError, UsageError
from autosched.records import RecordFilter, Trust, open_store
from autosched.space import Config
from autosched.target import Target
from autosched.task import Measurement, Status, Trial
from autosched.templates import default_config, space_for
from autosched.tuner.measure import MeasureOptions, process
from autosched.tuner.measure.local import LocalMeasurer
from tests.driver import compilers
from tests.driver.build.test_precision import model as precision_model
from tests.driver.programs import matmul
from tests.tuner.measure import kernels

pytestmark = pytest.mark.early

OPTIONS = TuneOptions(trials=10, threads=1)


@pytest.fixture
def compile_with(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """Tune with another compiler, short timeouts and one builder."""

    def use(name: str, **changes: float) -> None:
        def measurer(target: Target, options: MeasureOptions) -> LocalMeasurer:
            changed = dataclasses.replace(options, builders=1, **changes)
            return LocalMeasurer(target, changed, compiler=f"{compilers.__name__}:{name}")

        module = importlib.import_module("autosched.driver.tune.entry")  # the package's attribute is the function
        monkeypatch.setattr(module, "LocalMeasurer", measurer)

    return use


def tune(what: object, database: Path, options: TuneOptions = OPTIONS) -> TuneReport:
    return autosched.tune(what, "cpu", records=database, options=options)


def test_the_default_is_trial_0_of_every_task_and_builds_use_the_winners(tmp_path: Path) -> None:
    functions = {"small": matmul(), "large": matmul(48, 64, 96), "row": matmul(1, 96, 64)}
    module, database, target = autosched.IRModule(functions), tmp_path / "r.db", Target("cpu")
    report = tune(module, database, TuneOptions(trials=9, threads=1))
    assert report.n_trials == 9 and report.n_failed == 0 and not report.interrupted
    with open_store(database) as store:
        for summary in store.tasks():
            records = list(store.records(RecordFilter(workload=summary.workload)))
            assert [r.is_default for r in records][:2] == [True, False] and not records[0].is_winner
            assert sum(r.is_winner for r in records) == 1 and records[-1].is_winner
            assert records[-1].measurement.how["interleaved"] >= 1  # at the end, with those that came near the default
            assert records[-1].measurement.how["complete"] is True and records[-1].measurement.how["session_s"] > 0
            shapes = summary.winner.workload.shapes if summary.winner else ()
            func = next(f for f in functions.values() if tuple(b.const_shape() for b in f.buffers) == shapes)
            assert records[0].config == default_config(func, target)
    with autosched.ApplyHistoryBest(database):
        built = autosched.build(module, target="cpu", threads=1)
    a, b, out = np.ones((48, 96), "float32"), np.ones((96, 64), "float32"), np.zeros((48, 64), "float32")
    built["large"](a, b, out)
    np.testing.assert_allclose(out, 96)


@pytest.mark.host(runs=True)
def test_with_a_precision_the_kernels_are_tuned_that_build_looks_up(tmp_path: Path) -> None:
    database, options = tmp_path / "r.db", TuneOptions(trials=6, threads=1, precision="bf16")
    report = tune(precision_model(), database, options)
    assert report.n_failed == 0 and len(report.tasks) == 6

    def misses(precision: str | None) -> int:
        built = autosched.build(precision_model(), target="cpu", records=database, threads=1, precision=precision)
        return sum(row["trust"] == Trust.DEFAULT for row in build_report(built).rows)

    assert misses("bf16") == 0 and misses(None) >= 2  # of float32 the products are others
    listed = list_tasks(precision_model(), "cpu", threads=1, records=database, precision="bf16")
    assert {row["record"] for row in listed} == {str(Trust.HERE)} and len(listed) == 6


def test_a_precision_is_for_models_and_one_of_those_that_there_are(tmp_path: Path) -> None:
    for what, precision, text in (
        (matmul(), "bf16", "precision is for models"),
        (make_task(matmul(), Target("cpu")), "bf16", "precision is for models"),
        (precision_model(), "bf17", "use one of"),
    ):
        with pytest.raises(UsageError, match=text):
            tune(what, tmp_path / "r.db", TuneOptions(trials=1, threads=1, precision=precision))


def test_a_default_that_is_the_fastest_stays(compile_with, tmp_path: Path) -> None:
    """Every other candidate is slower, honestly: it runs one value at a time."""
    compile_with("Worse")
    func, database = matmul(96, 96, 96), tmp_path / "r.db"
    report = tune(func, database)
    assert report.tasks[0].state == "done: default is best"
    assert report.tasks[0].best_s == report.tasks[0].default_s
    with open_store(database) as store:
        (winner,) = store.records(RecordFilter(winners_only=True))
        others = [r for r in store.records() if not r.is_default]
    assert winner.is_default and winner.config == default_config(func, Target("cpu"))
    assert len(others) == 9 and all(r.measurement.median_s > winner.measurement.median_s for r in others)


@pytest.mark.slow
def test_accidents_cost_one_candidate_each(compile_with, tmp_path: Path) -> None:
    compile_with("Accidents", build_timeout_s=5.0, run_timeout_s=1.0, memory_limit_bytes=4 << 30)
    task, database = kernels.matmul_task(), tmp_path / "r.db"
    report = tune(task, database, TuneOptions(trials=24, threads=1, strategy="random"))
    default = default_config(task.func, task.target)
    expected = {
        "right": Status.OK,
        "build_crash": Status.CRASH,
        "wild_store": Status.CRASH,
        "build_memory": Status.OUT_OF_MEMORY,
        "one_term_short": Status.WRONG_RESULT,
        "works_once": Status.WRONG_RESULT,
        "makes_nan": Status.NON_FINITE,
        "endless": Status.TIMEOUT,
        "build_hang": Status.BUILD_TIMEOUT,
    }
    with open_store(database) as store:
        trials = [r for r in store.trials(task) if "interleaved" not in r.measurement.how]
        (winner,) = store.records(RecordFilter(winners_only=True))
    kinds = Counter(compilers.kind_of(r.config, default) for r in trials)
    assert report.n_trials == len(trials) == 24 and set(kinds) == set(expected), kinds
    for record in trials:
        kind = compilers.kind_of(record.config, default)
        assert record.measurement.status is expected[kind], record.measurement.error
        assert bool(record.measurement.error) == (kind != "right")
    assert report.n_failed == report.tasks[0].n_failed == 24 - kinds["right"]
    assert compilers.kind_of(winner.config, default) == "right"


def test_a_default_that_fails_does_not_win(compile_with, tmp_path: Path) -> None:
    compile_with("BrokenDefault")
    report = tune(kernels.matmul_task(), tmp_path / "r.db", TuneOptions(trials=6, threads=1))
    assert report.tasks[0].default_s is None and report.tasks[0].best_s is not None
    with open_store(tmp_path / "r.db") as store:
        (winner,) = store.records(RecordFilter(winners_only=True))
        assert next(iter(store.records())).measurement.status is Status.CRASH
    assert not winner.is_default


def test_a_task_where_nothing_works_has_no_winner(compile_with, tmp_path: Path) -> None:
    compile_with("NothingWorks")
    task = kernels.matmul_task()
    report = tune(task, tmp_path / "r.db", TuneOptions(trials=4, threads=1))
    assert report.n_failed == 4 and report.failures == {"wrong_result": 4}
    assert report.tasks[0].state == "nothing worked" and report.tasks[0].best_s is None
    with open_store(tmp_path / "r.db") as store:
        assert not store.best(task) and store.count() == 4


@pytest.mark.slow
def test_the_same_command_again_measures_nothing_twice(tmp_path: Path) -> None:
    func, database = matmul(), tmp_path / "r.db"
    first, second = tune(func, database), tune(func, database)
    assert first.n_trials == second.n_trials == 10
    with open_store(database) as store:
        searched = [r.config for r in store.records() if "interleaved" not in r.measurement.how]
    assert len(searched) == len(set(searched)) == 20
    assert second.tasks[0].default_s is not None  # known from the first run


@pytest.mark.alone
def test_a_time_budget_is_kept(tmp_path: Path) -> None:
    """Starting workers and naming the winner included; the last batch may run over."""
    tune(matmul(), tmp_path / "before.db", TuneOptions(trials=1, threads=1))  # Python compiles what is imported, once
    report = tune(matmul(), tmp_path / "r.db", TuneOptions(budget=4.0, until=0.0, threads=1))
    assert report.reason.startswith("the time budget is used up") and report.n_trials > 0
    assert 2 < report.elapsed_s < 60 and report.tasks[0].state.startswith("done")


def test_a_budget_that_ends_before_the_first_trial_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a budget of 0.05 s is too small for one trial.*give 30s or more"):
        tune(matmul(), tmp_path / "r.db", TuneOptions(budget=0.05, threads=1))
    report = tune(matmul(), tmp_path / "r.db", TuneOptions(trials=1, threads=1))
    assert report.n_trials == 1
    again = tune(matmul(), tmp_path / "r.db", TuneOptions(budget=0.05, threads=1))
    assert again.n_trials == 0 and again.tasks[0].best_s is not None, "what is known is no reason to refuse"


def test_a_used_up_space_is_not_measured_again(tmp_path: Path) -> None:
    """A space of a few configurations: the second run measures none of them, and names no winner again."""
    x = autosched.te.placeholder((3, 5), name="x")
    func = autosched.te.create_prim_func([x, autosched.te.compute((3, 5), lambda i, j: x[i, j] + 1.0, name="y")])
    size, database = space_for(func, Target("cpu")).count(), tmp_path / "r.db"
    assert size < 40
    options = TuneOptions(threads=1, trials=100)
    first = tune(func, database, options)
    assert first.n_trials == size and "every configuration" in first.reason
    with open_store(database) as store:
        before = [r.uid for r in store.records()]
    second = tune(func, database, options)
    assert second.n_trials == 0 and second.tasks[0].state == "done before" and second.tasks[0].config
    for name in ("config", "best_s", "default_s"):
        assert getattr(second.tasks[0], name) == getattr(first.tasks[0], name)
    with open_store(database) as store:
        assert [r.uid for r in store.records()] == before


@pytest.mark.slow
def test_strategies(tmp_path: Path) -> None:
    options = TuneOptions(trials=20, threads=1, strategy="xgboost")  # 16 trials spread, 4 that the model proposes
    assert tune(matmul(), tmp_path / "r.db", options).n_trials == 20
    with pytest.raises(InvalidValueError, match="no strategy 'luck'"):
        tune(matmul(), tmp_path / "r.db", TuneOptions(trials=1, strategy="luck"))


def test_wrong_use(tmp_path: Path) -> None:
    for options in ({"trials": 0}, {"trials": -1}, {"budget": 0.0}):
        with pytest.raises(UsageError):
            TuneOptions(**options)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no task 3.*0 to 0"):
        tune(matmul(), tmp_path / "r.db", TuneOptions(trials=1, tasks=(3,)))
    (tmp_path / "text.db").write_text("no database")
    with pytest.raises(RecordError, match="not a tuning database"):
        tune(matmul(), tmp_path / "text.db")


def test_an_exception_leaves_no_workers_and_keeps_the_trials(tmp_path: Path) -> None:
    class Enough(Exception):
        pass

    def stop(report: TuneReport) -> None:
        if report.n_trials == 3:
            raise Enough

    before = set(process._ALIVE)
    with pytest.raises(Enough):
        autosched.tune(matmul(), "cpu", records=tmp_path / "r.db", options=OPTIONS, progress=stop)
    assert set(process._ALIVE) <= before
    with open_store(tmp_path / "r.db") as store:
        assert store.count() == 3


def test_tensors_can_be_tuned(tmp_path: Path) -> None:
    a = autosched.te.placeholder((8, 16), name="a")
    b = autosched.te.compute((8, 16), lambda i, j: a[i, j] * 2.0, name="b")
    assert autosched.tune([a, b], "cpu", records=tmp_path / "r.db", options=TuneOptions(trials=2)).n_trials == 2


@pytest.mark.alone
@pytest.mark.slow
def test_a_small_kernel_ends_with_one_thread(tmp_path: Path) -> None:
    """The number of threads is a knob: both are tried, and splitting 2 µs of work over two cores pays for nobody."""
    func, database = matmul(4, 16, 16), tmp_path / "r.db"
    tune(func, database, TuneOptions(trials=12, threads=2))
    with open_store(database) as store:
        tried = {record.config["threads"] for record in store.records()}
        (winner,) = store.records(RecordFilter(winners_only=True))
    assert tried == {1, 2} and winner.config["threads"] == winner.measurement.how["threads"] == 1


def test_default_first() -> None:
    def trial(n: int) -> Trial:
        return Trial(Config("t", {"n": n}), Measurement(Status.OK, (1.0,)))

    trials = [trial(n) for n in (2, 3, 1, 4)]
    configs = [t.config for t in trials]
    assert [t.config["n"] for t in default_first(iter(trials), configs[2], configs)] == [1, 2, 3, 4]
    assert list(default_first(iter(trials), Config("t", {"n": 9}), configs)) == trials
    assert list(default_first(iter(trials[:2]), configs[2], configs)) == trials[:2]  # the default never came

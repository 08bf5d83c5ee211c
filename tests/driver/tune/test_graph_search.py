"""The search over how a graph is built: what it measures, records and names, and what it does with bad variants."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autosched
from autosched import relax
from autosched.driver import TuneOptions
from autosched.driver.build.graph_options import GraphOptions, choose_graph, graph_task
from autosched.driver.build.tuned_layouts import TunedLayouts
from autosched.driver.settings import resolve_records
from autosched.driver.tune import graph_search
from autosched.driver.tune.graph_search import GraphSearch, changes, errors_of
from autosched.errors import UsageError
from autosched.ir import IRModule
from autosched.records import open_store
from autosched.records.sql import SqlStore
from autosched.relax import op
from autosched.target import Target
from autosched.task import Status, Trial

CPU = Target("cpu")
BETTER = GraphOptions(fuse_sums=False).config  # the one variant that is another program for the model here


def model() -> IRModule:
    """relu(x @ w + x), which has no layouts and no attention."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((8, 32), "float32"))
    weight = relax.const(np.random.default_rng(0).standard_normal((32, 32)).astype("float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(op.nn.relu(op.add(op.matmul(x, weight), x)))
        builder.emit_func_output(out)
    return builder.get()


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with open_store(tmp_path / "r.db") as opened:
        yield opened


def search_in(store: SqlStore, **options: Any) -> GraphSearch:
    layouts = TunedLayouts(resolve_records([store]), CPU, 1)
    return GraphSearch(model(), layouts, {}, store, TuneOptions(strategy="grid", **options))


def asked_after(n: int) -> Any:
    """Says after so many questions that the user wants an end."""
    answers = iter([False] * n)
    return lambda: next(answers, True)


def test_trials_are_recorded_and_not_made_twice(store: SqlStore) -> None:
    first = search_in(store)
    first.run(60.0, asked_after(11))
    trials = [t for t in store.trials(first.task) if not t.is_winner]
    assert len(trials) == 1  # what comes out as the same program is not measured
    assert trials[0].measurement.is_ok and trials[0].baseline_s
    assert trials[0].measurement.checked_against == "float64 reference"
    assert not any(t.is_default for t in store.trials(first.task))  # nobody knows that nothing is faster
    again = search_in(store, fresh=True)
    again.run(60.0, asked_after(10))
    assert again.report.n_trials <= 1


def test_a_winner_ends_the_search_and_a_build_uses_it(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def compared(self: GraphSearch, variant: Any, *how: Any) -> Any:
        trial, _, _ = measured(self, variant, *how)
        ratio = 1.5 if variant.config["fuse_sums"] else 0.5
        self._ratios[variant.config] = ratio
        return trial, ratio - 0.01, ratio + 0.01

    measured = GraphSearch._compared
    monkeypatch.setattr(GraphSearch, "_compared", compared)
    search = search_in(store)
    search.run(30.0, lambda: False)
    assert search.report.notes == ["graph: fuse_sums=False: −50.0 % of the model's time"]
    (winner,) = [t for t in store.trials(search.task) if t.is_winner]
    assert winner.config == BETTER and winner.baseline_s
    choice = choose_graph(model(), CPU, resolve_records([store]), 1)
    assert choice is not None and choice.options.config == BETTER
    assert search_in(store).is_done and not search_in(store, fresh=True).is_done


def test_time_that_ends_before_the_first_trial_is_said(store: SqlStore) -> None:
    search = search_in(store)
    search.run(0.0, lambda: False)
    (note,) = search.report.notes
    assert note.startswith("the graph's options were not searched: building") and note.endswith("give more time")
    assert not list(store.trials(search.task))


def test_where_nothing_is_faster_the_default_is_recorded(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = GraphSearch._compared

    def slower(self: GraphSearch, variant: Any, *how: Any) -> Any:
        trial, _, _ = measured(self, variant, *how)
        self._ratios[variant.config] = 0.9  # promising, and then not confirmed
        return trial, 0.8, 1.01

    monkeypatch.setattr(GraphSearch, "_compared", slower)
    search = search_in(store)
    search.run(30.0, lambda: False)
    (winner,) = [t for t in store.trials(search.task) if t.is_winner]
    assert winner.is_default and winner.config == GraphOptions().config


def test_time_that_ends_after_some_variants_says_nothing_of_the_others(store: SqlStore, monkeypatch: Any) -> None:
    made: list[object] = []
    trial = GraphSearch._trial

    def slow(self: GraphSearch, plan: Any) -> Any:
        made.append(plan)
        found = trial(self, plan)
        self._last_s = 1e6  # the next one would take longer than there is time
        return found

    monkeypatch.setattr(GraphSearch, "_trial", slow)
    search = search_in(store)
    search.run(60.0, lambda: False)
    assert len(made) == 1 and not [t for t in store.trials(search.task) if t.is_winner]
    assert not search_in(store).is_done and "the next run goes on" in search.report.notes[-1]


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (lambda *_: os.kill(os.getpid(), signal.SIGKILL), Status.CRASH),
        (lambda *_: time.sleep(60), Status.TIMEOUT),
        (lambda made, inputs, threads: 1 / 0, Status.RUN_ERROR),
        (lambda made, inputs, threads: [np.zeros((8, 32), "float32")], Status.WRONG_RESULT),
    ],
)
def test_a_variant_that_fails_is_a_record(store: SqlStore, fault: Any, status: Status, monkeypatch: Any) -> None:
    parent, good = os.getpid(), graph_search.run_once
    run = lambda *args: good(*args) if os.getpid() == parent else fault(*args)  # noqa: E731
    monkeypatch.setattr(graph_search, "run_once", run)
    monkeypatch.setattr(graph_search, "HANG_S", 2.0 if status is Status.TIMEOUT else 60.0)
    monkeypatch.setattr(graph_search, "HANG_RUNS", 0)
    search = search_in(store)
    search.run(60.0, asked_after(11))
    trials = list(store.trials(search.task))
    assert [t.measurement.status for t in trials] == [status] and trials[0].measurement.error


def test_errors_are_shares_of_the_largest_output() -> None:
    truth = [np.array([100.0, 1.0]), np.array([1, 2, 3, 4])]
    assert errors_of([np.array([101.0, 1.0], "float32"), np.array([1, 2, 3, 5])], truth) == [0.01, 0.25]
    nan = np.array([np.nan, 1.0], "float32")
    assert errors_of([nan], truth[:1]) == [np.inf] and errors_of([nan], [nan.astype("float64")]) == [0.0]
    low, high = (np.array([sign * np.inf, 1.0]) for sign in (-1, 1))
    assert errors_of([low], [high]) == [np.inf] and errors_of([high], [high]) == [0.0]


def test_a_quarter_of_the_budget_is_the_graph_s(store: SqlStore) -> None:
    assert graph_search.share_of(TuneOptions(budget=40.0)) == 10.0
    search = search_in(store)
    assert 30.0 < (search.rest_of(TuneOptions(budget=40.0)).budget_s or 0) < 40.0
    assert search.rest_of(TuneOptions()).budget_s is None


def test_changes_are_told() -> None:
    assert changes(GraphOptions(blocks="none", fuse_sums=False).config) == "graph: blocks=none fuse_sums=False"


def test_what_has_no_graph_options_is_refused(tmp_path: Path) -> None:
    options = TuneOptions(graph=True, trials=1)
    with pytest.raises(UsageError, match="model of known sizes"):
        autosched.tune(autosched.driver.extract_tasks(model(), CPU)[0], CPU, records=tmp_path / "r.db", options=options)


def test_tuning_searches_the_graph_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_search, "USUAL_S", 30.0)
    options = TuneOptions(graph=True, trials=2, threads=1)
    report = autosched.tune(model(), CPU, records=tmp_path / "r.db", options=options)
    assert any("graph" in note for note in report.notes) and report.n_trials <= 2
    with open_store(tmp_path / "r.db") as store:
        assert any(t.is_winner for t in store.trials(graph_task(model(), CPU, 1)))


def trials_of(search: GraphSearch, monkeypatch: pytest.MonkeyPatch, budget_s: float = 60.0) -> list[str]:
    """What a search builds and measures, in order; nothing is faster than the default."""
    tried: list[str] = []

    def trial(self: GraphSearch, plan: Any) -> Trial:
        tried.append(changes(plan.config))
        return self._of_default()

    monkeypatch.setattr(GraphSearch, "_trial", trial)
    search.run(budget_s, lambda: False)
    return tried


def test_other_programs_are_built_those_without_new_kernels_first(store: SqlStore, monkeypatch: Any) -> None:
    search = search_in(store)
    assert trials_of(search, monkeypatch) == ["graph: branches=True", "graph: fuse_sums=False"]
    assert search_in(store).is_done  # nothing else is worth a trial


def test_what_takes_too_long_to_compile_is_left_to_the_next_run(store: SqlStore, monkeypatch: Any) -> None:
    monkeypatch.setattr(graph_search, "KERNEL_S", 1e6)
    search = search_in(store)
    assert trials_of(search, monkeypatch) == ["graph: branches=True"]
    assert not search_in(store).is_done and "the next run goes on" in search.report.notes[-1]


@pytest.mark.parametrize(("low", "n_measured"), [(1.9, 1), (0.9, 2)])
def test_what_is_surely_slower_is_not_measured_again(
    store: SqlStore, low: float, n_measured: int, monkeypatch: Any
) -> None:
    times: list[float] = []

    def compared(self: GraphSearch, variant: Any, time_s: float, warmup_s: float | None = None) -> Any:
        times.append(time_s)
        self._ratios[variant.config] = 2.0
        return Trial(variant.config, self._of_default().measurement), low, 2.1

    monkeypatch.setattr(GraphSearch, "_compared", compared)
    search_in(store).run(60.0, lambda: False)
    assert times == [graph_search.LOOK_S, graph_search.TRIAL_S][:n_measured]

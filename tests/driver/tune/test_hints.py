"""Records of other workloads, devices and versions are hints; those of this one are facts."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

import autosched
from autosched.driver import TuneOptions, extract_tasks
from autosched.driver.tune.hints import describe_with, find_hints, sizes_of
from autosched.driver.tune.tuning import Tuning
from autosched.records import Record, make_record, open_store
from autosched.space import Config
from autosched.target import Target
from autosched.task import Measurement, Status, Task, Trial
from autosched.templates import default_config, space_for
from autosched.tuner.cost_model import FEATURES, TrialsHint, WorkloadsHint
from tests.driver.programs import matmul

CPU = Target("cpu")


def make_records(task: Task, n: int = 8, **changes: object) -> list[Record]:
    space = space_for(task.func, CPU)
    configs = space.sample(__import__("numpy").random.default_rng(0), n)
    trials = [Trial(c, Measurement(Status.OK, ((i + 1) * 1e-5,), how={"cache": "warm"})) for i, c in enumerate(configs)]
    return [dataclasses.replace(make_record(task, trial), **changes) for trial in trials]  # type: ignore[arg-type]


def tasks() -> tuple[Task, Task]:
    module = autosched.IRModule({"a": matmul(32, 48, 64), "b": matmul(64, 48, 64)})
    first, second = extract_tasks(module, CPU)
    return first, second


def test_other_workloads_devices_and_versions_are_hints(tmp_path: Path) -> None:
    task, other = tasks()
    device = dataclasses.replace(task.target.fingerprint(), model_name="another", l2_bytes=1)
    with open_store(tmp_path / "r.db") as store:
        assert find_hints(task, store, {}) == ()
        store.add(make_records(other))
        (hint,) = find_hints(task, store, {})
        assert isinstance(hint, WorkloadsHint)
        store.add(make_records(task, device=device))
        store.add(make_records(task, versions={"autosched": "0.0.1"}))
        kinds = [type(h) for h in find_hints(task, store, {})]
        assert kinds == [WorkloadsHint, TrialsHint, TrialsHint]
        space = space_for(task.func, CPU)
        rows = space.to_rows([r.config for r in make_records(task)])
        scores = find_hints(task, store, {})[1].scores(space, rows)
        assert scores[0] == 0 and scores[-1] == scores.max() > 0  # by the other device's times


def test_hints_can_be_left_out(tmp_path: Path) -> None:
    task, other = tasks()
    with open_store(tmp_path / "r.db") as store:
        store.add(make_records(other))
        for hints in (True, False):
            tuning = Tuning([task], CPU, 1, store, TuneOptions(trials=5, hints=hints, strategy="random"), {})
            assert bool(tuning._hints(tuning.tasks[0])) == hints


def test_trials_of_this_run_count_too(tmp_path: Path) -> None:
    task, other = tasks()
    trials = [r.trial for r in make_records(other)]
    with open_store(tmp_path / "r.db") as store:
        assert [type(h) for h in find_hints(task, store, {other.key: (other.workload, trials)})] == [WorkloadsHint]
        assert find_hints(task, store, {other.key: (other.workload, trials[:3])}) == ()


def test_only_records_of_this_version_and_cache_state_are_facts(tmp_path: Path) -> None:
    task, _ = tasks()
    with open_store(tmp_path / "r.db") as store:
        store.add(make_records(task, versions={"autosched": "0.0.1"}))
        tuning = Tuning([task], CPU, 1, store, TuneOptions(trials=5), {})
        assert tuning.tasks[0].trials == {} and tuning.tasks[0].n_known == 0
        store.add(make_records(task))
        assert Tuning([task], CPU, 1, store, TuneOptions(trials=5), {}).tasks[0].n_known == 8
        cold = Tuning([task], CPU, 1, store, TuneOptions(trials=5, cache="cold"), {})
        assert cold.cache == "cold" and cold.tasks[0].n_known == 0


def test_what_a_build_would_use_is_tried_early(tmp_path: Path) -> None:
    task, _ = tasks()
    known = space_for(task.func, CPU).sample(__import__("numpy").random.default_rng(3), 1)[0]
    with open_store(tmp_path / "r.db") as store:
        tuning = Tuning([task], CPU, 1, store, TuneOptions(trials=5), {task.key: known})
        asked = tuning.ask(0, 8)
        assert asked[:2] == [tuning.tasks[0].default, known] and len(set(asked)) == len(asked)
        foreign = Tuning([task], CPU, 1, store, TuneOptions(trials=5), {task.key: Config("conv2d", {})})
        assert Config("conv2d", {}) not in foreign.ask(0, 8)


def test_sizes_tell_shapes_apart() -> None:
    first, second = tasks()
    assert sizes_of(first.workload) != sizes_of(second.workload)
    assert sizes_of(first.workload).keys() == sizes_of(second.workload).keys()


def test_until_zero_stops_no_task_either(tmp_path: Path) -> None:
    task, _ = tasks()
    with open_store(tmp_path / "r.db") as store:
        for until, task_until in ((0.0, 0.0), (0.01, 0.005), (0.001, 0.001)):
            options = Tuning([task], CPU, 1, store, TuneOptions(until=until), {}).scheduler.options
            assert (options.until, options.task_until) == (until, task_until)


def test_loop_nests_of_a_task_are_described() -> None:
    task, _ = tasks()
    describe = describe_with(task)
    assert describe is not None and describe_with(dataclasses.replace(task, func=None)) is None
    good = default_config(task.func, CPU)
    loops = describe([good, Config("no_such_template", {})])
    assert loops.shape == (2, len(FEATURES)) and np.isfinite(loops[0]).all() and np.isnan(loops[1]).all()

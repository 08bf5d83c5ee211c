"""What a tuning takes over from the database, every configuration by itself; and what it notes once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from autosched.driver.build.choose import choose, make_task
from autosched.driver.options import TuneOptions
from autosched.driver.task_space import space_of
from autosched.driver.tune.tuning import Tuning
from autosched.records import make_record, open_store
from autosched.records.record import DEFAULT
from autosched.space import use_spaces
from autosched.target import Target
from autosched.task import Measurement, Status, Trial
from tests.driver.programs import matmul

CPU = Target("cpu")
SPACE = """
[space]
template = "matmul"
values = ["batch", "M", "N", "K", "lanes", "registers"]
[knobs.rows]
values = [{rows}]
[knobs.vectors]
values = [1]
[knobs.streams]
values = [1]
[knobs.order]
values = ["nm"]
[knobs.chunk]
values = [1]
[knobs.unroll_k]
values = [1, 2]
[knobs.prefetch]
bool = true
"""


def spaces(folder: Path, rows: str) -> Path:
    (folder / "cpu").mkdir(parents=True)
    (folder / "cpu" / "matmul.toml").write_text(SPACE.format(rows=rows))
    return folder


def test_a_longer_list_of_candidates_measures_only_what_is_new(tmp_path: Path) -> None:
    task = make_task(matmul(), CPU, name="main", cache="warm")
    short, long = spaces(tmp_path / "short", "1, 2"), spaces(tmp_path / "long", "1, 2, 3")
    with use_spaces(short):
        known = list(space_of(task))
    measured = [Measurement(Status.OK, (1e-5 * (i + 1),), how={"cache": "warm"}) for i in range(len(known))]
    with open_store(tmp_path / "r.db") as store:
        store.add([make_record(task, Trial(*pair)) for pair in zip(known, measured, strict=True)])
        with use_spaces(long):
            space = space_of(task)
            tuning = Tuning([task], CPU, 1, store, TuneOptions(strategy="random"), {})
            asked = []
            while batch := tuning.ask(0, 50):
                asked += batch
    assert tuning.tasks[0].n_known == len(known) > 4
    assert len(asked) == len(set(asked)) and set(asked) == set(space) - set(known)
    assert asked and {config["rows"] for config in asked} == {3}


def test_a_drift_is_noted_once(tmp_path: Path) -> None:
    task = make_task(matmul(), CPU, name="main", cache="warm")
    with open_store(tmp_path / "r.db") as store:
        tuning = Tuning([task], CPU, 1, store, TuneOptions(), {})
        for factor in (1.0, 1.02, 1.1, 1.2):
            tuning.see_default(0, Trial(tuning.tasks[0].default, Measurement(Status.OK, (factor * 1e-4,))))
            noted = sum("speed has drifted" in note for note in tuning.report.notes)
            assert noted == (factor > 1.03)
    assert abs(tuning.report.drift - 0.2) < 1e-9


def test_shares_are_of_the_whole_model_before_all_of_it_is_measured(tmp_path: Path) -> None:
    tasks = [make_task(matmul(), CPU, name=name, cache="warm") for name in ("a", "b")]
    with open_store(tmp_path / "r.db") as store:
        tuning = Tuning(tasks, CPU, 1, store, TuneOptions(), {})
        tuning.fill_report()
        assert [task.share for task in tuning.report.tasks] == [None, None], "nothing is measured"
        tuning.tasks[0].best_s = 1e-3
        tuning.fill_report()
    assert [task.share for task in tuning.report.tasks] == [0.5, 0.5]
    gain_s = tuning.report.expected_gain_s
    assert gain_s is not None and abs(gain_s - 2e-3 * tuning.scheduler.expected_gain()) < 1e-12


def test_time_for_the_end_is_kept_for_tasks_that_are_still_to_come(tmp_path: Path) -> None:
    task = make_task(matmul(), CPU, name="main", cache="warm")
    with open_store(tmp_path / "r.db") as store:
        tuning = Tuning([task, make_task(matmul(k=96), CPU, name="b", cache="warm")], CPU, 1, store, TuneOptions(), {})
        before = tuning.naming_s()
        tuning.remember(0, Trial(tuning.tasks[0].default, Measurement(Status.OK, (1e-5,))))
        assert 0 < tuning.naming_s() == before / 2  # known already: nothing new is compared
        tuning.tasks[0].report.n_trials = 1
        assert tuning.naming_s() == before


def test_a_winner_says_which_default_it_has_beaten_and_is_named_while_that_is_the_default(tmp_path: Path) -> None:
    task = make_task(matmul(), CPU, name="main", cache="warm")
    ok = Measurement(Status.OK, (1e-5,), how={"cache": "warm", "baseline_s": 2e-5})
    with open_store(tmp_path / "r.db") as store:
        tuning = Tuning([task], CPU, 1, store, TuneOptions(), {})
        default = tuning.tasks[0].default
        other, another = (default.with_knobs(rows=rows) for rows in (2, 4))
        winner = tuning.record(0, Trial(other, ok), is_winner=True)
        assert winner.default == default and tuning.record(0, Trial(other, ok)).default is None
        store.add([tuning.record(0, Trial(default, ok)), winner])
        assert Tuning([task], CPU, 1, store, TuneOptions(), {}).tasks[0].named == other
        assert choose(task, store, "main").config == other
        old = replace(winner, measurement=replace(ok, how={**ok.how, DEFAULT: json.loads(other.key)}), time=2e9)
        store.add([replace(old, config=another)])
        assert Tuning([task], CPU, 1, store, TuneOptions(), {}).tasks[0].named == other
        assert choose(task, store, "main").config == other

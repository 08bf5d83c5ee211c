"""An exported Optuna storage holds every trial in a study for each task."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import optuna
import pytest

from autosched.errors import RecordError
from autosched.records.optuna_storage import write_storage
from autosched.task import Status
from autosched.testing.tasks import matmul_task, record, trial


def test_optuna_reads_what_was_written(tmp_path: Path) -> None:
    crash = dataclasses.replace(record(5), measurement=trial(5, status=Status.CRASH).measurement)
    records = [record(1, default=True), record(4, winner=True), crash, record(2, task=matmul_task(3))]
    path = tmp_path / "o.db"
    assert write_storage(path, records) == 4
    storage = optuna.storages.RDBStorage(f"sqlite:///{path}")
    studies = {study.study_name.split(" | ")[0]: study for study in optuna.get_all_study_summaries(storage)}
    assert [study.n_trials for study in studies.values()] == [3, 1]
    study = optuna.load_study(study_name=next(iter(studies.values())).study_name, storage=storage)
    assert study.best_value == pytest.approx(0.25) and study.best_params == {"template": "matmul", "rows": "4"}
    (failed,) = study.get_trials(states=[optuna.trial.TrialState.FAIL])
    assert failed.user_attrs["status"] == "crash" and failed.user_attrs["error"] == "made for a test"
    assert [p.name for p in tmp_path.iterdir()] == ["o.db"]


def test_a_folder_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="cannot write"):
        write_storage(tmp_path / "no" / "o.db", [record(1)])

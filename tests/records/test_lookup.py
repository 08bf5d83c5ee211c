from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from autosched.records import Record, open_store
from autosched.records.choose import measured_as
from autosched.records.lookup import Lookup
from autosched.testing.records import matmul_task, record


def winner(number: int, time: float, **how: object) -> Record:
    made = record(number)
    measurement = dataclasses.replace(made.measurement, how={**made.measurement.how, **how})
    return dataclasses.replace(made, measurement=measurement, is_winner=True, time=time)


@pytest.mark.parametrize("is_later", [False, True])
def test_what_was_measured_as_the_model_will_run_comes_first(tmp_path: Path, is_later: bool) -> None:
    alone = winner(1, 10.0)
    beside = winner(2, 20.0 if is_later else 5.0, **{"as": "throughput", "companions": 3})
    assert (measured_as(alone), measured_as(beside)) == ("latency", "throughput")
    with open_store(tmp_path / "r.db") as store:
        store.add([alone, beside])
        assert store.best(matmul_task()).config == alone.config
        assert Lookup(store, run_as="latency").best(matmul_task()).config == alone.config
        assert Lookup(store, run_as="throughput").best(matmul_task()).config == beside.config


def test_one_of_the_other_kind_is_better_than_none(tmp_path: Path) -> None:
    with open_store(tmp_path / "r.db") as store:
        store.add([winner(1, 10.0)])
        assert Lookup(store, run_as="throughput").best(matmul_task()).config == record(1).config

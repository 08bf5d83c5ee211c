"""A winner is evidence against the default that it was compared with, and against no other one."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from autosched.records import Record, Trust, choose, from_document, open_reader, open_store, write_lines
from autosched.records.explain import consider
from autosched.records.found import Found
from autosched.records.lookup import Lookup
from autosched.records.near import RANGE, sizes_of
from autosched.records.record import DEFAULT
from autosched.space import Config
from autosched.task import Task
from autosched.testing.tasks import matmul_task, record, trial

TASK = matmul_task()


def rows(number: int, threads: int | None = None) -> Config:
    """A configuration of `matmul`; over so many threads, where they are named."""
    return Config("matmul", {"rows": number} | ({} if threads is None else {"threads": threads}))


class Having:
    """A validator of a task whose default is `default`."""

    def __init__(self, default: Config):
        self.default = default

    def __call__(self, config: Config) -> str:
        return ""


def won(used: Config, beaten: Config | None, *, task: Task = TASK) -> Record:
    """A winner that took half the time of a default; None: which one it was is not noted."""
    made = record(1, task=task, winner=True, default=used == beaten)
    noted: dict[str, object] = {"baseline_s": 2 * made.measurement.median_s}
    if beaten is not None and beaten != used:
        noted[DEFAULT] = {"template": beaten.template, "knobs": dict(beaten.knobs)}
    return dataclasses.replace(made, config=used, measurement=dataclasses.replace(made.measurement, how=noted))


def look_up(one: Record, default: Config, task: Task = TASK) -> Found:
    return choose([one], task, "log", valid=Having(default))


def test_a_winner_counts_while_its_default_is_the_task_s() -> None:
    assert look_up(won(rows(4), rows(1)), rows(1)).config == rows(4)
    found = look_up(won(rows(4), rows(1)), rows(2))
    assert not found and found.reason == (
        "invalid record: it was faster than the default matmul: rows=1, and here that is matmul: rows=2"
    )
    assert look_up(won(rows(4), rows(1)), rows(4)).trust is Trust.HERE  # it has become the default
    assert choose([won(rows(4), rows(1))], TASK, "log").config == rows(4)  # nobody says what the default is


def test_that_the_default_was_best_says_nothing_of_another_one() -> None:
    kept = look_up(won(rows(1), rows(1)), rows(1))
    assert kept.is_default and kept.config == rows(1) and kept.trust is Trust.HERE
    found = look_up(won(rows(1), rows(1)), rows(2))
    assert not found and "the default was best, matmul: rows=1, and is another one here: matmul: rows=2" in found.reason


@pytest.mark.parametrize(
    ("beaten", "default", "is_used"),
    [
        (rows(1), rows(1, 4), True),
        (rows(1), rows(2, 4), False),
        (rows(1, 2), rows(1, 4), True),
        (rows(1, 2), rows(1, 1), True),
    ],
)
def test_of_another_number_of_threads_all_but_that_must_agree(beaten: Config, default: Config, is_used: bool) -> None:
    task = dataclasses.replace(TASK, threads=4)
    found = look_up(won(rows(4), beaten), default, task)
    assert bool(found) == is_used and (found.trust is Trust.NEAR or not is_used)
    best = look_up(won(beaten, beaten), default, task)
    assert bool(best) == is_used
    if is_used:  # with the threads of this task
        assert best.config == default and best.is_default


def test_of_the_same_number_of_threads_the_default_s_own_counts() -> None:
    assert not look_up(won(rows(4, 2), rows(1, 1)), rows(1, 2))
    assert look_up(won(rows(4, 2), rows(1, 2)), rows(1, 2)).config == rows(4, 2)


def test_what_was_compared_with_nothing_is_a_wish() -> None:
    assert look_up(record(4, winner=True), rows(1)).config == rows(4)
    found = look_up(won(rows(4), None), rows(1))
    assert not found and "does not say which default" in found.reason


def test_what_the_user_calls_alike_is_a_wish_too() -> None:
    one = won(rows(4), rows(1))
    device = matmul_task(target="llvm -mcpu=x86-64-v4 -num-cores=4").target.fingerprint()
    foreign = dataclasses.replace(one, device=device)
    valid = Having(rows(2))
    assert not choose([foreign], TASK, "log", valid=valid)
    assert choose([foreign], TASK, "log", valid=valid, like="x86-64-v4").config == rows(4)


@pytest.mark.parametrize("kind", ["r.db", "r.jsonl", "folder/"])
def test_older_winners_are_completed_by_the_trials_of_their_tuning(tmp_path: Path, kind: str) -> None:
    """Records from before winners said so: the default's trial is in the same database."""
    winner = dataclasses.replace(won(rows(4), None), time=20.0)
    trials = [
        dataclasses.replace(record(1, default=True), time=10.0),
        dataclasses.replace(record(2, default=True), time=30.0),  # a default of later
        dataclasses.replace(record(3, default=True, task=matmul_task(threads=1)), time=15.0),
        dataclasses.replace(record(3, default=True, task=matmul_task(k=800)), time=16.0),
    ]
    path = tmp_path / kind.rstrip("/")
    if kind == "r.jsonl":
        write_lines(path, [winner, *trials])
        reader = open_reader(path)
    else:
        reader = open_store(str(tmp_path) + "/" + kind)
        reader.add([winner, *trials])
    assert reader.best(TASK, Having(rows(1))).config == rows(4)
    assert not reader.best(TASK, Having(rows(2)))
    assert [found.default for found in reader.winners_of_op(TASK, TASK.workload.op)] == [rows(1)]


def test_the_default_survives_every_form(tmp_path: Path) -> None:
    made = trial(4)
    one = dataclasses.replace(won(rows(4), rows(1, 2)), config=made.config)
    assert one.default == rows(1, 2) == from_document(one.to_document()).default
    with open_store(tmp_path / "r.db") as store:
        store.add([one])
        assert store.export_jsonl(tmp_path / "r.jsonl") == 1
    with open_store(tmp_path / "again.db") as store:
        store.import_jsonl(tmp_path / "r.jsonl")
        assert next(iter(store.records())).default == rows(1, 2)


def test_explain_says_what_a_winner_was_compared_with(tmp_path: Path) -> None:
    one, valid = won(rows(4), rows(1)), Having(rows(2))
    with open_store(tmp_path / "r.db") as store:
        store.add([one])
        (item,) = consider(store, TASK, store.best(TASK, valid), valid)
    assert item.verdict == "invalid" and "faster than the default matmul: rows=1" in item.reason


# ---- neighbours


def of_range(beaten: Config) -> tuple[Record, Task]:
    """A winner for a range of sizes, and a task of a size inside."""
    sizes = sizes_of(TASK.workload)
    inside = matmul_task(m=TASK.workload.shapes[0][0] * 2)
    extent = {"low": [1] * len(sizes), "high": [10_000] * len(sizes)}
    made = won(rows(4), beaten)
    how = {**made.measurement.how, RANGE: extent}
    return dataclasses.replace(made, measurement=dataclasses.replace(made.measurement, how=how)), inside


@pytest.mark.parametrize(("gain", "is_used"), [(1.2, True), (1.02, False)])
def test_in_a_range_another_default_asks_for_a_gain(gain: float, is_used: bool, tmp_path: Path) -> None:
    one, inside = of_range(rows(1))
    how = {**one.measurement.how, "baseline_s": gain * one.measurement.median_s}
    one = dataclasses.replace(one, measurement=dataclasses.replace(one.measurement, how=how))
    with open_store(tmp_path / "r.db") as store:
        store.add([one])
        lookup = Lookup(store, predict=lambda *_: 1.0)
        assert lookup.best(inside, Having(rows(1))).config == rows(4)
        found = lookup.best(inside, Having(rows(2)))
        assert bool(found) == is_used and found.rule == "a range of sizes"
        assert is_used or "here that is matmul: rows=2" in found.reason


def test_a_near_shape_s_winner_has_to_have_beaten_the_same_default(tmp_path: Path) -> None:
    with open_store(tmp_path / "r.db") as store:
        store.add([won(rows(4), rows(1))])
        lookup, near = Lookup(store, predict=lambda *_: 1.3), matmul_task(k=800)
        assert lookup.best(near, Having(rows(1))).rule == "a near shape"
        assert not lookup.best(near, Having(rows(2)))

"""The ladder of devices, devices that are named as alike, and neighbours of a shape."""

from __future__ import annotations

import dataclasses
import itertools
import math
from pathlib import Path

import pytest

from autosched.driver.build.choose import TRUSTED
from autosched.records import LayeredReader, Record, Trust, choose, open_reader, open_store, write_lines
from autosched.records.explain import consider
from autosched.records.lookup import Lookup
from autosched.records.near import distance_between
from autosched.task import Workload
from autosched.testing.tasks import matmul_task, record

TASK = matmul_task()
OTHER_L2 = 2 * TASK.target.cache.l2_bytes


def tuned(rows: int, host: str = "", **device: object) -> Record:
    """A winner of `TASK` on this device with some fields changed."""
    one = record(rows, winner=True)
    changed = dataclasses.replace(one.device, **device)
    return dataclasses.replace(one, device=changed, host=host or one.host, time=1000.0 + rows)


RUNGS = [
    (tuned(1), Trust.HERE, ""),
    (tuned(2, host="another"), Trust.SAME_DEVICE, ""),
    (tuned(3, cores=64), Trust.SAME_DEVICE, "tuned on 64 cores, not "),
    (tuned(4, model_name="Twin", vendor="Other"), Trust.ELSEWHERE, "tuned on Twin: same architecture and resources"),
    (tuned(5, model_name="Cousin", l2_bytes=OTHER_L2), Trust.ELSEWHERE, "tuned on Cousin: same family x86-64-v3"),
]


def test_the_nearest_rung_is_used_and_each_step_down_is_shown() -> None:
    for first, (one, trust, reason) in enumerate(RUNGS):
        below = [r for r, _, _ in RUNGS[first:]]
        for order in (below, below[::-1]):
            found = choose(order, TASK, "log", by_family=True)
            assert found.config == one.config and found.trust is trust and found.reason.startswith(reason)


def test_a_winner_named_under_noise_is_used_and_not_counted_as_verified() -> None:
    def with_noise(share: float) -> Record:
        one = record(1, winner=True)
        return dataclasses.replace(one, measurement=dataclasses.replace(one.measurement, how={"noise": share}))

    found = choose([with_noise(0.08)], TASK, "log")
    assert found.config == record(1).config and found.trust is Trust.NOISY and "uncertain by 8%" in found.reason
    assert found.trust not in TRUSTED
    assert choose([with_noise(0.02)], TASK, "log").trust is Trust.HERE


def test_the_order_of_records_never_decides() -> None:
    twins = [dataclasses.replace(record(rows, winner=True), time=5.0) for rows in (1, 2, 3)]
    found = {choose(order, TASK, "log").config for order in itertools.permutations(twins)}
    assert len(found) == 1


def test_what_was_measured_as_the_task_will_run_comes_first() -> None:
    """Threads and the state of the caches are part of the look-up."""

    def measured(rows: int, cache: str, threads: int) -> Record:
        one = dataclasses.replace(record(rows, winner=True), threads=threads, time=float(rows))
        return dataclasses.replace(one, measurement=dataclasses.replace(one.measurement, how={"cache": cache}))

    cold, warm, alone = measured(1, "cold", 2), measured(2, "warm", 2), measured(3, "cold", 1)
    for order in itertools.permutations((cold, warm, alone)):
        for cache, threads, expected in (("cold", 2, cold), ("warm", 2, warm), ("cold", 1, alone), ("", 2, warm)):
            task = dataclasses.replace(TASK, cache=cache, threads=threads)
            assert choose(order, task, "log").config == expected.config
    other = choose([alone], TASK, "log")
    assert other.trust is Trust.NEAR and "tuned with 1 threads, not 2" in other.reason


def test_only_shipped_logs_go_by_family() -> None:
    cousin = RUNGS[4][0]
    assert "another device" in choose([cousin], TASK, "log").reason
    assert choose([cousin], TASK, "log", by_family=True).trust is Trust.ELSEWHERE
    for generation in ({"vendor": "AnotherMaker"}, {"cpu_family": 99}):
        another = tuned(6, **generation, l2_bytes=OTHER_L2)
        assert "another device" in choose([another], TASK, "log", by_family=True).reason
    unknown = tuned(7, vendor="x86_64", l2_bytes=OTHER_L2)
    assert choose([unknown], TASK, "log", by_family=True).trust is Trust.ELSEWHERE


@pytest.mark.parametrize("like", ["x86-64-v4", "llvm -mcpu=skylake-avx512", "xeon gold"])
def test_a_foreign_record_is_used_where_it_is_marked_so(like: str, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    foreign = tuned(8, model_name="Intel Xeon Gold 6248", isa_level="x86-64-v4", vector_bits=512)
    write_lines(path, [foreign])
    reader = LayeredReader([open_reader(path)])
    assert "another device only (Intel Xeon Gold" in reader.best(TASK).reason
    found = Lookup(reader, like=like).best(TASK)
    assert found.rule == "a device named as like this one"
    assert found.config == foreign.config and found.trust is Trust.ELSEWHERE and "used as like" in found.reason
    assert not Lookup(reader, like="another").best(TASK)
    assert not Lookup(reader, like=like).best(TASK, lambda config: "rows=8 is no candidate")  # checked here again
    (item,) = consider(Lookup(reader, like=like), TASK, found)
    assert item.verdict == "used" and item.trust is Trust.ELSEWHERE
    write_lines(path, [foreign, tuned(1)])
    assert Lookup(LayeredReader([open_reader(path)]), like=like).best(TASK).trust is Trust.HERE  # one's own comes first


# ---- neighbours


def test_distances() -> None:
    workload = matmul_task(128, 256, 784).workload
    assert distance_between(workload, matmul_task(128, 256, 784).workload) == 0
    assert distance_between(workload, matmul_task(64, 256, 784).workload) == 2  # in an input and in the output
    assert distance_between(workload, matmul_task(0, 256, 784).workload) == math.inf
    parts = {"op": "conv2d", "dtypes": ("float32",), "shapes": ((1, 64),)}
    one = Workload(**parts, attrs={"sizes": (64, 9), "steps": (1, 1)})  # type: ignore[arg-type]
    assert distance_between(one, Workload(**parts, attrs={"sizes": (32, 9), "steps": (1, 1)})) == 1  # type: ignore[arg-type]
    assert distance_between(one, Workload(**parts, attrs={"sizes": (32, 9), "steps": (2, 1)})) == math.inf  # type: ignore[arg-type]
    for other in ({"op": "dense"}, {"dtypes": ("float16",)}, {"shapes": ((1, 2, 3),)}):
        changed = Workload(**{**parts, **other}, attrs={"sizes": (64, 9), "steps": (1, 1)})  # type: ignore[arg-type]
        assert distance_between(one, changed) == math.inf


def near_reader(path: Path, records: list[Record], gain: float) -> Lookup:
    with open_store(path) as store:
        store.add(records)
    return Lookup(LayeredReader([open_reader(path)]), predict=lambda task, record, distance: gain)


def test_a_neighbour_is_used_only_where_a_gain_is_expected(tmp_path: Path) -> None:
    task = matmul_task(128, 256, 800)
    neighbours = [record(4, winner=True), record(2, task=matmul_task(128, 256, 760), winner=True)]
    reader = near_reader(tmp_path / "r.db", neighbours, 1.3)
    found = reader.best(task)
    assert found.config == record(4).config and found.trust is Trust.NEAR and found.expected_s is None
    assert found.rule == "a near shape" and reader.best(TASK).rule == "its own record"
    assert "tuned for matmul 128x784" in found.reason and "1.30 times faster" in found.reason
    assert reader.best(task, lambda config: "no" if config["rows"] == 4 else "").config == record(2).config
    assert not reader.best(task, lambda config: "no")
    assert not near_reader(tmp_path / "r.db", [], 1.01).best(task)  # as fast as the default: the default
    assert near_reader(tmp_path / "r.db", [], 1.01).best(task).rule == ""  # nothing was found, by no rule
    assert not reader.best(matmul_task(128, 256, 3000)) and not reader.best(matmul_task(128, 256, 800, threads=1))
    assert not reader.best(matmul_task(128, 256, 800, target="llvm -mcpu=x86-64-v4"))
    assert reader.best(TASK).trust is Trust.HERE


def test_a_winner_for_other_threads_is_used_only_where_a_gain_is_expected(tmp_path: Path) -> None:
    task = dataclasses.replace(TASK, threads=4)
    tuned = record(4, winner=True)
    measured = dataclasses.replace(tuned.measurement, how={**tuned.measurement.how, "baseline_s": 1.0})
    gained = dataclasses.replace(tuned, measurement=measured)
    found = near_reader(tmp_path / "r.db", [gained], 1.3).best(task)
    assert found.config == gained.config and found.trust is Trust.NEAR and "threads, not 4" in found.reason
    missed = near_reader(tmp_path / "r.db", [], 1.01).best(task)
    assert not missed and "threads, not 4: no faster than the default is expected" in missed.reason
    assert near_reader(tmp_path / "r.db", [], 1.01).best(TASK).trust is Trust.HERE
    kept = record(1, winner=True, default=True)
    assert near_reader(tmp_path / "d.db", [kept], 1.01).best(task).is_default


def test_a_default_that_has_won_is_no_gap_for_a_neighbour(tmp_path: Path) -> None:
    task = matmul_task(128, 256, 800)
    tuned = [record(4, winner=True), record(1, task=task, winner=True, default=True)]
    found = near_reader(tmp_path / "r.db", tuned, 9.0).best(task)
    assert found.is_default and found.config == record(1).config and found.trust is Trust.HERE


def test_an_unusable_record_is_not_papered_over(tmp_path: Path) -> None:
    """Its reason stays in the report: a neighbour would hide it."""
    reader = near_reader(
        tmp_path / "r.db", [record(4, winner=True), record(2, task=matmul_task(k=800), winner=True)], 2.0
    )
    found = reader.best(TASK, lambda config: "no candidate" if config["rows"] == 4 else "")
    assert not found and "no candidate" in found.reason

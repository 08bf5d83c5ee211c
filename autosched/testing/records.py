"""The tests that every record store passes."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod

from autosched.records import RecordStore, Trust
from autosched.task import Status
from autosched.testing.tasks import AVX2, matmul_task, record, trial


class RecordStoreSuite(ABC):
    """Derive a test class from it and give `store`, a new and empty one on each call."""

    @abstractmethod
    def store(self) -> RecordStore:
        """A new, empty store."""

    def test_gives_back_what_was_added(self) -> None:
        store, task = self.store(), matmul_task()
        records = [record(i) for i in range(1, 5)]
        assert store.add(records) == 4
        assert [r.line for r in store.trials(task)] == [r.line for r in records]

    def test_the_same_evidence_is_stored_once(self) -> None:
        store, one = self.store(), record(1)
        assert store.add([one]) == 1
        assert store.add([one, record(2)]) == 1
        assert store.add([]) == 0
        assert len(list(store.trials(matmul_task()))) == 2

    def test_failures_are_kept_with_their_whole_text(self) -> None:
        store = self.store()
        failed = dataclasses.replace(record(3), measurement=trial(3, status=Status.CRASH).measurement)
        store.add([failed])
        (found,) = store.trials(matmul_task())
        assert found.measurement.status is Status.CRASH and found.measurement.error == "made for a test"
        assert found.uid == failed.uid

    def test_only_a_named_winner_is_best(self) -> None:
        store, task = self.store(), matmul_task()
        store.add([record(1, default=True), record(8)])
        assert not store.best(task)
        store.add([record(4, winner=True)])
        found = store.best(task)
        assert found.config == record(4).config and found.trust is Trust.HERE and found.expected_s == 1e-3 / 4

    def test_the_default_can_be_the_winner(self) -> None:
        store = self.store()
        store.add([record(1, winner=True, default=True)])
        assert store.best(matmul_task()).is_default

    def test_the_latest_winner_counts(self) -> None:
        store, old = self.store(), record(8, winner=True)
        new = dataclasses.replace(record(2, winner=True), time=old.time + 10)
        store.add([new, old])
        assert store.best(matmul_task()).config == new.config

    def test_another_workload_does_not_answer(self) -> None:
        store = self.store()
        store.add([record(4, winner=True)])
        assert store.best(matmul_task(k=785)).reason == "no record"
        assert list(store.trials(matmul_task(k=785))) == []

    def test_another_device_is_a_miss_with_a_reason(self) -> None:
        store = self.store()
        store.add([record(4, winner=True)])
        other = matmul_task(target="llvm -mcpu=x86-64-v4 -num-cores=4")
        found = store.best(other)
        assert not found and "another device" in found.reason
        assert list(store.trials(other)) == []

    def test_the_same_device_elsewhere_is_trusted_less(self) -> None:
        store = self.store()
        store.add([dataclasses.replace(record(4, winner=True), host="another")])
        assert store.best(matmul_task()).trust is Trust.SAME_DEVICE
        assert store.best(matmul_task(target=AVX2.replace("cores=4", "cores=8"))).trust is Trust.SAME_DEVICE

    def test_another_thread_count_is_trusted_less(self) -> None:
        store = self.store()
        store.add([record(4, winner=True)])
        found = store.best(matmul_task(threads=1))
        assert found and found.trust is Trust.NEAR and "tuned with 2 threads" in found.reason
        assert list(store.trials(matmul_task(threads=1))) == []
        store.add([record(2, task=matmul_task(threads=1), winner=True)])
        assert store.best(matmul_task(threads=1)).config == record(2).config

    def test_an_invalid_record_is_a_miss_with_a_reason(self) -> None:
        store = self.store()
        store.add([record(4, winner=True)])
        found = store.best(matmul_task(), lambda config: "rows=4 is no candidate")
        assert not found and found.reason == "invalid record: rows=4 is no candidate"

    def test_an_older_valid_winner_stands_in_for_an_invalid_one(self) -> None:
        store, new = self.store(), record(8, winner=True)
        store.add([new, dataclasses.replace(record(2, winner=True), time=new.time - 10)])
        found = store.best(matmul_task(), lambda config: "too many rows" if config["rows"] == 8 else "")
        assert found.config == record(2).config

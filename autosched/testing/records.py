"""The tests that every record store passes."""

from __future__ import annotations

import dataclasses
import threading
import time
from abc import ABC, abstractmethod

from autosched.records import RecordStore, Trust
from autosched.space import Config
from autosched.task import Status
from autosched.testing.tasks import AVX2, matmul_task, record, trial


class RecordStoreSuite(ABC):
    """Derive a test class from it and give `store` and `another`."""

    @abstractmethod
    def store(self) -> RecordStore:
        """A new, empty store."""

    @abstractmethod
    def another(self, store: RecordStore) -> RecordStore:
        """What `store` keeps its records in, opened a second time, as by another process."""

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

    def test_what_one_has_added_another_sees(self) -> None:
        store = self.store()
        other = self.another(store)
        store.add([record(1), record(4, winner=True)])
        assert other.best(matmul_task()).config == record(4).config
        assert other.add([record(2)]) == 1
        assert {r.config["rows"] for r in store.trials(matmul_task())} == {1, 2, 4}

    def test_a_configuration_is_leased_to_one_at_a_time(self) -> None:
        store, task = self.store(), matmul_task()
        other, (a, b, c) = self.another(store), [trial(rows).config for rows in (1, 2, 3)]
        assert list(store.claim(task, [a, b], 60.0)) == [a, b]
        assert list(other.claim(task, [c, b, a], 60.0)) == [c]
        assert list(store.claim(task, [a, c], 60.0)) == [a]  # one's own again
        store.release(task)
        assert list(other.claim(task, [a, b, c], 60.0)) == [a, b, c]

    def test_leases_are_of_a_task(self) -> None:
        store, config = self.store(), trial(1).config
        other = self.another(store)
        assert list(store.claim(matmul_task(), [config], 60.0)) == [config]
        for task in (matmul_task(k=9), matmul_task(threads=1), matmul_task(target="llvm -mcpu=x86-64-v4")):
            assert list(other.claim(task, [config], 60.0)) == [config]
        store.release(matmul_task(k=9))
        assert list(other.claim(matmul_task(), [config], 60.0)) == []
        store.release()
        assert list(other.claim(matmul_task(), [config], 60.0)) == [config]

    def test_an_expired_lease_is_taken_over(self) -> None:
        store, task, config = self.store(), matmul_task(), trial(1).config
        other = self.another(store)
        assert list(store.claim(task, [config], 0.05)) == [config]
        time.sleep(0.1)
        assert list(other.claim(task, [config], 60.0)) == [config]
        assert list(store.claim(task, [config], 60.0)) == []  # the first one came back too late

    def test_what_is_measured_is_granted_to_nobody(self) -> None:
        store, task = self.store(), matmul_task()
        other = self.another(store)
        lost = dataclasses.replace(record(3), measurement=trial(3, status=Status.LOST).measurement)
        store.claim(task, [trial(1).config], 0.0)
        store.add([record(1), lost])
        configs = [trial(rows).config for rows in (1, 2, 3)]
        assert list(other.claim(task, configs, 60.0)) == configs[1:]
        assert list(store.claim(task, configs, 60.0)) == [] and list(store.claim(task, [], 60.0)) == []

    def test_two_at_once_share_the_work(self) -> None:
        store, task = self.store(), matmul_task()
        stores = [store, *(self.another(store) for _ in range(3))]
        configs = [trial(rows).config for rows in range(1, 41)]
        granted: list[list[Config]] = [[] for _ in stores]

        def take(i: int) -> None:
            for start in range(0, 40, 4):
                part = configs[start : start + 4] if i % 2 else configs[36 - start : 40 - start]
                granted[i] += stores[i].claim(task, part, 60.0)

        threads = [threading.Thread(target=take, args=(i,)) for i in range(len(stores))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(c.key for part in granted for c in part) == sorted(c.key for c in configs)

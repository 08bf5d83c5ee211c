"""Tuners of one database share its work: none measures what another does, and each learns what the others found."""

from __future__ import annotations

import contextlib
import time

from autosched.driver.tune.drift import corrected
from autosched.driver.tune.hints import is_current
from autosched.driver.tune.job import Job
from autosched.errors import RecordError
from autosched.records import RecordFilter
from autosched.space import Config

LEASE_S = 120.0  # longer than a batch takes; a tuner that dies on this machine loses its leases at once
NEWS_S = 15.0  # how often is looked for what others have measured, where nothing tells that there are any
OVERLAP_S = 60.0  # clocks of two machines may differ by so much


class Sharing:
    """What a tuning asks of its database before it measures, and learns from it meanwhile."""

    def __init__(self, job: Job):
        self._job = job
        now = time.time()
        self._since = [now] * len(job.tasks)
        self._next_look = [now + NEWS_S] * len(job.tasks)
        self._known: list[set[str]] = [set() for _ in job.tasks]
        self.n_learnt = 0  # trials of others

    def ask(self, i: int, n: int) -> list[Config]:
        """The next configurations of a task that nobody else measures; fewer than `n` where there are no more."""
        granted: list[Config] = []
        while len(granted) < n and (asked := self._job.ask(i, n - len(granted))):
            stale = self._job.stale[i]  # their records do not count, and are no reason not to measure
            new = [config for config in asked if config not in stale]
            found = {*self._job.store.claim(self._job.tasks[i], new, LEASE_S), *(stale & set(asked))}
            granted += [config for config in asked if config in found]
            if len(found) < len(asked) or time.time() >= self._next_look[i]:
                self.learn(i)
        return granted

    def learn(self, i: int) -> None:
        """Take in what other tuners have measured of a task since the last time."""
        job, task, state = self._job, self._job.tasks[i], self._job.states[i]
        begin, device = time.time(), self._job.tasks[i].target.fingerprint()
        query = RecordFilter(workload=task.key, since_s=self._since[i] - OVERLAP_S)
        fresh = [
            record
            for record in job.store.records(query)
            if (record.device, record.threads) == (device, task.threads)
            and record.session != job.session.name
            and record.uid not in self._known[i]
            and is_current(record, job.source.versions)
            and record.measurement.how.get("cache", job.cache) == job.cache
            and record.config in job.spaces[i]
        ]
        self._since[i], self._next_look[i] = begin, begin + NEWS_S
        self._known[i] |= {record.uid for record in fresh}
        trials = [corrected(record.trial) for record in fresh if record.config not in job.trials[i]]
        for trial in trials:
            job.remember(i, trial)
        state.search.tell(trials)
        state.n_known += len(trials)
        self.n_learnt += len(trials)

    def learn_all(self) -> None:
        """Before winners are named: what others have measured counts as one's own."""
        for i in range(len(self._job.tasks)):
            self.learn(i)

    def close(self) -> None:
        """Give back what was granted and not measured."""
        with contextlib.suppress(RecordError):  # they expire by themselves
            self._job.store.release()

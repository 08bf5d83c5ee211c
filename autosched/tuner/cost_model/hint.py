"""What the records of another device, workload or version say of a space's configurations.

A hint is a column for the models, an expectation and a source of first samples. How far it can be trusted is for the
model of the search to find out. Trials whose times do not even tell of each other, such as mixed up ones, say nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Protocol

import numpy as np

from autosched.space import Config, ConfigSpace
from autosched.task import Trial
from autosched.tuner.cost_model.forest import Forest
from autosched.tuner.cost_model.knobs import KnobNumbers

LEAST_TRIALS = 5  # with a time, for a source that says anything
JUDGED_FROM = 24  # trials of a source from which it can be seen whether they tell of each other
LEAST_EXPLAINED = 0.1  # share of their variance that a forest must foresee then
REACH = float(np.log(2))  # times that are worse than the best by more than this, and than the median, count as equal


class Hint(Protocol):
    """An expectation of times from elsewhere."""

    @property
    def is_telling(self) -> bool:
        """Whether there is anything to learn from."""
        ...

    def scores(self, space: ConfigSpace, rows: np.ndarray) -> np.ndarray:
        """For each row of positions by how much the logarithm of its time is above the best's [n]; slow ones alike."""
        ...

    def known(self, space: ConfigSpace, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Up to `n` rows of the space that were measured elsewhere for the same workload, the fastest and others, and
        their logarithmic times."""
        ...


@dataclass(frozen=True)
class Source:
    """The trials of one workload on one device, and the workload's sizes by name ("M", "OC", …)."""

    trials: Sequence[Trial]
    sizes: Mapping[str, int] = field(default_factory=dict)

    def scored(self) -> dict[str, tuple[Config, float]]:
        """By configuration's key: the configuration and its score; empty where hardly anything ran.

        A score is by how much the logarithm of the time is above the best's; slow ones and all that failed score alike.
        """
        ok = [trial for trial in self.trials if trial.is_ok]
        if len(ok) < LEAST_TRIALS:
            return {}
        above = np.log([trial.median_s for trial in ok])
        above -= above.min()
        limit = max(float(np.median(above)), REACH)
        slow = {trial.config.key: (trial.config, limit) for trial in self.trials}
        return slow | {t.config.key: (t.config, min(float(s), limit)) for t, s in zip(ok, above, strict=True)}

    @cached_property
    def is_telling(self) -> bool:
        """Whether there are trials that tell of each other: few are believed to."""
        scored = list(self.scored().values())
        if len(scored) < JUDGED_FROM:
            return bool(scored)
        configs, scores = [config for config, _ in scored], np.array([score for _, score in scored])
        forest = Forest()
        forest.fit_values(KnobNumbers(configs)(configs), scores)
        return forest.explained >= LEAST_EXPLAINED


class TrialsHint:
    """The trials of the same workload elsewhere: their scores where they were measured, a forest's guess where not."""

    def __init__(self, trials: Sequence[Trial], seed: int = 0):
        self._trials = tuple(trials)
        self._known = Source(trials).scored()
        self._guess = _Guess([Source(trials)], {}, seed)

    @property
    def is_telling(self) -> bool:
        """See `Hint`."""
        return self._guess.is_telling

    def scores(self, space: ConfigSpace, rows: np.ndarray) -> np.ndarray:
        """Scores [n]; all 1 where the trials say nothing."""
        if not self.is_telling or not len(rows):
            return np.ones(len(rows))
        configs = space.to_configs(rows)
        found = np.array([self._known.get(config.key, (config, np.nan))[1] for config in configs])
        missing = np.flatnonzero(np.isnan(found))
        if len(missing):
            found[missing] = self._guess([configs[i] for i in missing])
        return found

    def known(self, space: ConfigSpace, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Of the trials that have a time: half as many as `n` of the fastest, the others drawn from all."""
        ok = sorted((trial for trial in self._trials if trial.is_ok), key=lambda trial: trial.median_s)
        any_order = np.random.default_rng(0).permutation(len(ok))
        fastest = _in_space(ok, space, n // 2)
        chosen = {
            trial.config.key: trial for trial in [*fastest, *_in_space([ok[i] for i in any_order], space, n // 2)]
        }
        log_s = np.log([trial.median_s for trial in chosen.values()])
        return space.to_rows([trial.config for trial in chosen.values()]), log_s


class WorkloadsHint:
    """The trials of other workloads of the same templates: one forest over knobs and sizes.

    sizes  those of the workload that is tuned; names that a source does not have count as 1
    Scores are relative to each workload's best, so it is not the size that is learned but what it changes.
    """

    def __init__(self, sources: Sequence[Source], sizes: Mapping[str, int], seed: int = 0):
        self._guess = _Guess(sources, sizes, seed)

    @property
    def is_telling(self) -> bool:
        """See `Hint`."""
        return self._guess.is_telling

    def scores(self, space: ConfigSpace, rows: np.ndarray) -> np.ndarray:
        """Scores [n]; all 1 where the trials say nothing."""
        return self._guess(space.to_configs(rows)) if len(rows) else np.ones(0)

    def known(self, space: ConfigSpace, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Nothing: the times of other workloads are not those of this one."""
        return space.to_rows(()), np.zeros(0)


def _in_space(trials: Sequence[Trial], space: ConfigSpace, n: int) -> list[Trial]:
    """The first `n` trials whose configurations are in the space."""
    return list(islice((trial for trial in trials if trial.config in space), n))


class _Guess:
    """A forest from configurations and sizes to scores, trained when it is first asked."""

    def __init__(self, sources: Sequence[Source], sizes: Mapping[str, int], seed: int):
        self._sources = [source for source in sources if source.is_telling]
        self._sizes, self._forest = sizes, Forest(seed)
        self._numbers: KnobNumbers | None = None

    @property
    def is_telling(self) -> bool:
        return bool(self._sources)

    def __call__(self, configs: Sequence[Config]) -> np.ndarray:
        if not self._sources:
            return np.ones(len(configs))
        if self._numbers is None:
            self._train()
        assert self._numbers is not None, "made by training"
        return self._forest.predict(self._numbers(configs, self._sizes))[0]

    def _train(self) -> None:
        scored = [list(source.scored().values()) for source in self._sources]
        self._numbers = KnobNumbers([config for part in scored for config, _ in part], tuple(self._sizes))
        parts = zip(self._sources, scored, strict=True)
        numbers = [self._numbers([config for config, _ in part], source.sizes) for source, part in parts]
        self._forest.fit_values(np.concatenate(numbers), np.array([score for part in scored for _, score in part]))

"""What the records of another device, workload or version say of a space's configurations.

A hint is a column for the models and a source of first samples. How far it can be trusted is for the model of the
search to find out: a hint without any relation to the times is a column that does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

import numpy as np

from autosched.space import Config, ConfigSpace
from autosched.task import Trial
from autosched.tuner.cost_model.forest import Forest
from autosched.tuner.cost_model.knobs import KnobNumbers

LEAST_TRIALS = 5  # with a time, for a source that says anything


class Hint(Protocol):
    """An expectation of times from elsewhere."""

    def scores(self, space: ConfigSpace, rows: np.ndarray) -> np.ndarray:
        """One number for each row of positions [n], from 0 for the fastest to 1 for slow."""
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

        A score is the rank of the time, the best at 0, the slowest and all that failed at 1; equal times rank equally.
        """
        ok = [trial for trial in self.trials if trial.is_ok]
        if len(ok) < LEAST_TRIALS:
            return {}
        _, ranks = np.unique([trial.median_s for trial in ok], return_inverse=True)
        scores = ranks / max(int(ranks.max()), 1)
        slow = {trial.config.key: (trial.config, 1.0) for trial in self.trials}
        return slow | {trial.config.key: (trial.config, float(s)) for trial, s in zip(ok, scores, strict=True)}


class TrialsHint:
    """The trials of the same workload elsewhere: their scores where they were measured, a forest's guess where not."""

    def __init__(self, trials: Sequence[Trial], seed: int = 0):
        self._trials = tuple(trials)
        self._known = Source(trials).scored()
        self._guess = _Guess([Source(trials)], {}, seed)

    def scores(self, space: ConfigSpace, rows: np.ndarray) -> np.ndarray:
        """Scores [n]; all 1 where there were hardly any trials."""
        if not self._known or not len(rows):
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
    Scores are ranks within each workload, so it is not the size that is learned but what it changes.
    """

    def __init__(self, sources: Sequence[Source], sizes: Mapping[str, int], seed: int = 0):
        self._guess = _Guess(sources, sizes, seed)

    def scores(self, space: ConfigSpace, rows: np.ndarray) -> np.ndarray:
        """Scores [n]; all 1 where there were hardly any trials."""
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
        self._sources = [source for source in sources if source.scored()]
        self._sizes, self._forest = sizes, Forest(seed)
        self._numbers: KnobNumbers | None = None

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

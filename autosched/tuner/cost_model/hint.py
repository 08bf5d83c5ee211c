"""What the records of another device, workload or version say of a space's configurations.

A hint is a column for the models, an expectation and a source of first samples. How far it can be trusted is for the
model of the search to find out. Trials whose times do not even tell of each other, such as mixed up ones, say nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Protocol

import numpy as np

from autosched.space import Config, ConfigSpace
from autosched.task import Trial
from autosched.tuner.cost_model.forest import Forest
from autosched.tuner.cost_model.knobs import KnobNumbers
from autosched.tuner.cost_model.loop_features import FEATURES, per_operation

LEAST_TRIALS = 5  # with a time, for a source that says anything
JUDGED_FROM = 24  # trials of a source from which it can be seen whether they tell of each other
LEAST_EXPLAINED = 0.1  # share of their variance that a forest must foresee then
LOOK_S = 0.3  # processor time for a task's loop nests: scheduling one takes 20 ms, for Winograd 150, a trial 100 to 200
LOOPS = "loops"  # where `Measurement.how` has the features of the loop nest that was measured
REACH = float(np.log(2))  # times that are worse than the best by more than this, and than the median, count as equal


Describe = Callable[[Sequence[Config]], np.ndarray]  # features of the loop nests of configurations [n, FEATURES]


class Hint(Protocol):
    """An expectation of times from elsewhere."""

    @property
    def is_telling(self) -> bool:
        """Whether there is anything to learn from."""
        ...

    def scores(self, space: ConfigSpace, rows: np.ndarray) -> np.ndarray:
        """For each row of positions by how much the logarithm of its time is above the best's [n]; slow ones alike."""
        ...

    def closer(self, space: ConfigSpace, rows: np.ndarray) -> np.ndarray:
        """The same for a few rows, at which it is worth to look closer [n]."""
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

    def loops(self) -> dict[str, np.ndarray]:
        """By configuration's key the features of its loop nest, where the trial has them."""
        noted = {trial.config.key: trial.measurement.how.get(LOOPS) for trial in self.trials}
        return {
            key: np.array(loops, dtype=np.float64)
            for key, loops in noted.items()
            if isinstance(loops, list | tuple) and len(loops) == len(FEATURES)
        }

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
        found = self._guess(space, rows)
        places = {row.tobytes(): i for i, row in enumerate(rows)}
        for config, score in self._known.values():
            if config in space and (i := places.get(space.to_rows([config])[0].tobytes())) is not None:
                found[i] = score
        return found

    def closer(self, space: ConfigSpace, rows: np.ndarray) -> np.ndarray:
        """As `scores`: what was measured needs no closer look."""
        return self.scores(space, rows)

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
    """The trials of other workloads of the same templates: one forest over knobs and sizes for all configurations, one
    over knobs and loop nests for those that the first one calls good.

    sizes     those of the workload that is tuned; names that a source does not have count as 1
    describe  gives the loop nests' features, nan for a configuration that has none; None: nobody can
    Scores are relative to each workload's best, so it is not the size that is learned but what it changes.

    Recorded dense and convolution spaces, two or three of them learned from, five forests each: the first choice of
    knobs and sizes is at .92 and .87 of the best, that of knobs without sizes at .97 and .89, with loop nests by
    operation at .98 and .94.
    """

    def __init__(
        self, sources: Sequence[Source], sizes: Mapping[str, int], seed: int = 0, describe: Describe | None = None
    ):
        self._guess = _Guess(sources, sizes, seed)
        self._closer = _CloserGuess(sources, seed, describe) if describe is not None else None

    @property
    def is_telling(self) -> bool:
        """See `Hint`."""
        return self._guess.is_telling

    def scores(self, space: ConfigSpace, rows: np.ndarray) -> np.ndarray:
        """Scores [n]; all 1 where the trials say nothing."""
        return self._guess(space, rows) if len(rows) else np.ones(0)

    def closer(self, space: ConfigSpace, rows: np.ndarray) -> np.ndarray:
        """Scores by knobs and loop nests [n], as far as the sources have such features."""
        if self._closer is None or not self._closer.is_telling or not len(rows):
            return self.scores(space, rows)
        return self._closer(space.to_configs(rows))

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

    def __call__(self, space: ConfigSpace, rows: np.ndarray) -> np.ndarray:
        if not self._sources:
            return np.ones(len(rows))
        if self._numbers is None:
            self._train()
        assert self._numbers is not None, "made by training"
        return self._forest.predict(self._numbers.of_rows(space, rows, self._sizes))[0]

    def _train(self) -> None:
        scored = [list(source.scored().values()) for source in self._sources]
        names = tuple(self._sizes)
        # Of no more shapes than there are sizes, a size only tells which shape it is.
        self._numbers = KnobNumbers(
            [config for part in scored for config, _ in part], names if len(self._sources) > len(names) else ()
        )
        parts = zip(self._sources, scored, strict=True)
        numbers = [self._numbers([config for config, _ in part], source.sizes) for source, part in parts]
        self._forest.fit_values(np.concatenate(numbers), np.array([score for part in scored for _, score in part]))


class _CloserGuess:
    """A forest from knobs and loop nests to scores, of the trials that have such features."""

    def __init__(self, sources: Sequence[Source], seed: int, describe: Describe):
        self._sources, self._forest, self._describe = sources, Forest(seed), describe
        self._numbers: KnobNumbers | None = None
        self._known: dict[str, np.ndarray] = {}  # features by configuration's key
        self._spent_s = 0.0  # on them

    @cached_property
    def _judged(self) -> list[tuple[Config, np.ndarray, float]]:
        """Configurations with their features and scores."""
        found = []
        for source in self._sources:
            loops = source.loops()
            scored = [(config, loops[key], score) for key, (config, score) in source.scored().items() if key in loops]
            found += scored if len(scored) >= LEAST_TRIALS and source.is_telling else []
        return found

    @property
    def is_telling(self) -> bool:
        return len(self._judged) >= JUDGED_FROM

    def __call__(self, configs: Sequence[Config]) -> np.ndarray:
        """Scores [n]; infinite for configurations that cannot be described, or for which there was no time."""
        if self._numbers is None:
            known = [config for config, _, _ in self._judged]
            self._numbers = KnobNumbers(known)
            found = np.array([loops for _, loops, _ in self._judged])
            self._forest.fit_values(self._columns(known, found), np.array([score for _, _, score in self._judged]))
        for config in configs:
            if config.key not in self._known and self._spent_s < LOOK_S:
                begin = time.process_time()
                (self._known[config.key],) = self._describe([config])
                self._spent_s += time.process_time() - begin
        unknown = np.full(len(FEATURES), np.nan)
        loops = np.array([self._known.get(config.key, unknown) for config in configs])
        found = np.full(len(configs), np.inf)
        described = np.flatnonzero(np.isfinite(loops).all(axis=1)).tolist()
        if described:
            found[described] = self._forest.mean(self._columns([configs[i] for i in described], loops[described]))
        return found

    def _columns(self, configs: Sequence[Config], loops: np.ndarray) -> np.ndarray:
        assert self._numbers is not None, "made by training"
        return np.concatenate([self._numbers(configs), per_operation(loops)], axis=1)

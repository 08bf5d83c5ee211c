"""Optuna's samplers behind our interface: one adapter, the sampler by its name.

Optuna knows neither constraints nor that a configuration was tried: what it suggests is moved to the nearest open
configuration, and the sampler gets the time of that one. Failed configurations are reported as failed, without a time.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.errors import UsageError
from autosched.space import ConfigSpace, Knob
from autosched.tuner.cost_model import Hint
from autosched.tuner.search.base import START, BaseSearch

if TYPE_CHECKING:
    import optuna

NEAREST = 200  # random rows of a large space among which the nearest open one is looked for


class OptunaSearch(BaseSearch):
    """A strategy by the name of Optuna's sampler; knobs of numbers are ordered, the others are categories."""

    sampler = ""

    def __init__(self, space: ConfigSpace, *, seed: int = 0, start: int = START, hints: Sequence[Hint] = ()):
        super().__init__(space, seed=seed, start=start, hints=hints)
        self._study = _study(self.make_sampler(seed))
        self._knobs = [(i, knob) for i, knob in enumerate(space.knobs) if len(knob.values) > 1]
        self._distributions = {knob.name: _distribution(knob) for _, knob in self._knobs}
        self._suggested: dict[
            bytes, optuna.trial.Trial
        ] = {}  # Optuna's open trials by the row that is measured for them
        self._seen = 0

    def make_sampler(self, seed: int) -> optuna.samplers.BaseSampler:
        """The sampler of Optuna."""
        raise NotImplementedError(self.sampler)

    def learn(self) -> None:
        """Tell the study what is new in the history."""
        for row, log_s in zip(self.history.rows[self._seen :], self.history.log_s[self._seen :], strict=True):
            self._tell(row, float(log_s))
        self._seen = len(self.history)

    def _tell(self, row: np.ndarray, log_s: float) -> None:
        from optuna.trial import TrialState, create_trial

        failed = not np.isfinite(log_s)
        trial = self._suggested.pop(row.tobytes(), None)
        if trial is not None:
            self._study.tell(trial, None if failed else log_s, state=TrialState.FAIL if failed else None)
            return
        params = {knob.name: _param(knob, int(row[i])) for i, knob in self._knobs if row[i] >= 0}
        known = {name: self._distributions[name] for name in params}
        state = TrialState.FAIL if failed else TrialState.COMPLETE
        self._study.add_trial(
            create_trial(state=state, value=None if failed else log_s, params=params, distributions=known)
        )

    def propose(self, n: int) -> np.ndarray:
        """What the sampler suggests, each moved to the nearest open row."""
        rows: list[np.ndarray] = []
        chosen: set[bytes] = set()
        for _ in range(n):
            trial = self._study.ask(self._distributions)
            row = self._nearest(self._wanted(trial.params), chosen)
            if row is None:
                break
            chosen.add(row.tobytes())
            self._suggested[row.tobytes()] = trial
            rows.append(row)
        return np.array(rows, dtype=np.int32).reshape(len(rows), len(self.space.knobs))

    def _wanted(self, params: Mapping[str, Any]) -> np.ndarray:
        row = np.zeros(len(self.space.knobs), dtype=np.int32)
        for i, knob in self._knobs:
            row[i] = params[knob.name] if _is_ordered(knob) else knob.position(_value(knob, params[knob.name]))
        return self.space.complete(row)

    def _nearest(self, row: np.ndarray, chosen: set[bytes]) -> np.ndarray | None:
        if self.space.valid_rows(row[None, :])[0] and not self.pool.is_taken(row) and row.tobytes() not in chosen:
            return row
        if self.pool.is_listed:
            rows, _ = self.pool.candidates(row[None, :], NEAREST)
        else:
            near = self.space.neighbour_rows(row)
            rows = np.concatenate([self.pool.untaken(near), self.pool.random(NEAREST)])
        rows = np.compress([r.tobytes() not in chosen for r in rows], rows, axis=0)
        if not len(rows):
            return None
        numbers = self.space.encode_rows(rows)
        scale = numbers.std(axis=0)
        apart = (numbers - self.space.encode_rows(row[None, :])) / np.where(scale == 0, 1.0, scale)
        return np.ascontiguousarray(rows[int(np.argmin((apart * apart).sum(axis=1)))])


class TpeSearch(OptunaSearch):
    """Tree-structured Parzen estimators: Bergstra et al. 2011, Algorithms for hyper-parameter optimization."""

    name, sampler = "optuna-tpe", "TPESampler"

    def make_sampler(self, seed: int) -> optuna.samplers.BaseSampler:
        """Optuna's default."""
        import optuna

        return optuna.samplers.TPESampler(seed=seed, n_startup_trials=10)


class CmaEsSearch(OptunaSearch):
    """Covariance matrix adaptation: Hansen 2016, The CMA evolution strategy. Needs the package `cmaes`."""

    name, sampler = "optuna-cmaes", "CmaEsSampler"

    def make_sampler(self, seed: int) -> optuna.samplers.BaseSampler:
        """CMA-ES over the ordered knobs; the others are drawn at random. Raises UsageError."""
        import optuna

        try:
            importlib.import_module("cmaes")  # Optuna imports it late, with a message that names none of our options
        except ImportError:
            raise UsageError("strategy 'optuna-cmaes' needs cmaes", hint="pip install cmaes") from None
        return optuna.samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)


class OptunaGpSearch(OptunaSearch):
    """Optuna's Gaussian process. Needs the package `torch`."""

    name, sampler = "optuna-gp", "GPSampler"

    def make_sampler(self, seed: int) -> optuna.samplers.BaseSampler:
        """Optuna's process with its defaults. Raises UsageError."""
        import warnings

        import optuna

        try:
            importlib.import_module("torch")
        except ImportError:
            raise UsageError("strategy 'optuna-gp' needs torch", hint="pip install torch") from None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return optuna.samplers.GPSampler(seed=seed, n_startup_trials=10)


def _study(sampler: optuna.samplers.BaseSampler) -> optuna.Study:
    import optuna

    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # it logs every study that is made
    try:
        return optuna.create_study(sampler=sampler, direction="minimize")
    finally:
        optuna.logging.set_verbosity(level)


def _is_ordered(knob: Knob) -> bool:
    return knob.kind == "int"


def _distribution(knob: Knob) -> object:
    from optuna.distributions import CategoricalDistribution, IntDistribution

    if _is_ordered(knob):
        return IntDistribution(0, len(knob.values) - 1)
    return CategoricalDistribution([_category(value) for value in knob.values])


def _category(value: object) -> object:
    return "x".join(map(str, value)) if isinstance(value, tuple) else value


def _value(knob: Knob, category: object) -> object:
    return next(value for value in knob.values if _category(value) == category)


def _param(knob: Knob, position: int) -> object:
    return position if _is_ordered(knob) else _category(knob.values[position])

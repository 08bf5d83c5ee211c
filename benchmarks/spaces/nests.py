"""The loop nests of recorded configurations, which a recording does not hold: they are scheduled again."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

import numpy as np

from autosched.driver.build.choose import make_task
from autosched.space import Config
from autosched.target import Target
from autosched.task import Trial
from autosched.templates import template_named
from autosched.tuner.cost_model import loop_features
from benchmarks.spaces.__main__ import SPACES

SWITCHES = ("prefetch", "unroll_kw")


class Nests:
    """Describes the configurations of one recorded space, each once."""

    def __init__(self, name: str):
        self._space, self._target = SPACES[name], Target("cpu")
        self._func = make_task(self._space.make(), self._target).func
        self._template = template_named(self._space.template, self._target)
        self._known: dict[str, np.ndarray] = {}
        self.spent_s = 0.0

    def __call__(self, configs: Sequence[Config]) -> np.ndarray:
        """Their features [n, FEATURES]."""
        start = time.perf_counter()
        for config in configs:
            if config.key not in self._known:
                applied = self._template.apply(self._func, typed(config, self._space.template), self._target)
                self._known[config.key] = loop_features(applied.func, self._target)
        self.spent_s += time.perf_counter() - start
        return np.array([self._known[config.key] for config in configs])

    def noted(self, trials: Sequence[Trial]) -> list[Trial]:
        """The trials with their features, as a tuning records them."""
        loops = self([trial.config for trial in trials]).tolist()
        return [
            Trial(trial.config, dataclasses.replace(trial.measurement, how={**trial.measurement.how, "loops": one}))
            for trial, one in zip(trials, loops, strict=True)
        ]


def typed(config: Config, template: str) -> Config:
    """The template's configuration, with switches as such: a file has them as numbers."""
    return Config(template, {k: bool(v) if k in SWITCHES else v for k, v in config.knobs.items()})

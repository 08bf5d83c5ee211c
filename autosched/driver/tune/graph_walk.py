"""The order in which a graph's options are tried: one at a time, the cheap ones first, then what helped together.

Options belong to passes of their own, most of which a given model has no use for. So a value that alone gives the same
program, fails or does not help is in no other variant, and a model of two useful options has a few variants, not all
that the space counts.
"""

from __future__ import annotations

from collections.abc import Mapping

from autosched.space import Config, ConfigSpace, KnobValue


class GraphWalk:
    """Gives configurations to try until none is worth a trial.

    known  ratios to the default's time that were measured before; None of what failed or is another one's program
    """

    def __init__(self, space: ConfigSpace, known: Mapping[Config, float | None]):
        self._space, self._found = space, dict(known)
        self._first = [config for config in space.neighbours(space.default) if config not in known]
        self._later: list[tuple[float, Config]] = []
        self._helpful: list[Config] | None = None  # single changes that are not in the best variant yet
        self._best = space.default

    def ask(self) -> Config | None:
        """The next one; None where there is no other."""
        if self._first:
            return self._first.pop(0)
        if self._later:
            cheapest = min(self._later, key=lambda pair: pair[0])
            self._later.remove(cheapest)
            return cheapest[1]
        return self._next_together()

    def tell(self, config: Config, ratio: float | None) -> None:
        """Take the outcome of a trial, as `known` has them."""
        self._found[config] = ratio

    def postpone(self, config: Config, cost: float) -> None:
        """Ask for a configuration again after all those that cost less, in any unit, have been tried."""
        self._later.append((cost, config))

    def _next_together(self) -> Config | None:
        """The best variant so far with one more change that helped alone."""
        if self._helpful is None:
            singles = self._space.neighbours(self._space.default)
            self._helpful = sorted((c for c in singles if self._ratio(c) < 1), key=self._ratio)
            self._best = min([self._space.default, *self._found], key=self._ratio)
        while self._helpful:
            joined = self._best.with_knobs(**self._changes(self._helpful[0]))
            if joined in self._found or joined not in self._space:
                self._best = min(self._best, joined, key=self._ratio)
                self._helpful.pop(0)
            else:
                self._found[joined] = None  # until its outcome is told
                return joined
        return None

    def _changes(self, config: Config) -> dict[str, KnobValue]:
        return {name: value for name, value in config.knobs.items() if value != self._space.default[name]}

    def _ratio(self, config: Config) -> float:
        """To the default's time; 1 of what nothing is known of."""
        ratio = self._found.get(config)
        return 1.0 if ratio is None else ratio

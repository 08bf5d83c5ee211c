"""A task's search, made when it is first needed: by then the other tasks have trials to learn from."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autosched.space import Config
from autosched.task import Trial
from autosched.tuner.search import Search

UNKNOWN_GAIN = 0.3  # expected of a task of which nothing is known


class LateSearch:
    """A `Search` that `make` gives when it is first asked; what it is told before, it is told then."""

    def __init__(self, make: Callable[[], Search]):
        self._make = make
        self._search: Search | None = None
        self._told: list[Trial] = []

    @property
    def search(self) -> Search:
        """The search itself."""
        if self._search is None:
            self._search = self._make()
            self._search.tell(self._told)
        return self._search

    def ask(self, n: int) -> Sequence[Config]:
        """See `Search`."""
        return self.search.ask(n)

    def tell(self, trials: Sequence[Trial]) -> None:
        """See `Search`."""
        if self._search is None:
            self._told += trials
        else:
            self._search.tell(trials)

    def expected_gain(self, n: int) -> float:
        """See `Search`."""
        return self.search.expected_gain(n) if self._search is not None or self._told else UNKNOWN_GAIN

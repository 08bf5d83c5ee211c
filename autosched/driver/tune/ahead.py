"""The turn that will probably come next: its candidates are built while those of the turn before are measured.

At the end of every turn some builders have nothing left to do, and where a turn begins, the reference is made and the
search is asked while nothing is built. On two cores that is a third of the time of turns of four trials. So the next
turn is decided ahead, where it does not hang on the outcome of the one that is measured: that of another task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from autosched.driver.tune.job import Job
from autosched.space import Config
from autosched.task import Task, Trial
from autosched.tuner.measure import AheadMeasurer, Measurer
from autosched.tuner.scheduler import Turn

Ask = Callable[[int, int], list[Config]]  # a task and a number: the next configurations


class Lookahead:
    """Decides one turn ahead.

    ask        gives a task's next configurations
    elapsed_s  what is spent of the budget, with what its end will take
    """

    def __init__(self, job: Job, ask: Ask, elapsed_s: Callable[[], float]):
        self._job, self._ask, self._elapsed_s = job, ask, elapsed_s
        self._next: tuple[Turn, list[Config]] | None = None

    def begin(self, turn: Turn) -> tuple[Turn, list[Config]]:
        """The turn to take now, which is the one that was decided ahead where there is one, and its configurations."""
        if self._next is None:
            return turn, self._ask(turn.task, turn.n)
        found, self._next = self._next, None
        return found

    def measure(
        self, measurer: Measurer, turn: Turn, configs: Sequence[Config], best_s: float | None
    ) -> Iterator[Trial]:
        """Measure a turn's configurations; meanwhile the next turn is decided and begun, where the measurer can."""
        task = self._job.tasks[turn.task]
        if not isinstance(measurer, AheadMeasurer):
            return measurer.measure(task, configs, best_s)
        return measurer.measure(task, configs, best_s, ahead=lambda: self._plan(turn))

    def end(self, measurer: Measurer) -> None:
        """There is no next turn: wait for what is built in vain, before anything else is timed."""
        self._next = None
        if isinstance(measurer, AheadMeasurer):
            measurer.rest()

    def _plan(self, turn: Turn) -> tuple[Task, list[Config]] | None:
        following = self._job.scheduler.following(turn, self._elapsed_s())
        if following is None:
            return None
        self._next = following, self._ask(following.task, following.n)
        return self._job.tasks[following.task], self._next[1]

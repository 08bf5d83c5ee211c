"""`LocalMeasurer`: measures the candidates of a task on this machine.

Builders compile on all cores; a candidate that is built is loaded and checked beside them. Then they are stopped
(SIGSTOP), it is timed while nothing else of ours runs, and they go on. So a trial costs, on n cores, a share 1/n of its
building plus its timing, and a candidate that takes long to compile holds nobody up. The other plan, builders on their
own cores beside the one that times, is less exact, since cores share the last cache and the memory. On two cores it is
also slower as long as timing takes less than half of building: dense 128x784x256 needs 0.28 s of processor time for
building and about 0.05 s for checking and timing (AMD Zen 3), which gives 3.6 trials a second with one core for
building and 5.3 by taking turns.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

from autosched.errors import InvalidValueError
from autosched.records.scratch import Scratch
from autosched.target import Target
from autosched.task import ConfigLike, Measurement, Task, Trial
from autosched.tuner.measure.base import Ahead, Built, Candidate, Compared, Failed, Foresight, MeasureOptions
from autosched.tuner.measure.builder import TEMPLATE_COMPILER, LocalBuilder
from autosched.tuner.measure.reference import Evaluate, FuncReferences, References
from autosched.tuner.measure.runner import LocalRunner, threads_of
from autosched.tuner.measure.sampling import judge

_EXTRA_SEEDS_S = 3.0  # what checking a finalist on further inputs may take


class LocalMeasurer:
    """Builders and a runner in processes of this machine; use it in a `with`, or call `close`.

    One thread at a time may use it.
    target    what to build for; also what this machine must be able to run
    options   threads, timeouts, cache state, …
    compiler  "module:class" of what builds a candidate (see `builder.Compiler`); the default goes by templates
    evaluate  gives float64 results of a task's function; None: `tir.evaluate`
    references  how candidates are run and checked; None: as kernels of PrimFuncs
    Raises    AutoschedError if a worker cannot start.
    """

    def __init__(
        self,
        target: Target | str,
        options: MeasureOptions | None = None,
        *,
        compiler: str = TEMPLATE_COMPILER,
        evaluate: Evaluate | None = None,
        references: References | None = None,
    ):
        self.target, self.options = Target(target), options or MeasureOptions()
        self.foresight: Foresight | None = None
        self._scratch = Scratch("measure")
        self._folder = self._scratch.folder
        self._builder: LocalBuilder | None = None
        self._runner: LocalRunner | None = None
        try:
            self._builder = LocalBuilder(self.target, self.options, compiler=compiler, folder=str(self._folder))
            self._runner = LocalRunner(
                self.options,
                self._builder.native_loop,
                self._folder,
                references=references or FuncReferences(evaluate),
                limits_memory=self.target.is_cpu,
            )
            self._builder.pool.wait_ready()
            self._runner.wait_ready()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> LocalMeasurer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all worker processes and remove temporary files; safe to call twice."""
        for part in (self._builder, self._runner):
            if part is not None:
                part.close()
        self._builder = self._runner = None
        self._scratch.remove()

    @property
    def builder(self) -> LocalBuilder:
        """What compiles; no other method of the measurer may run while it is used."""
        return self._parts()[0]

    @property
    def process_ids(self) -> tuple[int, ...]:
        """The ids of the worker processes that there are."""
        builder, runner = self._parts()
        return tuple(worker.pid for pool in (builder.pool, runner.pool) for worker in pool.workers if worker.is_alive)

    def measure(
        self,
        task: Task,
        configs: Sequence[ConfigLike],
        best_s: float | None = None,
        *,
        ahead: Ahead | None = None,
    ) -> Iterator[Trial]:
        """Build, check and time configurations; gives each trial as it comes, in about the given order.

        best_s  the task's best time so far: what is clearly worse is cut short
        ahead   asked once, when a builder has nothing left to do, for the task and the configurations that will
                probably be measured next: they are built, and the task's reference is made, before they are
        What `foresight`, if it is set, calls hopeless once it is built is passed over: there is no trial of it.
        Leaving the iteration early, by Ctrl-C too, ends the workers that are busy; the measurer can be used again.
        """
        builder, runner = self._parts()
        candidates = [Candidate(task, config) for config in configs]
        for outcome in self._build(builder, runner, candidates, ahead=ahead):
            if isinstance(outcome, Failed):
                yield Trial(outcome.candidate.config, outcome.measurement)
                continue
            if self.foresight is not None and self.foresight.is_hopeless(outcome, best_s):
                continue
            measurement = runner.check(outcome, self.options.seed) or self.time(outcome, best_s, is_checked=True)
            if measurement.is_ok and (best_s is None or measurement.median_s < best_s):
                best_s = measurement.median_s
            yield Trial(outcome.candidate.config, measurement)

    def time(self, built: Built, best_s: float | None = None, *, is_checked: bool = False) -> Measurement:
        """Check and time what was built, here or elsewhere, while no other process of ours runs.

        is_checked  it has just been found right, while builders went on
        """
        builder, runner = self._parts()
        runner.pool.refresh()
        with builder.pool.paused(), runner.pool.paused(spares_only=True):
            (measurement,) = runner.run([built], best_s, is_checked=is_checked)
        return measurement

    def compare(
        self, task: Task, configs: Sequence[ConfigLike], *, rounds: int = 40, extra_seeds: int = 2
    ) -> tuple[Compared, ...]:
        """Measure configurations in turn against the first one, in one process.

        rounds       times that each is measured, fewer where it is slow; in each round all of them, in random order
        extra_seeds  further inputs that each is checked with before, at most
        returns      in the order of the configurations; ratios are to the first one's times. Where the first one
                     fails, they are to the first that does not
        """
        if not configs:
            raise InvalidValueError("no configuration to compare")
        builder, runner = self._parts()
        candidates = [Candidate(task, config) for config in configs]
        results: dict[int, Compared] = {}
        good: dict[int, Built] = {}
        for outcome in self._build(builder, runner, candidates, are_kept=True):
            position = next(i for i, c in enumerate(candidates) if c is outcome.candidate)
            failure = outcome.measurement if isinstance(outcome, Failed) else self._check(runner, outcome, extra_seeds)
            if failure is not None:
                results[position] = Compared(configs[position], failure)
            elif isinstance(outcome, Built):
                good[position] = outcome
        positions = sorted(good)
        if positions:
            with builder.pool.paused(), runner.pool.paused(spares_only=True):
                found = self._interleave(runner, [good[i] for i in positions], rounds)
            results.update(zip(positions, found, strict=True))
        return tuple(results[i] for i in range(len(configs)))

    def rest(self) -> None:
        """Wait until nothing is built ahead any more; what was is forgotten."""
        self._parts()[0].pool.rest()

    def _parts(self) -> tuple[LocalBuilder, LocalRunner]:
        if self._builder is None or self._runner is None:
            raise InvalidValueError("the measurer has been closed")
        return self._builder, self._runner

    def _build(
        self,
        builder: LocalBuilder,
        runner: LocalRunner,
        candidates: Sequence[Candidate],
        *,
        are_kept: bool = False,
        ahead: Ahead | None = None,
    ) -> Iterator[Built | Failed]:
        """Build candidates; references are made and spares warm up meanwhile."""
        builder.pool.refresh()
        runner.pool.refresh()

        def prepare() -> None:
            for candidate in candidates[:1]:
                runner.prepare(candidate.task)

        def coming() -> Sequence[Candidate]:
            if ahead is None or (plan := ahead()) is None:
                return ()
            task, configs = plan
            if configs:
                runner.prepare(task)
            return [Candidate(task, config) for config in configs]

        yield from builder.build(candidates, are_kept=are_kept, meanwhile=prepare, ahead=coming)

    def _check(self, runner: LocalRunner, built: Built, extra_seeds: int) -> Measurement | None:
        """Check on several inputs, on fewer of them where making references takes long."""
        end = time.monotonic() + _EXTRA_SEEDS_S
        for extra in range(min(extra_seeds, runner.references.most_extra) + 1):
            if extra and time.monotonic() + runner.reference_s > end:
                break
            if (failure := runner.check(built, self.options.seed + extra)) is not None:
                return failure
        return None

    def _interleave(self, runner: LocalRunner, built: Sequence[Built], rounds: int) -> list[Compared]:
        """Time them in turn; where that fails, each with the first one alone, so that only the culprit fails."""
        configs: list[Any] = [one.candidate.config for one in built]
        times = runner.interleave(built, rounds)
        if isinstance(times, Measurement):
            if len(built) == 1:
                return [Compared(configs[0], times)]
            first, *others = built
            alone = self._interleave(runner, [first], rounds)
            if not alone[0].measurement.is_ok:
                return [*alone, *self._interleave(runner, others, rounds)]
            if len(others) == 1:
                return [*alone, Compared(configs[1], times)]
            return [*alone, *(self._interleave(runner, [first, other], rounds)[1] for other in others)]
        how = [self.options.facts(threads_of(one, self.options)) for one in built]
        return judge(configs, times, times[0], how, runner.references.checked_against)

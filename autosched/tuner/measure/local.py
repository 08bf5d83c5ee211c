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

import dataclasses
from collections.abc import Iterator, Sequence

from autosched.codegen import cache
from autosched.errors import InvalidValueError
from autosched.records.scratch import Scratch
from autosched.target import Target
from autosched.task import ConfigLike, Measurement, Task, Trial
from autosched.tuner.measure.base import Ahead, Built, Candidate, Compared, Failed, Foresight, MeasureOptions
from autosched.tuner.measure.builder import PRELOAD, TEMPLATE_COMPILER, LocalBuilder
from autosched.tuner.measure.compare import build_finalists, check_on_seeds, check_winners, time_in_turn
from autosched.tuner.measure.make_reference import Evaluate, FuncReferences
from autosched.tuner.measure.nursery import Nursery, has_nurseries
from autosched.tuner.measure.reference import References
from autosched.tuner.measure.runner import LocalRunner

_MOST_KEPT = 5  # candidates of a task whose machine code is kept, beside the first one


class LocalMeasurer:
    """Builders and a runner in processes of this machine; use it in a `with`, or call `close`.

    One thread at a time may use it.
    target    what to build for; also what this machine must be able to run
    options   threads, timeouts, cache state, …
    compiler  "module:class" of what builds a candidate (see `builder.Compiler`); the default goes by templates
    evaluate  gives float64 results of a task's function; None: `tir.evaluate`
    references  how candidates are run and checked; None: as kernels of PrimFuncs
    keeps     whether what is compared goes to the kernel cache
    preload   "module:function" that does what all workers begin with, once for all where the system allows it; "": none
    Raises    AutoschedError if a worker cannot start: at once for a CPU, for a GPU when the first task is measured.
    """

    def __init__(
        self,
        target: Target | str,
        options: MeasureOptions | None = None,
        *,
        compiler: str = TEMPLATE_COMPILER,
        evaluate: Evaluate | None = None,
        references: References | None = None,
        keeps: bool = True,
        preload: str = "",
    ):
        self.target, self.options = Target(target), options or MeasureOptions()
        self._keeps = keeps
        self._fastest: dict[int, list[tuple[float, Built]]] = {}  # by the task's id, with their times
        self.foresight: Foresight | None = None
        self._scratch = Scratch("measure")
        self._folder = self._scratch.folder
        self._builder: LocalBuilder | None = None
        self._runner: LocalRunner | None = None
        self._is_ready = False
        self._nursery = Nursery(preload) if preload and has_nurseries() else None
        self._builders: Nursery | None = None  # what builders are forks of, where the runner is not
        if not preload and compiler == TEMPLATE_COMPILER and self.target.is_cpu and has_nurseries():
            self._builders = Nursery(PRELOAD)
        try:
            folder, nursery = str(self._folder), self._nursery
            builders = nursery or self._builders
            # One new process is late: the other builders and the runner have the cores until they are ready.
            self._builder = LocalBuilder(
                self.target, self.options, compiler=compiler, folder=folder, late=builders is None, nursery=builders
            )
            self._runner = LocalRunner(
                self.options,
                self._builder.native_loop,
                self._folder,
                references=references or FuncReferences(evaluate),
                limits_memory=self.target.is_cpu,
                nursery=nursery,
                comparisons=self._builder.comparisons,
            )
            if self.target.is_cpu:
                self._wait_ready(self._builder, self._runner)
        except BaseException:
            self.close()
            raise

    def _wait_ready(self, builder: LocalBuilder, runner: LocalRunner) -> None:
        builder.pool.wait_ready()
        runner.wait_ready()
        builder.pool.complete()
        self._is_ready = True

    def __enter__(self) -> LocalMeasurer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all worker processes and remove temporary files; safe to call twice."""
        for part in (self._builder, self._runner):
            if part is not None:
                part.close()
        for nursery in (self._nursery, self._builders):
            if nursery is not None:
                nursery.close()
        self._builder = self._runner = self._nursery = self._builders = None
        self._scratch.remove()

    @property
    def builder(self) -> LocalBuilder:
        """What compiles; no other method of the measurer may run while it is used."""
        return self._parts()[0]

    def count_builders(self) -> int:
        """How many candidates are compiled at the same time."""
        assert self._builder is not None, "the measurer has been closed"
        return self._builder.size

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
        ahead   asked when no candidate waits for a builder, until it has an answer, for the task and the configurations
                that will probably be measured next: they are built, and the task's reference is made, before they are
        What `foresight`, if it is set, calls hopeless once it is built is passed over: there is no trial of it.
        Leaving the iteration early, by Ctrl-C too, ends the workers that are busy; the measurer can be used again.
        """
        builder, runner = self._parts(task)
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
            self._remember(outcome, measurement)
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
        extra_seeds  further inputs, at most, that what comes near the fastest is checked with
        returns      in the order of the configurations; ratios are to the first one's times. Where the first one
                     fails, they are to the first that does not
        """
        builder, runner = self._parts()
        most = min(extra_seeds, runner.references.most_extra)
        seed = self.options.seed

        def build(candidates: Sequence[Candidate]) -> Iterator[Built | Failed]:
            left: list[Candidate] = []
            for candidate in candidates:
                if (known := self._known(candidate)) is None:
                    left.append(candidate)
                    continue
                if self._keeps:
                    cache.store(known.key, known.kernel)
                yield dataclasses.replace(known, candidate=candidate)
            if left:
                yield from self._build(builder, runner, left, are_kept=self._keeps)

        def check_more(built: Built) -> Measurement | None:
            others = range(seed + 1, seed + most + 1)
            return check_on_seeds(lambda other: runner.check(built, other), others, lambda: runner.reference_s)

        results, good = build_finalists(task, configs, build, lambda built: runner.check(built, seed))
        if positions := sorted(good):
            with builder.pool.paused(), runner.pool.paused(spares_only=True):
                finalists, against = [good[i] for i in positions], runner.references.checked_against
                found = time_in_turn(runner.interleave, finalists, rounds, self.options, against)
            found = check_winners(found, finalists, check_more, has_first=0 in good)
            results.update(zip(positions, found, strict=True))
        return tuple(results[i] for i in range(len(configs)))

    def rest(self) -> None:
        """Wait until nothing is built ahead any more; what was is forgotten."""
        self._parts()[0].pool.rest()

    def _remember(self, built: Built, measurement: Measurement) -> None:
        """Keep the machine code of a task's default, which is the first one, and of the fastest."""
        if measurement.is_ok and (built.key or not self._keeps):
            kept = self._fastest.setdefault(id(built.candidate.task), [])
            kept.append((measurement.median_s, built))
            kept[1:] = sorted(kept[1:], key=lambda pair: pair[0])[:_MOST_KEPT]

    def _known(self, candidate: Candidate) -> Built | None:
        """What was built for a candidate, as far as it was kept."""
        kept = (one for _, one in self._fastest.get(id(candidate.task), ()))
        return next((one for one in kept if one.candidate.config == candidate.config), None)

    def _parts(self, task: Task | None = None) -> tuple[LocalBuilder, LocalRunner]:
        """Builder and runner, ready. For a GPU they start while a first task's reference is made on the free cores."""
        if self._builder is None or self._runner is None:
            raise InvalidValueError("the measurer has been closed")
        if not self._is_ready:
            if task is not None:
                self._runner.prepare(task)
            self._wait_ready(self._builder, self._runner)
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

        def coming() -> Sequence[Candidate] | None:
            if ahead is None or (plan := ahead()) is None:
                return None
            task, configs = plan
            if configs:
                runner.prepare(task)
            return [Candidate(task, config) for config in configs]

        yield from builder.build(candidates, are_kept=are_kept, meanwhile=prepare, ahead=coming)

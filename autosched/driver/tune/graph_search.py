"""The search over how a model's graph is built: each trial is a build of the whole model and runs of it.

A variant is built with the kernels' configurations that a build would use now. What comes out of the passes as another
variant did is not built, and what needs new kernels waits for what needs none. A variant runs in a child process first,
which may crash or hang, and its outputs are compared with the model evaluated in float64. Then it runs in turn with the
model as it is built untuned, which takes out the machine's drift; not for long where it is surely slower. The winner
has to be faster beyond doubt in two comparisons of its own. It is recorded as any winner is; the next build uses it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import multiprocessing
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

import numpy as np

from autosched.driver.bench.programs import autosched_program, input_specs, known_ranges, random_inputs
from autosched.driver.bench.rounds import Timing, measure
from autosched.driver.build.choose import Choice, choose_all
from autosched.driver.build.graph import assemble, call_counts, prepare
from autosched.driver.build.graph_options import GRAPH, VERSION, GraphOptions, graph_space, graph_task
from autosched.driver.build.input_ranges import input_ranges
from autosched.driver.build.tuned_layouts import TunedLayouts
from autosched.driver.options import TuneOptions
from autosched.driver.tune.graph_walk import GraphWalk
from autosched.driver.tune.report import TaskReport, TuneReport
from autosched.driver.tune.session import LEAST_S, begin_session
from autosched.errors import AutoschedError
from autosched.ir import IRModule
from autosched.ir.structural import function_key, structural_key
from autosched.records import make_record
from autosched.records.record import current_versions
from autosched.records.sql import SqlStore
from autosched.relax.evaluate import evaluate
from autosched.relax.transform import BindParams
from autosched.runtime import Executable, GraphModule
from autosched.space import Config, ConfigSpace
from autosched.task import Measurement, Status, Trial
from autosched.tuner.measure.reference import CHECKED_AGAINST
from autosched.tuner.measure.sampling import ratio_of_rounds

SHARE, USUAL_S = 0.25, 60.0  # of a budget of time; seconds without one
LOOK_S, TRIAL_S, FINAL_S = 0.06, 0.3, 0.8  # measuring time of one program
WARM_UP_S = 0.05  # before a trial's measurements: the untuned build has just run, and the variant in its first look
LOST = 1.04  # what surely takes so many times the default's time is not measured any longer
KERNEL_S = 0.1  # guessed of compiling a kernel until some were compiled
FINALISTS = 2
LEAST_CHANGE = 0.002  # of the model's time: smaller changes are not worth a doubt
LEAST_ERROR = 1e-5  # as a share of the largest output: a variant may err so much, and …
MORE_ERROR = 4.0  # … so many times as much as the untuned build does
HANG_S = 60.0  # of a first run: so long, or so many times as long as the untuned build's
HANG_RUNS = 100


@dataclass
class Plan:
    """A model behind the graph's passes, with the configurations of its kernels, before anything is compiled.

    content  equal for plans that give the same program
    """

    config: Config
    prepared: IRModule
    choices: dict[str, Choice]
    content: str

    @property
    def kernels(self) -> set[str]:
        """The workloads of its kernels."""
        return {choice.task.key for choice in self.choices.values()}


@dataclass
class Variant:
    """A built model.

    content  equal for builds that are the same program
    """

    config: Config
    executable: Executable
    content: str


class GraphSearch:
    """Searches the graph options of one model.

    module   the model, its parameters bound
    layouts  what the records that a build would use know, as of now
    """

    def __init__(
        self,
        module: IRModule,
        layouts: TunedLayouts,
        params: Mapping[str, object],
        store: SqlStore,
        options: TuneOptions,
    ):
        bound = {name: np.asarray(value) for name, value in params.items()}
        self.module = BindParams("main", bound)(module) if bound else module
        self.layouts, self.store, self.options = layouts, store, options
        self.target, self.threads = layouts.target, layouts.threads
        self.task = graph_task(module, self.target, self.threads)
        self.known = list(store.trials(self.task))
        self.session = begin_session([self.known], dataclasses.replace(options, fresh=True))
        self.report = TuneReport(
            [TaskReport(GRAPH, 1)],
            database=str(store.where),
            budget_s=options.budget_s,
            device=self.target.fingerprint().summary,
            threads=self.threads,
        )
        self._ratios: dict[Config, float] = {}
        self._seen: dict[str, Trial] = {}  # by the content of plans and of built models
        self._kernels: set[str] = set()  # that were compiled, by workload
        self._kernel_s, self._last_s = KERNEL_S, 0.0  # what compiling one takes, and what else a trial does

    @property
    def is_done(self) -> bool:
        """Whether an earlier search has named a winner, and no new one is asked for."""
        default = GraphOptions().config
        named = (r for r in self.known if r.is_winner and r.default == default)
        return not self.options.fresh and any(r.versions.get("template") == VERSION for r in named)

    def rest_of(self, options: TuneOptions) -> TuneOptions:
        """The options with what the search has left of a budget of time."""
        if options.budget_s is None:
            return options
        return dataclasses.replace(options, budget=max(options.budget_s - self.session.elapsed_s, LEAST_S))

    def run(
        self,
        budget_s: float,
        is_asked: Callable[[], bool],
        progress: Callable[[TuneReport], None] = lambda report: None,
    ) -> None:
        """Search for so long, and name a winner.

        is_asked  whether the user wants an end. After one, or where time has ended before all variants were tried, a
                  variant that is faster is named, but not that none is
        progress  called with the report, in which the graph is the only task
        """
        space = graph_space(self.target)
        if space is None or self.is_done:
            return
        begin = time.monotonic()
        end = begin + budget_s

        def update(state: str) -> None:
            report, times = self.report, [ratio * self.default_s for ratio in self._ratios.values()]
            report.elapsed_s, report.tasks[0].state = self.session.elapsed_s, state
            report.tasks[0].default_s, report.tasks[0].best_s = self.default_s, min([self.default_s, *times])
            report.tasks[0].n_trials, report.tasks[0].n_failed = report.n_trials, report.n_failed
            progress(report)

        try:
            usual = self._planned(GraphOptions().config)
            self.default = self._assembled(usual)
            self._prepare_check()
            self._seen[usual.content] = self._of_default()
        except AutoschedError as error:
            self.report.notes.append(f"the graph's options were not searched: {error.line}")
            return
        if time.monotonic() >= end:
            self.report.notes.append(
                f"the graph's options were not searched: building the model and computing its reference took "
                f"{time.monotonic() - begin:.0f} s of the {budget_s:.0f} s that were left for it; give more time"
            )
            return
        walk = GraphWalk(space, self._resumed(space))
        is_complete, waiting = True, set[Config]()
        while (is_free := not is_asked() and time.monotonic() + self._last_s < end) and (config := walk.ask()):
            if (plan := self._new_plan(config)) is None:
                walk.tell(config, None)
                continue
            n_new = len(plan.kernels - self._kernels)
            if n_new and config not in waiting:
                waiting.add(config)
                walk.postpone(config, n_new)
            elif time.monotonic() + n_new * self._kernel_s + self._last_s >= end:
                is_complete = False  # others may need less
            else:
                trial = self._trial(plan)
                walk.tell(config, self._ratios.get(config) if trial.is_ok else None)
                update("searching")
        update("verifying")
        self._name_winner(is_complete=is_complete and is_free)

    def _resumed(self, space: ConfigSpace) -> dict[Config, float | None]:
        """Ratios to the default of the trials of a search that was killed; None of what failed."""
        found: dict[Config, float | None] = {}
        for record in self.known:
            baseline = record.baseline_s
            if record.config not in space or record.is_default or record.versions.get("template") != VERSION:
                continue
            if record.measurement.is_ok and baseline is not None:
                found[record.config] = self._ratios[record.config] = record.measurement.median_s / baseline
            elif record.measurement.status.is_failure:
                found[record.config] = None
        return found

    # ---- building and checking

    def _planned(self, config: Config) -> Plan:
        """Raises AutoschedError for a model that cannot be built so."""
        prepared = prepare(self.module, self.target, {}, self.layouts, GraphOptions.of(config))
        weights = call_counts(prepared)
        choices = choose_all(
            prepared, self.target, self.layouts.reader, threads=self.threads, weights=weights, cache="cold"
        )
        main = structural_key(prepared["main"], labelled=False, valued=False)
        functions = [(name, function_key(one.task.func), str(one.config)) for name, one in choices.items()]
        content = _digest([main, functions, sorted(map(str, prepared.attrs.items()))])
        return Plan(config, prepared, choices, content)

    def _assembled(self, plan: Plan) -> Variant:
        """Raises AutoschedError for a model that cannot be built so."""
        begin, n_new = time.monotonic(), len(plan.kernels - self._kernels)
        made = assemble(plan.prepared, plan.choices, self.target, self.threads)
        if n_new and self._kernels:
            self._kernel_s = (time.monotonic() - begin) / n_new
        self._kernels |= plan.kernels
        made.manifest["input_ranges"] = input_ranges(self.module)
        content = _digest([made.graph.to_manifest(), made.manifest["functions"]])
        return Variant(plan.config, made, content)

    def _built(self, config: Config) -> Variant:
        """Raises AutoschedError for a model that cannot be built so."""
        return self._assembled(self._planned(config))

    def _prepare_check(self) -> None:
        """The truth, and how far the untuned build is from it."""
        made = self.default.executable
        self.inputs = random_inputs(input_specs(made), ranges=known_ranges(made))
        truth = evaluate(self.module, self.inputs, dtype="float64")
        self.truth = [np.asarray(x) for x in (truth if isinstance(truth, tuple | list) else (truth,))]
        begin = time.monotonic()
        errors = errors_of(run_once(made, self.inputs, self.threads), self.truth)
        self.first_s = time.monotonic() - begin
        self.limits = [max(LEAST_ERROR, MORE_ERROR * error) for error in errors]
        self._program = autosched_program("untuned", made, self.threads)
        (timing,) = measure([self._program], TRIAL_S)
        self.default_s = timing.median_s
        self._seen[self.default.content] = self._of_default()

    def _of_default(self) -> Trial:
        how = {"threads": self.threads, "cache": "cold"}
        return Trial(self.default.config, Measurement(Status.OK, (self.default_s,), CHECKED_AGAINST, how=how))

    def _checked(self, variant: Variant) -> Measurement | None:
        """Run a variant in a child process and compare; None where all is well, else what went wrong."""
        context = multiprocessing.get_context("fork")
        there, here = context.Pipe()
        given = (here, variant.executable, self.inputs, self.truth, self.threads)
        child = context.Process(target=_check_in_child, args=given, daemon=True)
        child.start()
        here.close()
        limit_s = max(HANG_S, HANG_RUNS * self.first_s)
        try:
            if not there.poll(limit_s):
                child.kill()
                return Measurement(Status.TIMEOUT, error=f"the first run did not end in {limit_s:.0f} s")
            errors: list[float] | str = there.recv()
        except EOFError:
            child.join()
            return Measurement(Status.CRASH, error=f"the process of the first run ended with code {child.exitcode}")
        finally:
            child.join()
            there.close()
        if isinstance(errors, str):
            return Measurement(Status.RUN_ERROR, error=errors)
        if any(not error <= limit for error, limit in zip(errors, self.limits, strict=True)):
            text = f"off by {max(errors):.2g} of the largest output; at most {max(self.limits):.2g} is allowed"
            return Measurement(Status.WRONG_RESULT, error=text)
        return None

    def _plainest(self, variant: Variant) -> Variant:
        """The same program with the default's value of every knob that makes no difference to it."""
        changed = [name for name, usual in self.default.config.knobs.items() if variant.config[name] != usual]
        for name in changed if len(changed) > 1 else ():
            plainer = self._built(variant.config.with_knobs(**{name: self.default.config[name]}))
            variant = plainer if plainer.content == variant.content else variant
        return variant

    # ---- trials

    def _new_plan(self, config: Config) -> Plan | None:
        """The plan of a configuration; None where it is the same as an earlier one's, or fails, which is recorded."""
        try:
            plan = self._planned(config)
        except AutoschedError as error:
            self._stored(Trial(config, Measurement(Status.BUILD_ERROR, error=str(error))))
            return None
        return None if plan.content in self._seen else plan

    def _trial(self, plan: Plan) -> Trial:
        """Build, check and measure a variant; what is the same program as an earlier one is not measured."""
        config = plan.config
        try:
            variant = self._assembled(plan)
        except AutoschedError as error:
            return self._stored(Trial(config, Measurement(Status.BUILD_ERROR, error=str(error))))
        built = time.monotonic()
        if (same := self._seen.get(variant.content)) is not None:
            self._seen[plan.content] = same
            return Trial(config, same.measurement)
        if (failure := self._checked(variant)) is not None:
            trial = self._stored(Trial(config, failure))
        else:
            trial = self._stored(self._tried(variant))
        self._seen[plan.content] = self._seen[variant.content] = trial
        self._last_s = max(self._last_s, time.monotonic() - built)
        return trial

    def _tried(self, variant: Variant) -> Trial:
        """A trial of a variant, a short one where it is surely slower than the untuned build."""
        trial, low, _ = self._compared(variant, LOOK_S, WARM_UP_S)
        return trial if low > LOST else self._compared(variant, TRIAL_S, WARM_UP_S)[0]

    def _compared(self, variant: Variant, time_s: float, warmup_s: float | None = None) -> tuple[Trial, float, float]:
        """Run a variant in turn with the untuned build: its trial, and the interval of the ratio to that."""
        program = autosched_program("variant", variant.executable, self.threads)
        one, two = measure([self._program, program], time_s, warmup_s=warmup_s)
        ratio, low, high = ratio_of_rounds(two.round_medians_s.tolist(), one.round_medians_s.tolist())
        self._ratios[variant.config] = ratio
        how = {"threads": self.threads, "cache": "cold", "interleaved": 2, "baseline_s": one.median_s}
        return Trial(variant.config, Measurement(Status.OK, _medians(two), CHECKED_AGAINST, how=how)), low, high

    def _stored(self, trial: Trial, *, is_winner: bool = False) -> Trial:
        is_default = trial.config == GraphOptions().config
        versions = {**current_versions(), "template": VERSION}
        record = make_record(
            self.task, trial, session=self.session.name, is_default=is_default, is_winner=is_winner, versions=versions,
            default=GraphOptions().config,
        )  # fmt: skip
        self.store.add([dataclasses.replace(record, time=self.session.now())])
        if not is_winner:
            self.report.n_trials += 1
            self.report.n_failed += trial.measurement.status.is_failure
        return trial

    def _name_winner(self, *, is_complete: bool) -> None:
        """The best few meet the untuned build again; what is faster beyond doubt, twice, is the winner, else that."""
        ranked = sorted(self._ratios, key=lambda config: self._ratios[config])
        for config in [c for c in ranked if self._ratios[c] < 1 - LEAST_CHANGE][:FINALISTS]:
            try:
                variant = self._plainest(self._built(config))
            except AutoschedError:  # of a trial that an earlier run has made
                continue
            if self._checked(variant) is not None:
                continue
            if (trial := self._confirmed(variant)) is not None:
                self._stored(trial, is_winner=True)
                config = variant.config
                change = 100 * (self._ratios[config] - 1)
                self.report.notes.append(f"{changes(config)}: {change:+.1f} % of the model's time".replace("-", "−"))
                return
        if is_complete:
            self._stored(self._of_default(), is_winner=True)
            self.report.notes.append("the graph as it is built untuned is the fastest")
        else:
            self.report.notes.append(
                "no other graph is the fastest so far: not all were tried, and the next run goes on"
            )

    def _confirmed(self, variant: Variant) -> Trial | None:
        """A trial of a variant that is faster than the untuned build beyond doubt, twice; else None."""
        for _ in range(2):
            trial, _, high = self._compared(variant, FINAL_S)
            if high >= 1 or self._ratios[variant.config] >= 1 - LEAST_CHANGE:
                return None
        return trial


def share_of(options: TuneOptions) -> float:
    """The seconds that the graph's search may take."""
    return USUAL_S if options.budget_s is None else SHARE * options.budget_s


def changes(config: Config) -> str:
    """What a configuration has other than the default: "graph: blocks=vector"."""
    usual = GraphOptions().config
    return str(Config(config.template, {k: v for k, v in config.knobs.items() if usual[k] != v}))


def run_once(executable: Executable, inputs: Mapping[str, np.ndarray], threads: int) -> list[np.ndarray]:
    """The outputs of a built model."""
    module = GraphModule(executable, threads=threads)
    for name, value in inputs.items():
        module.set_input(name, value)
    module.run()
    return [module.get_output(i).numpy() for i in range(module.get_num_outputs())]


def errors_of(found: Sequence[np.ndarray], truth: Sequence[np.ndarray]) -> list[float]:
    """The largest difference of each output, as a share of its largest value; of integers the share that differs."""
    errors = []
    for own, true in zip(found, truth, strict=True):
        if own.shape != true.shape:
            errors.append(np.inf)
        elif own.dtype.kind not in "fV":
            errors.append(float(np.mean(own != true)) if own.size else 0.0)
        else:
            wide, finite = own.astype("float64"), np.isfinite(true)
            strange = np.where(np.isfinite(wide), 0, wide), np.where(finite, 0, true)  # infinities and NaN
            if not np.array_equal(*strange, equal_nan=True):
                errors.append(np.inf)
                continue
            scale = max(float(np.abs(true[finite]).max(initial=0.0)), 1e-30)
            errors.append(float(np.abs(wide[finite] - true[finite]).max(initial=0.0)) / scale)
    return errors


def _digest(parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _medians(timing: Timing) -> tuple[float, ...]:
    return tuple(timing.round_medians_s.tolist())


def _check_in_child(
    pipe: Connection,
    executable: Executable,
    inputs: Mapping[str, np.ndarray],
    truth: Sequence[np.ndarray],
    threads: int,
) -> None:
    """Send each output's error, or what was raised."""
    try:
        pipe.send(errors_of(run_once(executable, inputs, threads), truth))
    except Exception as error:  # the boundary of a process that runs a candidate
        pipe.send(f"{type(error).__name__}: {error}")
    pipe.close()

"""Search strategies judged on recorded spaces: no hardware, no clock.

    python -m autosched.testing.replay FILE… --strategy xgboost --budget 200 --batch 8 --seeds 30
    python -m autosched.testing.replay FILE --source OTHER_DEVICE       # with the records of another device

A file is gzip CSV: a comment line, a header (parameters, then `time_ms`, `status`), one row per valid configuration;
or a cache file of Kernel Tuner's or a T4 result file (`.json`) that holds every valid configuration of one kernel.
The score after k evaluations is optimum / best time found, 0 while nothing valid was found.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from autosched.errors import AutoschedError, InvalidValueError
from autosched.records.importing import read_log
from autosched.records.jsonl import ReadReport
from autosched.space import Config, ConfigSpace, choice
from autosched.task import Measurement, Status, Trial
from autosched.tuner.cost_model import Hint, TrialsHint
from autosched.tuner.search import make_search

CHECKPOINTS = (25, 50, 100, 200, 400)
STATUS = {"ok": Status.OK, "compile": Status.BUILD_ERROR, "runtime": Status.RUN_ERROR}


@dataclass(frozen=True)
class Recording:
    """A brute-forced space: every valid configuration and its time in seconds, or how it failed."""

    name: str
    space: ConfigSpace
    outcomes: Mapping[Config, Measurement]

    @cached_property
    def optimum_s(self) -> float:
        """The best time in the space."""
        return min(m.median_s for m in self.outcomes.values())

    def measure(self, config: Config) -> Trial:
        """What was recorded for a configuration."""
        return Trial(config, self.outcomes[config])

    def trials_for(self, template: str) -> list[Trial]:
        """Everything that was recorded, as trials of another recording's template."""
        return [Trial(Config(template, config.knobs), outcome) for config, outcome in self.outcomes.items()]


def read_recording(path: Path) -> Recording:
    """Read a recorded space. Raises InvalidValueError with file and line if it is not one."""
    if path.suffix == ".json":
        return _read_json(path)
    name = path.name.removesuffix(".csv.gz")
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            lines = [line for line in file if not line.startswith("#")]
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InvalidValueError(f"cannot read the recording: {error}", where=str(path)) from None
    table = list(csv.DictReader(lines))
    if not table or not {"time_ms", "status"} <= set(table[0]):
        raise InvalidValueError("a recording needs the columns time_ms and status, and rows", where=str(path))
    parameters = [column for column in table[0] if column not in ("time_ms", "status")]
    try:
        configs = [{p: _value(row[p]) for p in parameters} for row in table]
        measured = [_measurement(row) for row in table]
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise InvalidValueError(f"malformed row: {error!r}", where=str(path)) from None
    return _recording(name, path, parameters, configs, measured)


def _read_json(path: Path) -> Recording:
    """A space from another tuner's file. Raises InvalidValueError, and RecordError for a file that is none."""
    report = ReadReport(str(path))
    records = [r for r in read_log(path, report) if r.measurement.status is not Status.LOST]
    if report.refused or not records:
        reason = f"{len(report.refused)} entries are refused: {report.refused[0]}" if report.refused else "no entries"
        raise InvalidValueError(f"no recorded space: {reason}", where=str(path))
    parameters = list(records[0].config.knobs)
    if any(list(record.config.knobs) != parameters for record in records):
        raise InvalidValueError("no recorded space: its entries have different parameters", where=str(path))
    configs = [dict(record.config.knobs) for record in records]
    return _recording(path.stem, path, parameters, configs, [record.measurement for record in records])


def _recording(
    name: str,
    path: Path,
    parameters: Sequence[str],
    configs: Sequence[Mapping[str, Any]],
    measured: Sequence[Measurement],
) -> Recording:
    knobs = [choice(p, sorted({c[p] for c in configs}, key=lambda v: (isinstance(v, str), v))) for p in parameters]
    outcomes = dict(zip((Config(name, c) for c in configs), measured, strict=True))
    if len(outcomes) < len(configs):
        raise InvalidValueError(f"{len(configs) - len(outcomes)} configurations occur twice", where=str(path))
    return Recording(name, ConfigSpace.from_table(name, knobs, configs), outcomes)


def _value(text: str) -> int | str:
    return int(text) if text.lstrip("-").isdigit() else text


def _measurement(row: Mapping[str, str]) -> Measurement:
    status = STATUS[row["status"]]
    return Measurement(status, (float(row["time_ms"]) / 1e3,) if status is Status.OK else ())


@dataclass(frozen=True)
class Run:
    """One search over a recording: the score after each evaluation, failures asked for, seconds spent asking."""

    scores: np.ndarray
    failed: int
    asks: int
    ask_s: float


def replay(
    recording: Recording,
    strategy: str,
    *,
    budget: int,
    batch: int,
    seed: int,
    hints: Sequence[Hint] = (),
    goal: float | None = None,
    ahead: int = 0,
) -> Run:
    """Run one strategy over a recording, `batch` configurations at a time, until the budget or the space is used up.

    ahead  batches that are asked for before the outcome of one is told, as they are where there are many builders

    hints  what the strategy gets beforehand: the records of another device
    goal   the score with which a run ends early, at the evaluation that reaches it
    A recording has no default, so the seed draws the configuration that stands for it.
    """
    (default,) = recording.space.sample(np.random.default_rng((seed, 1)), 1)
    space = recording.space.with_default(default)
    search = make_search(strategy, space, seed=seed, budget=budget, hints=hints)
    best, failed, asks, spent_s, n_asked = np.inf, 0, 0, 0.0, 0
    scores: list[float] = []
    waiting: deque[Sequence[Config]] = deque()
    while len(scores) < budget:
        while len(waiting) <= ahead and n_asked < budget:
            start = time.perf_counter()
            configs = search.ask(min(batch, budget - n_asked))
            spent_s += time.perf_counter() - start
            asks += 1
            if not configs:
                break
            n_asked += len(configs)
            waiting.append(configs)
        if not waiting:
            break
        configs = waiting.popleft()
        trials = [recording.measure(config) for config in configs]
        for trial in trials:
            failed += not trial.is_ok
            best = min(best, trial.median_s)
            scores.append(recording.optimum_s / best)
            if goal is not None and scores[-1] >= goal:
                return Run(np.array(scores), failed, asks, spent_s)
        start = time.perf_counter()
        search.tell(trials)
        spent_s += time.perf_counter() - start
    scores += scores[-1:] * (budget - len(scores))
    return Run(np.array(scores), failed, asks, spent_s)


@dataclass(frozen=True)
class Summary:
    """Mean scores over seeds at the checkpoints, with their standard errors."""

    name: str
    strategy: str
    seeds: int
    scores: Mapping[int, tuple[float, float]]
    failed: float
    seconds_per_ask: float

    def __str__(self) -> str:
        cells = "  ".join(f"{k}: {mean:.3f}±{error:.3f}" for k, (mean, error) in self.scores.items())
        return f"{self.name:24} {self.strategy:12} {cells}  failed {self.failed:.1f}  {self.seconds_per_ask:.3f} s/ask"


def summarise(
    recording: Recording,
    strategy: str,
    *,
    budget: int,
    batch: int,
    seeds: Sequence[int],
    source: Recording | None = None,
    until_optimum: bool = False,
    hints: Sequence[Hint] = (),
    ahead: int = 0,
) -> Summary:
    """Replay with every seed and average; `source` is the same kernel's recording on another device.

    hints          further ones that the strategy gets
    ahead          batches asked for before the outcome of one is told
    until_optimum  end a run there: the scores are the same, failures and seconds are counted until then
    """
    hints = (*hints, *((TrialsHint(source.trials_for(recording.name)),) if source is not None else ()))
    goal = 1.0 if until_optimum else None
    runs = [
        replay(recording, strategy, budget=budget, batch=batch, seed=seed, hints=hints, goal=goal, ahead=ahead)
        for seed in seeds
    ]
    table = np.stack([np.append(run.scores, [run.scores[-1]] * (budget - len(run.scores))) for run in runs])
    error = table.std(axis=0, ddof=1 if len(runs) > 1 else 0) / np.sqrt(len(runs))
    points = [k for k in CHECKPOINTS if k < budget] + [budget]
    scores = {k: (float(table[:, k - 1].mean()), float(error[k - 1])) for k in points}
    seconds = sum(run.ask_s for run in runs) / max(1, sum(run.asks for run in runs))
    return Summary(recording.name, strategy, len(runs), scores, float(np.mean([run.failed for run in runs])), seconds)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m autosched.testing.replay", description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="recorded spaces, gzip CSV")
    parser.add_argument("--strategy", default="auto", help="strategy, or several separated by commas")
    parser.add_argument("--budget", type=int, default=200, help="evaluations of each run")
    parser.add_argument("--batch", type=int, default=8, help="configurations asked for at a time")
    parser.add_argument("--ahead", type=int, default=0, help="batches asked for before the outcome of one is told")
    parser.add_argument("--seeds", type=int, default=10, help="runs, with seeds one after the other")
    parser.add_argument("--first-seed", type=int, default=0, help="the first of them")
    parser.add_argument("--until-optimum", action="store_true", help="end a run there: equal scores in less time")
    parser.add_argument("--source", type=Path, metavar="FILE", help="the same kernel recorded on another device")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args(arguments)
    try:
        if min(options.budget, options.batch, options.seeds) < 1:
            raise InvalidValueError("budget, batch and seeds must be at least 1")
        source = read_recording(options.source) if options.source else None
        for strategy in options.strategy.split(","):
            summaries = []
            for path in options.files:
                summary = summarise(
                    read_recording(path),
                    strategy,
                    budget=options.budget,
                    batch=options.batch,
                    seeds=range(options.first_seed, options.first_seed + options.seeds),
                    source=source,
                    until_optimum=options.until_optimum,
                    ahead=options.ahead,
                )
                summaries.append(summary)
                _print(summary, options.json)
            if len(summaries) > 1:
                _print(_mean(summaries), options.json)
    except AutoschedError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _mean(summaries: Sequence[Summary]) -> Summary:
    n = len(summaries)
    scores = {
        k: (
            sum(s.scores[k][0] for s in summaries) / n,
            float(np.sqrt(sum(s.scores[k][1] ** 2 for s in summaries))) / n,
        )
        for k in summaries[0].scores
    }
    failed, seconds = (sum(getattr(s, name) for s in summaries) / n for name in ("failed", "seconds_per_ask"))
    return Summary("mean", summaries[0].strategy, summaries[0].seeds, scores, failed, seconds)


def _print(summary: Summary, as_json: bool) -> None:
    if as_json:
        document = {name: getattr(summary, name) for name in Summary.__dataclass_fields__}
        print(json.dumps(document), flush=True)
    else:
        print(summary, flush=True)


if __name__ == "__main__":
    sys.exit(main())

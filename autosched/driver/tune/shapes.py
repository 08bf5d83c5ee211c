"""Tuning for a range of shapes: few configurations, each measured at each representative shape, and which one is where.

The rule is stored as winners at the representative shapes whose records name the range: a build at any shape within it
uses the nearest one's (`records/near.py`).
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from autosched.driver.build.precision import with_precision
from autosched.driver.build.tuned_layouts import TunedLayouts
from autosched.driver.model_files import open_model
from autosched.driver.options import TuneOptions
from autosched.driver.settings import resolve_records, resolve_target, resolve_threads
from autosched.driver.tasks import extract_tasks
from autosched.driver.tune.report import TuneReport
from autosched.driver.tune.session import COMPLETE, SPENT
from autosched.driver.tune.several import share
from autosched.driver.tune.tuning import Tuning
from autosched.driver.tune.turns import OpenMeasurer
from autosched.errors import AutoschedError, UsageError
from autosched.ir import IRModule
from autosched.records import database_to_write, open_store
from autosched.records.near import RANGE, sizes_of, what_must_agree
from autosched.records.places import Place
from autosched.runtime.size_expr import format_shapes
from autosched.space import Config, use_spaces
from autosched.target.target import TargetLike
from autosched.task import Task
from autosched.tuner.measure import MeasureOptions, Measurer
from autosched.tuner.measure.base import Compared
from autosched.tuner.measure.local import LocalMeasurer

Shapes: TypeAlias = Mapping[str, tuple[int, ...]]
Load = Callable[[Shapes], IRModule]

NOISE = 0.03  # a configuration that takes so much more of the default's time than the best one is as good


@dataclass(frozen=True)
class Rule:
    """Which configuration of a kernel is used where.

    places  per representative shape: the workload in words, its configuration, and its time by the default's
    """

    name: str
    places: tuple[tuple[str, str, float], ...]

    @property
    def n_configs(self) -> int:
        """How many different ones there are; the default counts as one."""
        return len({config for _, config, _ in self.places})

    @property
    def text(self) -> str:
        """The rule in one line."""
        parts = "; ".join(
            f"{workload}: {config}, {ratio:.2f} of the default's time" for workload, config, ratio in self.places
        )
        kinds = f"{self.n_configs} configuration{'s' if self.n_configs != 1 else ''}"
        return f"{self.name}: {kinds} for {len(self.places)} shapes ({parts})"


def tune_range(
    tune: Callable[..., TuneReport],
    what: object,
    ranges: Ranges,
    target: TargetLike | None = None,
    *,
    params: Mapping[str, object] | None = None,
    records: str | Path | Place | None = None,
    options: TuneOptions | None = None,
    progress: Callable[[TuneReport], None] | None = None,
    measurer: OpenMeasurer | None = None,
) -> TuneReport:
    """Tune a model with symbolic sizes, or a file of one, for all shapes of some ranges: `tune(…, shapes=ranges)`.

    tune     tunes the model at one shape
    returns  one report of the tasks at all representative shapes; the rules are among its notes
    """
    options, points = options or TuneOptions(), representatives(ranges)

    def load(shapes: Shapes) -> IRModule:
        return open_model(what, shapes=shapes)

    check_ends(load, points)
    whole, begin = TuneReport(), time.monotonic()
    for number, point in enumerate(points):
        part = share(options, time.monotonic() - begin, whole.n_trials, len(points) - number)
        report = tune(
            load(point), target, params=params, records=records, options=part, progress=progress, measurer=measurer
        )
        _add(whole, report, point)
        if report.interrupted:
            return whole
    rules = settle(load, points, target, params=params, records=records, options=options, measurer=measurer)
    whole.notes += [rule.text for rule in rules]
    return whole


def check_ends(load: Load, points: Sequence[Shapes]) -> None:
    """Load a model at both ends of a range: a size that is fixed shows at one of them, before hours are spent."""
    for end in (points[0], points[-1]):
        try:
            load(end)
        except AutoschedError as error:
            where = f"{error.where}, " * bool(error.where) + f"at {format_shapes(end)}"
            raise type(error)(error.message, where=where, hint=error.hint) from None


def _add(whole: TuneReport, part: TuneReport, point: Shapes) -> None:
    """Take the report of one shape into that of all."""
    at = format_shapes(point)
    whole.tasks += [dataclasses.replace(task, name=f"{task.name} at {at}") for task in part.tasks]
    whole.n_trials, whole.n_failed = whole.n_trials + part.n_trials, whole.n_failed + part.n_failed
    whole.elapsed_s, whole.n_skipped = whole.elapsed_s + part.elapsed_s, whole.n_skipped + part.n_skipped
    whole.failures = {k: whole.failures.get(k, 0) + part.failures.get(k, 0) for k in {*whole.failures, *part.failures}}
    whole.notes += [note for note in part.notes if note not in whole.notes]
    whole.reason, whole.database, whole.interrupted = part.reason, part.database, part.interrupted
    whole.device, whole.threads, whole.noise, whole.drift = part.device, part.threads, part.noise, part.drift


def settle(
    load: Load,
    points: Sequence[Shapes],
    target: TargetLike | None = None,
    *,
    params: Mapping[str, object] | None = None,
    records: str | Path | Place | None = None,
    options: TuneOptions | None = None,
    measurer: OpenMeasurer | None = None,
) -> tuple[Rule, ...]:
    """Measure every winner at every shape, keep few of them, and store which one is used where.

    load    gives the model at a shape of each input;  points  the representative shapes
    Raises  as `tune`.
    """
    options, chosen = (options or TuneOptions()).for_run_as(), resolve_target(target)
    threads = options.threads if measurer is not None and options.threads else resolve_threads(options.threads, chosen)
    where = records if records is not None else database_to_write()
    with use_spaces(options.spaces), open_store(where) as store:
        layouts = TunedLayouts(resolve_records([store]), chosen, threads)
        found = [
            extract_tasks(
                with_precision(load(point), options.precision, chosen),
                chosen,
                threads=threads,
                params=params,
                layouts=layouts,
            )
            for point in points
        ]
        families = families_of(found)
        tuning = Tuning([task for family in families for task in family], chosen, threads, store, options, {})
        how = MeasureOptions(threads, tuning.cache, companions=options.companions(threads))
        with (measurer or LocalMeasurer)(chosen, how) as opened:
            return tuple(_settle(tuning, family, opened) for family in families)


def families_of(tasks: Sequence[Sequence[Task]]) -> list[list[Task]]:
    """The tasks of a model at several shapes, those that are one kernel at different sizes together; no single ones."""
    families: dict[Hashable, dict[str, Task]] = {}
    for part in tasks:
        for task in part:
            families.setdefault((task.name, what_must_agree(task.workload)), {}).setdefault(task.key, task)
    return [list(family.values()) for family in families.values() if len(family) > 1]


def _settle(tuning: Tuning, family: Sequence[Task], measurer: Measurer) -> Rule:
    """The rule of one kernel, measured and stored."""
    index = [i for i, known in enumerate(tuning.tasks) if any(known.task is task for task in family)]
    winners = [(tuning.tasks[i].named, tuning.tasks[i].default) for i in index]
    options = list(dict.fromkeys(named for named, default in winners if named is not None and named != default))
    results = [_compare(tuning, i, options, measurer) for i in index]
    picked = pick([[found.ratio for found in row] for row in results])
    sizes = list(zip(*(sizes_of(task.workload) for task in family), strict=True))
    extent = {"low": [min(size) for size in sizes], "high": [max(size) for size in sizes]}
    places = []
    for i, row, number in zip(index, results, picked, strict=True):
        used = row[number]
        if used.trial.is_ok:
            facts = {RANGE: extent, SPENT: round(tuning.session.total_s, 2), COMPLETE: True}
            tuning.store.add([tuning.record(i, used.trial, facts, is_winner=True)])
        places.append(
            (str(tuning.tasks[i].task.workload), "the default" if number == 0 else str(used.config), used.ratio)
        )
    return Rule(family[0].name, tuple(places))


def _compare(tuning: Tuning, i: int, options: Sequence[Config], measurer: Measurer) -> list[Compared]:
    """The default and each of the options at one shape, measured in turn."""
    default = tuning.tasks[i].default
    others = [config for config in options if config != default]
    first, *rest = measurer.compare(tuning.tasks[i].task, [default, *others])
    by_config = {found.config: found for found in rest}
    return [first, *(by_config.get(config, first) for config in options)]


def pick(costs: Sequence[Sequence[float]], noise: float = NOISE) -> list[int]:
    """For each shape the option to use: few, none slower than the default or, beyond noise, than the best.

    costs  per shape the cost of each option by that of option 0, the default
    """
    allowed = [
        {o for o, cost in enumerate(row) if cost <= min(row) + noise and (o == 0 or cost <= 1.0)} for row in costs
    ]
    kept: list[int] = []
    left = set(range(len(costs)))
    while left:
        options = range(len(costs[0]))
        best = min(options, key=lambda o: (-sum(o in allowed[i] for i in left), sum(costs[i][o] for i in left), o))
        kept.append(best)
        left = {i for i in left if best not in allowed[i]}
    return [min((o for o in kept if o in allowed[i]), key=lambda o: (row[o], o)) for i, row in enumerate(costs)]


Ranges: TypeAlias = Mapping[str, tuple[int | range, ...]]

MOST_SHAPES = 8


def has_ranges(shapes: Ranges | None) -> bool:
    """Whether any size is a range."""
    return any(isinstance(size, range) for shape in (shapes or {}).values() for size in shape)


def representatives(ranges: Ranges, also: Shapes | None = None) -> tuple[dict[str, tuple[int, ...]], ...]:
    """The shapes to tune for: the ends, and powers of two between them, so that no size is more than twice away.

    also  one shape more, which is wanted most
    Several ranges grow together, as they do where they are one size of the model. Raises UsageError for an empty range.
    """
    sizes = {dim: _sizes(dim) for shape in ranges.values() for dim in shape if isinstance(dim, range)}
    n = min(max((len(found) for found in sizes.values()), default=1), MOST_SHAPES)

    def at(dim: int | range, k: int) -> int:
        if not isinstance(dim, range):
            return dim
        found = sizes[dim]
        return found[round(k * (len(found) - 1) / (n - 1))] if n > 1 else found[0]

    points = [{name: tuple(at(dim, k) for dim in shape) for name, shape in ranges.items()} for k in range(n)]
    if also is not None and dict(also) not in points:
        points.append(dict(also))
    return tuple(sorted(points, key=lambda point: list(point.values())))


def _sizes(dim: range) -> tuple[int, ...]:
    """The ends of a range and every second power of two between them."""
    if not dim or dim.step != 1 or dim.start < 1:
        raise UsageError(f"sizes {dim} are no range of sizes", hint="write range(1, 513) for 1 to 512")
    low, high = dim.start, dim[-1]
    powers = (1 << k for k in range(0, high.bit_length(), 2))
    return tuple(sorted({low, high, *(size for size in powers if low < size < high)}))


def between(least: Shapes, most: Shapes) -> dict[str, tuple[int | range, ...]]:
    """The ranges from one shape of each input to another. Raises UsageError where they do not belong together."""
    if least.keys() != most.keys():
        raise UsageError("least and largest shapes are of different inputs", hint="give both for the same ones")
    found: dict[str, tuple[int | range, ...]] = {}
    for name, low in least.items():
        high = most[name]
        if len(low) != len(high) or any(a > b for a, b in zip(low, high, strict=True)):
            raise UsageError(f"shapes of '{name}' from {low} to {high} are no range")
        found[name] = tuple(a if a == b else range(a, b + 1) for a, b in zip(low, high, strict=True))
    return found


def lies_in(shape: Shapes, ranges: Ranges) -> bool:
    """Whether a shape of each input is one of those that ranges allow."""
    return shape.keys() == ranges.keys() and all(
        len(sizes) == len(ranges[name])
        and all(
            size in dim if isinstance(dim, range) else size == dim
            for size, dim in zip(sizes, ranges[name], strict=True)
        )
        for name, sizes in shape.items()
    )

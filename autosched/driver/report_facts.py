"""What a report shows beside the records: a model's times, weights and arithmetic, schedules, sources, peaks."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autosched.codegen import compile_func
from autosched.codegen.lower.flops import count_work
from autosched.driver.bench.programs import autosched_program
from autosched.driver.bench.rounds import compare, measure
from autosched.driver.build.entry import build
from autosched.driver.build.tuned_layouts import TunedLayouts
from autosched.driver.settings import resolve_records
from autosched.driver.task_space import default_of
from autosched.driver.tasks import extract_tasks
from autosched.driver.tune.report import ModelTimes
from autosched.errors import AutoschedError, UsageError
from autosched.ir import IRModule
from autosched.records import FallbackContext, RecordReader
from autosched.records.report import Peak
from autosched.runtime import Executable
from autosched.runtime.cache import kernel_cache
from autosched.space import Config
from autosched.target import Target
from autosched.task import Task
from autosched.templates import apply_config
from autosched.templates.thread_knob import split_threads
from autosched.tir.schedule.trace import KINDS

if TYPE_CHECKING:
    from autosched.json_types import Json

MOST_TEXT = 40_000  # characters of one kernel's assembly
RUN_S = 1.2  # measuring time of one of two whole models


@dataclass(frozen=True)
class ModelFacts:
    """By workload key: how often a run calls it, floating-point operations of a call, texts by title."""

    weights: dict[str, int]
    flops: dict[str, int]
    sources: dict[str, dict[str, str]]


def model_facts(
    module: IRModule, target: Target, threads: int, records: RecordReader, *, n_sources: int = 3
) -> ModelFacts:
    """Weights and arithmetic of all tasks, and the texts of those `n_sources` whose winners take most of the time."""
    tasks = extract_tasks(module, target, threads=threads, layouts=TunedLayouts(records, target, threads))
    winners = [(task, found) for task, found in ((t, records.best(t)) for t in tasks) if found.config is not None]
    winners.sort(key=lambda item: -item[0].weight * (item[1].expected_s or 0.0))
    sources = {task.key: kernel_texts(task, f.config) for task, f in winners[:n_sources] if f.config is not None}
    return ModelFacts(
        {task.key: task.weight for task in tasks}, {task.key: count_work(task.func) for task in tasks}, sources
    )


def model_times(module: IRModule, target: Target, threads: int, records: RecordReader) -> ModelTimes:
    """Whole runs of the built model, every kernel included: with defaults alone, and with what the records say.

    Both are run in turn, for a second each; where they are the same, one is, and there is no interval.
    Raises AutoschedError for a model that does not run here as one graph.
    """
    sources: dict[str, RecordReader] = {"before": FallbackContext(), "after": resolve_records([records])}
    built = [build(module, target=target, records=source, threads=threads) for source in sources.values()]
    if not all(isinstance(one, Executable) for one in built):
        raise UsageError("the model is compiled when it is called")
    plain, tuned = ([(row["kernel"], row["config"]) for row in one.manifest["report"]] for one in built)
    if plain == tuned:  # two runs of the same would differ by chance alone
        (alone,) = measure([autosched_program("before", built[0], threads)], RUN_S)
        return ModelTimes(alone.median_s, alone.median_s)
    programs = [autosched_program(name, one, threads) for name, one in zip(sources, built, strict=True)]
    first, second = measure(programs, RUN_S)
    verdict = compare(first, second)
    return ModelTimes(first.median_s, first.median_s * verdict.ratio, verdict.low, verdict.high)


def kernel_texts(task: Task, winner: Config) -> dict[str, str]:
    """The winner's and the default's generated source, schedule and assembly, by title; once if they are the same."""
    texts: dict[str, str] = {}
    default = default_of(task)
    chosen = {"Winner": winner, "Default": default} if winner != default else {"The default, which has won": default}
    for title, config in chosen.items():
        try:
            applied = apply_config(task.func, split_threads(config)[0], task.target)
            kernel = compile_func(applied.func, task.target, name=task.name or "kernel")
        except AutoschedError as error:
            texts[f"{title}: {config}"] = error.line
            continue
        texts[f"{title}: {config}"] = kernel.source
        if applied.trace:
            texts[f"{title}: schedule"] = trace_text(applied.trace)
        if assembly := kernel.asm:
            texts[f"{title}: assembly"] = shortened(assembly, MOST_TEXT)
    titles = sorted(texts, key=lambda title: (title.endswith(": assembly"), title.endswith(": schedule")))
    return {title: texts[title] for title in titles}


def shortened(text: str, most: int) -> str:
    """The first lines of a text, so many characters at most; what is left out is said."""
    if len(text) <= most:
        return text
    kept = text[: text.rfind("\n", 0, most) + 1]
    return f"{kept}… {text.count(chr(10), len(kept))} more lines: autosched inspect --asm shows models' kernels whole\n"


def trace_text(trace: str) -> str:
    """A trace's JSON as lines of Python on a schedule `sch`."""
    instructions, decisions = json.loads(trace)
    chosen = {number: decision for number, decision in decisions}
    lines = []
    for number, (name, inputs, attrs, outputs) in enumerate(instructions):
        kind = KINDS[name]
        words = [str(x) for x in inputs]
        if kind.rest:
            words = [*words[:1], f"{kind.rest}=[{', '.join(words[1:])}]"]
        words += [f"{key}={value!r}" for key, value in zip(kind.attrs, attrs) if key != "buffer_index_type"]
        words += [f"decision={chosen[number]!r}"] if number in chosen else []
        made = f"{', '.join(outputs)} = " if outputs else ""
        lines.append(f"{made}sch.{kind.method}({', '.join(words)})")
    return "\n".join(lines)


def known_peak(target: Target, threads: int) -> Peak:
    """This machine's peaks, measured once (about two seconds) and kept in the kernel cache."""
    key = f"peaks 1 {target.to_json()} {target.fingerprint().key} {threads}"
    cache = kernel_cache()
    stored = cache.get(key)
    peak = None if stored is None else read_peak(stored)
    if peak is None:
        from autosched.driver.bench.peaks import measure_peaks

        peaks = measure_peaks(target, threads)
        levels = tuple((level.name, level.size_bytes, level.bytes_per_s) for level in peaks.levels)
        peak = Peak(target.fingerprint().name, threads, peaks.flops_per_s, levels)
        cache.put(key, json.dumps([peak.device, peak.threads, peak.flops_per_s, levels]).encode())
    return peak


def read_peak(stored: bytes) -> Peak | None:
    """What `known_peak` has kept; None if it is anything else."""
    try:
        device, threads, flops_per_s, levels = json.loads(stored)
        peak = Peak(str(device), int(threads), float(flops_per_s), tuple(_level(level) for level in levels))
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
    rates = [peak.flops_per_s, *(rate for _, _, rate in peak.levels)]
    return peak if peak.levels and all(math.isfinite(rate) and rate > 0 for rate in rates) else None


def _level(level: Sequence[Json]) -> tuple[str, int, float]:
    name, size_bytes, rate = level
    return str(name), int(size_bytes), float(rate)

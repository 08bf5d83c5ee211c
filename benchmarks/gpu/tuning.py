"""Sections of tuning, and of spaces that are recorded."""

from __future__ import annotations

import contextlib
import functools
import gzip
import os
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import autosched
from autosched import topi
from autosched.driver import TuneOptions
from autosched.errors import AutoschedError
from autosched.records import FallbackContext
from autosched.runtime import array, cuda
from autosched.runtime.cuda.devices import driver_of
from autosched.templates import apply_config, default_config, space_for, templates_for
from autosched.tir import PrimFunc
from benchmarks.gpu.bench import Bench, Case, Row, normal, prepared
from benchmarks.gpu.timing import in_turn, replayed, torch_replayed
from benchmarks.gpu.workloads import conv_func, matmul_func, of
from benchmarks.machine import RESULTS

TUNING_S = 12.0  # the budget of a function


def tuning(bench: Bench) -> Iterable[Case]:
    size = bench.size(2048, 16)
    conv = (bench.size(32, 1), bench.size(128, 4), bench.size(28, 6), bench.size(128, 4), 3, 1, "float16")
    cases = {
        "matmul float16": matmul_func(size, size, size, "float16"),
        "matmul float32": matmul_func(size, size, size),
        "conv2d float16": conv_func(*conv),
    }
    for name, func in cases.items():
        yield Case(name, functools.partial(_tune, name=name, func=func))
    yield Case("Triton's autotuner", _triton)


@dataclass(frozen=True)
class Measured:
    """One configuration of a space: seconds, or why there are none."""

    config: Any
    seconds: float | None
    problem: str = ""


def _measure_all(bench: Bench, func: PrimFunc, configs: Iterable[Any], limit_s: float) -> Iterable[Measured]:
    """Build and time configurations, one after the other, until the time is over."""

    start = time.monotonic()
    arrays: list[Any] | None = None
    for config in configs:
        try:
            scheduled = apply_config(func, config, bench.target).func
            module = autosched.build(scheduled, target=bench.target, records=FallbackContext())
            entry = module.entry_func
            if arrays is None:
                arrays = [array(normal(arg.shape, arg.dtype), cuda(0)) for arg in entry.args]
            seconds, _ = in_turn(bench, replayed(entry, arrays), None)
            yield Measured(config, seconds)
        except AutoschedError as error:
            yield Measured(config, None, error.line[:100])
        if time.monotonic() - start > limit_s:
            break


def _tune(bench: Bench, name: str, func: PrimFunc) -> list[Row]:
    """Trials a second between the first and the last one of a tuning, and the best of them beside the default."""
    if bench.is_tiny:
        done = list(_measure_all(bench, func, space_for(func, bench.target).sample(0, 2), 3600.0))
        return [Row(f"{name}: trials", note=f"{len(done)}, none of them by the tuner")]
    start = time.monotonic()
    seen: list[tuple[float, int]] = []
    with _tuning_allowed():
        report = autosched.tune(
            func, target=bench.target, records=RESULTS / f"gpu-{_device_name()}.db",
            options=TuneOptions(budget=TUNING_S, verify="task"),
            progress=lambda report: seen.append((time.monotonic(), report.n_trials)),
        )  # fmt: skip
    (task,) = report.tasks
    during = [(at, n) for at, n in seen if n]
    (first, low), (last, high) = during[0], next(x for x in during if x[1] == during[-1][1])
    rate = f"{(high - low) / max(last - first, 1e-3):.1f} a second"
    note = f"{report.n_trials} in all, {report.n_failed} failed, the first after {first - start:.1f} s"
    return [
        Row(f"{name}: trials", rate=rate, note=note),
        Row(f"{name}: default / best", task.best_s, task.default_s, note=task.config[:150]),
    ]


@contextlib.contextmanager
def _tuning_allowed() -> Iterator[None]:
    """Without what says that builds shall not tune."""
    before = os.environ.pop("AUTOSCHED_TUNE", None)
    yield
    if before is not None:
        os.environ["AUTOSCHED_TUNE"] = before


def _device_name() -> str:
    return re.sub(r"[^a-z0-9]+", "-", driver_of(0).name.lower()).strip("-")


def _triton(bench: Bench) -> list[Row]:
    """How many configurations of a like space Triton's autotuner takes a second, and its best time beside ours."""
    if bench.torch is None:
        return [Row("Triton's autotuner", note="no PyTorch with a GPU")]
    try:
        from benchmarks.gpu_triton import tune_matmul
    except ImportError as error:
        return [Row("Triton's autotuner", note=f"{error.name} is missing")]
    size = bench.size(2048)
    found = tune_matmul(bench.torch, size)
    function, arrays = prepared(bench, matmul_func(size, size, size, "float16"))
    ours, theirs = in_turn(bench, replayed(function, arrays), torch_replayed(bench.torch, found.call))
    rate = f"{found.configs / found.seconds:.1f} a second"
    return [
        Row("Triton: configurations, its own autotuner", rate=rate, note=f"{found.configs} configurations"),
        Row("our default / Triton's best", ours, theirs, note=found.best[:150]),
    ]


def recording(bench: Bench) -> Iterable[Case]:
    n, width = bench.size(8192, 4), bench.size(4096, 32)
    yield Case("softmax", lambda b: _record(b, "softmax", of((n, width), lambda x: topi.softmax(x, -1))))
    yield Case("transpose", lambda b: _record(b, "transpose", of((n, width), lambda x: topi.transpose(x, (1, 0)))))


def _record(bench: Bench, name: str, func: PrimFunc) -> list[Row]:
    """Measure every configuration of a template's space and keep the table, for `autosched.testing.replay`."""

    template, anchor = templates_for(func, bench.target)[0]
    space = template.space(anchor, bench.target)
    rows = next(iter(space.chunks()))
    configs = [space.to_config(row) for row in (rows[:3] if bench.is_tiny else rows)]
    done = list(_measure_all(bench, func, configs, 3600.0 if bench.is_tiny else 40.0))
    knobs = [knob.name for knob in space.knobs]
    path = RESULTS / f"gpu-{_device_name()}-space-{name}.csv.gz"
    if not bench.is_tiny and len(done) == len(configs):
        lines = [f"# {template.name} of {name}, every configuration; {driver_of(0).name}, target {bench.target}"]
        lines.append(",".join([*knobs, "time_ms", "status"]))
        for one in done:
            cells = [str(int(v) if isinstance(v, bool) else v) for v in (one.config[knob] for knob in knobs)]
            cells += ["", "compile"] if one.seconds is None else [f"{1e3 * one.seconds:.6g}", "ok"]
            lines.append(",".join(cells))
        path.write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))
    good = [one.seconds for one in done if one.seconds is not None]
    default = next((o.seconds for o in done if o.config == default_config(func, bench.target)), None)
    kept = f"kept in {path.name}" if len(done) == len(configs) else f"{len(done)} of {len(configs)}: not kept"
    return [Row(f"{name}: default / best", min(good, default=None), default, note=f"{len(good)} times; {kept}")]

"""Records small spaces of the project's own CPU kernels by brute force: `python -m benchmarks.spaces --only dense-a`.

Every configuration of a thinned space is built, checked and timed as tuning does it, without cutting slow ones short,
in rounds some seconds apart, and the fastest run counts: what else runs on a machine only makes runs slower.
A file is gzip CSV: a comment (kernel, shapes, machine), the header, a row per configuration.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autosched import te, topi
from autosched.driver.build.choose import make_task
from autosched.space import Config, ConfigSpace
from autosched.target import Target
from autosched.task import Measurement, Status, Task, Trial
from autosched.templates import template_named
from autosched.tir import PrimFunc
from autosched.tuner.measure import MeasureOptions
from autosched.tuner.measure.base import Built, Candidate
from autosched.tuner.measure.local import LocalMeasurer
from benchmarks.spaces import FOLDER

STATUS = {Status.OK: "ok", Status.INVALID: "compile", Status.BUILD_ERROR: "compile", Status.BUILD_TIMEOUT: "compile"}
GROUP = 24  # configurations that are built before they are timed
ROUNDS = 2


@dataclass(frozen=True)
class Space:
    """A kernel, the template that is recorded, and the candidates that are left of knobs with many."""

    kernel: str
    template: str
    make: Callable[[], PrimFunc]
    kept: Mapping[str, Sequence[int]]


def dense(m: int, k: int, n: int) -> PrimFunc:
    """out[m, n] = a[m, k] * b[k, n] + bias[n]."""
    a, b, bias = te.placeholder((m, k), name="a"), te.placeholder((k, n), name="b"), te.placeholder((n,), name="bias")
    axis = te.reduce_axis((0, k), "k")
    product = te.compute((m, n), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name="matmul")
    out = te.compute((m, n), lambda i, j: product[i, j] + bias[j], name="T_add")
    return te.create_prim_func([a, b, bias, out], "int64")


def conv(c: int, size: int, o: int, kernel: int, stride: int, groups: int = 1) -> PrimFunc:
    """A convolution in channel blocks of 16 with a bias."""
    data = te.placeholder((1, c // 16, size, size, 16), name="data")
    weight = te.placeholder((o, c // groups, kernel, kernel), name="weight")
    bias = te.placeholder((1, o // 16, 1, 1, 16), name="bias")
    pad = (kernel // 2,) * 4
    product = topi.conv2d(data, weight, (stride, stride), pad, (1, 1), groups, "NCHW16c", "NCHW16c")
    out = te.compute(product.shape, lambda b, q, y, x, r: product(b, q, y, x, r) + bias(0, q, 0, 0, r), name="T_add")
    return te.create_prim_func([data, weight, bias, out], "int64")


DENSE = {"rows": (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14), "chunk": (1, 8), "unroll_k": (1, 4)}
CONV = {"chunk": (1, 4), "unroll_ic": (1, 4), "ow_tile": (1, 2, 4, 6, 7, 14), "unroll_kw": (0,)}
FEWER = {**CONV, "unroll_ic": (4,)}
DEPTHWISE = {"row_chunk": (1, 4, 16, 64), "pixels": (1, 2, 3, 4, 6, 7, 8, 12, 14), "rows": (1, 2, 3)}

SPACES = {
    "dense-a": Space("dense 128x784 by 784x256", "matmul", lambda: dense(128, 784, 256), DENSE),
    "dense-b": Space("dense 64x256 by 256x512", "matmul", lambda: dense(64, 256, 512), DENSE),
    "dense-c": Space("dense 196x512 by 512x128", "matmul", lambda: dense(196, 512, 128), DENSE),
    "dense-d": Space("dense 96x384 by 384x384", "matmul", lambda: dense(96, 384, 384), DENSE),
    "conv-a": Space("conv 3x3, 64 to 64 channels, 28x28", "conv2d", lambda: conv(64, 28, 64, 3, 1), CONV),
    "conv-b": Space("conv 3x3, 128 to 128 channels, 14x14", "conv2d", lambda: conv(128, 14, 128, 3, 1), FEWER),
    "conv-c": Space("conv 3x3, 64 to 128 channels, 28x28, stride 2", "conv2d", lambda: conv(64, 28, 128, 3, 2), FEWER),
    "depthwise-a": Space(
        "depthwise 3x3, 96 channels, 56x56", "depthwise", lambda: conv(96, 56, 96, 3, 1, groups=96), DEPTHWISE
    ),
}


def thinned(space: ConfigSpace, kept: Mapping[str, Sequence[int]]) -> list[Config]:
    """The valid configurations whose knobs have only kept values, and the default, which is the first."""
    chosen = [config for config in space if all(config[knob] in values for knob, values in kept.items())]
    return list(dict.fromkeys([space.default, *chosen]))


def record(name: str, limit: int | None, folder: Path) -> Path:
    """Measure a whole thinned space and write its file; gives the path."""
    one, target = SPACES[name], Target("cpu")
    task = make_task(one.make(), target)
    template = template_named(one.template, target)
    anchor = template.match(task.func, target)
    assert anchor is not None, "the table names templates that match"
    configs = thinned(template.space(anchor, target), one.kept)[:limit]
    options = MeasureOptions(cut_ratio=1e9, budget_s=0.05)
    start = time.perf_counter()
    with LocalMeasurer(target, options) as measurer:
        trials = list(measured(measurer, task, configs))
    print(f"{name}: {len(trials)} configurations in {time.perf_counter() - start:.0f} s", flush=True)
    path = folder / f"{name}.csv.gz"
    machine = target.fingerprint()
    comment = f"# {one.kernel}; template {configs[0].template}; {machine.model_name}, {machine.isa_level}, 1 thread"
    order = {config: i for i, config in enumerate(configs)}
    write(path, comment, sorted(trials, key=lambda trial: order[trial.config]))
    return path


def measured(measurer: LocalMeasurer, task: Task, configs: Sequence[Config]) -> Iterator[Trial]:
    """The trials of configurations: a group is built, then timed in rounds, and the fastest run counts."""
    for start in range(0, len(configs), GROUP):
        group = [Candidate(task, config) for config in configs[start : start + GROUP]]
        outcomes = list(measurer.builder.build(group))
        rounds = [[measurer.time(one) if isinstance(one, Built) else one.measurement for one in outcomes]]
        rounds += [
            [measurer.time(one) if isinstance(one, Built) and known.is_ok else known for one, known in again]
            for again in [list(zip(outcomes, rounds[0], strict=True))] * (ROUNDS - 1)
        ]
        for one, found in zip(outcomes, zip(*rounds, strict=True), strict=True):
            yield Trial(one.candidate.config, fastest(found))


def fastest(found: Sequence[Measurement]) -> Measurement:
    """The fastest run of all rounds, which other processes disturb least; a failure where any round failed."""
    bad = [one for one in found if not one.is_ok]
    return bad[0] if bad else Measurement(Status.OK, (min(time_s for one in found for time_s in one.times_s),))


def write(path: Path, comment: str, trials: Sequence[Trial]) -> None:
    """Write trials in the format of `autosched.testing.replay`; equal trials give equal bytes."""
    text = io.StringIO()
    names = list(trials[0].config.knobs)
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow([*names, "time_ms", "status"])
    for trial in trials:
        time_ms = f"{trial.median_s * 1e3:.6g}" if trial.is_ok else ""
        knobs = [trial.config.knobs[name] for name in names]  # whatever the order of this configuration's own
        values = [int(v) if isinstance(v, bool) else v for v in knobs]
        rows.writerow([*values, time_ms, STATUS.get(trial.measurement.status, "runtime")])
    write_gzip(path, f"{comment}\n{text.getvalue()}")


def write_gzip(path: Path, text: str) -> None:
    """Write a compressed text; equal texts give equal bytes."""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spaces", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(SPACES), help="names, comma-separated")
    parser.add_argument("--limit", type=int, help="configurations of each, for a try")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    options = parser.parse_args(arguments)
    wanted = options.only.split(",")
    if unknown := [name for name in wanted if name not in SPACES]:
        parser.error(f"no space {unknown[0]}; there are {', '.join(SPACES)}")
    for name in wanted:
        print(record(name, options.limit, options.folder), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

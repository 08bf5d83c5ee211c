"""`autosched bench --profile`: a table of a model's kernels, and files of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from autosched.cli.common import Common
from autosched.cli.model import Shapes, is_built, open_executable, require_device, whole
from autosched.cli.output import Column, Table, export, milliseconds, percent, print_json, say, show
from autosched.cli.waiting import Waiting
from autosched.errors import UsageError


def rate(value: float) -> str:
    """Write GFLOP/s or GB/s with three digits."""
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


COLUMNS = (
    Column("kernel", "kernel"),
    Column("calls", "×", right=True),
    Column("seconds", "ms", milliseconds, right=True),
    Column("share", "share", percent, right=True),
    Column("gflops", "GFLOP/s", rate, right=True),
    Column("gbytes_per_s", "GB/s", rate, right=True),
    Column("peak_share", "of peak", percent, right=True),
    Column("bound", "bound by"),
    Column("threads", "threads", right=True),
    Column("template", "template"),
    Column("origin", "configuration from"),
)
MORE_COLUMNS = (
    *(Column(key, key) for key in ("trust", "workload", "config")),
    Column("flops", "flops"),
    Column("size_bytes", "bytes"),
)


def show_profiles(
    models: Sequence[Path],
    common: Common,
    shapes: Shapes | None,
    time_s: float,
    files: Mapping[str, Path],
    trace: Path | None,
) -> None:
    """Profile one model and print its table. Raises UsageError for several."""
    if len(models) != 1:
        raise UsageError("--profile takes one model")
    from autosched.runtime.dynamic import DynamicExecutable

    (model,) = models
    if not is_built(model):
        require_device(common.target)
    found = open_executable(model, common, shapes)
    executable = (
        found.at(shapes) if isinstance(found, DynamicExecutable) and shapes else whole(found, model, takes_shapes=True)
    )
    with Waiting(f"profiling {model.name}", quiet=common.is_quiet):
        from autosched.driver.bench.profile import profile

        result = profile(executable, name=model.name, threads=common.threads, time_s=time_s)
    rows = [kernel.row for kernel in result.kernels]
    columns = COLUMNS if common.format == "table" and common.verbosity < 1 else (*COLUMNS, *MORE_COLUMNS)
    table = Table(columns, rows, title=result.peaks.text)
    if common.format == "json":
        print_json(result.to_json())
    else:
        show(table, common.format)
    say(result.summary, quiet=common.is_quiet)
    export(Table((*COLUMNS, *MORE_COLUMNS), rows, title=result.peaks.text), files, result.to_json())
    if trace:
        export(table, {"json": trace}, result.trace())
        say(f"trace written to {trace}; open it in chrome://tracing or ui.perfetto.dev", quiet=common.is_quiet)

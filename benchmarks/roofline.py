"""Each kernel of a network against the machine's measured peaks.

    python -m benchmarks.roofline resnet18 [--threads 1] [--db tuned.db] [--trace trace.json] [--csv kernels.csv]

MODEL is a name of `benchmarks.models`, an .onnx file or a built .asx. The peaks are measured by the command, with
kernels of our own generator. The table is printed and, for named models, written to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Sequence
from pathlib import Path

import autosched
from autosched.driver import load_model
from autosched.driver.bench.profile import Profile, profile
from autosched.frontend.onnx import from_onnx
from autosched.runtime import Executable
from benchmarks.machine import Table, describe, result_file, write
from benchmarks.models import NAMES, get_model
from benchmarks.records import records_for

COLUMNS = ("kernel", "x", "ms", "share", "GFLOP/s", "GB/s", "of peak", "bound by", "template", "configuration from")


def open_model(model: str, threads: int, database: Path | None) -> Executable:
    """Build a model by name or from a file, or load an artifact."""
    if model.endswith(".asx"):
        loaded: Executable = autosched.load(model)
        return loaded
    module = from_onnx(get_model(model)) if model in NAMES else load_model(model)
    built: Executable = autosched.build(module, target="cpu", records=records_for(database), threads=threads)
    return built


def table(found: Profile) -> Table:
    """A line for each kernel, slowest first."""
    threads = f"{found.threads} thread{'s' if found.threads > 1 else ''}"
    made = Table(f"{found.name}, {threads}; {found.peaks.text}", COLUMNS)
    for kernel in found.kernels:
        made.rows.append(
            (
                *(kernel.kernel, str(kernel.calls), f"{1e3 * kernel.seconds:.4g}", f"{100 * kernel.share:.1f} %"),
                *(f"{kernel.gflops:.1f}", f"{kernel.gbytes:.1f}", f"{100 * kernel.peak_share:.0f} %", kernel.bound),
                *(kernel.template, kernel.origin),
            )
        )
    made.notes.append(found.summary)
    made.notes.append("GFLOP/s count the operator's arithmetic: Winograd executes less and may pass the peak")
    return made


def write_csv(found: Profile, path: Path) -> None:
    """Write all that is known of each kernel."""
    rows = [kernel.row for kernel in found.kernels]
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.roofline", description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", metavar="MODEL", help=f"{', '.join(NAMES)}, a .onnx or a .asx file")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--time", type=float, default=2.0, help="seconds of running")
    parser.add_argument("--db", type=Path, help="database of tuned configurations; default: what is shipped")
    parser.add_argument("--trace", type=Path, help="write a Chrome trace")
    parser.add_argument("--csv", type=Path, help="write all columns as CSV")
    args = parser.parse_args(arguments)
    print(describe())
    for model in args.models:
        executable = open_model(model, args.threads, args.db)
        found = profile(executable, name=Path(model).name, threads=args.threads, time_s=args.time)
        made = table(found)
        print(made.markdown())
        if args.csv:
            write_csv(found, args.csv)
        if args.trace:
            args.trace.write_text(json.dumps(found.trace()))
        if model in NAMES:
            command = f"python -m benchmarks.roofline {model} --threads {args.threads}"
            write(result_file(f"roofline-{model}", args.threads), command, [made])


if __name__ == "__main__":
    main()

"""`python -m benchmarks.zoo`: networks of public packages with random weights, brought as users bring them.

Networks of transformers, timm, torchvision and diffusers are exported as ONNX files and as `.pt2` files, models of
scikit-learn, XGBoost and LightGBM as ONNX files. Each is imported, built, run and compared with its package, and with
ONNX Runtime. The packages are installed by whoever runs it. Every network has a process of its own.

    python -m benchmarks.zoo bert unet --ways pt2                       # some networks
    python -m benchmarks.zoo --results zoo.jsonl --resume               # all; goes on where it was interrupted
    python -m benchmarks.zoo --results zoo.jsonl --table agreement.md   # with a table of all results
    python -m benchmarks.zoo --time 2                                   # times beside ONNX Runtime's
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.machine import Table, write
from benchmarks.zoo.check import AGREES, CRASH, ONNX, PT2, Result, Settings, check, ways_of
from benchmarks.zoo.definitions import names
from benchmarks.zoo.process import import_packages, in_process
from benchmarks.zoo.tabular import tabular_names


def main(arguments: Sequence[str] | None = None) -> int:
    """Check networks and print a line for each; the status is 1 where one does not agree."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="networks; all by default")
    parser.add_argument("--ways", nargs="*", choices=(ONNX, PT2), default=[ONNX, PT2])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--time", type=float, default=0.0, help="seconds for each program; 0: nothing is timed")
    parser.add_argument("--limit", type=float, default=400, help="seconds after which a network is given up")
    parser.add_argument("--results", type=Path, help="a file of results, a line each, that this run adds to")
    parser.add_argument("--resume", action="store_true", help="leave out what is in the file of results")
    parser.add_argument("--table", type=Path, help="write all results there as Markdown")
    options = parser.parse_args(arguments)
    known = (*names(), *tabular_names())
    if unknown := [n for n in options.names if n not in known]:
        parser.error(f"there is no network {', '.join(unknown)}; there are {', '.join(known)}")
    jobs = [(n, w) for n in options.names or known for w in ways_of(n) if w in options.ways]
    results = read(options.results) if options.results else {}
    import_packages()
    for name, way in jobs:
        if options.resume and (name, way) in results:
            continue
        settings = Settings(options.threads, options.time)
        found, why = in_process(check, (name, way, settings), options.threads, options.limit)
        result = found or Result(name, way, CRASH, why)
        results[name, way] = result
        if options.results:
            with options.results.open("a") as file:
                file.write(json.dumps(asdict(result)) + "\n")
        print(line(result), flush=True)
    shown = [results[job] for job in jobs]
    if options.table:
        write(options.table, f"python -m benchmarks.zoo --time {options.time:g}", [table(shown)])
    print(f"{sum(r.status == AGREES for r in shown)} of {len(shown)} agree")
    return int(any(r.status != AGREES for r in shown))


def read(path: Path) -> dict[tuple[str, str], Result]:
    """The results of a file, the last of each network and way."""
    lines = path.read_text().splitlines() if path.exists() else []
    found = [Result(**json.loads(text)) for text in lines]
    return {(r.name, r.way): r for r in found}


def line(r: Result) -> str:
    """A result as one line."""
    parts = [f"{r.name:18}{r.way:5}{r.status:13}"]
    parts += [f"error {r.error:.1e}"] if r.error is not None else []
    parts += [f"(ORT {r.peer_error:.1e})"] if r.peer_error is not None else []
    parts += [f"build {r.build_s:.1f} s"] if r.build_s is not None else []
    parts += [f"ours / ORT {r.ratio:.2f} ± {r.ratio_half:.2f}"] if r.ratio is not None else []
    return " ".join([*parts, r.reason])


def table(results: Sequence[Result]) -> Table:
    """Results by network."""
    columns = ("network", "way", "", "error", "ORT's error", "import and build, s", "ours / ORT", "")
    made = Table("Networks of public packages: agreement", columns)
    for r in results:
        ratio = "" if r.ratio is None else f"{r.ratio:.2f} ± {r.ratio_half:.2f}"
        numbers = ["" if e is None else f"{e:.1e}" for e in (r.error, r.peer_error)]
        seconds = "" if r.build_s is None else f"{r.build_s:.1f}"
        made.rows.append((r.name, r.way, r.status, *numbers, seconds, ratio, r.reason.replace("|", "/")))
    for way in (ONNX, PT2):
        counts = Counter(r.status for r in results if r.way == way)
        made.notes.append(f"{way}: " + ", ".join(f"{n} {status}" for status, n in counts.most_common()))
    if ratios := {r.name: r.ratio for r in results if r.ratio is not None}:
        slower = ", ".join(name for name, ratio in ratios.items() if ratio > 1) or "none"
        mean = statistics.geometric_mean(ratios.values())
        made.notes.append(f"ours / ORT over {len(ratios)} networks: geometric mean {mean:.2f}; above 1: {slower}")
    made.notes.append("errors: the largest against the package, as a share of the largest value of an output")
    return made


if __name__ == "__main__":
    sys.exit(main())

"""From a model file to a tuned executable: SqueezeNet imported, built, tuned, run and compared, in about three minutes.

    make demo
    python -m examples.demo --budget 10m

Every step is a command of the command line and is shown as it would be typed. A second run goes on where the first
one stopped.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from autosched import bench
from autosched.cli.output import Column, Table, factor, milliseconds, show
from benchmarks.models import get_model

COLUMNS = (
    Column("what", "SqueezeNet, batch 1"),
    Column("median_s", "median ms", milliseconds, right=True),
    Column("interval_s", "± ms", milliseconds, right=True),
    Column("over_untuned", "over untuned", factor, right=True),
    Column("over_peer", "over ONNX Runtime", factor, right=True),
)


def run(folder: Path, *words: str) -> None:
    """Show a command and run it in a folder; the demo ends where one fails."""
    print(f"\n$ autosched {' '.join(words)}", flush=True)
    code = subprocess.run([sys.executable, "-m", "autosched", *words], cwd=folder, check=False).returncode
    if code:
        sys.exit(code)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="squeezenet", help="a name from benchmarks/models.py (%(default)s)")
    parser.add_argument("--budget", default="60s", help="time for tuning (%(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="threads of every runtime (%(default)s)")
    parser.add_argument("--time", type=float, default=4.0, help="seconds of measuring for each row (%(default)s)")
    parser.add_argument("--folder", type=Path, default=Path(__file__).parents[1] / ".cache" / "demo")
    args = parser.parse_args()
    folder, threads = args.folder, ("--threads", str(args.threads))
    folder.mkdir(parents=True, exist_ok=True)
    model, database = folder / f"{args.model}.onnx", folder / "demo.db"
    model.write_bytes(get_model(args.model).SerializeToString())
    print(f"{model}: {args.model} with seeded random weights")

    run(folder, "build", model.name, "-o", "untuned.asx", "--no-db", *threads)
    run(folder, "tune", model.name, "--budget", args.budget, "--db", database.name, *threads)
    run(folder, "build", model.name, "-o", "tuned.asx", "--db", database.name, *threads)
    run(folder, "run", "tuned.asx", "--fill", "random", "--print-top", "3", *threads)

    print("\nmeasuring side by side …", flush=True)
    report = bench(
        [folder / "untuned.asx", model],
        records=str(database),
        threads=[args.threads],
        others=["onnxruntime"],
        time_s=args.time,
    )
    names = {"untuned.asx": "autosched, untuned", model.name: "autosched, tuned", "onnxruntime": "ONNX Runtime"}
    untuned, peer = (next(row for row in report.rows if row["name"] == name) for name in ("untuned.asx", "onnxruntime"))
    rows = [
        {
            "what": names[row["name"]],
            "median_s": row["median_s"],
            "interval_s": row["interval_s"],
            "over_untuned": untuned["median_s"] / row["median_s"],
            "over_peer": peer["median_s"] / row["median_s"],
        }
        for row in report.rows
    ]
    print(f"\n{report.environment}, {args.threads} thread{'s' if args.threads > 1 else ''}")
    show(Table(COLUMNS, rows), "table")
    print(f"\ntuned configurations: {database}   see them with: autosched logs best --db {database}")


if __name__ == "__main__":
    main()

"""`make bench`: the performance tables, ours and the best peers in one run, interleaved, medians.

    python -m benchmarks [--only models,dense,mlp,throughput,overhead,load,build,import] [--trials 300] [--threads 1]

The tables are printed and written to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks import tables
from benchmarks.first_build import first_build
from benchmarks.machine import Table, describe, result_file, write
from benchmarks.tables import Settings

SUITES: dict[str, Callable[[Settings], Table]] = {
    "import": tables.import_time,
    "overhead": tables.executor_overhead,
    "dense": tables.dense,
    "mlp": tables.mlp,
    "throughput": tables.tuning_throughput,
    "build": first_build,
    "load": tables.artifact_load,
    "models": tables.models,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(SUITES), help="suites, comma-separated")
    parser.add_argument("--trials", type=int, default=300, help="trials for tuning each model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--time", type=float, default=3.0, help="seconds of measuring for each program")
    parser.add_argument("--models", default="squeezenet,resnet18")
    args = parser.parse_args()
    wanted = args.only.split(",")
    if unknown := [name for name in wanted if name not in SUITES]:
        parser.error(f"no suite {unknown[0]}; there are {', '.join(SUITES)}")
    head = describe()
    print(head)
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(Path(folder), args.threads, args.time, args.trials, tuple(args.models.split(",")))
        for name in wanted:
            table = SUITES[name](settings)
            print(f"\n{table.markdown()}", flush=True)
            options = f"--threads {args.threads} --time {args.time:g}"
            if name == "models":
                options += f" --models {args.models} --trials {args.trials}"
            command = f"python -m benchmarks --only {name} {options}"
            write(result_file(name, args.threads), command, [table])


if __name__ == "__main__":
    main()

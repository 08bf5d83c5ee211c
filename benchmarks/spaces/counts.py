"""Counts the instructions of recorded configurations: `python -m benchmarks.spaces.counts --only dense-a`.

Kernels are compiled and not run, so this can be done on another day, and on another machine with the same instruction
set, than the times. A file is gzip CSV in the folder `counts`: a comment, the header (knobs, then the counts), a row
per configuration.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from autosched.codegen.cpu.instructions import COUNTS
from autosched.driver.build.choose import make_task
from autosched.space import Config
from autosched.target import Target
from autosched.testing.replay import read_recording
from autosched.tuner.cost_model.built import INSTRUCTIONS
from autosched.tuner.measure.compiler import TemplateCompiler
from benchmarks.spaces import FOLDER
from benchmarks.spaces.__main__ import SPACES, write_gzip
from benchmarks.spaces.nests import typed

COUNTED = FOLDER / "counts"


def read_counts(name: str, folder: Path = COUNTED) -> dict[str, tuple[int, ...]]:
    """By a configuration's knobs as JSON the counts of its instructions; empty where nobody has counted them."""
    path = folder / f"{name}.csv.gz"
    if not path.is_file():
        return {}
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    return {_key(row): tuple(int(row[count]) for count in COUNTS) for row in rows}


def key_of(config: Config) -> str:
    """What counts of a configuration are found by."""
    return _key({name: str(int(v) if isinstance(v, bool) else v) for name, v in config.knobs.items()})


def _key(row: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in row.items() if name not in COUNTS)


def count(name: str, limit: int | None, folder: Path) -> Path:
    """Compile the configurations of a recorded space, evenly drawn ones where there is a limit; gives the file."""
    space, target, compiler = SPACES[name], Target("cpu"), TemplateCompiler()
    func = make_task(space.make(), target).func
    configs = list(read_recording(FOLDER / f"{name}.csv.gz").outcomes)
    if limit is not None and limit < len(configs):
        configs = [configs[i] for i in np.linspace(0, len(configs) - 1, limit).astype(int)]
    start, table = time.perf_counter(), io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow([*configs[0].knobs, *COUNTS])
    for config in configs:
        compiler.compile(func, typed(config, space.template), target)
        counts = compiler.describe(target)[INSTRUCTIONS]
        writer.writerow([*config.knobs.values(), *map(int, counts)])
    print(f"{name}: {len(configs)} configurations in {time.perf_counter() - start:.0f} s", flush=True)
    comment = f"# {space.kernel}; instructions for {target.fingerprint().isa_level}\n"
    path = folder / f"{name}.csv.gz"
    write_gzip(path, comment + table.getvalue())
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spaces.counts", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(SPACES), help="names, separated by commas")
    parser.add_argument("--limit", type=int, help="configurations of each; all without")
    parser.add_argument("--folder", type=Path, default=COUNTED)
    options = parser.parse_args(arguments)
    for name in options.only.split(","):
        print(count(name, options.limit, options.folder), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""How fast records are read, summed up, looked up and reported: `python -m benchmarks.record_speed`."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from autosched.records import Record, default_reader, open_store, write_lines
from autosched.records.record import host_id
from autosched.records.report import make_document, make_page
from autosched.records.statistics import task_statistics
from autosched.space import Config
from autosched.target import Fingerprint, Target
from autosched.task import Measurement, Status, Task, Workload
from benchmarks.machine import RESULTS, Table, describe

PER_TASK = 200  # trials of a task, as of a tuning that takes its time
MILLION = 1_000_000


def made_up(n: int) -> Iterator[Record]:
    """Records as a tuning of many tasks leaves them: mostly times, some failures, a winner a task."""
    device, host = Target("cpu").fingerprint(), host_id()
    for i in range(n):
        task, trial = divmod(i, PER_TASK)
        workload = Workload("matmul", ("float32",) * 3, ((8 + task, 16), (16, 4), (8 + task, 4)))
        knobs = {"rows": trial, "vectors": trial % 3, "unroll": trial % 2 == 0, "order": "ijk", "tile_k": 8 * task}
        yield _record(workload, Config("matmul", knobs), device, host, i, trial)


def _record(workload: Workload, config: Config, device: Fingerprint, host: str, i: int, trial: int) -> Record:
    time_s = 1e-3 / (1 + trial % 13)
    is_winner = trial == PER_TASK - 1
    if trial % 9 == 8 and not is_winner:
        measurement = Measurement(Status.TIMEOUT, error="took longer than 1.0 s")
    else:
        how = {"threads": 2, "cache": "cold", **({"baseline_s": 2e-3} if is_winner else {})}
        measurement = Measurement(Status.OK, (time_s, time_s * 1.01, time_s * 1.02), "float64 reference", how=how)
    return Record(
        workload, config, measurement, device, threads=2, time=1.7e9 + 0.2 * i, host=host, session=f"s{i // 10_000}",
        versions={"autosched": "0.1", "numba": "0.68.1"}, is_default=trial == 0, is_winner=is_winner,
    )  # fmt: skip


def timed(what: Callable[[], Any], repeats: int = 3) -> float:
    """The least wall time of a few calls, in seconds: on a busy machine the others are somebody else's."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        what()
        times.append(time.perf_counter() - start)
    return min(times)


def measure(n: int, folder: Path) -> list[tuple[str, float, float]]:
    """What was done, its bar and its time, in seconds, on n records."""
    log, path = folder / f"{n}.jsonl", folder / f"{n}.db"
    write_lines(log, made_up(n))
    rows = []
    with open_store(path) as store:
        rows.append((f"import of {n:,} JSON lines", 1e-4 * n, timed(lambda: store.import_jsonl(log), 1)))
    bar = 2.0 if n >= MILLION else 0.3
    with open_store(path, write=False) as store:
        rows.append((f"best of {n:,} records", bar, timed(store.winners)))
        rows.append(
            (f"stats of {n:,} records", bar, timed(lambda: task_statistics(*store.trial_table(), store.wins())))
        )
    reader = default_reader(path)
    tasks = [Task(record.workload, Target("cpu"), threads=2) for record in made_up(min(n, 100 * PER_TASK))][::PER_TASK]
    reader.best(tasks[0])
    look_up_s = statistics.median(timed(lambda t=t: reader.best(t), 1) for t in tasks)
    rows.append((f"look-up of a task among {n:,}", 1e-3, look_up_s))
    return rows


def measure_start(folder: Path) -> list[tuple[str, float, float]]:
    """A whole process that shows the winners of a small database: hardly more than its start."""
    path = folder / "start.db"
    with open_store(path) as store:
        store.add(list(made_up(1_000)))
    command = [sys.executable, "-m", "autosched", "logs", "best", "--db", str(path), "-q"]
    return [("process start, with `logs best`", 0.5, timed(lambda: subprocess.run(command, capture_output=True), 5))]


def measure_report(folder: Path) -> list[tuple[str, float, float]]:
    """The report of 10,000 records."""
    with open_store(folder / "report.db") as store:
        store.add(list(made_up(10_000)))
        return [("report of 10,000 records", 5.0, timed(lambda: make_page(make_document(store)), 1))]


def main() -> int:
    """Measure, print and keep the table; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="100000,1000000", help="numbers of records, with commas (100000,1000000)")
    parser.add_argument("--save", action="store_true", help="keep the table in benchmarks/results")
    options = parser.parse_args()
    table = Table("Records, one process, without its start", ("what", "bar s", "time s", ""))
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        rows = [row for n in map(int, options.sizes.split(",")) for row in measure(n, Path(folder))]
        for what, bar_s, time_s in [*rows, *measure_start(Path(folder)), *measure_report(Path(folder))]:
            missed += time_s > bar_s
            table.rows.append((what, f"{bar_s:g}", f"{time_s:.3g}", "" if time_s <= bar_s else "missed"))
    text = f"{describe()}\n\n{table.markdown()}\n"
    print(text)
    if options.save:
        (RESULTS / "records.md").write_text(text, encoding="utf-8")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())

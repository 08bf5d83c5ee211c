"""`make gpu-check`: what GPU kernels are worth, on the GPU that is here, by one command in at most nine minutes.

Sections run in the order of their importance, each in a process of its own with its own time limit. An illegal address
spoils the process that meets it: what comes behind the case that ends one is measured in another. Rows are written as
they come, to `benchmarks/results/gpu-<device>.jsonl`, and the tables that they make at the end. Times are the device's
own (events), ours and the peer's in turn in one run, on normal random numbers. `--emulate` runs every section's code at
tiny sizes on the emulator, without times that mean anything. `--prepare nvidia/nvidia-h200` builds what is measured,
where no GPU is: the kernel cache can then travel.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from autosched.codegen.cuda.comparisons import compile_comparisons
from autosched.errors import AutoschedError, DeviceError
from autosched.runtime.cuda.devices import driver_of, use_driver
from autosched.target import Target
from autosched.target.gpus import device_named, usual_arch
from benchmarks.gpu.bench import Bench, Prepared, Row
from benchmarks.gpu.sections import SECTIONS
from benchmarks.machine import RESULTS, Table, commit

TOTAL_S = 540.0
STARTING_S = 8.0  # what a section's process takes before it measures
MEASURE_BUILDING = ("tuning", "recording")  # what they build is not to be in the kernel cache
LOST = 3  # what a process ends with that can use the device no more
COLUMNS = ("what", "ours", "peer", "peer / ours", "rate", "note")


def target_here() -> str:
    """The target of the first device. Raises DeviceError where there is none."""
    driver = driver_of(0)
    name = device_named(driver.name)
    return f"nvidia/{name}" if name else f"cuda -arch={usual_arch(driver.compute_capability)}"


def run_section(name: str, bench: Bench, out: Path, limit_s: float, first: int = 0, begun: Path | None = None) -> bool:
    """Run a section's cases from the `first` on in this process; each row is written at once.

    A failure of one case is a row too, whatever it is. Gives False where nothing more can run in this process.
    begun   where the case that is run now is noted: its number and name
    """
    deadline = time.monotonic() + limit_s
    with open(out, "a", encoding="utf-8") as file:
        for at, case in enumerate(SECTIONS[name].cases(bench)):
            if at < first or not re.search(bench.rows, case.name):
                continue
            if time.monotonic() > deadline:
                _write(file, name, Row(case.name, note="left out: no time"))
                continue
            if begun is not None:
                begun.write_text(json.dumps([at, case.name]), encoding="utf-8")
            try:
                for row in case.run(bench):
                    _write(file, name, row)
            except Prepared:
                _write(file, name, Row(case.name, note="built"))
            except Exception as error:  # of ours, of the peer or of this script: the other cases are measured
                line = error.line if isinstance(error, AutoschedError) else " ".join(str(error).split())
                _write(file, name, Row(case.name, note=f"{type(error).__name__}: {line[:200]}"))
                if not bench.only_builds and _is_lost():
                    return False
    return True


def _is_lost() -> bool:
    """Whether the device answers this process no more: an illegal address spoils all that comes after it."""
    try:
        driver_of(0).synchronize()
    except Exception:
        return True
    return False


def _write(file: Any, section: str, row: Row) -> None:
    file.write(json.dumps({"section": section, **row.document()}) + "\n")
    file.flush()
    print(f"{section:12} {' | '.join(row.cells())}", flush=True)


def seconds_of(names: Sequence[str], at: int, left_s: float, starting_s: float = STARTING_S) -> float:
    """How long a section may measure: its part of what is left, by the limits of those that are still to come."""
    limits = [SECTIONS[name].limit_s for name in names[at:]]
    return min(limits[0], (left_s - starting_s * len(limits)) * limits[0] / sum(limits))


def run_all(names: Sequence[str], bench: Bench, out: Path, total_s: float) -> None:
    """Run sections one after the other, each in its own process; a section that fails costs its rows alone."""
    start = time.monotonic()
    for at, name in enumerate(names):
        limit_s = seconds_of(names, at, total_s - (time.monotonic() - start))
        if limit_s <= 0:
            with open(out, "a", encoding="utf-8") as file:
                _write(file, name, Row("the whole section", note="left out: no time"))
            continue
        _run_apart(name, bench, out, limit_s)


def _run_apart(name: str, bench: Bench, out: Path, limit_s: float) -> None:
    """Run a section in a process of its own; where that ends early, the cases behind the one at fault in another."""
    begun, first, start = out.with_suffix(".begun"), 0, time.monotonic()
    while (left_s := limit_s - (time.monotonic() - start)) > (STARTING_S if first else 0):
        begun.unlink(missing_ok=True)
        command = [sys.executable, "-m", "benchmarks.gpu_check", "--section", name, "--first", str(first)]
        command += ["--target", bench.target_text, "--around", str(bench.around), "--rows", bench.rows]
        command += ["--out", str(out), "--limit", f"{left_s - (STARTING_S if first else 0):.0f}"]
        try:
            done = subprocess.run(command, timeout=left_s + STARTING_S, check=False, cwd=Path(__file__).parents[1])
            problem = f"its process ended with {done.returncode}" if done.returncode else ""
        except subprocess.TimeoutExpired:
            problem = f"ended after {limit_s + STARTING_S:.0f} s"
        at, case = json.loads(begun.read_text(encoding="utf-8")) if begun.exists() else (-1, "the whole section")
        begun.unlink(missing_ok=True)
        if problem and problem != f"its process ended with {LOST}":  # whose row says why
            with open(out, "a", encoding="utf-8") as file:
                _write(file, name, Row(case, note=problem))
        if not problem or at < 0:
            return
        first = at + 1


def run_together(names: Sequence[str], bench: Bench, out: Path, total_s: float) -> None:
    """Run sections in this process: nothing is started twice, and an illegal address ends all."""
    start = time.monotonic()
    for at, name in enumerate(names):
        if not run_section(name, bench, out, seconds_of(names, at, total_s - (time.monotonic() - start), 0.0)):
            return


def limits() -> str:
    """What the device's clocks and power are limited to, as nvidia-smi says."""
    asked = "clocks.max.sm,clocks.max.mem,power.limit"
    try:
        command = ["nvidia-smi", "--id=0", f"--query-gpu={asked}", "--format=csv,noheader"]
        found = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
    return "at most {}, memory {}, {}; ".format(*map(str.strip, found.split(",")))


def tables(out: Path, head: str) -> str:
    """The rows of a run as tables."""
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    parts = [f"## {head}", ""]
    for name, section in SECTIONS.items():
        found = [tuple(Row.read(row).cells()) for row in rows if row["section"] == name]
        if found:
            parts += [Table(f"{section.title}; bar: {section.bar}", COLUMNS, found).markdown(), ""]
    return "\n".join(parts)


@contextlib.contextmanager
def emulated() -> Iterator[None]:
    """Let the emulator stand for the device."""
    from autosched.codegen.cuda.emulate import EmulatorDriver

    with use_driver(EmulatorDriver):
        yield


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; 2 where there is no GPU."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_check", description=__doc__)
    parser.add_argument("--only", default="", help=f"sections, of {', '.join(SECTIONS)}")
    parser.add_argument("--seconds", type=float, default=TOTAL_S, help="for all sections together")
    parser.add_argument("--together", action="store_true", help="all sections in one process: for short runs")
    parser.add_argument("--emulate", action="store_true", help="tiny sizes on the emulator: is the code right?")
    parser.add_argument(
        "--prepare", default="", metavar="TARGET", help="only build into the kernel cache; needs no GPU"
    )
    parser.add_argument("--around", type=int, default=0, metavar="N", help="measure N configurations near defaults too")
    parser.add_argument("--rows", default="", metavar="REGEX", help="only rows whose name this matches")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--section", help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--target", default="", help=argparse.SUPPRESS)
    parser.add_argument("--limit", type=float, default=60.0, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    names = options.only.split(",") if options.only else list(SECTIONS)
    if unknown := sorted(set(names) - SECTIONS.keys()):
        parser.error(f"no section {unknown[0]}: there are {', '.join(SECTIONS)}")
    near: dict[str, Any] = {"around": options.around, "rows": options.rows}
    if options.section:
        begun = options.out.with_suffix(".begun")
        whole = run_section(
            options.section, Bench(options.target, **near), options.out, options.limit, options.first, begun
        )
        return 0 if whole else LOST
    if options.prepare:
        bench = Bench(options.prepare, only_builds=True, **near)
        compile_comparisons(Target(options.prepare))  # which a tuning begins with
        for name in (name for name in names if name not in MEASURE_BUILDING):
            run_section(name, bench, options.out or Path(os.devnull), 3600.0)
        return 0
    if options.emulate:
        out = options.out or RESULTS / "gpu-emulated.jsonl"
        out.unlink(missing_ok=True)
        with emulated():
            for name in names:
                run_section(name, Bench("nvidia/nvidia-h200", is_tiny=True, **near), out, 3600.0)
        print(tables(out, "Emulated: the numbers mean nothing"))
        return 0
    try:
        target = options.target or target_here()
        driver = driver_of(0)
    except DeviceError as error:
        print(f"gpu-check: {error}", file=sys.stderr)
        return error.exit_code
    name = re.sub(r"[^a-z0-9]+", "-", driver.name.lower()).strip("-")
    out = options.out or RESULTS / f"gpu-{name}.jsonl"
    out.unlink(missing_ok=True)
    os.environ.setdefault("AUTOSCHED_TUNE", "off")
    if options.together:
        run_together(names, Bench(target, **near), out, options.seconds)
    else:
        run_all(names, Bench(target, **near), out, options.seconds)
    capability = ".".join(map(str, driver.compute_capability))
    head = f"{driver.name}, compute capability {capability}, target {target}; {limits()}normal random numbers"
    head += f"; {datetime.date.today().isoformat()}" + (f", commit {commit()}" if commit() else "")
    text = tables(out, head)
    out.with_suffix(".md").write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

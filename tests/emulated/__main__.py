"""`make check-avx512`: builds for AVX-512, runs it all on an emulated CPU, prints and writes a table."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autosched.target import Target
from tests.emulated.cases import make_cases, save_cases
from tests.emulated.guest import LINE
from tests.emulated.machine import PACKAGES, fetch_kernel, make_cd, make_disk, run_machine, what_is_missing

RESULTS = Path(__file__).parents[2] / "benchmarks/results/avx512-emulated.md"
_NOT_RUN = (float("inf"), "it was not run")


def main(words: Sequence[str] | None = None) -> int:
    """Run it; 0 where every case gave what it has to."""
    options = _parser().parse_args(words)
    if missing := what_is_missing():
        print(f"not installed: {', '.join(missing)}\napt-get install --no-install-recommends {PACKAGES}")
        return 2
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder / "cases", ignore_errors=True)
    target = Target(f"llvm -mcpu={options.mcpu}")
    started = time.monotonic()
    rows = save_cases(folder / "cases", make_cases(target, re.compile(options.only).search))  # type: ignore[arg-type]
    print(f"{len(rows)} cases built in {time.monotonic() - started:.0f} s", flush=True)
    make_cd(folder, fetch_kernel(folder / "kernel"))
    make_disk(folder, folder / "cases")
    started = time.monotonic()
    report = Report(rows)
    for line in run_machine(folder, options.cpu, options.limit):
        if options.verbose or not line.startswith(LINE):
            print(line, flush=True)
        report.take(line)
    text = report.text(options.cpu, options.mcpu, time.monotonic() - started)
    print(text)
    if options.save and not options.only:
        RESULTS.write_text(text + "\n")
    return 1 if report.failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.emulated", description=__doc__)
    parser.add_argument("--only", default="", help='a regular expression: "kernels: dense", "networks"; else all')
    parser.add_argument("--mcpu", default="x86-64-v4", help="what is built for")
    parser.add_argument("--cpu", default="corei7_skylake_x", help="Bochs's CPU model: see `bochs -help cpu`")
    parser.add_argument("--folder", type=Path, default=Path("build/emulated"), help="for the kernel and the disk")
    parser.add_argument("--limit", type=float, default=3600, help="seconds that the machine may run")
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}, where all was run")
    parser.add_argument("-v", "--verbose", action="store_true", help="print every case as it ends")
    return parser


class Report:
    """What the machine said of each case."""

    def __init__(self, rows: Sequence[dict[str, Any]]):
        self.rows = [row for row in rows if not row["left_out"]]
        self.left_out = [f"{row['group']}: {row['name']}" for row in rows if row["left_out"]]
        self.said: dict[int, tuple[float, str]] = {}  # case -> error, note
        self.cpu: Sequence[str] = ("", "", "")

    def take(self, line: str) -> None:
        """Read a line of the console."""
        if line.startswith("cpu\t"):
            self.cpu = line.split("\t")[1:]
        elif line.startswith(LINE):
            number, error, note = line.split("\t")[1:4]
            self.said[int(number)] = float(error), note

    @property
    def failed(self) -> list[str]:
        """A line for each case that is wrong or was not run."""
        found = []
        for row in self.rows:
            error, note = self.said.get(row["number"], _NOT_RUN)
            if not error <= row["limit"]:
                found.append(f"{row['group']}: {row['name']}: error {error:.1e}, at most {row['limit']:.0e}; {note}")
        return found

    def text(self, cpu: str, mcpu: str, taken_s: float) -> str:
        """The table."""
        groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in self.rows:
            groups[row["group"]].append(row)
        lines = [
            f"# Code for {mcpu}, run on an emulated CPU",
            "",
            f"Bochs's {cpu} ({self.cpu[0]}; for LLVM {self.cpu[1]}), {_commit()}. `make check-avx512` writes this.",
            f"{len(self.rows)} cases, {len(self.failed)} wrong; {taken_s / 60:.0f} minutes on the emulated machine.",
            "",
            "Errors are by the largest value that is expected (at least 1); those of functions by each value.",
            "",
            "| group | cases | wrong | largest error | of | allowed |",
            "|---|---|---|---|---|---|",
        ]
        wrong = {line.split(": error")[0] for line in self.failed}
        for group, rows in groups.items():
            n_wrong = sum(f"{group}: {row['name']}" in wrong for row in rows)
            errors = [(self.said.get(row["number"], _NOT_RUN)[0], row["name"]) for row in rows]
            worst, name = max(errors)
            limits = ", ".join(f"{limit:.0e}" for limit in sorted({row["limit"] for row in rows}))
            lines.append(f"| {group} | {len(rows)} | {n_wrong} | {worst:.1e} | {name} | {limits} |")
        if self.left_out:
            what = "left out, as Bochs refuses gathers with index registers 16 to 31"
            lines += ["", f"{len(self.left_out)} {what}: {', '.join(self.left_out)}."]
        return "\n".join([*lines, *(["", "Wrong:", ""] if self.failed else []), *(f"- {x}" for x in self.failed)])


def _commit() -> str:
    words = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=Path(__file__).parent)
    return f"commit {done.stdout.strip()}" if done.returncode == 0 else "no commit"


if __name__ == "__main__":
    sys.exit(main())

"""`make check-avx512`, `make check-arm`: builds for a CPU, runs it all on an emulated one, prints and writes a table.

AVX-512 runs on a machine that Bochs emulates, and AArch64 in processes that QEMU translates.
"""

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
from tests.emulated.bochs import Bochs
from tests.emulated.cases import make_cases, save_cases
from tests.emulated.guest import LINE
from tests.emulated.qemu import Qemu

RESULTS = Path(__file__).parents[2] / "benchmarks/results"
EMULATORS = {"x86_64": Bochs, "aarch64": Qemu}
_NOT_RUN = (float("inf"), "it was not run")


def main(words: Sequence[str] | None = None) -> int:
    """Run it; 0 where every case gave what it has to."""
    options = _parser().parse_args(words)
    target = Target(options.target)
    folder: Path = options.folder / target.architecture
    emulator = EMULATORS[target.architecture](folder, options.cpu)
    if missing := emulator.missing():
        print(f"not installed: {', '.join(missing)}\n{emulator.install}")
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder / "cases", ignore_errors=True)
    started = time.monotonic()
    rows = save_cases(folder / "cases", make_cases(target, re.compile(options.only).search))  # type: ignore[arg-type]
    print(f"{len(rows)} cases built in {time.monotonic() - started:.0f} s", flush=True)
    emulator.prepare(folder / "cases")
    started = time.monotonic()
    report = Report(rows)
    for line in emulator.run(options.limit):
        if options.verbose or not line.startswith(LINE):
            print(line, flush=True)
        report.take(line)
    text = report.text(emulator.name, target.mcpu, time.monotonic() - started)
    print(text)
    if options.save and not options.only:
        (RESULTS / f"{emulator.table}-emulated.md").write_text(text + "\n")
    return 1 if report.failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.emulated", description=__doc__)
    parser.add_argument("--only", default="", help='a regular expression: "kernels: dense", "networks"; else all')
    parser.add_argument("--target", default="llvm -mcpu=x86-64-v4", help="what is built for")
    parser.add_argument("--cpu", default="", help="the emulator's CPU model, if not its usual one")
    parser.add_argument("--folder", type=Path, default=Path("build/emulated"), help="for what the emulator needs")
    parser.add_argument("--limit", type=float, default=3600, help="seconds that the machine may run")
    parser.add_argument("--save", action="store_true", help="write the table, where all was run")
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

    def text(self, emulator: str, mcpu: str, taken_s: float) -> str:
        """The table."""
        groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in self.rows:
            groups[row["group"]].append(row)
        lines = [
            f"# Code for {mcpu}, run on an emulated CPU",
            "",
            f"{emulator} ({self.cpu[0]}; for LLVM {self.cpu[1]}), {_commit()}. `python -m tests.emulated` writes this.",
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

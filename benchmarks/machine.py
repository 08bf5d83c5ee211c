"""What a table of measurements says of where it was made, and where tables are kept."""

from __future__ import annotations

import datetime
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from autosched.target import Target

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("numba", "llvmlite", "onnxruntime", "openvino", "torch", "numpy")


@dataclass
class Table:
    """A table with a title that names its bar, and notes below it."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def markdown(self) -> str:
        lines = [f"### {self.title}", "", f"| {' | '.join(self.columns)} |", f"|{'---|' * len(self.columns)}"]
        lines += [f"| {' | '.join(row)} |" for row in self.rows]
        return "\n".join([*lines, *([""] if self.notes else []), *(f"- {note}" for note in self.notes)])


def versions() -> str:
    """The versions of the packages that the tables compare."""
    found = []
    for package in PACKAGES:
        try:
            found.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def commit() -> str:
    """The commit of the sources, with a mark where they have been changed since; "" outside of a repository."""
    folder = Path(__file__).parent
    try:
        command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def describe() -> str:
    """CPU, caches, Python, date, commit and versions in one line."""
    f = Target("cpu").fingerprint()
    caches = f"L1 {f.l1_bytes // 1024} KiB, L2 {f.l2_bytes // 1024} KiB, L3 {f.l3_bytes // 1024} KiB"
    return (
        f"{f.vendor} {f.model_name}, {f.isa_level}, {f.cores} cores, {caches}; Python {platform.python_version()}; "
        f"{datetime.date.today().isoformat()}; commit {commit() or 'unknown'}; {versions()}"
    )


def result_file(suite: str, threads: int | None = None) -> Path:
    """Where a suite's table of this kind of machine is kept; `threads` of suites that run with one number of them."""
    target = Target("cpu")
    found = target.fingerprint()
    kind = "-amx" if "amx-tile" in target.features else "-intel" if found.vendor == "GenuineIntel" else ""
    if target.mcpu == "znver4":  # 512 bits in two halves; the tables of AMD's without a mark are of Zen 3 and Zen 5
        kind = "-zen4"
    end = "" if threads is None else f"-{threads}t"
    return RESULTS / f"{suite}-{found.isa_level}{kind}{end}.md"


def write(path: Path, command: str, tables: Sequence[Table]) -> None:
    """Write tables under the machine's description and the command that made them."""
    path.parent.mkdir(exist_ok=True)
    parts = [describe(), f"`{command}`", *(table.markdown() for table in tables)]
    path.write_text("\n\n".join(parts) + "\n")

"""Reports to look at, made when the site is built, of whole spaces as `python -m benchmarks.spaces` wrote them."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
SHOWN = ("dense-a", "conv-a", "conv-c")


def on_files(files: Files, *, config: Any) -> Files:
    """Add a report for each space, and the page that lists them; mkdocs calls it."""
    lines = [
        "# Reports",
        "",
        "`autosched logs report` writes such a page, which opens from disk. Each of these shows all configurations",
        "of a kernel, measured in order, the default first. A tuning tries a small part of them, and compares the best",
        "with the default; here nobody has named a winner. The times come with the repository (`benchmarks/spaces`).",
        "",
    ]
    for name in SHOWN:
        title, page = report(ROOT / "benchmarks" / "spaces" / f"{name}.csv.gz")
        files.append(File.generated(config, f"gallery/{name}.html", content=page))
        lines.append(f"- [{title}]({name}.html)")
    files.append(File.generated(config, "gallery/index.md", content="\n".join(lines) + "\n"))
    return files


def report(path: Path) -> tuple[str, str]:
    """What was measured, and the page."""
    sys.path.insert(0, str(ROOT))  # the recorded spaces are in benchmarks/, which is not installed
    from autosched.driver.build.choose import make_task
    from autosched.records import RecordFilter, open_store
    from autosched.records.record import make_record
    from autosched.records.report import make_document, make_page
    from autosched.target import Target
    from benchmarks.spaces.__main__ import SPACES

    comment, rows = read(path)
    space = SPACES[path.name.partition(".")[0]]
    task = make_task(space.make(), Target("llvm -mcpu=x86-64-v3 -num-cores=1"), name=space.kernel)
    device = dataclasses.replace(
        task.target.fingerprint(), model_name="AMD EPYC", vendor="AuthenticAMD"
    )  # says `comment`
    made = [make_record(task, trial, is_default=not i) for i, trial in enumerate(trials(space.template, rows))]
    with (
        tempfile.TemporaryDirectory() as folder,
        open_store(Path(folder) / "records.db", origin=f"benchmarks/spaces/{path.name}") as store,
    ):
        store.add([dataclasses.replace(record, device=device, host="", time=1e-6 * i) for i, record in enumerate(made)])
        return comment, make_page(make_document(store, RecordFilter(), weights=None))


def read(path: Path) -> tuple[str, list[dict[str, str]]]:
    """The first line of a recorded space, which says what it is, and its rows."""
    first, *lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    return first.lstrip("# "), list(csv.DictReader(lines))


def trials(template: str, rows: Sequence[dict[str, str]]) -> list[Any]:
    """The rows as trials of a template."""
    from autosched.space import Config
    from autosched.task import Measurement, Status, Trial

    found = []
    for row in rows:
        time_ms, status = row.pop("time_ms"), row.pop("status")
        knobs = {name: int(value) if value.lstrip("-").isdigit() else value for name, value in row.items()}
        ok = Measurement(Status.OK, (1e-3 * float(time_ms),)) if status == "ok" else None
        measured = ok or Measurement(Status.BUILD_ERROR if status == "compile" else Status.CRASH, error=status)
        found.append(Trial(Config(template, knobs), measured))
    return found

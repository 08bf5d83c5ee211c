"""`autosched logs report`: one page of HTML that opens from disk."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autosched.cli.common import Common, make_command
from autosched.cli.logs_common import open_database, with_filter
from autosched.cli.output import Column, Table, count, say, show, size
from autosched.cli.paths import check_output
from autosched.cli.values import Count
from autosched.errors import UsageError

if TYPE_CHECKING:
    from autosched.records import RecordFilter
    from autosched.records.sql import SqlStore

COLUMNS = (Column("file", "file"), Column("n_tasks", "tasks", right=True), Column("size_bytes", "size", size))


@make_command(
    "report", example="autosched logs report -o report.html\nautosched logs report --model model.onnx --db tuned.db"
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), default="report.html", show_default=True, help="File to write."
)
@click.option("--model", type=click.Path(path_type=Path), help="Weigh tasks by this model, and show kernels' sources.")
@click.option("--sources", type=Count(min=0), default=3, show_default=True, help="With --model: of so many tasks.")
@with_filter
def report(common: Common, chosen: RecordFilter, output: Path, model: Path | None, sources: int) -> None:
    """Write one self-contained page: tasks, convergence, knob importance, pairs of knobs, failures, sources.

    The page needs no server and asks for nothing: it can be mailed or archived.
    """
    from autosched.records.report import make_document, make_page

    with open_database(common) as store:
        check_output(output, inputs=[Path(where) for where in common.db])
        weights, texts = _of_model(common, store, model, sources) if model is not None else (None, None)
        document = make_document(store, chosen, weights=weights, sources=texts)
    page = make_page(document)
    _write(output, page)
    n_tasks, size_bytes = len(document["tasks"]), output.stat().st_size
    if common.format != "table":
        show(Table(COLUMNS, [{"file": str(output), "n_tasks": n_tasks, "size_bytes": size_bytes}]), common.format)
    say(f"{count(n_tasks, 'task')} in {output}, {size(size_bytes)}", quiet=common.is_quiet)


def _write(path: Path, text: str) -> None:
    """Write the page whole or not at all. Raises UsageError."""
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from None


def _of_model(
    common: Common, store: SqlStore, model: Path, n_sources: int
) -> tuple[dict[str, int], dict[str, dict[str, str]]]:
    """How often each workload occurs, and the sources of the heaviest tasks' winners beside their defaults'."""
    from autosched.cli.model import load_module
    from autosched.driver.settings import resolve_target, resolve_threads
    from autosched.driver.tasks import extract_tasks

    module = load_module(model, None, quiet=common.is_quiet)
    target, threads = resolve_target(common.target), resolve_threads(common.threads)
    tasks = extract_tasks(module, target, threads=threads)
    texts: dict[str, dict[str, str]] = {}
    for task in tasks:
        found = store.best(task)
        if len(texts) < n_sources and found.config is not None and not found.is_default:
            texts[task.key] = _sources(task, found.config)
    return {task.key: task.weight for task in tasks}, texts


def _sources(task: Any, winner: Any) -> dict[str, str]:
    from autosched.codegen import compile_func
    from autosched.errors import AutoschedError
    from autosched.templates import apply_config, default_config

    found = {}
    for title, config in (("Winner", winner), ("Default", default_config(task.func, task.target))):
        try:
            compiled = compile_func(apply_config(task.func, config, task.target).func, task.target, name="kernel")
            found[f"{title}: {config}"] = compiled.source
        except AutoschedError as error:
            found[f"{title}: {config}"] = error.line
    return found

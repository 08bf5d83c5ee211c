"""Records move between databases, machines and tools: the subcommands export, import and merge of `autosched logs`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autosched.cli.common import Common, make_command
from autosched.cli.logs_common import open_database, with_filter
from autosched.cli.output import Column, Table, count, say, show
from autosched.cli.paths import check_file, check_output
from autosched.errors import UsageError

if TYPE_CHECKING:
    from autosched.records import RecordFilter

FORMS = ("lines", "csv", "optuna", "package", "kernel-tuner", "t4")


@make_command(
    "export",
    example="autosched logs export best.jsonl --winners --db tuned.db\nautosched logs export o.db --to optuna\n"
    "autosched logs export tuning_logs --package\nautosched logs export caches --to kernel-tuner",
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--to",
    "form",
    type=click.Choice(FORMS),
    default="lines",
    show_default=True,
    help="JSON lines, a table, Optuna's storage, packages, or a folder of other tuners' files.",
)
@click.option("--package", is_flag=True, help="Add winners to FILE/<family>/<operator>.jsonl.")
@with_filter
def export(common: Common, chosen: RecordFilter, file: Path, form: str, package: bool) -> None:
    """Write records to FILE as JSON lines, as a table (CSV), or as an Optuna storage; whole or not at all.

    With --package, FILE is a folder of packages: the latest winners of each target family and operator, as builds read
    them from the folder that TOPHUB_LOCATION names, and as they are shipped. Kernel Tuner's cache files, which its
    dashboard opens, and T4 result files hold one task each: FILE is a folder of them.
    """
    if package or form == "package":
        _export_package(common, chosen, file)
        return
    if form in ("kernel-tuner", "t4"):
        _export_per_task(common, chosen, file, form)
        return
    with open_database(common) as store:
        check_output(file, inputs=[Path(where) for where in common.db])
        if form == "optuna":
            from autosched.records.optuna_storage import write_storage

            written = write_storage(file, store.records(chosen))
        elif form == "csv":
            from autosched.records.csv_file import write_csv

            written = write_csv(file, store.records(chosen))
        else:
            written = store.export_jsonl(file, chosen)
    if common.format != "table":
        columns = (Column("file", "file"), Column("n_records", "records"))
        show(Table(columns, [{"file": str(file), "n_records": written}]), common.format)
    say(f"{count(written, 'record')} written to {file}", quiet=common.is_quiet)


def _export_per_task(common: Common, chosen: RecordFilter, folder: Path, form: str) -> None:
    from autosched.records.kernel_tuner import to_cache
    from autosched.records.per_task import write_per_task
    from autosched.records.t4 import to_t4

    if folder.exists() and not folder.is_dir():
        raise UsageError(f"cannot write files of tasks to {folder}: it is no folder")
    with open_database(common) as store:
        files = write_per_task(folder, store.records(chosen), to_cache if form == "kernel-tuner" else to_t4)
    if common.format != "table":
        columns = (Column("file", "file"), Column("n_records", "records"))
        show(Table(columns, [{"file": str(p), "n_records": n} for p, n in files.items()]), common.format)
    say(
        f"{count(sum(files.values()), 'configuration')} in {count(len(files), 'file')} of {folder}",
        quiet=common.is_quiet,
    )


def _export_package(common: Common, chosen: RecordFilter, folder: Path) -> None:
    from autosched.records.package import write_package

    if folder.exists() and not folder.is_dir():
        raise UsageError(f"cannot write packages to {folder}: it is no folder")
    with open_database(common) as store:
        files = write_package(folder, store.records(replace(chosen, winners_only=True)))
    if common.format != "table":
        columns = (Column("file", "file"), Column("n_records", "records"))
        show(Table(columns, [{"file": str(p), "n_records": n} for p, n in files.items()]), common.format)
    for path, n in files.items():
        say(f"{count(n, 'winner')} in {path}", quiet=common.is_quiet)
    if not files:
        say("no winners: nothing written", quiet=common.is_quiet)


IMPORT_COLUMNS = (
    Column("file", "file"),
    Column("n_read", "read", right=True),
    Column("n_added", "added", right=True),
    Column("n_refused", "refused", right=True),
)


@make_command("import", example="autosched logs import best.jsonl --db tuned.db\nautosched logs import autotvm.log")
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, required=True)
def import_files(common: Common, files: tuple[Path, ...]) -> int:
    """Add the records of FILES: JSON lines, AutoTVM's logs (version 0.2), Kernel Tuner's caches, T4 result files.

    Lines that cannot be read are named and left out (exit code 1). What other tuners have found is kept and shown; a
    build does not use it.
    """
    refused, rows = 0, []
    for file in files:
        check_file(file)
    with open_database(common, write=True) as store:
        for file in files:
            report = store.import_log(file)
            refused += len(report.refused)
            rows.append(
                {
                    "file": str(file),
                    "n_read": report.read,
                    "n_added": report.added,
                    "n_refused": len(report.refused),
                }
            )
            say(str(report), quiet=common.is_quiet and not report.refused)
    if common.format != "table":
        show(Table(IMPORT_COLUMNS, rows), common.format)
    return 1 if refused else 0


@make_command("merge", example="autosched logs merge a.db b.jsonl --db all.db")
@click.argument("sources", nargs=-1, required=True)
def merge(common: Common, sources: tuple[str, ...]) -> int:
    """Add all records of other databases (files, folders, URLs) and logs to the one of --db.

    Records are known by their content: a merge done twice adds nothing, and the order of merges does not matter.
    """
    from autosched.records import open_store
    from autosched.records.places import is_url, shown

    refused, rows = 0, []
    for source in sources:
        if not is_url(source) and not Path(source).is_dir():
            check_file(Path(source))
    with open_database(common, write=True) as store:
        for source in sources:
            if _is_log(source):
                report = store.import_log(Path(source))
                added, read, n_refused = report.added, report.read, len(report.refused)
                say(f"{source}: {report}", quiet=common.is_quiet and not report.refused)
            else:
                with open_store(source, write=False) as other:
                    added, read, n_refused = store.merge(other), other.count(), 0
                say(f"{shown(source)}: {count(read, 'record')}, {added} added", quiet=common.is_quiet)
            refused += n_refused
            rows.append({"file": shown(source), "n_read": read, "n_added": added, "n_refused": n_refused})
    if common.format != "table":
        show(Table(IMPORT_COLUMNS, rows), common.format)
    return 1 if refused else 0


def _is_log(source: str) -> bool:
    from autosched.records.places import is_url

    return not is_url(source) and source.endswith((".jsonl", ".json", ".log")) and not Path(source).is_dir()

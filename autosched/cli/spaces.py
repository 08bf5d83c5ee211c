"""`autosched spaces`: what a search may choose from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autosched.cli.common import Common, make_command
from autosched.cli.groups import SuggestingGroup
from autosched.cli.output import Column, Row, Table, say, show
from autosched.errors import UsageError
from autosched.printable import printable
from autosched.target import Target

if TYPE_CHECKING:
    from autosched.json_types import Json, JsonObject
    from autosched.space import ConfigSpace
    from autosched.space.toml import SpaceFile

SHOWN = 24  # candidates of a knob in a text table


@click.group(
    "spaces",
    cls=SuggestingGroup,
    epilog="\b\nExample:\n  autosched spaces list"
    '\n  autosched spaces show matmul --workload "M=128 N=256 K=784 batch=1"'
    "\n  autosched spaces check my_spaces/cpu/matmul.toml",
    context_settings={"help_option_names": ["-h", "--help"]},
)
def command() -> None:
    """Look at the search spaces: knobs, candidates, constraints, and how many configurations are valid."""


LIST_COLUMNS = (
    Column("template", "template"),
    Column("knobs", "knobs", right=True),
    Column("constraints", "constraints", right=True),
    Column("values", "needs", ", ".join),
    Column("file", "file"),
)

KNOB_COLUMNS = (
    Column("name", "knob"),
    Column("candidates", "candidates", lambda values: _some(values)),
    Column("default", "default"),
    Column("notes", "notes"),
)


@make_command("list", example="autosched spaces list --spaces my_spaces")
@click.option(
    "--spaces", type=click.Path(path_type=Path), metavar="DIR", help="Search spaces that come before the project's."
)
def list_command(common: Common, spaces: Path | None) -> int:
    """List the templates that have a search space, and the files that are used."""
    from autosched.space import check_space_file, find_space, list_spaces, use_spaces

    with use_spaces(spaces):
        kind = Target(common.target).backend
        files = [check_space_file(find_space(kind, name)) for name in list_spaces(kind)]
    show(Table(LIST_COLUMNS, [_file_row(file) for file in files]), common.format)
    return 0


@make_command("show", example='autosched spaces show matmul --workload "M=128 N=256 K=784 batch=1"')
@click.argument("template")
@click.option("--workload", metavar="TEXT", help='Sizes of the loops: "M=128 N=256 K=784".')
@click.option(
    "--spaces", type=click.Path(path_type=Path), metavar="DIR", help="Search spaces that come before the project's."
)
def show_command(common: Common, template: str, workload: str | None, spaces: Path | None) -> int:
    """Show the knobs of TEMPLATE with their candidates, its constraints, and how many configurations are valid.

    Without --workload the candidates are shown as the file has them.
    """
    from autosched.space import check_space_file, find_space, use_spaces

    with use_spaces(spaces):
        file = check_space_file(find_space(Target(common.target).backend, template))
    _show(file, common, workload)
    return 0


@make_command("check", example="autosched spaces check my_spaces/cpu/matmul.toml")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--workload", metavar="TEXT", help='Sizes of the loops, to count: "M=128 N=256 K=784".')
def check_command(common: Common, file: Path, workload: str | None) -> int:
    """Check FILE: its keys, expressions and names; with --workload also its candidates and its count."""
    from autosched.space import check_space_file

    checked = check_space_file(file)
    _show(checked, common, workload)
    say(f"{file}: no mistake found", quiet=common.is_quiet)
    return 0


for _one, _text in (
    (list_command, "List the templates that have a search space."),
    (show_command, "Show knobs, candidates, constraints and their count."),
    (check_command, "Check a file of a search space."),
):
    _one.short_help = _text
    command.add_command(_one)


def _show(file: SpaceFile, common: Common, workload: str | None) -> None:
    if workload is None:
        rows = [_entry_row(name, entry) for name, entry in file.knobs.items()]
        summary: JsonObject = {"template": file.template, "needs": list(file.values), "file": str(file.path)}
        constraints = [entry["require"] for entry in file.document.get("constraint", [])]
    else:
        space = _space(file, common.target, workload)
        described = space.describe()
        rows = [{"name": name, "candidates": k["values"], **k} for name, k in described["knobs"].items()]
        summary = {key: described[key] for key in ("template", "values", "valid", "valid_is_exact", "combinations")}
        constraints = [entry["require"] for entry in described["constraints"]]
    summary["constraints"] = constraints
    show(Table(KNOB_COLUMNS, rows, title=f"{file.template}: {file.path}", summary=summary), common.format)
    if common.format == "table":
        _say_counts(summary, constraints)


def _say_counts(summary: Mapping[str, Json], constraints: list[str]) -> None:
    for text in constraints:
        click.echo(printable(f"  requires {text}"))
    if "valid" in summary:
        about = "" if summary["valid_is_exact"] else "about "
        click.echo(f"{about}{summary['valid']:,} of {summary['combinations']:,} configurations are valid")
    else:
        click.echo(f"needs {printable(', '.join(summary['needs']))}; give them with --workload to count")


def _space(file: SpaceFile, target: str, workload: str) -> ConfigSpace:
    from autosched.space.toml import make_space

    return make_space(file, {**_facts(Target(target)), **parse_sizes(workload)})


def _facts(target: Target) -> dict[str, int]:
    """What spaces read of a device and of float32."""
    if target.is_cpu:
        return {"lanes": target.lanes("float32"), "registers": target.num_registers, "tile_words": 0}
    gpu = target.gpu
    return {
        "bytes": 4,
        "warp": gpu.warp_size,
        "most_threads": gpu.max_threads_per_block,
        "shared_bytes": gpu.max_shared_memory_per_block,
        "registers": gpu.registers_per_sm,
        "sm_count": gpu.sm_count,
        "asynchronous": gpu.compute_capability >= (8, 0),
    }


def parse_sizes(text: str) -> dict[str, int]:
    """Read "M=128 N=256, K=784" as sizes by name. Raises UsageError for anything else."""
    sizes: dict[str, int] = {}
    for part in text.replace(",", " ").split():
        name, _, number = part.partition("=")
        if not name.isidentifier() or not number.isdigit():
            raise UsageError(f"'{part}' is no size", hint='write sizes as in "M=128 N=256 K=784"')
        sizes[name] = int(number)
    return sizes


def _file_row(file: SpaceFile) -> Row:
    return {
        "template": file.template,
        "knobs": len(file.knobs),
        "constraints": len(file.document.get("constraint", [])),
        "values": list(file.values),
        "file": str(file.path),
    }


def _entry_row(name: str, entry: Mapping[str, object]) -> Row:
    sources = {key: value for key, value in entry.items() if key not in ("default", "notes")}
    text = ", ".join(f"{key} {value}" for key, value in sources.items())
    return {"name": name, "candidates": text, "default": entry.get("default"), "notes": entry.get("notes", "")}


def _some(values: Any) -> str:
    if isinstance(values, str):
        return values
    texts = ["x".join(map(str, value)) if isinstance(value, tuple) else str(value) for value in values]
    return " ".join(texts[:SHOWN]) + (f" … ({len(texts)} in all)" if len(texts) > SHOWN else "")

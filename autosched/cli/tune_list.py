"""`autosched tune --list`: a model's tasks, at one shape or at each that stands for a range of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autosched.cli.common import Common
from autosched.cli.model import Shapes, load_module
from autosched.cli.output import Column, Table, milliseconds, percent, show
from autosched.cli.own import NO_SHAPES, list_own, own_function, refuse_precision
from autosched.cli.tune_flags import SearchFlags
from autosched.cli.waiting import Waiting
from autosched.errors import UsageError
from autosched.runtime.size_expr import format_shapes

if TYPE_CHECKING:
    from autosched.json_types import JsonObject

COLUMNS = (
    Column("index", "task", right=True),
    Column("name", "workload"),
    Column("weight", "×", right=True),
    Column("share", "share", percent, right=True),
    Column("default_s", "default ms", milliseconds, right=True),
    Column("roofline_s", "roofline ms", milliseconds, right=True),
    Column("peak_share", "of peak", percent, right=True),
    Column("best_s", "best ms", milliseconds, right=True),
    Column("expected_gain", "est. gain", percent, right=True),
    Column("templates", "templates", ", ".join),
    Column("configs", "configurations", lambda count: f"{count:,}", right=True),
    Column("record", "record"),
)


def show_tasks(common: Common, model: Path, points: Sequence[Shapes], search: SearchFlags, inputs: Path | None) -> None:
    """Print the tasks of a model, of one with several shapes at each of them; nothing is stored."""
    if (own := own_function(model, inputs)) is not None:
        if points:
            raise UsageError("--shapes is for models", hint=NO_SHAPES)
        refuse_precision(search.precision)
        show(Table(COLUMNS, list_own(own, common, inputs)), common.format)
        return
    if len(points) < 2:
        show(Table(COLUMNS, _rows(common, model, points[0] if points else None, search)), common.format)
        return
    rows = [{"shapes": format_shapes(at), **row} for at in points for row in _rows(common, model, at, search)]
    show(Table((Column("shapes", "at"), *COLUMNS), rows), common.format)


def _rows(common: Common, model: Path, shapes: Shapes | None, search: SearchFlags) -> list[JsonObject]:
    module = load_module(model, shapes, quiet=common.is_quiet)
    from autosched import driver

    at = f" at {format_shapes(shapes)}" if shapes else ""
    with Waiting(f"finding the tasks of {model.name}{at}", quiet=common.is_quiet):
        rows: list[JsonObject] = driver.list_tasks(
            module,
            target=common.target,
            threads=common.threads,
            records=common.db[0] if common.db else None,
            spaces=search.spaces,
            measure=True,
            precision=search.precision,
        )
    return rows

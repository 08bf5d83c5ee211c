"""`autosched inspect`: what a built model is made of, and the code of each kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autosched.cli import completion
from autosched.cli.common import Common, make_command
from autosched.cli.model import Shapes, is_built, open_executable, whole
from autosched.cli.output import Column, Table, milliseconds, percent, print_json, say, show, size
from autosched.cli.paths import check_output
from autosched.cli.values import SHAPES
from autosched.cli.waiting import Waiting
from autosched.errors import UsageError
from autosched.runtime.description import facts, kernel_rows
from autosched.runtime.dynamic import DynamicExecutable
from autosched.target import Target
from autosched.trust import is_own_file

if TYPE_CHECKING:
    from autosched.json_types import Json, JsonObject
    from autosched.runtime import Executable
    from autosched.runtime.graph_executor import Model

EXAMPLE = """
autosched inspect model.asx
autosched inspect model.onnx --time --threads 1
autosched inspect model.asx --kernel softmax --source
autosched inspect model.asx --graph model.svg
"""
CODE = ("source", "schedule", "llvm", "asm", "ptx", "sass")

COLUMNS = (Column("kernel", "kernel"), Column("calls", "×", right=True))
TIMES = (Column("seconds", "ms", milliseconds, right=True), Column("share", "share", percent, right=True))
CHOICE = (
    Column("computes", "computes", lambda names: _shortened(", ".join(names))),
    Column("template", "template"),
    Column("origin", "configuration from"),
    Column("trust", "trust"),
)
KNOBS = Column("knobs", "configuration", lambda knobs: " ".join(f"{k}={v}" for k, v in knobs.items()))
DEVICE = (
    Column("registers", "registers", right=True),
    Column("shared_bytes", "shared", size, right=True),
    Column("occupancy", "occupancy", percent, right=True),
)
MORE = (Column("workload", "workload"), Column("code_bytes", "code", size, right=True))


@make_command("inspect", example=EXAMPLE)
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--kernel",
    "name",
    metavar="NAME",
    shell_complete=completion.kernels,
    help="Show one kernel; with one of the next flags its code alone.",
)
@click.option("--source", is_flag=True, help="The Numba code that was generated.")
@click.option("--schedule", is_flag=True, help="The scheduled loops, as TVMScript.")
@click.option("--llvm", is_flag=True, help="LLVM IR after optimisation.")
@click.option("--asm", is_flag=True, help="Assembly.")
@click.option("--ptx", is_flag=True, help="PTX of a GPU's kernel.")
@click.option("--sass", is_flag=True, help="Machine code of a GPU's kernel, as NVIDIA's nvdisasm shows it.")
@click.option(
    "--variant", default="", metavar="NAME", help="Of an artifact for several targets the one of this name: sm_90a."
)
@click.option(
    "--time/--no-time",
    "timed",
    default=None,
    help="Run the model, and show each kernel's time and share (default: where it runs here and the file is yours).",
)
@click.option("--graph", type=click.Path(path_type=Path), help="Write a drawing of the graph: .svg or .html.")
@click.option("--shapes", type=SHAPES, help='Shapes of dynamic inputs: "x:1x3x224x224".')
def command(
    common: Common,
    model: Path,
    name: str | None,
    source: bool,
    schedule: bool,
    llvm: bool,
    asm: bool,
    ptx: bool,
    sass: bool,
    variant: str,
    timed: bool | None,
    graph: Path | None,
    shapes: Shapes | None,
) -> None:
    """Show what a built MODEL holds: inputs, outputs, memory, kernels, the model's nodes that each computes, its time.

    A model is built first, with what the databases know. --time and --graph need one size, which --shapes gives.
    """
    forms = [form for form, is_wanted in zip(CODE, (source, schedule, llvm, asm, ptx, sass), strict=True) if is_wanted]
    if len(forms) > 1:
        raise UsageError(f"--{forms[0]} and --{forms[1]} exclude each other")
    if forms and not name:
        raise UsageError(f"--{forms[0]} is of one kernel", hint="name it with --kernel")
    if graph is not None:
        if graph.suffix.lower() not in (".svg", ".html"):
            hint = "--graph model.svg"
            raise UsageError(f"the drawing is SVG or HTML, and {graph} is named otherwise", hint=hint)
        check_output(graph, inputs=[model])
    found = open_executable(model, common, shapes, variant=variant)
    executable: Executable | DynamicExecutable
    if isinstance(found, DynamicExecutable) and (shapes or not timed and graph is None):
        executable = found
    else:
        executable = whole(found, model, takes_shapes=True)
    at_shapes: Model | None = executable if not isinstance(executable, DynamicExecutable) else None
    if isinstance(executable, DynamicExecutable) and shapes:
        at_shapes = executable.at(shapes)
    if name is not None and name not in executable.kernels:
        raise UsageError(f"no kernel '{name}'", hint=f"there are {', '.join(executable.kernels)}"[:300])
    if name is not None and forms:
        click.echo(code_of(executable, name, forms[0]))
        return
    rows = [row for row in kernel_rows(executable) if name in (None, row["kernel"])]
    if timed is None:
        timed = not variant and _may_run(executable, model)
    timed = timed and at_shapes is not None
    if timed and at_shapes is not None:
        _add_times(rows, at_shapes, model.name, common)
        rows = [row for row in rows if row["seconds"] or name is not None]
    if graph is not None and at_shapes is not None:
        from autosched.cli.graph_drawing import draw, to_page

        drawing = draw(at_shapes.graph, title=model.name)
        is_page = graph.suffix.lower() == ".html"
        graph.write_text(to_page(drawing, model.name) if is_page else drawing, encoding="utf-8")
        say(f"written to {graph}", quiet=common.is_quiet)
    device = DEVICE if any("registers" in row for row in rows) else ()
    columns = [*COLUMNS, *(TIMES if timed else ()), *CHOICE, *device, *(MORE if common.verbosity > 0 else ()), KNOBS]
    if common.format == "json":
        print_json({**facts(executable), "kernels": rows})
    else:
        if common.format == "table" and name is None:
            print("\n".join(_head(facts(executable), is_chosen=not variant and _runs_here(executable))))
        show(Table(columns, rows), common.format)


def code_of(executable: Executable | DynamicExecutable, name: str, form: str) -> str:
    """A kernel's code. Raises UsageError where it has none of this form."""
    kernel = executable.kernels[name]
    if form == "schedule":
        from autosched.script import printer
        from autosched.tir.serialize import from_json

        functions = executable.manifest.get("functions", {})
        if name not in functions:
            raise UsageError(f"kernel '{name}' carries no schedule", hint="build the model again")
        function = from_json(functions[name])
        for attr in ("autosched.trace", "autosched.config"):  # the source's first lines have them in a form to read
            function = function.without_attr(attr)
        return str(printer.script(function))
    text = str(getattr(kernel, form, ""))
    if not text:
        here = [other for other in CODE if other == "schedule" or hasattr(kernel, other)]
        raise UsageError(f"kernel '{name}' has no {form}", hint=f"it has {', '.join(here)}")
    return text


def _add_times(rows: list[JsonObject], executable: Model, name: str, common: Common) -> None:
    """Add each kernel's time in a run: 0 for blocks of a batch that these sizes do not call."""
    with Waiting(f"timing {name}", quiet=common.is_quiet):
        from autosched.driver.bench.profile import kernel_times

        times = kernel_times(executable, threads=common.threads)
    found: dict[str, float] = {}
    for called, seconds in times.items():  # "dense_64@2": two blocks at once
        kernel = called.partition("@")[0]
        found[kernel] = found.get(kernel, 0.0) + seconds
    total = math.fsum(found.values())
    for row in rows:
        seconds = found.get(row["kernel"], 0.0)
        row["seconds"], row["share"] = seconds, seconds / total
    rows.sort(key=lambda row: -row["seconds"])


def _may_run(executable: Executable | DynamicExecutable, model: Path) -> bool:
    """Whether the model's code is for this machine, and made here or in a file that nobody else could write."""
    try:
        import autosched.driver.bench.profile  # noqa: F401
    except ModuleNotFoundError:  # what measures is no part of the serving set
        return False
    return _runs_here(executable) and (not is_built(model) or is_own_file(model))


def _runs_here(executable: Executable | DynamicExecutable) -> bool:
    from autosched.runtime.variants import rank

    return rank(executable)[0] <= 0


def _head(known: Mapping[str, Json], is_chosen: bool) -> list[str]:
    """What is known of the model as a whole; `is_chosen`: its variant is the one that this machine runs."""
    lines = [
        f"{kind:8}{value['name']}: {value['dtype']}[{', '.join(map(str, value['shape']))}]"
        for kind, values in (("input", known["inputs"]), ("output", known["outputs"]))
        for value in values
    ]
    sizes = ((part, known[f"{part}_bytes"]) for part in ("weights", "arena", "code"))
    parts = (f"{part} {'as the sizes need' if found is None else size(found)}" for part, found in sizes)
    lines += [f"size    {_bounds(one)}" for one in known.get("sizes", ())]
    lines += [f"memory  {', '.join(parts)}", f"target  {Target.from_json(known['target']) if known['target'] else '–'}"]
    if beside := known.get("calls_side_by_side"):
        lines.append(f"order   {beside} of {known['calls']} calls run side by side, each on one thread")
    if known["variants"]:
        of = f"{', '.join(known['variants'])}: {known['variant']} is"
        lines.append(f"of      {of} {'what this machine runs' if is_chosen else 'shown'}")
    return [*lines, ""]


def _bounds(size: Mapping[str, Json]) -> str:
    return (
        f"{size['name']}: {size['low']} or more" if size["high"] is None else "{name}: {low} to {high}".format(**size)
    )


def _shortened(text: str, limit: int = 48) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"

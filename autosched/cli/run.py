"""`autosched run`: one run of a model on given or made-up inputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np

from autosched.cli import inputs
from autosched.cli.common import Common, make_command
from autosched.cli.late import run_late
from autosched.cli.model import Shapes, check_model, is_built, open_executable, open_whole, require_device
from autosched.cli.output import Column, Table, count, say, show
from autosched.cli.paths import check_output
from autosched.cli.remote_options import Remote, remote_session, with_remote
from autosched.cli.values import SHAPES, Count
from autosched.errors import UsageError

if TYPE_CHECKING:
    from autosched.runtime import Executable

EXAMPLE = """
autosched run model.asx -i in.npz -o out.npz
autosched run model.onnx --fill random --print-top 5
autosched run model.asx --input x=image.npy --check expected.npz
"""


@make_command("run", example=EXAMPLE)
@click.argument("model", type=click.Path(path_type=Path))
@click.option("-i", "--inputs", "archive", type=click.Path(path_type=Path), help=".npz with arrays by input name.")
@click.option("--input", "files", multiple=True, metavar="NAME=FILE.npy", help="One input; may be given again.")
@click.option("--fill", type=click.Choice(inputs.FILLS), help="Make up the inputs that are not given.")
@click.option("--seed", type=Count(min=0), metavar="S", default=0, show_default=True, help="For --fill random.")
@click.option("--shapes", type=SHAPES, help='Shapes of dynamic inputs: "x:1x3x224x224".')
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write all outputs to this .npz.")
@click.option("--print-top", type=Count(min=1), metavar="N", help="Show the N largest elements of each output.")
@click.option(
    "--check", type=click.Path(path_type=Path), help="Compare outputs with this .npz; exit code 4 if they differ."
)
@with_remote
@click.option("--checks", is_flag=True, help="Check that every access of every kernel stays inside its buffer; slow.")
@click.option(
    "--rtol",
    type=click.FloatRange(min=0),
    metavar="SHARE",
    default=1e-4,
    show_default=True,
    help="Of the largest expected value.",
)
@click.option(
    "--atol", type=click.FloatRange(min=0), metavar="ERROR", default=1e-5, show_default=True, help="Added to that."
)
def command(
    common: Common,
    model: Path,
    archive: Path | None,
    files: tuple[str, ...],
    fill: str | None,
    seed: int,
    shapes: Shapes | None,
    output: Path | None,
    print_top: int | None,
    check: Path | None,
    checks: bool,
    rtol: float,
    atol: float,
    remote: str | None,
    **tls: Path | None,
) -> None:
    """Run MODEL (an artifact or anything that `build` takes) once. Without any input option the inputs are random."""
    if not (rtol >= 0 and atol >= 0):  # not a number is neither
        raise UsageError("--rtol and --atol are numbers from 0 on")
    if remote and checks:
        raise UsageError("--checks runs on this machine", hint="leave out --remote")
    check_model(model)
    if output:
        read = [archive, check, *(Path(text.rpartition("=")[2]) for text in files)]
        check_output(output, inputs=[model, *filter(None, read)])
    inputs.check_given(archive, files, check)
    given: inputs.Given = {"archive": archive, "files": files, "fill": fill, "seed": seed}
    with remote_session(remote, **tls) as there:
        outputs = (
            _run_here(model, common, shapes, checks, given)
            if there is None
            else _run_there(there, model, common, shapes, given)
        )
    if output:
        inputs.write_arrays(output, outputs)
        say(f"{count(len(outputs), 'output')} written to {output}", quiet=common.is_quiet)
    if print_top:
        show(_top_table(outputs, print_top), common.format)
    if not print_top and (common.format != "table" or not (output or check)):
        show(_summary_table(outputs), common.format)
    if check:
        errors = inputs.compare(outputs, check, rtol, atol)
        say(f"outputs agree with {check}: {errors}", quiet=common.is_quiet)


def _run_here(
    model: Path, common: Common, shapes: Shapes | None, checks: bool, given: inputs.Given
) -> dict[str, np.ndarray]:
    from autosched.runtime import Executable

    def take(wanted: inputs.Wanted) -> None:
        inputs.check_files(wanted, archive=given["archive"], files=given["files"], fill=given["fill"])

    if not is_built(model):
        require_device(common.target)
    executable = open_executable(model, common, shapes, checks, take)
    if not isinstance(executable, Executable):
        return run_late(executable, shapes=shapes, **given)
    ranges = executable.manifest.get("input_ranges", {})
    data = inputs.collect_inputs(wanted_inputs(executable), ranges=ranges, **given)
    return run_once(executable, data, common.threads)


def _run_there(
    there: Remote, model: Path, common: Common, shapes: Shapes | None, given: inputs.Given
) -> dict[str, np.ndarray]:
    """Run on a remote device; a model is built for that here, an artifact is sent as it is."""
    from autosched.rpc.models import RemoteModel
    from autosched.runtime import GraphModule

    if is_built(model) and not shapes:
        found = RemoteModel(there.session, model)
    else:
        found = RemoteModel(there.session, open_whole(model, there.common(common), shapes))
    module = GraphModule(found.executor(common.threads))
    for name, array in inputs.collect_inputs(found.inputs, ranges=found.ranges, **given).items():
        module.set_input(name, array)
    module.run()
    return {name: module.get_output(i).numpy() for i, name in enumerate(found.outputs)}


def wanted_inputs(executable: Executable) -> dict[str, tuple[tuple[int, ...], str]]:
    """Give shape and dtype of each input by name."""
    values = (executable.graph.values[i] for i in executable.graph.inputs)
    return {value.name: (value.shape, value.dtype) for value in values}


def run_once(executable: Executable, data: Mapping[str, np.ndarray], threads: int | None) -> dict[str, np.ndarray]:
    """Run on inputs by name; returns the outputs by name."""
    from autosched.runtime import GraphModule

    module = GraphModule(executable, threads=threads)
    for name, array in data.items():
        module.set_input(name, array)
    module.run()
    names = [executable.graph.values[i].name for i in executable.graph.outputs]
    return {name: module.get_output(i).numpy() for i, name in enumerate(names)}


def _top_table(outputs: Mapping[str, np.ndarray], count: int) -> Table:
    columns = (
        Column("output", "output"),
        Column("index", "index", lambda index: ",".join(map(str, index)), right=True),
        Column("value", "value", lambda value: f"{value:.6g}", right=True),
    )
    rows = [
        {"output": name, "index": index, "value": value}
        for name, array in outputs.items()
        for index, value in inputs.largest(array, count)
    ]
    return Table(columns, rows)


def _summary_table(outputs: Mapping[str, np.ndarray]) -> Table:
    columns = (
        Column("output", "output"),
        Column("shape", "shape", lambda shape: "x".join(map(str, shape)) or "scalar"),
        Column("dtype", "dtype"),
        *(Column(key, key, lambda value: f"{value:.6g}", right=True) for key in ("min", "mean", "max")),
    )
    rows = []
    for name, array in outputs.items():
        numbers = array.astype(np.float64)
        sizes = {"min": numbers.min(), "mean": numbers.mean(), "max": numbers.max()} if array.size else {}
        rows.append(
            {"output": name, "shape": array.shape, "dtype": str(array.dtype)} | {k: float(v) for k, v in sizes.items()}
        )
    return Table(columns, rows)

"""`autosched warm`: kernels of models are compiled ahead, so that later builds find them."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Mapping
from pathlib import Path

import click

from autosched.cli.common import Common, make_command
from autosched.cli.model import check_source
from autosched.cli.output import Column, Table, say, show
from autosched.cli.own import refuse_function
from autosched.cli.paths import is_object
from autosched.cli.values import RANGES
from autosched.cli.waiting import compiling
from autosched.errors import UsageError

EXAMPLE = """
autosched warm resnet50.onnx bert.onnx
autosched warm model.onnx --shapes "x:1..512x784"
autosched warm --standard && autosched cache pack kernels.zip
"""

# Networks that the `onnx` package carries with weights of one value each. Its others have constants of 150 MB and more.
STANDARD = ("densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet")

COLUMNS = (
    Column("model", "model"),
    Column("compiled", "kernels compiled", right=True),
    Column("build_s", "s", lambda s: f"{s:.1f}", right=True),
)


@make_command("warm", example=EXAMPLE)
@click.argument("models", type=click.Path(path_type=Path), nargs=-1)
@click.option("--standard", is_flag=True, help=f"Networks that come with onnx, too: {', '.join(STANDARD)}.")
@click.option("--shapes", type=RANGES, help="Shapes of dynamic inputs, as of `build`, for models that have them.")
@click.option(
    "--precision", type=click.Choice(["float32", "bf16", "tf32"]), help="As of `build`: bf16 kernels are other ones."
)
def command(
    common: Common,
    models: tuple[Path, ...],
    standard: bool,
    shapes: Mapping[str, tuple[int | range, ...]] | None,
    precision: str | None,
) -> int:
    """Compile the kernels of MODELS into the kernel cache; no other file is written.

    A later build of these models, and of others that have some of their layers, finds them. `autosched cache pack`
    moves them to other machines with such a CPU.
    """
    from autosched import driver
    from autosched.codegen.counters import COMPILES
    from autosched.runtime.cache import kernel_cache

    models = (*models, *(standard_models() if standard else ()))
    if not models:
        raise UsageError("no models are given", hint="give files, or --standard")
    for model in models:
        check_source(model)
        if is_object(model):
            refuse_function(model)
    if kernel_cache().folder is None or not kernel_cache().writable:
        say("the kernel cache has no folder that can be written to: nothing outlasts this command", quiet=False)
    rows = []
    for model in models:
        before, start = COMPILES.value, time.perf_counter()
        with compiling(f"building {model.name}", quiet=common.is_quiet):
            driver.build(
                model,
                target=common.target,
                records=list(common.db) or None,
                threads=common.threads,
                precision=precision,
                shapes=shapes,
            )
        rows.append({"model": str(model), "compiled": COMPILES.value - before, "build_s": time.perf_counter() - start})
    show(Table(COLUMNS, rows), common.format)
    return 0


def standard_models() -> tuple[Path, ...]:
    """The files of `STANDARD`. Raises UsageError where the onnx package is missing or carries none."""
    found = importlib.util.find_spec("onnx")
    folder = Path(found.origin).parent / "backend" / "test" / "data" / "light" if found and found.origin else None
    files = tuple(folder / f"light_{name}.onnx" for name in STANDARD) if folder else ()
    if not files or not all(file.is_file() for file in files):
        raise UsageError("--standard takes networks from the onnx package, which has none here", hint="give models")
    return files

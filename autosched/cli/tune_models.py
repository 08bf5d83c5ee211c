"""Which models `autosched tune` goes through, and the run over several of them."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autosched.cli.common import Common
from autosched.cli.measuring import Elsewhere
from autosched.cli.model import Shapes, load_module
from autosched.cli.output import say
from autosched.cli.own import NO_SHAPES, own_function, refuse_precision, tune_own
from autosched.cli.paths import is_object
from autosched.cli.progress import TuneDisplay
from autosched.cli.values import parse_shapes
from autosched.errors import AutoschedError, UsageError
from autosched.project import PROJECT_FILE, find_project_file, read_project_file
from autosched.runtime.size_expr import format_shapes

if TYPE_CHECKING:
    from autosched.driver import TuneOptions, TuneReport
    from autosched.driver.tune.several import Run
    from autosched.json_types import Json


Entry = tuple[Path, Shapes | None]  # a model and the shapes that it is tuned for


def chosen_models(
    model: Path | None, every: bool, points: Sequence[Shapes], tasks: object, only_list: bool
) -> Sequence[Entry]:
    """The models to tune, with their shapes. Raises UsageError for flags that do not go with them."""
    if len(points) > 1 and tasks is not None:
        raise UsageError("--tasks takes one shape of each input, not a range")
    if not every:
        return _one_model(model, points)
    others = {"--list": only_list, "--tasks": tasks, "MODEL": model, "--shapes": points}
    if used := [name for name, value in others.items() if value]:
        raise UsageError(f"{used[0]} and --all exclude each other")
    return project_models()


def _one_model(model: Path | None, points: Sequence[Shapes]) -> Sequence[Entry]:
    """The model that was given, at each shape to tune for. Raises click.UsageError where there is none."""
    if model is None:
        here = click.get_current_context()
        raise click.UsageError("Missing argument 'MODEL'; --all tunes what autosched.toml names", here)
    return [(model, shapes) for shapes in points] or [(model, None)]


def name_of(model: Path, shapes: Shapes | None) -> str:
    """What a model at a shape is called in tables."""
    return f"{model} {format_shapes(shapes)}" if shapes else str(model)


def run_over(common: Common, models: Sequence[Entry], options: TuneOptions) -> Run:
    """The run over several models that was killed, to be continued; else a new one."""
    from autosched.driver.tune.several import Run, killed_run
    from autosched.records import database_to_write

    names = [name_of(*entry) for entry in models]
    where = database_to_write(common.db[0] if common.db else None).where
    run = (None if options.fresh else killed_run(where, names)) or Run()
    if ended := [name for name in names if run.part(name).is_complete]:
        left = len(names) - len(ended)
        text = f"going on with the run that was ended early: {', '.join(ended)} had come to its end and is left out"
        say(f"{text}, {left} to go; --fresh tunes all of them anew", quiet=common.is_quiet)
    return run


@dataclass(frozen=True)
class TuneModels:
    """Tunes models one after the other until the user has enough; each has its share of what is left of the budget.

    run     over several models: what was spent of the budget before; None: there is one model
    inputs  arguments of the user's functions
    elsewhere  the machines that measure
    """

    common: Common
    options: TuneOptions
    run: Run | None = None
    inputs: Path | None = None
    elsewhere: Elsewhere = field(default_factory=Elsewhere)
    keep_going: bool = False

    def reports(self, models: Sequence[Entry]) -> Iterator[tuple[str, TuneReport]]:
        """Each model's name and report. Raises AutoschedError for one that cannot be tuned, if that is to end it."""
        from autosched.driver.tune.several import share

        begin, run = time.monotonic(), self.run
        n_trials = sum(part.n_trials for part in run.parts.values() if part.is_complete) if run else 0
        earlier_s = sum(part.spent_s for part in run.parts.values() if part.is_complete) if run else 0.0
        for number, entry in enumerate(models):
            name, part = name_of(*entry), self.options
            if run is not None:
                part = share(part, earlier_s + time.monotonic() - begin, n_trials, len(models) - number)
                part = dataclasses.replace(part, session=run.session(name))
            try:
                report = self._tune(*entry, part)
            except AutoschedError as error:
                if not self.keep_going:
                    raise
                say(f"{entry[0]} is left out: {error.line}")
                continue
            yield name, report
            n_trials += report.n_trials
            if run is not None:  # what an earlier run has spent on this model, the tuning itself has counted
                n_trials += run.part(name).n_trials
                earlier_s += run.part(name).spent_s
            if report.interrupted:
                break

    def _tune(self, model: Path, shapes: Shapes | None, options: TuneOptions) -> TuneReport:
        common = self.common
        own = own_function(model, self.inputs, self.elsewhere.option)
        if own is not None and shapes is not None:
            raise UsageError("--shapes is for models", hint=NO_SHAPES)
        if own is not None:
            refuse_precision(options.precision)
        module = load_module(model, shapes, quiet=common.is_quiet) if own is None else None
        display = TuneDisplay(name=name_of(Path(model.name), shapes), quiet=common.is_quiet, form=common.format)
        if own is not None:
            with display:
                return tune_own(own, common, options, self.inputs, display)
        from autosched.driver.tune.entry import tune

        with self.elsewhere.measuring(common, options) as place, display:
            return tune(module, records=common.db[0] if common.db else None, progress=display, **place)


EXAMPLE = (
    '[tune] models = ["m.onnx", {model = "d.onnx", shapes = "x:1x3x224x224"}], kernels = ["package.module:function"]'
)


def project_models(start: Path | None = None) -> list[tuple[Path, Shapes | None]]:
    """The models of the project that the folder (the current one if None) belongs to, each with its shapes.

    Its kernels, functions of `autosched.autotune`, stand behind them. Paths are relative to the file; a name such as
    "package.module:object" stays as it is.
    Raises  UsageError where there is no such file, or where it names no models.
    """
    file = find_project_file(start)
    if file is None:
        raise UsageError(f"--all reads {PROJECT_FILE}, which neither this folder nor one above it has", hint=EXAMPLE)
    section = read_project_file(file).get("tune", {})
    section = section if isinstance(section, dict) else {}
    models, kernels = section.get("models", []), section.get("kernels", [])
    if not isinstance(models, list) or not isinstance(kernels, list) or not (models or kernels):
        raise UsageError(f"{file} names no models to tune", hint=EXAMPLE)
    for kernel in kernels:
        if not isinstance(kernel, str) or not is_object(Path(kernel)):
            raise UsageError(f"{file}: a kernel is 'package.module:function', not {kernel!r:.60}", hint=EXAMPLE)
    return [*(_model(entry, file) for entry in models), *((Path(kernel), None) for kernel in kernels)]


def _model(entry: Json, file: Path) -> tuple[Path, Shapes | None]:
    match entry:
        case str() as name:
            shapes = None
        case {"model": str() as name, "shapes": str() as text}:
            try:
                shapes = parse_shapes(text)
            except ValueError as error:
                raise UsageError(f"{file}: shapes of {name}: {error}") from None
        case _:
            raise UsageError(f"{file}: a model is a text or has 'model' and 'shapes', not {entry!r:.60}", hint=EXAMPLE)
    path = Path(name)
    return (path if is_object(path) else file.parent / path), shapes

"""What a project's `autosched.toml` says for the command line: the models that `tune --all` goes through."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autosched.cli.model import Shapes
from autosched.cli.paths import is_object
from autosched.cli.values import parse_shapes
from autosched.errors import UsageError
from autosched.project import PROJECT_FILE, find_project_file, read_project_file

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


def _model(entry: Any, file: Path) -> tuple[Path, Shapes | None]:
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

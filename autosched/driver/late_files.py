"""Models in files that are compiled when they are called, for the commands."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Unpack

from autosched.driver.build.entry import BuildOptions, build
from autosched.driver.build.onnx_models import build_onnx
from autosched.driver.model_files import Ranges
from autosched.driver.settings import resolve_target
from autosched.frontend.onnx.node import RunTimeError
from autosched.frontend.stages import DataNeededError
from autosched.target.target import TargetLike


def build_late_file(
    path: Path, shapes: Ranges | None = None, *, target: TargetLike | None = None, **options: Unpack[BuildOptions]
) -> Any:
    """`build` of a file, an ONNX model as `build_onnx` does it; `options` as of `build`."""
    if path.suffix.lower() != ".onnx":
        return build(path, target=target, shapes=shapes, **options)
    return build_onnx(path, resolve_target(target), partial(build, target=target, **options), shapes)


def can_wait(error: Exception) -> bool:
    """Whether a model that was refused at import can be compiled when it is called."""
    return isinstance(error, RunTimeError | DataNeededError)

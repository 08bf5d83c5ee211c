"""What can be built: files and objects, as IRModules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autosched.errors import InvalidTypeError, UsageError
from autosched.ir import IRModule
from autosched.te import Tensor, create_prim_func
from autosched.tir import PrimFunc, Schedule


def load_model(path: str | Path, shapes: Mapping[str, tuple[int, ...]] | None = None) -> IRModule:
    """Import a model file; `shapes` fixes dynamic inputs.

    Raises  UsageError for an extension that is not known, ImportModelError for a file that cannot be imported.
    """
    path = Path(path)
    if path.suffix.lower() != ".onnx":
        raise UsageError(f"cannot import '{path.name}'", hint="models are .onnx files")
    from autosched.frontend.onnx import load_model_file

    return load_model_file(path, shapes)


def as_module(what: Any, args: Sequence[Tensor] | None = None, name: str = "main") -> IRModule:
    """An IRModule from an IRModule, a schedule, a PrimFunc, or tensors (whose order in the call `args` gives).

    Raises  TypeError for anything else.
    """
    if isinstance(what, IRModule):
        return what
    if isinstance(what, Schedule):
        return what.mod
    if isinstance(what, PrimFunc):
        return IRModule({name: what.with_attr("global_symbol", name)})
    if isinstance(what, Tensor):
        what = [what]
    if isinstance(what, Sequence) and what and all(isinstance(t, Tensor) for t in what):
        return as_module(create_prim_func(list(args or what)), name=name)
    raise InvalidTypeError(
        f"cannot build a {type(what).__name__}",
        hint="give an IRModule, a schedule, a PrimFunc or the tensors of an expression",
    )

"""`build` of an ONNX model as it is: compiled at once where its course is known, else when it is called."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autosched.driver.model_files import is_onnx_model
from autosched.driver.build.late import Build, LateModel
from autosched.ir import IRModule, walk
from autosched.relax.expr import Var
from autosched.relax.struct_info import tensor_infos
from autosched.runtime import Executable
from autosched.target import Target


def is_onnx(what: Any) -> bool:
    """Whether something is an ONNX model, or the path of one's file."""
    return is_onnx_model(what) or (isinstance(what, str | Path) and str(what).lower().endswith(".onnx"))


def build_onnx(
    what: Any, target: Target, build: Build, shapes: Mapping[str, tuple[int, ...]] | None = None
) -> Executable | LateModel:
    """A model, built.

    build   compiles a module for the target
    shapes  of inputs whose dimensions the model leaves open
    Raises  ImportModelError for what can neither be compiled nor computed by a library
    """
    from autosched.frontend.onnx.importer import from_onnx
    from autosched.frontend.onnx.model_file import read_model
    from autosched.frontend.onnx.model_inputs import with_sizes
    from autosched.frontend.onnx.node import RunTimeError

    model = with_sizes(read_model(what) if isinstance(what, str | Path) else what, shapes or {})
    try:
        if all(o.type.WhichOneof("value") in (None, "tensor_type") for o in model.graph.output) or not target.is_cpu:
            module = from_onnx(model, symbolic=False)
            if not (target.is_cpu and _has_bfloat16(module)):
                return build(module)
    except RunTimeError:
        if not target.is_cpu:
            raise
    late = LateModel(model, build, target.to_json())
    late.prepare()
    return late


def _has_bfloat16(module: IRModule) -> bool:
    variables = {x for x in walk(module["main"]) if isinstance(x, Var)}
    return any(info.dtype == "bfloat16" for v in variables for info in tensor_infos(v.struct_info))

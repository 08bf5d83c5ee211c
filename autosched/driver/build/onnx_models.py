"""`build` of an ONNX model as it is: compiled at once where its course is known, else when it is called."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from autosched.driver.build.by_data import build_by_data
from autosched.driver.build.late import LateModel
from autosched.driver.build.sized import SizedModel
from autosched.driver.build.torch_programs import Build
from autosched.driver.model_files import Ranges, is_onnx_model, split_ranges
from autosched.errors import ImportModelError
from autosched.relax.transform.bind_symbolic import symbolic_dims
from autosched.runtime import Executable
from autosched.runtime.dynamic import DynamicExecutable
from autosched.runtime.relax_vm import VMExecutable
from autosched.target import Target

if TYPE_CHECKING:
    import onnx

    from autosched.frontend.onnx.large_tensors import ModelParts

_log = logging.getLogger(__name__)


def is_onnx(what: object) -> bool:
    """Whether something is an ONNX model, or the path of one's file."""
    return is_onnx_model(what) or (isinstance(what, str | Path) and str(what).lower().endswith(".onnx"))


def build_onnx(
    what: object, target: Target, build: Build, shapes: Ranges | None = None
) -> Executable | DynamicExecutable | SizedModel | LateModel | VMExecutable:
    """A model, built: one whose kernels can all be compiled for open sizes once for all sizes.

    Others are compiled when they are called: on GPUs for each size, on CPUs node by node where their course is open.

    build   compiles a module for the target
    shapes  of inputs whose dimensions the model leaves open; ranges bound them
    Raises  ImportModelError for what can neither be compiled nor computed by a library
    """
    from autosched.frontend.onnx.importer import from_onnx
    from autosched.frontend.onnx.large_tensors import ModelParts
    from autosched.frontend.onnx.model_file import read_parts
    from autosched.frontend.onnx.model_inputs import with_names, with_sizes
    from autosched.frontend.onnx.node import RunTimeError
    from autosched.frontend.onnx.run_time import import_for_vm

    fixed, ranged = split_ranges(shapes)
    made: DynamicExecutable | SizedModel | VMExecutable | str = ""
    parts = read_parts(what) if isinstance(what, str | Path) else ModelParts(cast("onnx.ModelProto", what), {})
    model = ModelParts(with_sizes(parts.message, fixed or {}), parts.contents)
    try:
        tensors = all(o.type.WhichOneof("value") in (None, "tensor_type") for o in model.message.graph.output)
        named = ModelParts(with_names(model.message), parts.contents)
        made = _for_all_sizes(named, build, ranged) if tensors else "an output is no tensor"
        if isinstance(made, DynamicExecutable | VMExecutable) or (isinstance(made, SizedModel) and not target.is_cpu):
            return made
        if tensors or not target.is_cpu:
            built: Executable = build(from_onnx(model, symbolic=False))
            return built
    except RunTimeError:
        if not target.is_cpu:
            raise
    if (
        tensors
        and not isinstance(made, SizedModel)
        and (whole := build_by_data(partial(import_for_vm, named), build, ranged)) is not None
    ):
        return whole
    reason = made.reason if isinstance(made, SizedModel) else str(made)
    late = LateModel(model.whole(), build, target.to_json(), ranged, reason, is_open=not isinstance(made, SizedModel))
    late.prepare()
    return late


def _for_all_sizes(
    model: ModelParts, build: Build, ranged: Ranges
) -> DynamicExecutable | SizedModel | VMExecutable | str:
    """A model of which sizes are open, built for all values of them or when it is called; why not for others."""
    from autosched.frontend.onnx.importer import from_onnx

    try:
        module = from_onnx(model)
    except ImportModelError as error:
        return error.line
    if not symbolic_dims(module["main"]):
        return "inputs depend on nothing"
    made: DynamicExecutable | SizedModel | VMExecutable = build(module, shapes=ranged or None)
    if isinstance(made, VMExecutable) and made.symbolic:
        return next(iter(getattr(made.late, "reasons", {}).values()), "a loop depends on its sizes")
    return made

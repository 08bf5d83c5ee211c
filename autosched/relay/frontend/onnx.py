"""Relay's importer from ONNX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autosched.errors import refuse
from autosched.frontend.onnx import from_onnx as import_onnx
from autosched.ir import IRModule
from autosched.relay.frontend.params import named_params
from autosched.runtime import NDArray


def from_onnx(
    model: object,
    shape: Mapping[str, Sequence[int]] | None = None,
    dtype: str | Mapping[str, str] = "float32",
    opset: int | None = None,
    freeze_params: bool = True,
    convert_config: object = None,
    export_node_renamed_model_path: str | None = None,
) -> tuple[IRModule, dict[str, NDArray]]:
    """Import an ONNX model: (module, parameters).

    shape          sizes of inputs by name
    freeze_params  weights become constants and the parameters are empty; else they are parameters of `main`
    """
    refuse("from_onnx", convert_config=convert_config, export_node_renamed_model_path=export_node_renamed_model_path)
    mod = import_onnx(
        model, dict(shape or {}) or None, dtype, opset, keep_params_in_input=not freeze_params, symbolic=False
    )
    return named_params(mod)

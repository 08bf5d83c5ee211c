"""Relay's importer from PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from autosched.errors import ImportModelError, InvalidTypeError, refuse
from autosched.ir import IRModule
from autosched.relax import Var
from autosched.relay.expr import Function, GraphFunction, call
from autosched.relay.frontend.params import named_params
from autosched.runtime import NDArray

if TYPE_CHECKING:
    import torch


def from_pytorch(
    script_module: object,
    input_infos: Sequence[object],
    custom_convert_map: object = None,
    default_dtype: str = "float32",
    use_parser_friendly_name: bool = False,
    keep_quantized_weight: bool = False,
    export_renamed_c_graph_path: str | None = None,
) -> tuple[IRModule, dict[str, NDArray]]:
    """Import a PyTorch model: (module, parameters); weights are `main`'s last parameters.

    script_module  a torch.nn.Module, a traced or scripted module, or an exported program
    input_infos    (name, shape) or (name, (shape, dtype)) per input
    Raises         ImportModelError naming what cannot be imported
    """
    refuse(
        "from_pytorch", custom_convert_map=custom_convert_map, use_parser_friendly_name=use_parser_friendly_name,
        keep_quantized_weight=keep_quantized_weight, export_renamed_c_graph_path=export_renamed_c_graph_path,
    )  # fmt: skip
    inputs = [_input(info, default_dtype) for info in input_infos]
    program = _exported(script_module, inputs)
    from autosched.frontend.torch import from_exported_program

    mod = from_exported_program(program, keep_params_as_input=True, unwrap_unit_return_tuple=True)
    signature = program.graph_signature
    weights = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    own_names = [weights.get(param.name, param.name) for param in mod["main"].params[len(inputs) :]]
    return named_params(_with_names(mod, [*(name for name, _, _ in inputs), *own_names]))


def _input(info: object, dtype: str) -> tuple[str, tuple[int, ...], str]:
    if not isinstance(info, tuple | list) or len(info) != 2 or not isinstance(info[0], str):
        raise InvalidTypeError("input_infos holds (name, shape) or (name, (shape, dtype))")
    name, shape = info
    if len(shape) == 2 and isinstance(shape[1], str):
        shape, dtype = shape
    return (
        name,
        tuple(int(d) for d in shape),
        {"float": "float32", "int": "int32", "double": "float64"}.get(dtype, dtype),
    )


def _exported(model: object, inputs: Sequence[tuple[str, tuple[int, ...], str]]) -> torch.export.ExportedProgram:
    import torch

    if isinstance(model, torch.export.ExportedProgram):
        return model
    samples = tuple(torch.zeros(shape, dtype=getattr(torch, dtype)) for _, shape, dtype in inputs)
    if isinstance(model, torch.jit.ScriptModule):
        try:
            from torch._export.converter import TS2EPConverter
        except ImportError:
            raise ImportModelError(
                "this PyTorch cannot turn TorchScript into an exported program", hint="give the torch.nn.Module itself"
            ) from None
        model = TS2EPConverter(model, samples).convert().module()  # its dimensions are dynamic: export it once more
        return torch.export.export(model, samples)
    if not isinstance(model, torch.nn.Module):
        raise InvalidTypeError(f"from_pytorch takes a torch module, not a {type(model).__name__}")
    return torch.export.export(model.eval(), samples)


def _with_names(mod: IRModule, names: Sequence[str]) -> IRModule:
    """The module whose `main` has parameters of these names."""
    main: GraphFunction = mod["main"]
    params = [Var(name, old.struct_info) for name, old in zip(names, main.params, strict=True)]
    new = Function(params, call(main, params), attrs=dict(main.attrs))
    return mod.with_functions({**mod.functions, mod.get_global_var("main"): new})

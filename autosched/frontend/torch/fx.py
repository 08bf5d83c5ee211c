"""From a traced torch.fx.GraphModule to an IRModule with one function, `main`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from autosched.errors import InvalidTypeError, InvalidValueError
from autosched.frontend.torch.emitter import Value
from autosched.frontend.torch.graph import (
    CustomConverters,
    array_of,
    bound,
    make_emitter,
    map_arguments,
    operator_name,
    refuse_unsupported,
    run_converter,
)
from autosched.frontend.torch.modules import MODULES
from autosched.frontend.torch.registry import CONVERTERS
from autosched.ir.module import IRModule
from autosched.relax.expr import Constant, Tuple, Var
from autosched.relax.struct_info import TensorStructInfo

if TYPE_CHECKING:
    import torch
    from torch import fx

    from autosched.relax.struct_info import Expr


def from_fx(
    model: object,
    input_info: Sequence[tuple[Sequence[int], str]],
    *,
    keep_params_as_input: bool = False,
    unwrap_unit_return_tuple: bool = False,
    no_bind_return_tuple: bool = False,
    custom_convert_map: CustomConverters | None = None,
    default_image_layout: str = "NCHW",
) -> IRModule:
    """Import what torch.fx.symbolic_trace made. Inputs are called inp_0, inp_1, …; one output is no tuple.

    input_info            (shape, dtype) of each input
    keep_params_as_input  weights become parameters after the inputs, named after the module path and sorted by it;
                          their values are the attribute `params`
    custom_convert_map    operator or module class -> function of (graph node, Emitter) that gives an expression
    Raises  TypeError for anything but a GraphModule; ValueError for a wrong count of inputs; ImportModelError that
            lists all unsupported operators at once.
    """
    import torch

    if not isinstance(model, torch.fx.GraphModule):
        raise InvalidTypeError(
            f"from_fx takes a torch.fx.GraphModule, not a {type(model).__name__}",
            hint="trace the model with torch.fx.symbolic_trace",
        )
    if default_image_layout != "NCHW":
        raise InvalidValueError(f"default_image_layout '{default_image_layout}'", hint="PyTorch's layout is NCHW")
    importer = _Importer(model, keep_params_as_input, custom_convert_map or {})
    return importer.run(input_info, unwrap_unit_return_tuple, no_bind_return_tuple)


class _Importer:
    def __init__(self, model: fx.GraphModule, keep_params: bool, custom: CustomConverters):
        self.model, self.keep_params, self.custom = model, keep_params, custom
        self.modules = dict(model.named_modules())
        self.emitter = make_emitter()
        self.values: dict[fx.Node, Value] = {}
        self.weights: dict[int, Expr] = {}  # by the tensor's identity
        self.params: list[tuple[Var, torch.Tensor]] = []

    def run(self, input_info: Sequence[tuple[Sequence[int], str]], unwrap: bool, no_bind: bool) -> IRModule:
        self.refuse_unsupported()
        inputs = self.placeholders(input_info)
        self.load_weights()
        builder = self.emitter.builder
        with builder.function("main"):
            with builder.dataflow():
                for node in self.model.graph.nodes:
                    if node.op not in ("placeholder", "output"):
                        self.emitter.node = node.name
                        self.values[node] = self.convert(node)
                (end,) = (n for n in self.model.graph.nodes if n.op == "output")
                value = map_arguments(end.args[0], self.values.__getitem__)
                if isinstance(value, tuple | list) and len(value) == 1 and unwrap:
                    value = value[0]
                if isinstance(value, tuple | list) and no_bind:
                    result: Value = Tuple(tuple(builder.emit_output(v) for v in value))
                else:
                    result = builder.emit_output(Tuple(tuple(value)) if isinstance(value, tuple | list) else value)
            builder.emit_func_output(result, [*inputs, *(v for v, _ in self.params)])
        module = builder.get()
        if self.keep_params:
            main = module["main"].with_attr("num_input", len(inputs))
            module["main"] = main.with_attr("params", tuple(value for _, value in self.params))
        return module

    # --- before the first node -------------------------------------------------------------------------------------

    def refuse_unsupported(self) -> None:
        missing: dict[str, list[str]] = {}
        for node in self.model.graph.nodes:
            if node.op == "call_module":
                kind = type(self.modules[node.target])
                if kind.__name__ not in MODULES and kind not in self.custom and kind.__name__ not in self.custom:
                    missing.setdefault(f"torch.nn.{kind.__name__}", []).append(node.name)
            elif node.op in ("call_function", "call_method"):
                name = operator_name(node.target)
                if name not in CONVERTERS and name not in self.custom and not _is_shape_access(node):
                    missing.setdefault(name, []).append(node.name)
        refuse_unsupported(missing)

    def placeholders(self, input_info: Sequence[tuple[Sequence[int], str]]) -> list[Var]:
        nodes = [n for n in self.model.graph.nodes if n.op == "placeholder"]
        if len(nodes) != len(input_info):
            raise InvalidValueError(f"the model takes {len(nodes)} inputs, input_info has {len(input_info)}")
        inputs = []
        for i, (node, (shape, dtype)) in enumerate(zip(nodes, input_info, strict=True)):
            var = Var(f"inp_{i}", TensorStructInfo(tuple(shape), self.emitter.dtype(dtype)))
            self.values[node] = var
            inputs.append(var)
        return inputs

    def load_weights(self) -> None:
        """All parameters and buffers of the model, sorted by name, so that their order depends on nothing else."""
        named = sorted([*self.model.named_parameters(), *self.model.named_buffers()], key=lambda pair: pair[0])
        for name, tensor in named:
            array = array_of(tensor, name).copy()  # the model may be trained on
            if self.keep_params and array.dtype.kind == "f":
                var = Var(name.replace(".", "_"), TensorStructInfo(array.shape, str(array.dtype)))
                self.params.append((var, array))
                self.weights[id(tensor)] = var
            else:
                self.weights[id(tensor)] = Constant(array)

    # --- nodes -----------------------------------------------------------------------------------------------------

    def weight(self, tensor: torch.Tensor | None) -> Expr | None:
        """What a module's tensor became; None stays None."""
        if tensor is None:
            return None
        if id(tensor) not in self.weights:
            self.weights[id(tensor)] = Constant(array_of(tensor, self.emitter.node).copy())
        return self.weights[id(tensor)]

    def convert(self, node: fx.Node) -> Value:
        if node.op == "get_attr":
            return self.attribute(node.target)
        args = map_arguments(tuple(node.args), self.values.__getitem__)
        kwargs = {k: map_arguments(v, self.values.__getitem__) for k, v in node.kwargs.items()}
        if node.op == "call_module":
            module = self.modules[node.target]
            custom = self.custom.get(type(module)) or self.custom.get(type(module).__name__)
            if custom is not None:
                return bound(self.emitter, custom(node, self.emitter))
            name, extra = MODULES[type(module).__name__](module, self.weight)
            return run_converter(self.emitter, name, args, {**kwargs, **extra})
        name = operator_name(node.target)
        if name in self.custom:
            return bound(self.emitter, self.custom[name](node, self.emitter))
        if _is_shape_access(node):
            return getattr(self, f"_get_{args[1]}")(args[0])
        return run_converter(self.emitter, name, args, kwargs)

    def attribute(self, path: str) -> Value:
        value = self.model
        for part in path.split("."):
            value = getattr(value, part)
        return self.weight(value) if hasattr(value, "detach") else value

    def _get_shape(self, x: Expr) -> tuple[int, ...]:
        return self.emitter.shape(x)

    def _get_dtype(self, x: Expr) -> str:
        from autosched.frontend.torch.emitter import info_of

        return info_of(x).dtype

    def _get_device(self, x: object) -> str:
        return "cpu"


def _is_shape_access(node: fx.Node) -> bool:
    """x.shape, x.dtype, x.device in the traced program."""
    return node.target is getattr and len(node.args) == 2 and node.args[1] in ("shape", "dtype", "device")

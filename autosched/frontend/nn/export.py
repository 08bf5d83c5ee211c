"""From a module to an IRModule: each method runs once on symbolic arguments and is recorded. `jit` compiles at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from autosched.errors import InvalidTypeError, InvalidValueError, refuse
from autosched.frontend.nn import spec as S
from autosched.frontend.nn.core import METHODS, Module, Object, Parameter, Tensor, dims, named_parts
from autosched.frontend.nn.effects import Effect, IOEffect, writing
from autosched.ir.module import IRModule
from autosched.lazy_names import hook
from autosched.relax.block_builder import BlockBuilder
from autosched.relax.expr import Expr, PrimValue, Tuple, TupleGetItem, Var
from autosched.relax.pipeline import get_pipeline
from autosched.relax.struct_info import ObjectStructInfo, PrimStructInfo, TensorStructInfo, TupleStructInfo
from autosched.relax.transform import BindParams
from autosched.tir.expr import IntImm
from autosched.tir.expr import Var as Symbol

Parameters = list[tuple[str, Parameter]]
Effects = list[tuple[str, Effect]]


def export_tvm(
    module: Module, spec: Mapping[str, Any], debug: bool = False, allow_extern: bool = False
) -> tuple[IRModule, Parameters]:
    """Export a module's methods.

    spec          {method: {argument: nn.spec.Tensor(shape, dtype) | nn.spec.Int() | …}}; a dimension may be a name
    debug         the methods may use `print_` and `debug_func`; the order of printing is one more state
    allow_extern  accepted for TVM's sake; there are no external modules
    returns       the IRModule, whose functions take the inputs, then all parameters; and the parameters by dotted name.
                  Where there are states (Effect), each function takes them behind the inputs and gives them behind its
                  result, and a function `_initialize_effect` gives the first ones
    Raises        ValueError for unknown methods, TypeError for a spec or result that is no type or tensor.
    """
    refuse("export_tvm", allow_extern=allow_extern)
    parameters = list(module.named_parameters())
    effects: Effects = [("", IOEffect())] if debug else []
    effects += [(name, effect) for name, effect in named_parts(module, Effect)]
    builder = BlockBuilder()
    if effects:
        _export_first_states(builder, effects)
    for method in S.method_specs(module, spec):
        _export_method(builder, module, method, parameters, effects)
    return builder.get(), parameters


def _export_first_states(builder: BlockBuilder, effects: Effects) -> None:
    with builder.function("_initialize_effect", []):
        with builder.dataflow():
            states = [v for name, effect in effects for v in effect.emit_init(name, builder)]
            output = builder.emit_output(builder.emit(Tuple(tuple(states))))
        builder.emit_func_output(output)


def _export_method(
    builder: BlockBuilder, module: Module, method: S.MethodSpec, parameters: Parameters, effects: Effects
) -> None:
    symbols: dict[str, Any] = {}
    inputs: list[Var] = []
    arguments = {name: _argument(name, kind, symbols, inputs) for name, kind in method.arguments}
    weights = [Var(name, p.struct_info) for name, p in parameters]
    before = [p._expr for _, p in parameters]
    for name, effect in effects:
        states = effect.create(name)
        effect.set_state(states)
        inputs += states
    printing = next((effect for _, effect in effects if isinstance(effect, IOEffect)), None)
    with (
        builder.function(method.name, [*inputs, *weights], {"num_input": len(inputs)}),
        _Bound(parameters, weights, before),
        writing(printing),
    ):
        with builder.dataflow():
            result = getattr(module, method.name)(**{k: _opened(v) for k, v in arguments.items()})
            value = _result(result, method.name)
            if effects:
                value = Tuple((value, Tuple(tuple(v for _, effect in effects for v in effect.finalize()))))
            output = builder.emit_output(value)
        builder.emit_func_output(output)


class _Bound:
    """While a method is written its parameters stand for the function's; afterwards they are what they were."""

    def __init__(self, parameters: Parameters, weights: list[Var], before: list[Expr]):
        self.parameters, self.weights, self.before = parameters, weights, before

    def __enter__(self) -> None:
        for (_, p), var in zip(self.parameters, self.weights, strict=True):
            p._expr = var

    def __exit__(self, *error: object) -> None:
        for (_, p), expr in zip(self.parameters, self.before, strict=True):
            p._expr = expr


def _argument(name: str, kind: object, symbols: dict[str, Any], inputs: list[Var]) -> object:
    if isinstance(kind, S.Int):
        symbol = symbols.setdefault(name, Symbol(name, "int64"))
        inputs.append(Var(name, PrimStructInfo("int64", symbol)))
        return symbol
    if isinstance(kind, S.Tensor):
        inputs.append(Var(name, TensorStructInfo(dims(kind.shape, symbols), kind.dtype)))
        return inputs[-1]
    if isinstance(kind, S.Object):
        inputs.append(Var(name, ObjectStructInfo()))
        return inputs[-1]
    if isinstance(kind, S.Tuple):
        infos = tuple(_info(k, symbols, name) for k in kind.elements)
        inputs.append(Var(name, TupleStructInfo(infos)))
        return inputs[-1]
    raise InvalidTypeError(f"argument '{name}': {type(kind).__name__} is not supported")


def _info(kind: object, symbols: dict[str, object], name: str) -> TensorStructInfo | TupleStructInfo:
    if isinstance(kind, S.Tensor):
        return TensorStructInfo(dims(kind.shape, symbols), kind.dtype)
    if isinstance(kind, S.Tuple):
        return TupleStructInfo(tuple(_info(k, symbols, name) for k in kind.elements))
    raise InvalidTypeError(f"argument '{name}': a tuple holds tensors")


def _opened(value: object) -> object:
    """What the method sees: tensors for variables, tuples of tensors for tuple variables."""
    if isinstance(value, Var | TupleGetItem):
        if isinstance(value.struct_info, ObjectStructInfo):
            return Object(_expr=value, _name="object")
        if isinstance(value.struct_info, TupleStructInfo):
            return tuple(_opened(TupleGetItem(value, i)) for i in range(len(value.struct_info.fields)))
        builder = BlockBuilder.current()
        assert builder is not None, "a method is being written"
        return Tensor(_expr=value if isinstance(value, Var) else builder.emit(value))
    return value


def _result(value: object, method: str) -> Any:
    if isinstance(value, Tensor | Object):
        return value._expr
    if isinstance(value, list | tuple):
        return Tuple(tuple(_result(v, method) for v in value))
    if isinstance(value, int):
        return PrimValue(IntImm(value, "int64"))
    raise InvalidTypeError(f"method '{method}' returns a {type(value).__name__}", hint="return tensors")


FORMATS = ("torch", "tvm")


def jit(module: Any, spec: Mapping[str, Any], device: object, pipeline: Any, out_format: str, debug: bool) -> JitModule:
    """Compile a module's methods with its weights bound. Raises ValueError for weights without data."""
    if out_format not in FORMATS:
        raise InvalidValueError(f"out_format '{out_format}'", hint=f"one of {FORMATS}")
    exported, parameters = export_tvm(module, spec, debug)
    without = [name for name, p in parameters if p.data is None]
    if without:
        raise InvalidValueError(f"parameters without data: {', '.join(without[:5])}", hint="call load_state_dict first")
    values = {name: p.data.numpy() for name, p in parameters}
    build = hook("build")
    methods = {}
    for method in spec:
        one = IRModule({"main": exported[method].with_attr("global_symbol", "main")})
        one = IRModule({**{gv: f for gv, f in exported.functions.items() if gv.name not in spec}, **one.functions})
        bound = BindParams("main", values)(one)
        if pipeline not in (None, "default", "default_build"):  # what every build does
            bound = (get_pipeline(pipeline) if isinstance(pipeline, str) else pipeline)(bound)
        methods[method] = build(bound, target=str(device))
    return JitModule(methods, out_format)


class JitModule:
    """Methods by name: mod["forward"](x); torch tensors in and out with out_format "torch", else arrays."""

    def __init__(self, methods: Mapping[str, object], out_format: str):
        self._methods, self._format = methods, out_format

    def __getitem__(self, name: str) -> Any:
        if name not in self._methods:
            raise InvalidValueError(f"no method '{name}'", hint=f"there are {sorted(self._methods)}")
        return lambda *args: self._run(self._methods[name], args)

    def _run(self, method: Any, args: tuple[object, ...]) -> object:
        result = method(*(a.detach().cpu().numpy() if hasattr(a, "detach") else a for a in args))
        return _converted(result, self._format)


def _converted(value: object, out_format: str) -> object:
    if isinstance(value, tuple | list):
        return tuple(_converted(v, out_format) for v in value)
    if out_format == "tvm":
        return value
    import torch

    return torch.from_numpy(np.array(value.numpy() if hasattr(value, "numpy") else value))


METHODS.update(export_tvm=export_tvm, jit=jit)

"""A model imported step by step, for those whose course is known only when they run.

An input that says sizes or axes, an operator that a library computes, a dimension that follows from data: each ends a
stage. A stage is a module of what can be compiled with what is known so far; it says which values' contents the next
one needs, and which nodes a library computes in between.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.errors import ImportModelError
from autosched.frontend.onnx.contents import array_of
from autosched.frontend.onnx.functions import Functions, inputs_of
from autosched.frontend.onnx.importer import Importer, is_known, is_tensor
from autosched.frontend.onnx.library import LibraryCall, check_library, has_library
from autosched.frontend.onnx.node import Held, NoKernelError, ValueNeededError
from autosched.ir.module import IRModule
from autosched.relax.expr import Constant, Expr, Tuple, Var
from autosched.relax.rewrite import used_vars
from autosched.relax.struct_info import TensorStructInfo, tensor_infos
from autosched.relax.transform.dead_code import remove_unused_bindings

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class Made:
    """The output of that number of the stage's module."""

    index: int


@dataclass(frozen=True)
class Kept:
    """A value that was there before the stage, or an item of such a sequence ("name", "name.3")."""

    name: str


@dataclass(frozen=True, eq=False)
class Fixed:
    """A value that is known at import."""

    value: Any


Form = Made | Kept | Fixed | tuple["Form", ...] | None


@dataclass(frozen=True)
class Stage:
    """One step of a model.

    module   what is compiled; None where nothing is
    inputs   the values that the module takes, in order
    gives    values that are there afterwards, by name
    needs    those whose contents the next stage is imported with
    calls    what libraries compute afterwards, with where their inputs come from
    results  the model's outputs, of the last stage; None of others
    """

    module: IRModule | None
    inputs: tuple[str, ...]
    gives: Mapping[str, Form]
    needs: tuple[str, ...]
    calls: tuple[tuple[LibraryCall, tuple[Form, ...]], ...]
    results: tuple[Form, ...] | None


def import_stage(
    graph: onnx.GraphProto, opset: int, functions: Functions, values: Mapping[str, object], known: Sequence[str]
) -> Stage:
    """The next stage.

    values  what is there: the model's inputs, what earlier stages gave (arrays, lists of them, None)
    known   those whose contents may be used
    Raises ImportModelError for what no later stage can do either.
    """
    return _StageImporter(graph, opset, functions, values, known).stage()


class _StageImporter(Importer):
    def __init__(
        self,
        graph: onnx.GraphProto,
        opset: int,
        functions: Functions,
        values: Mapping[str, object],
        known: Sequence[str],
    ):
        super().__init__(graph, opset, functions, None, False, True)
        self.there, self.known = dict(values), set(known)
        self.given: dict[Var, str] = {}
        self.blocked: set[str] = set()
        self.waiting: list[onnx.NodeProto] = []
        self.needed: dict[str, Expr] = {}
        self.called: list[LibraryCall] = []
        self.depth = 0

    def stage(self) -> Stage:
        """Import what can be imported, and see what comes next."""
        for tensor in self.graph.initializer:
            if tensor.name not in self.there:
                self.values[tensor.name] = self.initializer(tensor.name, array_of(tensor, f"tensor '{tensor.name}'"))
        if self.graph.sparse_initializer:
            raise ImportModelError("sparse initialisers are not supported")
        self.done = set(self.there)
        self.values |= {name: self.expression(name, value) for name, value in self.there.items()}
        outputs: list[Expr] = []
        with self.builder.function("main"):
            with self.builder.dataflow():
                self.nodes()
                stage = self.finished(outputs)
                results = [self.builder.emit_output(x) for x in outputs or [Constant(np.zeros(1, np.float32))]]
            self.builder.emit_func_output(Tuple(tuple(results)) if len(results) > 1 else results[0], list(self.given))
        if not outputs:
            return stage
        module = self.builder.get()
        main = remove_unused_bindings(module["main"])
        used = {v for binding in main.bindings() for v in used_vars(binding.value)}
        main = dataclasses.replace(main, params=tuple(p for p in main.params if p in used))
        module["main"] = main
        return dataclasses.replace(stage, module=module, inputs=tuple(self.given[p] for p in main.params))

    def expression(self, name: str, value: Any) -> Any:
        """A value that is there, as the importer takes it."""
        is_known = name in self.known
        if value is None:
            return None
        if isinstance(value, list) and all(self.takes(item) for item in value):
            names = [f"{name}.{i}" for i in range(len(value))]
            if is_known:
                self.known |= set(names)
            return Tuple(tuple(self.expression(n, item) for n, item in zip(names, value)))
        if not self.takes(value):
            return Held(value, is_known)
        if is_known or not value.size:
            return Constant(value)
        var = Var(self.name(name), TensorStructInfo(value.shape, str(value.dtype)))
        self.given[var] = name
        return var

    def takes(self, value: object) -> bool:
        """Whether kernels of a CPU take a value."""
        return is_tensor(value)

    def initializer(self, name: str, array: np.ndarray) -> Constant | Held:
        return Constant(array) if self.takes(array) else Held(array, is_known=True)

    # --- nodes -------------------------------------------------------------------------------------------------------

    def node(self, proto: onnx.NodeProto, name: str, opset: int | None = None) -> None:
        if all(output in self.done for output in proto.output if output):
            return
        if any(value in self.blocked for value in inputs_of(proto)):
            self.block(proto)
            return
        try:
            super().node(proto, name, opset)
        except ValueNeededError as error:
            if self.depth:
                raise
            assert error.value is not None
            self.need(error.value, error)
            self.block(proto)
        except NoKernelError as error:
            if self.depth:
                raise
            if error.node is None or not has_library(error.node, error.opset):
                raise ImportModelError(error.message, where=error.where, hint=error.hint) from error
            inner = "" if error.node is proto else f" of {error.node.op_type}"
            self.called.append(LibraryCall.of(error.node, error.opset, name + inner))
            self.block(proto)

    def subgraph(self, graph: onnx.GraphProto, arguments: Sequence[Expr], prefix: str, opset: int) -> list[Expr]:
        self.depth += 1
        try:
            return super().subgraph(graph, arguments, prefix, opset)
        finally:
            self.depth -= 1

    def define(self, output: str, value: object) -> None:
        if output not in self.done:
            super().define(output, value)

    def block(self, proto: onnx.NodeProto) -> None:
        """Leave a node to a later stage, and all that read what it gives."""
        self.blocked |= {output for output in proto.output if output}
        self.waiting.append(proto)

    def need(self, value: Expr, error: ValueNeededError) -> None:
        """Remember a value whose contents are needed, by its name."""
        for name, known in reversed(self.values.items()):
            if known is value:
                self.needed[name] = value
                return
        raise ImportModelError(error.message, where=error.where, hint=error.hint) from error

    # --- the end of a stage ------------------------------------------------------------------------------------------

    def finished(self, outputs: list[Expr]) -> Stage:
        """The stage but for its module; what that has to give is added to `outputs`."""
        if not any(o.name in self.blocked for o in self.graph.output):
            for o in self.graph.output:
                if o.name not in self.values:
                    raise ImportModelError(f"output '{o.name}' is computed by no node")
            return Stage(
                None, (), {}, (), (), tuple(self.form(self.values[o.name], outputs) for o in self.graph.output)
            )
        for call in self.called:
            check_library(call, [_like(self.values[name]) for name in call.inputs])
        needs = {name: self.given[value] for name, value in self.needed.items() if value in self.given}
        ready = [(call, forms) for call in self.called if (forms := self.inputs_of_call(call)) is not None]
        if needs or ready:  # what is there already decides first: nothing is compiled twice
            gives: dict[str, Form] = {name: Kept(own) for name, own in needs.items() if name != own}
            return Stage(None, (), gives, tuple(needs), tuple(ready), None)
        if not self.needed and not self.called:
            raise ImportModelError("the model's nodes wait for each other")
        wanted = dict.fromkeys(self.needed)
        wanted |= dict.fromkeys(v for proto in self.waiting for v in inputs_of(proto))
        wanted |= dict.fromkeys(o.name for o in self.graph.output)
        found = {n: self.values[n] for n in wanted if n in self.values and n not in self.done and n not in self.blocked}
        gives = {n: self.form(v, outputs) for n, v in found.items() if not is_known(v)}
        calls = tuple((call, tuple(self.form(self.values[n], outputs) for n in call.inputs)) for call in self.called)
        return Stage(None, (), gives, tuple(self.needed), calls, None)

    def inputs_of_call(self, call: LibraryCall) -> tuple[Form, ...] | None:
        """Where a library's inputs come from; None where one is computed by kernels."""
        computed: list[Expr] = []
        forms = tuple(self.form(self.values[name], computed) for name in call.inputs)
        return None if computed else forms

    def form(self, value: Expr | Held | None, outputs: list[Expr]) -> Form:
        """Where a value comes from; what kernels compute is added to `outputs`."""
        match value:
            case None:
                return None
            case Held():
                return self.held(value)
            case Constant():
                return Fixed(value.data)
            case Tuple():
                return tuple(self.form(field, outputs) for field in value.fields)
            case Var() if value in self.given:
                return Kept(self.given[value])
        at = next((i for i, known in enumerate(outputs) if known is value), len(outputs))
        if at == len(outputs):
            outputs.append(value)
        return Made(at)

    def held(self, value: Held) -> Form:
        """Where a value comes from that no kernel takes: it is there, or known."""
        name = next((n for n, v in self.there.items() if v is value.value), None)
        return Kept(name) if name is not None else Fixed(value.value)


def _like(value: object) -> object:
    """An array of the dtype of a value, to see whether a library takes such."""
    infos = tensor_infos(value.struct_info) if isinstance(value, Expr) else ()
    return np.zeros(0, infos[0].dtype) if infos else getattr(value, "value", None)

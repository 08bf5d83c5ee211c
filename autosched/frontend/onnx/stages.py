"""A model imported step by step, for those whose course is known only when they run.

An input that says sizes or axes, an operator that a library computes, a dimension that follows from data: each ends a
stage. A stage is a module of what can be compiled with what is known so far; it says which values' contents the next
one needs, and which nodes a library computes in between.

Sizes and integers that differ from call to call can be symbols (`OpenSizes`): one stage serves all of them then.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.errors import ImportModelError
from autosched.frontend.onnx.contents import array_of
from autosched.frontend.onnx.functions import Functions, inputs_of
from autosched.frontend.onnx.importer import Importer, is_known, is_tensor
from autosched.frontend.onnx.library import LibraryCall, check_library, has_library
from autosched.frontend.onnx.node import Held, NoKernelError, ValueNeededError
from autosched.frontend.onnx.sizes import Sizes, sizes
from autosched.ir import preorder
from autosched.ir.module import IRModule
from autosched.relax.expr import Constant, Expr, Function, Tuple, Var
from autosched.relax.rewrite import used_vars
from autosched.relax.struct_info import Dim, TensorStructInfo, tensor_infos
from autosched.relax.transform.dead_code import remove_unused_bindings
from autosched.tir.expr import SizeVar

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
class OpenSizes:
    """What a stage takes for any size: symbols, which are 1 at least, in values that are there before it.

    shapes    the dimensions of tensors, by name
    contents  the integers in a vector or a scalar, by name
    symbols   all symbols
    """

    shapes: Mapping[str, tuple[Dim, ...]] = field(default_factory=dict)
    contents: Mapping[str, tuple[Dim, ...]] = field(default_factory=dict)
    symbols: tuple[SizeVar, ...] = ()


class ContentsNeededError(ImportModelError):
    """Integers that were to be open have to be known.

    name  of the value
    """

    name = ""


@dataclass(frozen=True)
class Stage:
    """One step of a model.

    module   what is compiled; None where nothing is
    inputs   the values that the module takes, in order
    gives    values that are there afterwards, by name
    needs    those whose contents the next stage is imported with
    calls    what libraries compute afterwards, with where their inputs come from
    results  the model's outputs, of the last stage; None of others
    sizes    symbols that no input's shape says: the module takes an array of so many elements for each, behind `inputs`
    shapes   of those of `gives` whose dimensions are symbols
    """

    module: IRModule | None
    inputs: tuple[str, ...]
    gives: Mapping[str, Form]
    needs: tuple[str, ...]
    calls: tuple[tuple[LibraryCall, tuple[Form, ...]], ...]
    results: tuple[Form, ...] | None
    sizes: tuple[SizeVar, ...] = ()
    shapes: Mapping[str, tuple[Dim, ...]] = field(default_factory=dict)


def import_stage(
    graph: onnx.GraphProto,
    opset: int,
    functions: Functions,
    values: Mapping[str, object],
    known: Sequence[str],
    open_sizes: OpenSizes | None = None,
) -> Stage:
    """The next stage.

    values      what is there: the model's inputs, what earlier stages gave (arrays, lists of them, None)
    known       those whose contents may be used
    open_sizes  what is open in them; the stage is for these values alone where nothing is
    Raises ImportModelError for what no later stage can do either, ContentsNeededError for what cannot be open.
    """
    return _StageImporter(graph, opset, functions, values, known, open_sizes or OpenSizes()).stage()


class _StageImporter(Importer):
    def __init__(
        self,
        graph: onnx.GraphProto,
        opset: int,
        functions: Functions,
        values: Mapping[str, object],
        known: Sequence[str],
        open_sizes: OpenSizes,
    ):
        super().__init__(graph, opset, functions, None, False, True)
        self.there, self.known, self.open = dict(values), set(known), open_sizes
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
        inputs, unsaid = tuple(self.given[p] for p in main.params), self.unsaid(main)
        hidden = (Var(self.name(f"size of {s.name}"), TensorStructInfo((s,), "bool")) for s in unsaid)
        main = dataclasses.replace(main, params=(*main.params, *hidden))
        if self.open.symbols:  # rules about sizes know that none is 0
            main = main.with_attr("size_bounds", {s.name: (1, None) for s in self.open.symbols})
        module["main"] = main
        return dataclasses.replace(stage, module=module, inputs=inputs, sizes=unsaid)

    def unsaid(self, main: Function) -> tuple[SizeVar, ...]:
        """The symbols that a function uses and that are no dimension of an input."""
        if not self.open.symbols:
            return ()
        said = {d for p in main.params for d in getattr(p.struct_info, "dims", ()) if isinstance(d, SizeVar)}
        used = {x for node in (*main.params, *(v for b in main.bindings() for v in (b.var, b.value)))
                for part in (node, node.struct_info) if part is not None for x in preorder(part)
                if isinstance(x, SizeVar)}  # fmt: skip
        return tuple(s for s in self.open.symbols if s in used and s not in said)

    def expression(self, name: str, value: Any) -> Any:
        """A value that is there, as the importer takes it."""
        is_known = name in self.known
        if value is None:
            return None
        if name in self.open.contents:
            return sizes(self.open.contents[name], value.ndim == 0, str(value.dtype))
        if isinstance(value, list) and all(self.takes(item) for item in value):
            names = [f"{name}.{i}" for i in range(len(value))]
            if is_known:
                self.known |= set(names)
            return Tuple(tuple(self.expression(n, item) for n, item in zip(names, value)))
        if name in self.open.shapes and not (self.takes(value) and value.size and not is_known):
            raise ImportModelError(f"'{name}' is of open sizes, and no kernel takes it so")
        if not self.takes(value):
            return Held(value, is_known)
        shape = self.open.shapes.get(name, value.shape)
        if is_known or not value.size:
            return Constant(value)
        var = Var(self.name(name), TensorStructInfo(shape, str(value.dtype)))
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
            self.need(proto, error.value, error)
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

    def need(self, proto: onnx.NodeProto, value: Expr, error: ValueNeededError) -> None:
        """Remember a value whose contents a node needs, by its name."""
        for name, known in reversed(self.values.items()):
            if known is value:
                self.needed[name] = value
                return
        for name in inputs_of(proto):  # sizes are tensors only where they are read as such
            if name in self.open.contents:
                unknown = ContentsNeededError(error.message, where=error.where)
                unknown.name = name
                raise unknown
            if isinstance(found := self.values.get(name), Sizes):
                self.values[name] = self.needed[name] = self.bind(found.as_tensor())
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
            shapes = {name: self.open.shapes[needs[name]] for name in gives if needs[name] in self.open.shapes}
            return Stage(None, (), gives, tuple(needs), tuple(ready), None, shapes=shapes)
        if not self.needed and not self.called:
            raise ImportModelError("the model's nodes wait for each other")
        wanted = dict.fromkeys(self.needed)
        wanted |= dict.fromkeys(v for proto in self.waiting for v in inputs_of(proto))
        wanted |= dict.fromkeys(o.name for o in self.graph.output)
        found = {n: self.values[n] for n in wanted if n in self.values and n not in self.done and n not in self.blocked}
        found = {n: self.bind(v.as_tensor()) if isinstance(v, Sizes) else v for n, v in found.items()}
        gives = {n: self.form(v, outputs) for n, v in found.items() if not is_known(v)}
        calls = tuple((call, tuple(self.form(self.values[n], outputs) for n in call.inputs)) for call in self.called)
        return Stage(None, (), gives, tuple(self.needed), calls, None, shapes=self.open_shapes(found, gives))

    def open_shapes(self, found: Mapping[str, Any], gives: Mapping[str, Form]) -> dict[str, tuple[Dim, ...]]:
        """The shapes of given values that have symbols. Raises ImportModelError for those in a sequence."""
        shapes: dict[str, tuple[Dim, ...]] = {}
        for name in gives if self.open.symbols else ():
            infos = tensor_infos(found[name].struct_info) if isinstance(found[name], Expr) else ()
            is_open = [not all(isinstance(d, int) for d in info.dims) for info in infos]
            if any(is_open) and isinstance(found[name], Tuple):
                raise ImportModelError(f"the items of '{name}' are of open sizes")
            if any(is_open):
                shapes[name] = infos[0].dims
        return shapes

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
            case Sizes():
                return self.form(self.bind(value.as_tensor()), outputs)
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
    if isinstance(value, Sizes):
        return np.zeros(0, value.dtype)
    infos = tensor_infos(value.struct_info) if isinstance(value, Expr) else ()
    return np.zeros(0, infos[0].dtype) if infos else getattr(value, "value", None)

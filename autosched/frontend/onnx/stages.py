"""An ONNX model imported stage by stage (`frontend.stages`), for those whose course is known only when they run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.errors import ImportModelError
from autosched.frontend.onnx.contents import array_of
from autosched.frontend.onnx.functions import Functions, inputs_of
from autosched.frontend.onnx.importer import Importer, is_tensor
from autosched.frontend.onnx.library import LibraryCall, has_library
from autosched.frontend.onnx.node import Held, NoKernelError, ValueNeededError
from autosched.frontend.onnx.packed import PackedWeight
from autosched.frontend.onnx.sizes import Sizes, sizes
from autosched.frontend.stages import ContentsNeededError, Fixed, Form, Kept, OpenSizes, Stage, StageWriter
from autosched.relax.expr import Constant, Expr, Tuple

if TYPE_CHECKING:
    import onnx


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


class _StageImporter(StageWriter, Importer):
    def __init__(
        self,
        graph: onnx.GraphProto,
        opset: int,
        functions: Functions,
        values: Mapping[str, object],
        known: Sequence[str],
        open_sizes: OpenSizes,
    ):
        Importer.__init__(self, graph, opset, functions, None, False, True)
        StageWriter.__init__(self, values, known, open_sizes)
        self.waiting: list[onnx.NodeProto] = []
        self.depth = 0

    def stage(self) -> Stage:
        """Import what can be imported, and see what comes next."""
        for tensor in self.graph.initializer:
            if tensor.name not in self.there:
                self.values[tensor.name] = self.initializer(tensor.name, array_of(tensor, f"tensor '{tensor.name}'"))
        if self.graph.sparse_initializer:
            raise ImportModelError("sparse initialisers are not supported")
        self.values |= {name: self.expression(name, value) for name, value in self.there.items()}
        return self.write(self.builder, self.name, self.finished)

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
        if self.takes(value):
            return self.taken(name, self.name(name), value)
        if name in self.open.shapes:
            raise ImportModelError(f"'{name}' is of open sizes, and no kernel takes it so")
        return Held(value, is_known)

    def takes(self, value: object) -> bool:
        """Whether kernels of a CPU take a value."""
        return is_tensor(value)

    @property
    def may_loop(self) -> bool:
        """A stage ends before such a loop, and the next ones are its steps."""
        return False

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
        """Import what can be, and say what comes next."""
        self.nodes()
        if not any(o.name in self.blocked for o in self.graph.output):
            for o in self.graph.output:
                if o.name not in self.values:
                    raise ImportModelError(f"output '{o.name}' is computed by no node")
            return self.last((self.values[o.name] for o in self.graph.output), outputs)
        wanted = [v for proto in self.waiting for v in inputs_of(proto)]
        return self.next(self.values, (*wanted, *(o.name for o in self.graph.output)), self.without_sizes, outputs)

    def without_sizes(self, value: Any) -> Any:
        """A value, as a tensor where it is sizes or weights that products alone take as they are."""
        return self.bind(value.as_tensor()) if isinstance(value, Sizes | PackedWeight) else value

    def form(self, value: Any, outputs: list[Expr]) -> Form:
        match self.without_sizes(value):
            case Held() as held:  # no kernel takes it: it is there, or known
                name = next((n for n, v in self.there.items() if v is held.value), None)
                return Kept(name) if name is not None else Fixed(held.value)
            case plain:
                return super().form(plain, outputs)

"""An exported program imported stage by stage (`frontend.stages`), for those whose sizes or numbers follow from data.

PyTorch computes operators whose result is as large as their data says (`nonzero`, `unique`, an index by a mask), and
those that have no kernel here; a number that the program takes out of a tensor (`item`) is read between two stages.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.errors import ImportModelError, WrongInputError
from autosched.frontend.size_arithmetic import is_empty, is_same, plain
from autosched.frontend.stages import Check, ContentsNeededError, DataNeededError, Form, OpenSizes, Stage, StageWriter
from autosched.frontend.torch.calls import TorchCall
from autosched.frontend.torch.complex_values import Complex
from autosched.frontend.torch.control import is_control
from autosched.frontend.torch.decompose import decomposed, needed_calls
from autosched.frontend.torch.emitter import info_of
from autosched.frontend.torch.exported import SIZE_OF, SIZES, Importer
from autosched.frontend.torch.graph import constant_of, operator_name
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, ShapeExpr
from autosched.relax.struct_info import Dim, TensorStructInfo
from autosched.tir.expr import PrimExpr
from autosched.tir.functor import free_vars
from autosched.tir.size_expr import to_size

if TYPE_CHECKING:
    from torch import fx
    from torch.export import ExportedProgram

NUMBERS_OF_TENSORS = ("_local_scalar_dense", "item")
PARTS = ("real", "imag")
LIMITS: Mapping[Any, tuple[int, int]] = {  # a comparison: the sign and the least of the difference
    operator.ge: (1, 0), operator.gt: (1, 1), operator.le: (-1, 0), operator.lt: (-1, 1), operator.eq: (1, 0),
}  # fmt: skip


class StagedProgram:
    """A program whose stages can be imported. Raises ImportModelError for operators that PyTorch cannot be given.

    Buffers that it changes are inputs behind its own, and their new values outputs behind its own.

    input_dtypes  of all inputs, by name
    states        first values of the buffers, by the names of these inputs
    """

    def __init__(self, program: ExportedProgram):
        self.program = decomposed(program, without_writes=True)
        importer = Importer(self.program, False, {}, {}, states_as_inputs=True)
        importer.refuse(may_call=True)
        importer.placeholders()
        self.states = importer.first_states()
        variables = (*importer.inputs, *(var for var, _, _ in importer.states))
        self.input_dtypes = {var.name: info_of(var).dtype for var in variables}
        own = sum(isinstance(name, str) for name in self.program.graph_signature.user_outputs)
        self.n_outputs = own + len(self.states)

    def stage(self, values: Mapping[str, object], known: Sequence[str], open_sizes: OpenSizes | None = None) -> Stage:
        """The next stage.

        values      what is there: the program's inputs, what earlier stages gave (arrays, lists of them, numbers)
        known       those whose contents may be used
        open_sizes  what is open in them; the stage is for these values alone where nothing is
        Raises ImportModelError for what no later stage can do either, ContentsNeededError for what cannot be open.
        """
        return StageImporter(self.program, values, known, open_sizes or OpenSizes()).stage()


class StageImporter(StageWriter, Importer):
    """Writes one stage of a program's graph; `values`, `known` and `open_sizes` as of `StagedProgram.stage`."""

    def __init__(
        self, program: ExportedProgram, values: Mapping[str, object], known: Sequence[str], open_sizes: OpenSizes
    ):
        Importer.__init__(self, program, False, {}, {}, states_as_inputs=True)
        StageWriter.__init__(self, values, known, open_sizes)
        self.waiting: list[fx.Node] = []
        self.equal: list[tuple[PrimExpr, Dim]] = []
        self.depth = 0

    def stage(self) -> Stage:
        """Import what can be imported, and see what comes next."""
        return self.write(self.emitter.builder, lambda name: name.replace(" ", "_"), self.imported)

    def imported(self, outputs: list[Expr]) -> Stage:
        """Import what can be, and say what comes next."""
        self.placeholders()
        ready = {node for node in self.program.graph.nodes if self.is_there(node)}
        self.values |= {node: self.found(node.name) for node in ready}
        needed = {*needed_calls(self.program.graph, ready)}
        for node in self.program.graph.nodes:
            if node in needed:
                self.call(node)
            elif node.op == "call_function" and operator_name(node.target) == "_assert_scalar":
                self.learn(node)
        (end,) = (n for n in self.program.graph.nodes if n.op == "output")
        if not any(node.name in self.blocked for node in end.all_input_nodes):
            return self.last(self.outputs(), outputs)
        wanted = [n.name for node in (*self.waiting, end) for n in node.all_input_nodes]
        wanted += [f"{name}.{part}" for name in wanted for part in PARTS]
        values: dict[str, object] = {}
        for node, value in self.values.items():
            if node.graph is not self.program.graph:
                continue  # of a branch, which has names of its own
            if isinstance(value, Complex):
                parts = value.real, value.imaginary(self.emitter)
                values |= {f"{node.name}.{part}": x for part, x in zip(PARTS, parts)}
            else:
                values[node.name] = value
        return self.next(values, wanted, lambda value: value, outputs)

    def input(self, node: fx.Node) -> None:
        """The program's inputs are among the values that are there."""
        if node.name not in self.there:
            super().input(node)

    @property
    def has_open_sizes(self) -> bool:
        return bool(self.open.symbols)

    def is_there(self, node: fx.Node) -> bool:
        return node.name in self.there or f"{node.name}.{PARTS[0]}" in self.there

    def found(self, name: str) -> Any:
        """A value that is there, as converters take it."""
        if name not in self.there:
            return Complex(*(self.found(f"{name}.{part}") for part in PARTS))
        if name in self.open.numbers:
            return self.open.numbers[name]
        return self.expression(name, self.there[name])

    def expression(self, name: str, value: Any) -> Any:
        if isinstance(value, list):
            names = [f"{name}.{i}" for i in range(len(value))]
            self.known |= set(names) if name in self.known else set()
            return tuple(self.expression(n, item) for n, item in zip(names, value))
        if not isinstance(value, np.ndarray):
            return value
        if name in self.open.contents:
            dims, dtype = ShapeExpr(self.open.contents[name]), str(value.dtype)
            return self.emitter(op.size_values(dims, is_scalar=value.ndim == 0, dtype=dtype))
        return self.taken(name, name.replace(".", "_"), value)

    # --- what the program says of sizes ------------------------------------------------------------------------------

    def learn(self, check: fx.Node) -> None:
        """See to a check of the program, as far as it compares sizes that are known here. Sizes may be equal by it.

        Raises WrongInputError where it does not hold.
        """
        condition, message = check.args
        if getattr(condition, "target", None) not in LIMITS:
            return
        first, second = map(self.number_of, condition.args)
        if first is None or second is None:
            return
        sign, low = LIMITS[condition.target]
        rest, is_exact = plain((first - second) * sign), condition.target is operator.eq
        if isinstance(rest, PrimExpr):
            self.checks.append(Check(to_size(rest), low, is_exact, message))
            if is_exact and isinstance(first, PrimExpr):
                self.equal.append((first, second))
        elif rest < low or (is_exact and rest > low):
            raise WrongInputError(message)

    def number_of(self, x: Any) -> Dim | None:
        """What an argument of a check is, where that is known here or follows from open sizes."""
        if isinstance(x, int) or x in self.values:
            found = x if isinstance(x, int) else self.values[x]
            return found if isinstance(found, int | PrimExpr) else None
        name = operator_name(getattr(x, "target", ""))
        if name in SIZE_OF and isinstance(tensor := self.values.get(x.args[0]), Expr):
            size: Dim = info_of(tensor).dims[x.args[1]]
            return size
        args = [self.number_of(a) for a in x.args] if name in SIZES else [None]
        return None if None in args else plain(SIZES[name](*args))

    def agreeing_sizes(self, value: Any) -> Any:
        """A tensor under sizes that the program has said its own to be equal to."""
        if not isinstance(value, Expr) or not self.equal or not isinstance(value.struct_info, TensorStructInfo):
            return value
        dims = [next((b for a, b in self.equal if is_same(d, a)), d) for d in value.struct_info.dims]
        return self.emitter.reshape(value, dims)

    # --- nodes -------------------------------------------------------------------------------------------------------

    def call(self, node: fx.Node) -> None:
        if node in self.values:
            return  # an item of what PyTorch gave at once
        if self.depth:
            super().call(node)
        elif any(n.name in self.blocked for n in node.all_input_nodes):
            self.block(node)
        elif operator_name(node.target) in NUMBERS_OF_TENSORS and node.args[0].name in self.open.contents:
            (self.values[node],) = self.open.contents[node.args[0].name]
        elif self.is_for_pytorch(node) and any(isinstance(x, Expr) and is_empty(x) for x in self.inputs_of(node)):
            self.without_elements(node)
        else:
            self.now_or_later(node)

    def is_for_pytorch(self, node: fx.Node) -> bool:
        """Whether PyTorch can be given a node with its inputs: others are sizes, and have graphs inside."""
        return operator_name(node.target) not in SIZE_OF and not is_control(node.target)

    def inputs_of(self, node: fx.Node) -> list[Any]:
        return [self.values.get(n) for n in node.all_input_nodes]

    def without_elements(self, node: fx.Node) -> None:
        """Import a node of which an input has no elements; PyTorch computes it, unless its results have none either."""
        call = TorchCall.of(node)
        if all(isinstance(x, Constant | int | float) for x in self.inputs_of(node)):
            found = call.run([x.data if isinstance(x, Constant) else x for x in self.inputs_of(node)])
            by_name = dict(zip(call.outputs, found))
            self.values |= {n: constant_of(by_name[n.name]) for n in (node, *node.users) if n.name in by_name}
            return
        try:
            super().call(node)
        except ImportModelError:
            pass
        else:
            value = self.values[node]
            if all(isinstance(x, Expr) and is_empty(x) for x in (value if isinstance(value, tuple) else (value,))):
                return
        self.called.append(call)
        self.block(node)

    def now_or_later(self, node: fx.Node) -> None:
        """Import a node; leave it to a later stage where data is missing."""
        try:
            super().call(node)
            self.values[node] = self.agreeing_sizes(self.values[node])
        except DataNeededError as error:
            if is_control(node.target):
                raise ImportModelError(error.message, where=error.where) from error
            if operator_name(node.target) in NUMBERS_OF_TENSORS:
                self.needed[node.args[0].name] = self.values[node.args[0]]
            elif any(isinstance(self.values[n], Complex) for n in node.all_input_nodes):
                raise ImportModelError(f"{node.target} of complex numbers", where=error.where) from error
            else:
                self.called.append(TorchCall.of(node))
            self.block(node)
        except ImportModelError as error:
            if (name := self.open_number_of(node)) is None:
                raise
            unknown = ContentsNeededError(error.message, where=error.where)
            unknown.name = name
            raise unknown from error

    def open_number_of(self, node: fx.Node) -> str | None:
        """The name of an open number that a node computes with, if any."""
        sizes = [x for n in node.all_input_nodes if isinstance(x := self.values.get(n), PrimExpr)]
        used = {v for x in sizes for v in free_vars(x)}
        return next((n for n, dims in self.open.contents.items() if not used.isdisjoint(dims)), None)

    def subgraph(self, graph_module: fx.GraphModule, args: Sequence[object]) -> tuple[Any, ...]:
        self.depth += 1
        try:
            return super().subgraph(graph_module, args)
        finally:
            self.depth -= 1

    def block(self, node: fx.Node) -> None:
        """Leave a node to a later stage, and all that read what it gives."""
        self.blocked.add(node.name)
        self.waiting.append(node)

    def form(self, value: Any, outputs: list[Expr]) -> Form:
        if isinstance(value, Complex):
            raise ImportModelError("complex numbers among several values, between which sizes follow from data")
        return super().form(value, outputs)

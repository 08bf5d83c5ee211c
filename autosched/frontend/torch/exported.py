"""From an exported program (torch.export) to an IRModule with one function, `main`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autosched.errors import ImportModelError, InvalidTypeError
from autosched.frontend.data_sizes import DataSizes
from autosched.frontend.size_arithmetic import BY_DATA, larger, plain, size_of_text, smaller
from autosched.frontend.stages import DataNeededError, LibraryNeededError
from autosched.frontend.torch.calls import can_call
from autosched.frontend.torch.complex_values import PARTS, Complex
from autosched.frontend.torch.control import all_nodes, import_control, is_control
from autosched.frontend.torch.decompose import (
    CHECKS,
    NUMBER_MODULES,
    SAID,
    decomposed,
    is_known,
    name_of_module,
    needed_calls,
)
from autosched.frontend.torch.emitter import Value, info_of
from autosched.frontend.torch.graph import (
    CustomConverters,
    array_of,
    bound,
    constant_of,
    fill_table,
    make_emitter,
    map_arguments,
    operator_name,
    refuse_complex,
    refuse_unsupported,
    run_converter,
)
from autosched.frontend.torch.in_place import is_plain_write, writes
from autosched.frontend.torch.program_sizes import number_or_none, size_bounds, size_value, sizes_of
from autosched.frontend.torch.registry import CONVERTERS
from autosched.ir.module import IRModule
from autosched.relax.expr import Expr, Tuple, Var
from autosched.relax.struct_info import TensorStructInfo
from autosched.tir import expr as E
from autosched.tir.expr import PrimExpr, SizeVar
from autosched.tir.simplify import Analyzer

if TYPE_CHECKING:
    import torch
    from torch import fx
    from torch.export import ExportedProgram

SIZES: Mapping[str, Callable[..., Value]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv, "mod": operator.mod,
    "sym_max": larger, "sym_min": smaller, "neg": operator.neg,
}  # fmt: skip
SIZE_OF = ("sym_size", "sym_size.int")
CONDITIONS: Mapping[str, type[E.CmpOp]] = {"ge": E.GE, "le": E.LE, "gt": E.GT, "lt": E.LT, "eq": E.EQ, "ne": E.NE}


def from_exported_program(
    exported_program: object,
    *,
    keep_params_as_input: bool = False,
    unwrap_unit_return_tuple: bool = False,
    no_bind_return_tuple: bool = False,
    custom_convert_map: CustomConverters | None = None,
    run_ep_decomposition: bool = True,
    shapes: Mapping[str, Sequence[int]] | None = None,
    states_as_inputs: bool = False,
) -> IRModule:
    """Import what torch.export.export made; the result is a tuple even for one output, unless unwrapped.

    Inputs that the program writes to stay as they are.

    keep_params_as_input      weights become parameters after the inputs; their values are the attribute `params`
    unwrap_unit_return_tuple  one output is returned as it is
    no_bind_return_tuple      a tuple result is returned without a variable of its own
    custom_convert_map        operator name -> function of (graph node, Emitter) that gives an expression
    run_ep_decomposition      bring unusual operators down to simpler ones first
    shapes                    sizes of inputs with dynamic dimensions; one that several inputs share is given once
    states_as_inputs      buffers that the program changes become inputs, behind its own, and their new values outputs,
                          behind its own
    Raises  TypeError for anything else; ImportModelError that lists all unsupported operators at once, names an input
            with a dimension that is computed, or a buffer that is changed.
    """
    import torch

    if not isinstance(exported_program, torch.export.ExportedProgram):
        raise InvalidTypeError(
            f"from_exported_program takes a torch.export.ExportedProgram, not a {type(exported_program).__name__}"
        )
    custom, program = custom_convert_map or {}, with_own_weights(exported_program)
    importer = _importer(program, keep_params_as_input, custom, run_ep_decomposition, shapes, states_as_inputs)
    return importer.run(unwrap_unit_return_tuple, no_bind_return_tuple)


def import_held(program: ExportedProgram, shapes: Mapping[str, Sequence[int]] | None) -> IRModule:
    """The module of a program whose weights nobody else has; its only output as it is."""
    return _importer(program, False, {}, True, shapes, False).run(unwrap=True, no_bind=False)


def import_with_states(
    program: ExportedProgram, shapes: Mapping[str, Sequence[int]] | None
) -> tuple[IRModule, dict[str, Any]]:
    """(the module, the first values of buffers that are changed, by the names of the inputs that they are).

    A program that changes none gives its only output as it is.
    """
    importer = _importer(program, False, {}, True, shapes, True)
    module = importer.run(unwrap=True, no_bind=False)
    return module, importer.first_states()


def import_for_vm(program: ExportedProgram, shapes: Mapping[str, Sequence[int]] | None) -> IRModule:
    """The module of a program whose sizes follow from data: symbols, which get values where the VM comes to them.

    Raises ImportModelError for what has no kernel, and DataNeededError where a number is needed that is no size.
    """
    importer = _importer(program, False, {}, True, shapes, False)
    least = {str(s): number_or_none(r.lower) for s, r in program.range_constraints.items()}
    counts = {name for name, low in least.items() if low is not None and low >= 0}
    importer.emitter.data = data = DataSizes(importer.emitter.builder, counts=counts)
    module = importer.run(unwrap=True, no_bind=False)
    module["main"] = module["main"].with_attr(BY_DATA, tuple(size.name for size in data.most))
    return module


def states_of(program: ExportedProgram) -> dict[str, Any]:
    """The first values of buffers that a program changes, by the names of the inputs that stand for them.

    Raises ImportModelError for a program that cannot be made functional, or for buffers that are not supported.
    """
    if not program.graph_signature.buffers:
        return {}
    importer = Importer(decomposed(program, without_writes=True), False, {}, {}, states_as_inputs=True)
    importer.placeholders()
    return importer.first_states()


def _importer(
    exported_program: ExportedProgram, keep_params: bool, custom: CustomConverters, decompose: bool,
    shapes: Mapping[str, Sequence[int]] | None, states_as_inputs: bool,
) -> Importer:  # fmt: skip
    fill_table()  # by which operators are kept whole
    program = decomposed(exported_program) if decompose else exported_program
    sizes = sizes_of(exported_program, shapes) if shapes else {}
    return Importer(program, keep_params, custom, sizes, states_as_inputs)


def with_own_weights(program: ExportedProgram) -> ExportedProgram:
    """The program with copies of its weights, which a model that is trained on shares with what was exported of it."""
    import torch

    copies: dict[int, torch.Tensor] = {}  # of tensors that have several names

    def copied(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        if id(x) not in copies:
            copy = x.detach().clone()
            copies[id(x)] = torch.nn.Parameter(copy, x.requires_grad) if isinstance(x, torch.nn.Parameter) else copy
        return copies[id(x)]

    def own(values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: copied(x) for name, x in values.items()}

    return torch.export.ExportedProgram(
        root=program.graph_module, graph=program.graph, graph_signature=program.graph_signature,
        state_dict=own(program.state_dict), range_constraints=program.range_constraints,
        module_call_graph=program.module_call_graph, example_inputs=program.example_inputs,
        constants=own(program.constants), verifiers=program.verifiers,
    )  # fmt: skip


class Importer:
    """Writes `main` node by node; sizes that are given take the place of their symbols."""

    def __init__(
        self, program: ExportedProgram, keep_params: bool, custom: CustomConverters, sizes: Mapping[str, int],
        states_as_inputs: bool = False,
    ):  # fmt: skip
        self.sizes, self.states_as_inputs = dict(sizes), states_as_inputs
        self.program, self.keep_params, self.custom = program, keep_params, custom
        self.emitter = make_emitter()
        self.values: dict[fx.Node, Value] = {}
        self.symbols: dict[str, SizeVar] = {}
        self.inputs: list[Var] = []
        self.params: list[tuple[Var, torch.Tensor]] = []
        self.states: list[
            tuple[Var, torch.Tensor, str]
        ] = []  # of buffers that change: input, first value, node of the next

    def run(self, unwrap: bool, no_bind: bool) -> IRModule:
        self.refuse()
        builder = self.emitter.builder
        self.placeholders()
        with builder.function("main"):
            with builder.dataflow():
                for node in needed_calls(self.program.graph, also=() if self.emitter.data is None else (SAID,)):
                    self.call(node)
                outputs = self.outputs()
                if len(outputs) == 1 and unwrap:
                    result: Value = builder.emit_output(outputs[0])
                elif no_bind:
                    result = Tuple(tuple(builder.emit_output(o) for o in outputs))
                else:
                    result = builder.emit_output(Tuple(tuple(outputs)))
            builder.emit_func_output(result, [*self.inputs, *(s[0] for s in self.states), *(v for v, _ in self.params)])
        return self.finished(builder.get())

    def refuse(self, may_call: bool = False) -> None:
        """Raise ImportModelError for operators without converter, and for writes that cannot be followed.

        may_call  not for operators that PyTorch can compute between two stages; without, the error for these alone is
                  a LibraryNeededError
        """
        missing: dict[str, list[str]] = {}
        outer, are_callable = set(self.program.graph.nodes), True
        for node in all_nodes(self.program):
            if is_known(node, self.custom):
                continue
            is_callable = node in outer and can_call(node)
            are_callable = are_callable and is_callable
            if not (is_callable and may_call):
                missing.setdefault(str(node.target), []).append(node.name)
        refuse_unsupported(missing, LibraryNeededError if are_callable else ImportModelError)
        if writer := next((n for n in all_nodes(self.program) if writes(n) and not is_plain_write(n)), None):
            raise ImportModelError(
                f"{writer.target} changes a tensor in place", where=f"node '{writer.name}'",
                hint="import with run_ep_decomposition=True",
            )  # fmt: skip

    def first_states(self) -> dict[str, Any]:
        """Copies of the buffers that change, as they are in the program, by the names of the inputs that they are."""
        return {var.name: array.copy() for var, array, _ in self.states}

    def finished(self, module: IRModule) -> IRModule:
        if bounds := size_bounds(self.program, self.symbols):
            module["main"] = module["main"].with_attr("size_bounds", bounds)
        if self.keep_params:
            main = module["main"].with_attr("num_input", len(self.inputs) + len(self.states))
            module["main"] = main.with_attr("params", tuple(value for _, value in self.params))
        return module

    def placeholders(self) -> None:
        signature = self.program.graph_signature
        stored = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        lifted = signature.inputs_to_lifted_tensor_constants
        for node in self.program.graph.nodes:
            if node.op != "placeholder":
                continue
            if node.name in stored or node.name in lifted:
                self.weight(node, stored.get(node.name) or lifted[node.name], node.name in lifted)
            else:
                self.input(node)

    def weight(self, node: fx.Node, target: str, is_lifted: bool) -> None:
        program = self.program
        tensor = program.constants[target] if target in program.constants else program.state_dict[target]
        array = array_of(tensor, target)
        changed = {buffer: name for name, buffer in program.graph_signature.buffers_to_mutate.items()}
        if target in changed and array.dtype.kind == "c":
            raise ImportModelError(f"the program changes its buffer '{target}', which is of complex numbers")
        if target in changed:
            if not self.states_as_inputs:
                raise ImportModelError(
                    f"the program changes its buffer '{target}' with every call",
                    hint="autosched.build(program) keeps it; states_as_inputs=True makes it an input and an output",
                )
            var = Var(node.name, TensorStructInfo(array.shape, str(array.dtype)))
            self.states.append((var, array, changed[target]))
            self.values[node] = var
            return
        if not self.keep_params or is_lifted or array.dtype.kind != "f":
            self.values[node] = constant_of(array)
            return
        var = Var(node.name, TensorStructInfo(array.shape, str(array.dtype)))
        self.params.append((var, array))
        self.values[node] = var

    def input(self, node: fx.Node) -> None:
        value = node.meta["val"]
        if not hasattr(value, "shape"):
            self.values[node] = value  # a number that was fixed when the program was exported
            return
        if str(value.dtype) in PARTS:
            raise ImportModelError(
                f"input '{node.name}' is of complex numbers", hint="let the model take torch.view_as_real(...) of them"
            )
        dims = tuple(self.dim(node.name, d) for d in value.shape)
        var = Var(node.name, TensorStructInfo(dims, self.emitter.dtype(value.dtype)))
        self.inputs.append(var)
        self.values[node] = var

    def dim(self, name: str, size: object) -> Value:
        """A dimension of an input: a number, or the symbol of PyTorch's name. Raises ImportModelError for a formula."""
        if isinstance(size, int):
            return size
        if (known := size_value(size, self.sizes)) is not None:
            return known
        found = size_of_text(str(size), lambda symbol: self.symbols.setdefault(symbol, SizeVar(symbol, "int64")))
        if found is None:
            raise ImportModelError(
                f"input '{name}' has the dynamic dimension {size}", hint="give shapes of the inputs (--shapes)"
            )
        return found

    def size(self, node: fx.Node, name: str) -> bool:
        """Compute sizes: dimensions of tensors, and arithmetic on them; tells whether the node was one.

        A size that becomes a float is a 0-d tensor.
        """
        args = map_arguments(tuple(node.args), self.values.__getitem__)
        if name in SIZE_OF:
            self.values[node] = args[0].struct_info.dims[args[1]]
            return True
        if name == "sym_float" and isinstance(args[0], PrimExpr):
            self.values[node] = self.emitter.as_dtype(args[0], "float64")
            return True
        if name in SIZES and any(isinstance(a, PrimExpr) for a in args):
            if not all(isinstance(a, int | PrimExpr) for a in args):
                return False
            self.values[node] = plain(SIZES[name](*args))
            return True
        if self.emitter.data is not None and name in CONDITIONS and any(isinstance(a, PrimExpr) for a in args):
            self.values[node] = E.compare(CONDITIONS[name], *(E.to_expr(a, "int64") for a in args))
            return True
        return False

    def holds(self, condition: Value) -> bool:
        """Whether what a program says of sizes is true in every call, by what is known of them."""
        if not isinstance(condition, PrimExpr):
            return bool(condition)
        limits = size_bounds(self.program, self.symbols)
        analyzer = Analyzer()
        analyzer.bounds.update({v: limits.get(name, (1, None)) for name, v in self.symbols.items()})
        for size, most in self.emitter.data.most.items() if self.emitter.data is not None else ():
            analyzer.bounds[size] = (0, None if most is None else analyzer.bound(most)[1])
        return analyzer.can_prove(condition)

    def number(self, node: fx.Node) -> bool:
        """Compute Python's numbers with Python's functions; tells whether the node was one of these."""
        if hasattr(node.target, "_schema") or node.kwargs or name_of_module(node.target) not in NUMBER_MODULES:
            return False
        args = map_arguments(tuple(node.args), self.values.__getitem__)
        if not all(isinstance(a, int | float) for a in args):
            return False
        self.values[node] = node.target(*args)
        return True

    def call(self, node: fx.Node) -> None:
        self.emitter.node, self.emitter.source = node.name, node
        if is_control(node.target):
            self.values[node] = import_control(self, node)
            return
        name = operator_name(node.target)
        if name in CHECKS or self.size(node, name):
            if name == SAID and self.emitter.data is not None and not self.holds(self.at(node.args[0])):
                raise self.emitter.needs_data(f"a call has to find out: {node.args[1]}")
            return
        if self.number(node):
            return
        custom = self.custom.get(name) or self.custom.get(node.target) or self.custom.get(name.rpartition("::")[2])
        if custom is not None:
            self.values[node] = bound(self.emitter, custom(node, self.emitter))
            return
        if name not in CONVERTERS and can_call(node):
            raise LibraryNeededError(f"{node.target} has no kernel", where=f"node '{node.name}'")
        args = map_arguments(tuple(node.args), self.values.__getitem__)
        kwargs = {k: map_arguments(v, self.values.__getitem__) for k, v in node.kwargs.items()}
        try:
            value = run_converter(self.emitter, name, args, _without_devices(kwargs))
        except ImportModelError as error:
            if error.hint or isinstance(error, DataNeededError):
                raise
            if not self.has_open_sizes and can_call(node):
                raise LibraryNeededError(error.message, where=error.where) from error
            if not self.symbols:
                raise
            hint = f"its sizes {', '.join(self.symbols)} are dynamic: give shapes of inputs (--shapes)"
            raise ImportModelError(error.message, where=error.where, hint=hint) from error
        self.agrees(node, value)
        if _reads_what_is_left_out(node, value) and can_call(node):
            raise LibraryNeededError(f"{node.target}: gradients need more of its results", where=f"node '{node.name}'")
        self.values[node] = value
        if writes(node):
            self.rebind(node, value)

    def at(self, value: object) -> Value:
        """What became of nodes: expressions, numbers, the graphs of control flow."""
        return map_arguments(value, self.value)

    @property
    def has_open_sizes(self) -> bool:
        """Whether sizes are symbols."""
        return bool(self.symbols)

    def value(self, node: fx.Node) -> Value:
        return (
            operator.attrgetter(node.target)(node.graph.owning_module) if node.op == "get_attr" else self.values[node]
        )

    def subgraph(self, graph_module: fx.GraphModule, args: Sequence[object]) -> tuple[Value, ...]:
        """What the graph of a branch or of a loop's body gives for these values."""
        given = iter(args)
        for node in graph_module.graph.nodes:
            if node.op == "placeholder":
                self.values[node] = next(given)
            elif node.op == "get_attr" and hasattr(self.value(node), "detach"):
                self.values[node] = constant_of(array_of(self.value(node), node.target))
            elif node.op == "call_function":
                self.call(node)
            elif node.op == "output":
                results = map_arguments(node.args[0], self.values.__getitem__)
                return tuple(results) if isinstance(results, tuple | list) else (results,)
        return ()

    def rebind(self, node: fx.Node, value: object) -> None:
        """Later readers of what a node wrote over see the new value."""
        while writes(node):
            node = node.args[0]
            self.values[node] = value

    def agrees(self, node: fx.Node, value: Value) -> None:
        """Raise ImportModelError where a result's dtype or sizes are not those that PyTorch noted for it."""
        noted = node.meta.get("val")
        pairs = zip(value, noted) if isinstance(value, tuple) and isinstance(noted, tuple | list) else [(value, noted)]
        for ours, theirs in pairs:
            if not isinstance(ours, Expr | Complex) or not hasattr(theirs, "dtype"):
                continue
            info = info_of(ours.real if isinstance(ours, Complex) else ours)
            sizes = tuple(theirs.shape)
            is_alike = isinstance(ours, Complex) == (str(theirs.dtype) in PARTS)
            if not is_alike or info.dtype != (PARTS.get(str(theirs.dtype)) or self.emitter.dtype(theirs.dtype)):
                raise self.emitter.fail(f"{node.target} gives {theirs.dtype}, and {info.dtype} here")
            if all(isinstance(s, int) for s in sizes) and info.is_static and info.static_shape != sizes:
                raise self.emitter.fail(f"{node.target} gives the shape {sizes}, and {info.static_shape} here")

    def outputs(self) -> list[Expr]:
        """The user's outputs, then the states' new values. What else the program gives, changed inputs, is left out."""
        (node,) = (n for n in self.program.graph.nodes if n.op == "output")
        given = {n.name: n for n in node.args[0] if hasattr(n, "name") and n in self.values}
        wanted = [n for n in self.program.graph_signature.user_outputs if n in given]
        results = [self.values[given[name]] for name in (*wanted, *(name for _, _, name in self.states))]
        for result in results:
            refuse_complex(self.emitter, result)
        return results


def _reads_what_is_left_out(node: fx.Node, value: Value) -> bool:
    """Whether the program reads one of several results that its converter gives no value."""
    if not isinstance(value, tuple) or None not in value:
        return False
    noted = node.meta.get("val")
    items = [u for u in node.users if operator_name(u.target) == "getitem" and u.users]
    return any(value[u.args[1]] is None and hasattr(noted[u.args[1]], "dtype") for u in items)


def _without_devices(kwargs: Mapping[str, object]) -> dict[str, object]:
    return {
        k: v for k, v in kwargs.items() if k not in ("device", "pin_memory", "layout", "memory_format", "non_blocking")
    }

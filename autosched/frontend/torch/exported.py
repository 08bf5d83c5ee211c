"""From an exported program (torch.export) to an IRModule with one function, `main`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autosched.errors import ImportModelError, InvalidTypeError, ShapeError
from autosched.frontend.data_sizes import DataSizes
from autosched.frontend.size_arithmetic import BY_DATA, larger, plain, size_of_text, smaller
from autosched.frontend.stages import DataNeededError, LibraryNeededError
from autosched.frontend.torch.calls import can_call, is_ordered
from autosched.frontend.torch.complex_values import PARTS, Complex
from autosched.frontend.torch.control import all_nodes, import_control, is_control
from autosched.frontend.torch.emitter import Value, info_of
from autosched.frontend.torch.graph import (
    UNFIT,
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
from autosched.frontend.torch.in_place import is_plain_write, updates_statistics, writes
from autosched.frontend.torch.registry import CONVERTERS
from autosched.frontend.torch.rules import all_rules, core_rules
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

KEPT_WHOLE = (  # operators for which we have something better than their decomposition
    "linear", "conv1d", "conv2d", "scaled_dot_product_attention", "layer_norm", "group_norm", "batch_norm", "gelu",
    "silu", "hardswish", "hardsigmoid", "relu6", "softmax", "log_softmax", "matmul", "einsum", "rms_norm", "embedding",
    "adaptive_avg_pool2d", "max_pool2d", "avg_pool2d", "dropout", "split", "chunk", "pad", "channel_shuffle",
    "pixel_shuffle", "elu", "leaky_relu", "softplus", "mish", "addmm", "stack", "unbind", "one_hot", "bucketize",
    "bilinear",
)  # fmt: skip
MAY_BE_VIEWS = (
    "dropout",
    "einsum",
    "pad",
    "channel_shuffle",
)  # of what they take: kept whole they hide writes through them
SIZES: Mapping[str, Callable[..., Value]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv, "mod": operator.mod,
    "sym_max": larger, "sym_min": smaller, "neg": operator.neg,
}  # fmt: skip
SIZE_OF = ("sym_size", "sym_size.int")
CONDITIONS: Mapping[str, type[E.CmpOp]] = {"ge": E.GE, "le": E.LE, "gt": E.GT, "lt": E.LT, "eq": E.EQ, "ne": E.NE}
NUMBER_MODULES = ("_operator", "math", "torch", "builtins")  # whose functions compute with sizes
SAID = "_assert_scalar"
CHECKS = (SAID, "sym_constrain_range_for_size", "_assert_async", "_assert_tensor_metadata")


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
    least = {str(s): _number(r.lower) for s, r in program.range_constraints.items()}
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


def dynamic_inputs(program: ExportedProgram) -> dict[str, tuple[int | torch.SymInt, ...]]:
    """The user's tensors by name, with their dimensions: numbers, and what PyTorch has for symbolic ones."""
    wanted = set(program.graph_signature.user_inputs)
    nodes = [n for n in program.graph.nodes if n.op == "placeholder" and n.name in wanted]
    return {n.name: tuple(n.meta["val"].shape) for n in nodes if hasattr(n.meta["val"], "shape")}


def size_value(size: torch.SymInt, sizes: Mapping[str, int]) -> int | None:
    """The number that a symbolic size is when its symbols are; None where one of them is not known."""
    expression = size.node.expr
    names = [str(s) for s in expression.free_symbols]
    if any(n not in sizes for n in names):
        return None
    return int(expression.subs({s: sizes[str(s)] for s in expression.free_symbols}))


def sizes_of(program: ExportedProgram, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """The sizes of a program's symbols from the shapes of inputs.

    Raises  ShapeError for shapes that do not fit the program, each other, or the bounds it was exported with.
    """
    inputs, sizes = dynamic_inputs(program), dict[str, int]()
    for name, shape in shapes.items():
        if name not in inputs:
            raise ImportModelError(f"the program has no input '{name}'", hint=f"it has {', '.join(inputs)}")
        if len(shape) != len(inputs[name]):
            raise ShapeError(f"input '{name}' has {len(inputs[name])} dimensions, not {len(shape)}")
        for size, given in zip(inputs[name], shape, strict=True):
            if not isinstance(size, int) and size.node.expr.is_symbol:
                sizes.setdefault(str(size), given)
    for name, shape in shapes.items():
        for size, given in zip(inputs[name], shape, strict=True):
            known = size if isinstance(size, int) else size_value(size, sizes)
            if known is not None and known != given:
                raise ShapeError(f"input '{name}' is of shape {list(inputs[name])}, not {list(shape)}")
    for symbol, bounds in program.range_constraints.items():
        low, high = _limits(bounds)
        if (value := sizes.get(str(symbol))) is not None and not (low <= value and (high is None or value <= high)):
            reach = f"{low} and more" if high is None else f"{low} to {high}"
            raise ShapeError(f"the size {symbol} is {value}; the program was exported for {reach}")
    return sizes


def is_bound(program: object, shapes: Mapping[str, Sequence[int]]) -> bool:
    """Whether all sizes of a program's inputs are known once these shapes are."""
    symbols: set[str] = set()
    for dims in dynamic_inputs(program).values():
        symbols |= {str(s) for d in dims if not isinstance(d, int) for s in d.node.expr.free_symbols}
    return symbols <= set(sizes_of(program, shapes))


def has_sizes_of_data(program: ExportedProgram) -> bool:
    """Whether sizes or numbers in a program follow from data, by what PyTorch noted of them."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return any(free_unbacked_symbols(node.meta.get("val")) for node in program.graph.nodes)


def has_empty_values(program: ExportedProgram) -> bool:
    """Whether a tensor in a program has no elements, by what PyTorch noted of them."""
    notes = [x for n in program.graph.nodes if (x := n.meta.get("val")) is not None]
    tensors = [t for x in notes for t in (x if isinstance(x, tuple | list) else (x,)) if hasattr(t, "shape")]
    return any(isinstance(d, int) and d == 0 for t in tensors for d in t.shape)


def size_bounds(program: ExportedProgram, names: Iterable[str]) -> dict[str, tuple[int, int | None]]:
    """The least and the most that symbols may be, by name; each at least 1."""
    known = {str(symbol): _limits(r) for symbol, r in program.range_constraints.items()}
    found = {name: (max(known[name][0], 1), known[name][1]) for name in names if name in known}
    return {name: bounds for name, bounds in found.items() if bounds != (1, None)}


def _limits(bounds: Any) -> tuple[int, int | None]:
    """The least and the most of one of PyTorch's ranges.

    PyTorch notes 2 as the least of sizes that it took for neither 0 nor 1, and runs its programs for 1 too.
    """
    low, high = _number(bounds.lower), _number(bounds.upper)
    return (0 if low is None else 1 if low == 2 else low), high


def _number(bound: object) -> int | None:
    """A bound as an integer; None for infinity."""
    is_number = isinstance(bound, int) or getattr(bound, "is_Integer", False)
    return int(bound) if is_number else None  # type: ignore[call-overload]


def decomposed(program: ExportedProgram, without_writes: bool = False) -> ExportedProgram:
    """The program with what we have no converter for taken apart, as far as PyTorch knows how.

    without_writes  also where tensors are changed in place and nobody else shows their memory
    """

    def is_fine(node: fx.Node) -> bool:
        is_kept = not writes(node) or (is_plain_write(node) and not without_writes)
        return _is_known(node, {}) and is_kept and not updates_statistics(node)

    if all(map(is_fine, all_nodes(program))):
        return program
    table = core_rules()
    shares_memory = any(writes(n) and not is_plain_write(n) for n in all_nodes(program))
    for op in list(table.keys()):
        name = operator_name(op)
        if name in KEPT_WHOLE and name in CONVERTERS and not (shares_memory and name in MAY_BE_VIEWS):
            del table[op]
    for op, rule in all_rules().items():  # all at once: each pass takes PyTorch as long as the export itself
        if op not in table and operator_name(op) not in CONVERTERS:
            table[op] = rule
    found = _further_decomposed(_taken_apart(program, table), frozenset())
    if not (whole := _to_be_called(program, found)):
        return found
    kept = {op: rule for op, rule in table.items() if op not in whole}
    return _further_decomposed(_taken_apart(program, kept), whole)


def _taken_apart(program: ExportedProgram, rules: Mapping[Any, Callable[..., object]]) -> ExportedProgram:
    """A program with operators replaced by rules. Raises ImportModelError where PyTorch cannot do that."""
    try:
        return program.run_decompositions(dict(rules))
    except (RuntimeError, *UNFIT) as error:
        text = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        hint = "tensors that the program writes to have to be buffers (register_buffer); export it with strict=True"
        raise ImportModelError(f"PyTorch cannot take the program apart: {text}", hint=hint) from error


def _further_decomposed(program: ExportedProgram, whole: Container[object]) -> ExportedProgram:
    """With what is left and unknown here taken apart by all rules that PyTorch has, but for some operators."""
    rules = all_rules()
    lacking = {n.target for n in all_nodes(program) if not _is_known(n, {})}
    table = {op: rules[op] for op in lacking if op in rules and op not in whole}
    return _taken_apart(program, table) if table else program


def _to_be_called(program: ExportedProgram, parts: ExportedProgram) -> frozenset[object]:
    """Operators of a program that PyTorch can compute, of whose parts it cannot compute one that has no converter.

    Nor one whose place in order is given by a token, which is no value of a stage.
    """
    names = {
        n.meta["from_node"][0].name
        for n in parts.graph.nodes
        if not _is_known(n, {}) and n.meta.get("from_node") and (is_ordered(n) or not can_call(n))
    }
    return frozenset(n.target for n in program.graph.nodes if n.name in names and can_call(n))


def needed_calls(graph: fx.Graph, ready: Container[fx.Node] = (), also: Container[str] = ()) -> list[fx.Node]:
    """The calls that outputs and writes need, in order; numbers that PyTorch's checks alone read are left out.

    ready  nodes that are computed already, with what these alone need
    also   names of operators that are needed as well
    """
    needed: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        if node in ready:
            continue
        is_end = node.op == "output" or (
            node.op == "call_function" and (writes(node) or operator_name(node.target) in also)
        )
        if is_end or not needed.isdisjoint(node.users):
            needed.add(node)
    return [n for n in graph.nodes if n.op == "call_function" and n in needed]


def _is_known(node: fx.Node, custom: CustomConverters) -> bool:
    if node.op != "call_function" or is_control(node.target):
        return True
    name = operator_name(node.target)
    if name in ("sym_size", "sym_size.int") or name.startswith("sym_"):
        return True
    if not hasattr(node.target, "_schema") and name_of_module(node.target) in NUMBER_MODULES:
        return True
    names = (name, name.rpartition("::")[2])
    return name in CONVERTERS or any(n in custom for n in (*names, node.target)) or name in CHECKS


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
            if _is_known(node, self.custom):
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


def name_of_module(function: object) -> str:
    return getattr(function, "__module__", None) or ""


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

"""From an ONNX graph to an IRModule with one function, `main`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.errors import AutoschedError, ImportModelError, InvalidTypeError
from autosched.extensions import load_extensions
from autosched.frontend.loops import add_loop, variables
from autosched.frontend.onnx.contents import array_of, attributes_of, check_size, first_line
from autosched.frontend.onnx.functions import (
    Functions,
    captured,
    inline,
    inputs_of,
    own_functions,
    renamed_body,
    split_node,
    standard_function,
    standard_twin,
)
from autosched.frontend.onnx.graph_nodes import OUR_DOMAINS, node_name, opset_of, refuse_unsupported, sort_nodes
from autosched.frontend.onnx.input_shapes import input_dims, open_shapes, quoted, shape_text, shared_sizes, times
from autosched.frontend.onnx.large_tensors import ModelParts
from autosched.frontend.onnx.library import LibraryCall, run_library
from autosched.frontend.onnx.model_file import Shapes, check_model, parse_model, parse_shapes, read_parts
from autosched.frontend.onnx.node import KERNEL_DTYPES, Held, Node, NoKernelError, RunTimeError
from autosched.frontend.onnx.old_opsets import updated
from autosched.frontend.onnx.packed import TAKES_PACKED, PackedWeight
from autosched.frontend.onnx.registry import CONVERTERS
from autosched.frontend.onnx.sizes import BROADCASTS, Sizes, alike, growing_sizes, of_sizes
from autosched.frontend.size_arithmetic import EmptySizeVar, size_of_text, uncomputed
from autosched.frontend.stages import is_known
from autosched.ir.module import GlobalVar, IRModule
from autosched.ir.node import FrozenDict, Span
from autosched.relax import op
from autosched.relax.block_builder import BlockBuilder
from autosched.relax.expr import Constant, Expr, ShapeExpr, Tuple, TupleGetItem, Var
from autosched.relax.rewrite import with_origin
from autosched.relax.struct_info import TensorStructInfo, same_info, tensor_infos
from autosched.runtime.names import identifier
from autosched.tir.expr import PrimExpr, SizeVar
from autosched.tir.size_expr import MAY_BE_EMPTY

if TYPE_CHECKING:
    import onnx

MOST_WRITTEN_OUT = 50_000  # nodes that functions and steps of loops become: about ten seconds of importing
UNFIT = (
    *(TypeError, ValueError, IndexError, KeyError, AttributeError, ArithmeticError, AssertionError),
    *(MemoryError, RecursionError),
)


def from_onnx(
    model: onnx.ModelProto | ModelParts | bytes | str | Path,
    shape_dict: Mapping[str, Sequence[int]] | None = None,
    dtype_dict: str | Mapping[str, str] | None = "float32",
    opset: int | None = None,
    keep_params_in_input: bool = False,
    sanitize_input_names: bool = True,
    *,
    symbolic: bool = True,
) -> IRModule:
    """Import a model (a ModelProto, its bytes, or a file) as a module whose `main` computes it.

    shape_dict            sizes of inputs whose dimensions the model leaves open
    dtype_dict            dtype of inputs for which the model has none
    opset                 read operators as this opset has them; the model's own by default
    keep_params_in_input  weights become parameters after the inputs; their values are the attribute `params`
    sanitize_input_names  input names become identifiers ("gpu_0/data_0" -> "gpu_0_data_0")
    symbolic              dimensions that the model or `shape_dict` names stay symbols; else their sizes are needed
    Raises ImportModelError listing all unsupported operators at once, naming the inputs of unknown shape, or the node
    that needs sizes which are symbols.
    """
    fill_tables()
    contents: Mapping[int, memoryview] = {}
    if isinstance(model, str | Path):
        model = read_parts(model)
    if isinstance(model, ModelParts):
        model, contents = model.message, model.contents
    elif isinstance(model, bytes):
        model = parse_model(model)
    elif hasattr(model, "graph") and hasattr(model, "opset_import"):
        check_model(model)
    else:
        raise InvalidTypeError(f"from_onnx takes a ModelProto, its bytes or a path, not a {type(model).__name__}")
    make = partial(
        Importer, dtypes=dtype_dict, keep_params=keep_params_in_input, sanitize=sanitize_input_names, symbolic=symbolic
    )  # fmt: skip
    return import_parts(make, ModelParts(model, contents), shape_dict or {}, opset)


def import_parts(
    make: Callable[..., Importer], parts: ModelParts, shapes: Mapping[str, Sequence[int]] = FrozenDict(),
    opset: int | None = None, libraries: bool = False,
) -> IRModule:  # fmt: skip
    """A model, imported by what `make` gives for its graph, opset, functions and contents; the rest as `from_onnx`.

    libraries  whether operators that only libraries compute are let through
    """
    fill_tables()
    model = parts.message
    version, functions = opset or opset_of(model), own_functions(model)
    try:
        refuse_unsupported(model.graph, version, functions, libraries)
        return make(model.graph, version, functions, contents=parts.contents).run(shapes)
    except AutoschedError:
        raise
    except UNFIT as error:  # such as a name that is no text
        raise ImportModelError(f"the model's parts do not fit each other: {first_line(error)}") from error


def fill_tables() -> None:
    """Import what registers itself, extensions last."""
    import autosched.frontend.onnx.converters
    import autosched.frontend.onnx.numpy_functions
    import autosched.frontend.onnx.random_functions
    import autosched.frontend.onnx.text_functions  # noqa: F401

    load_extensions()


class Importer:
    """Nodes in order, each converted; see `from_onnx`."""

    def __init__(
        self,
        graph: onnx.GraphProto,
        opset: int,
        functions: Functions,
        dtypes: str | Mapping[str, str] | None = None,
        keep_params: bool = False,
        sanitize: bool = True,
        symbolic: bool = True,
        contents: Mapping[int, memoryview] = FrozenDict(),
    ):
        self.graph, self.opset, self.functions, self.dtypes = graph, opset, functions, dtypes
        self.keep_params, self.sanitize, self.symbolic = keep_params, sanitize, symbolic
        self.contents = contents  # bytes of initialisers that do not hold them, by position
        self.symbols: dict[str, SizeVar] = {}
        self.growing = growing_sizes(graph)
        self.has_sizes = False
        self.written_out = 0
        self.values: dict[str, Any] = {}  # expressions; None for what an optional leaves out
        self.names: dict[str, str] = {}
        self.params: list[tuple[Var, np.ndarray]] = []
        self.builder = BlockBuilder()

    def run(self, shapes: Mapping[str, Sequence[int]]) -> IRModule:
        for i, tensor in enumerate(self.graph.initializer):
            array = array_of(tensor, f"tensor '{tensor.name}'", self.contents.get(i))
            self.values[tensor.name] = self.initializer(tensor.name, array)
        if self.graph.sparse_initializer:
            raise ImportModelError("sparse initialisers are not supported")
        inputs = self.inputs(shapes)
        with self.builder.function("main"):
            with self.builder.dataflow():
                self.nodes()
                results = [self.builder.emit_output(self.result(o.name), self.name(o.name)) for o in self.graph.output]
            params = [*inputs, *(v for v, _ in self.params)]
            self.builder.emit_func_output(results[0] if len(results) == 1 else Tuple(tuple(results)), params)
        for o in self.graph.output:
            if any(0 in _known(info) for info in tensor_infos(self.values[o.name].struct_info)):
                raise RunTimeError(f"output '{o.name}' has no elements")
        module = self.builder.get()
        main = module["main"].with_attr("num_input", len(inputs)) if self.keep_params else module["main"]
        if self.keep_params:
            main = main.with_attr("params", tuple(value for _, value in self.params))
        if self.symbols and self.has_sizes:  # rules about sizes know that none is 0
            least = {v.name: int(not isinstance(v, EmptySizeVar)) for v in self.symbols.values()}
            main = main.with_attr("size_bounds", {name: (low, None) for name, low in least.items() if low})
        if empty := tuple(v.name for v in self.symbols.values() if isinstance(v, EmptySizeVar)):
            main = main.with_attr(MAY_BE_EMPTY, empty)
        module["main"] = main
        return module

    def nodes(self) -> None:
        """Convert all nodes, each under a name of its own."""
        names: set[str] = set()
        for index, node in enumerate(sort_nodes(self.graph.node, self.values)):
            name = node_name(node, index)
            if name in names:
                name = f"{name}_{index}"
            names.add(name)
            self.node(node, name)

    def initializer(self, name: str, array: np.ndarray) -> Expr | Held:
        if not is_tensor(array):
            return Held(array, is_known=True)
        if not self.keep_params or array.dtype.kind != "f":  # integers are shapes and positions: they stay constants
            return Constant(array)
        var = Var(self.name(name), TensorStructInfo(array.shape, str(array.dtype)))
        self.params.append((var, array))
        return var

    def name(self, name: str) -> str:
        """What a value of the model is called here; where two names give one identifier, the later gets a number."""
        if not self.sanitize:
            return name
        if name not in self.names:
            plain, taken = identifier(name), set(self.names.values())
            self.names[name] = next(n for n in chain((plain,), (f"{plain}_{i}" for i in count(1))) if n not in taken)
        return self.names[name]

    def result(self, name: str) -> Expr:
        if name not in self.values:
            raise ImportModelError(f"output '{name}' is computed by no node")
        found = self.values[name]
        if isinstance(found, Held) and (tensor := found.as_tensor()) is not None:
            found = self.values[name] = self.bind(tensor)
        if not isinstance(found, Expr):
            raise RunTimeError(f"output '{name}' is nothing that kernels give")
        return found

    # --- inputs ------------------------------------------------------------------------------------------------------

    def inputs(self, shapes: Mapping[str, Sequence[int]]) -> list[Var]:
        declared = {v.name: v for v in self.graph.input if v.name not in self.values}
        by_name = self.given_shapes(declared, shapes)
        sizes = {n: self.sizes(v, by_name.get(n)) for n, v in declared.items()}
        unclear = [(n, dims) for n, dims in sizes.items() if None in dims]
        if unclear:
            raise open_shapes(declared, unclear)
        result = []
        for name, value in declared.items():
            shape = sizes[name]
            numbers = [d if isinstance(d, int) else None for d in shape]
            check_size(numbers, f"input '{name}'")
            if 0 in numbers:
                raise RunTimeError(f"input '{name}' of shape {times(numbers)} has no elements")
            var = Var(self.name(name), TensorStructInfo(shape, self.dtype(value)))
            self.values[name] = var
            result.append(var)
        return result

    def given_shapes(
        self, declared: Mapping[str, onnx.ValueInfoProto], shapes: Mapping[str, Sequence[int]]
    ) -> dict[str, tuple[int, ...]]:
        """The shapes that were given, by the model's own names, and those that follow from shared dimensions."""
        by_name = {name: tuple(shapes[name]) for name in shapes if name in declared}
        ours = {n: self.name(n) for n in declared}
        by_name |= {n: tuple(shapes[ours[n]]) for n in declared if n not in shapes and ours[n] in shapes}
        known = {*declared, *ours.values()}
        if unknown := [name for name in shapes if name not in known]:
            raise ImportModelError(f"the model has no input {quoted(unknown)}", hint=f"it has {quoted(declared)}")
        return shared_sizes(declared, by_name)

    def sizes(self, value: onnx.ValueInfoProto, given: tuple[Any, ...] | None) -> tuple[Any, ...]:
        """The dimensions of an input: numbers, symbols by name where these may stay, None where nobody says."""
        named = given is not None and not all(isinstance(d, int) for d in given)
        if named and not self.symbolic:
            raise ImportModelError(f"input '{value.name}': sizes are numbers, got {list(given or ())}")
        numbers = input_dims(value, None if named else given)
        if not self.symbolic:
            return numbers
        own = [d.dim_param for d in value.type.tensor_type.shape.dim] or [""] * len(numbers)
        names = [d if isinstance(d, str) else "" for d in given] if named and given is not None else own
        if named and given is not None:
            if len(given) != len(numbers):
                raise ImportModelError(f"input '{value.name}' has shape {shape_text(value)} in the model")
            numbers = tuple(n if n is not None else g if isinstance(g, int) else None for n, g in zip(numbers, given))
        return tuple(self.symbol(name) if n is None and name else n for n, name in zip(numbers, names))

    def symbol(self, name: str) -> PrimExpr:
        """The symbol of that name, one for all inputs; of sums and products of other inputs' names what they are."""
        found = None if name in self.symbols or name.isidentifier() else size_of_text(name, self.symbol_of_input)
        kind = EmptySizeVar if name in self.growing else SizeVar
        return self.symbols.setdefault(name, kind(identifier(name), "int64")) if found is None else found

    def symbol_of_input(self, name: str) -> PrimExpr | None:
        """The symbol of a name that stands alone as a dimension of an input."""
        dims = (d.dim_param for v in self.graph.input for d in v.type.tensor_type.shape.dim)
        return self.symbol(name) if name in dims else None

    def dtype(self, value: onnx.ValueInfoProto) -> str:
        from onnx import helper

        kind = value.type.tensor_type.elem_type
        if kind:
            try:
                dtype = str(np.dtype(helper.tensor_dtype_to_np_dtype(kind)))
            except (KeyError, TypeError, ValueError):
                raise ImportModelError(f"input '{value.name}' has the unknown element type {kind}") from None
            if dtype not in KERNEL_DTYPES:
                raise RunTimeError(f"input '{value.name}': there are no kernels for {dtype}")
            return dtype
        default = self.dtypes if isinstance(self.dtypes, str) else (self.dtypes or {}).get(value.name)
        return default or "float32"

    # --- nodes -------------------------------------------------------------------------------------------------------

    def node(self, proto: onnx.NodeProto, name: str, opset: int | None = None) -> None:
        opset = opset or self.opset
        missing = [i for i in inputs_of(proto) if i not in self.values]
        if missing:
            raise ImportModelError(f"input {missing[0]!r} is computed by no node before it", where=f"node '{name}'")
        if proto.op_type not in TAKES_PACKED or proto.domain not in ("", "ai.onnx"):
            for i in inputs_of(proto):
                if isinstance(packed := self.values[i], PackedWeight):
                    self.values[i] = packed.as_tensor()
        inputs = [self.values[i] if i else None for i in proto.input]
        try:
            results = self.converted(proto, name, opset, inputs)
        except NoKernelError as error:
            if error.node is None:
                error.node, error.opset = proto, opset
            call = LibraryCall.of(proto, opset, name)
            if error.node is not proto or any(not is_known(x) for x in inputs) or call.is_random:
                raise
            results = tuple(map(as_constant, run_library(call, [contents_of(x) for x in inputs])))
        if results is None:
            return
        for index, output in enumerate(proto.output):
            if not output:
                continue
            if index >= len(results) or (results[index] is None and proto.domain == "com.microsoft"):
                if self.is_used(output):
                    text = f"{proto.op_type}: output {index} ('{output}') is not supported"
                    lacking = NoKernelError(text, where=f"node '{name}'")
                    lacking.node, lacking.opset = proto, opset
                    raise lacking
                continue
            self.define(output, results[index])
            for info in (
                ()
                if results[index] is None or isinstance(results[index], Held)
                else tensor_infos(self.values[output].struct_info)
            ):
                check_size(_known(info), f"output '{output}' of node '{name}'")

    def define(self, output: str, value: object) -> None:
        """Give a value its name."""
        self.values[output] = value

    def converted(self, proto: onnx.NodeProto, name: str, opset: int, inputs: Sequence[Any]) -> tuple[Any, ...] | None:
        """What a node gives; None where it was a call of a function, whose own nodes have given it."""
        if self.call(proto, name, opset, inputs):
            return None
        node = self.as_node(proto, name, opset, inputs)
        key = proto.op_type if proto.domain in OUR_DOMAINS else f"{proto.domain}.{proto.op_type}"
        if key not in CONVERTERS:
            raise node.no_kernel("there is no kernel for it")
        try:
            of_open = any(isinstance(x, Sizes) for x in inputs)
            self.has_sizes = self.has_sizes or of_open
            result = of_sizes(node) if key == proto.op_type and of_open else None
            if result is None:
                if key in BROADCASTS and (same := alike(node)) is not None:
                    node.inputs = same
                result = CONVERTERS[key](updated(node) if proto.domain in OUR_DOMAINS else node)
        except ImportModelError:
            raise
        except AutoschedError as error:
            kind = NoKernelError if isinstance(error, InvalidTypeError) else ImportModelError  # dtypes: a library's
            raise kind(f"{proto.op_type}: {error.message}", where=f"node '{name}'", hint=error.hint) from error
        except UNFIT as error:  # sizes and values that no rule was written for
            text = f"{proto.op_type}: its inputs and attributes do not fit each other: {first_line(error)}"
            raise ImportModelError(text, where=f"node '{name}'") from error
        results = result if isinstance(result, tuple) else (result,)
        return tuple(node.emit(x) if isinstance(x, Expr) else x for x in results)

    def as_node(self, proto: onnx.NodeProto, name: str, opset: int, inputs: Sequence[Any]) -> Node:
        """A node as converters see it."""
        origin = Span(name, 0)

        def bind(expr: Expr) -> Expr:
            return self.bind(with_origin(expr, origin))

        return Node(
            proto.op_type, name, opset, attributes_of(proto, opset, name), inputs, len(proto.output), bind,
            self.subgraph, self.builder.call_te, self.loop if self.may_loop else None,
        )  # fmt: skip

    def call(self, proto: onnx.NodeProto, name: str, opset: int, inputs: Sequence[Expr | None]) -> bool:
        """Inline a call of a function, the model's own or one of ONNX's specification; False for any other node."""
        split = split_node(proto, name)
        for node in split or ():
            self.node(node, node.name, opset)
        if split:
            return True
        function = self.functions.get((proto.domain, proto.op_type))
        if function is None and (twin := standard_twin(proto)) is not None:
            self.node(twin[0], name, twin[1])
            return True
        if function is None and proto.domain in OUR_DOMAINS and proto.op_type not in CONVERTERS:
            function = standard_function(proto, opset, inputs)
        if function is None:
            return False
        self.write_out(len(function.node), name)
        versions = [entry.version for entry in function.opset_import if entry.domain in OUR_DOMAINS]
        for node in inline(function, proto, name):
            self.node(node, node.name, versions[0] if versions else opset)
        return True

    def write_out(self, count: int, name: str) -> None:
        """Count nodes of functions and subgraphs. Raises ImportModelError where calls in calls become too many."""
        self.written_out += count
        if self.written_out > MOST_WRITTEN_OUT:
            text = f"functions, loops and branches become more than {MOST_WRITTEN_OUT} nodes"
            raise ImportModelError(text, where=f"node '{name[:200]}'")

    def subgraph(self, graph: onnx.GraphProto, arguments: Sequence[Expr], prefix: str, opset: int) -> list[Expr]:
        """Import a subgraph: its outputs for these inputs. `prefix` makes its names unique."""
        self.write_out(len(graph.node), prefix)
        names = {value.name: prefix + value.name for value in graph.input}
        self.values |= {names[v.name]: x for v, x in zip(graph.input, arguments, strict=True)}
        for tensor in graph.initializer:
            names[tensor.name] = prefix + tensor.name
            array = array_of(tensor, f"tensor '{tensor.name}'")
            self.values[names[tensor.name]] = Constant(array) if is_tensor(array) else Held(array, is_known=True)
        nodes = renamed_body(graph.node, names, prefix)
        names |= {old: new for a, b in zip(graph.node, nodes) for old, new in zip(a.output, b.output)}
        for node in sort_nodes(nodes, self.values):
            self.node(node, node.name, opset)
        return [self.result(names.get(output.name, output.name)) for output in graph.output]

    @property
    def may_loop(self) -> bool:
        """Whether loops that end by data become functions: where sizes are open, so that they are compiled once."""
        return bool(self.symbols)

    def loop(self, node: Node, going: Expr, most: Expr | None, state: Sequence[Expr]) -> tuple[Expr, ...]:
        """A loop of a node's body: over a counter, whether it goes on, and the state.

        Raises ValueNeededError where a step gives other shapes or dtypes than it takes.
        """
        body = node.attrs["body"]
        start = [Constant(np.asarray(0, np.int64)), self.bind(op.reshape(going, ())), *state]
        limit = [] if most is None else [self.bind(op.reshape(most, ()))]
        outside = {name: x for name in captured(body) if isinstance(x := self.values.get(name), Var)}
        sizes = ShapeExpr(tuple(self.symbols.values()))  # functions know those that they are given
        moving = [*limit, *outside.values(), sizes]
        types: list[Any] = [x.struct_info for x in (*start, *moving)]
        n, first, kept = len(start), len(start) + len(limit), dict(self.values)

        def written(kind: str) -> GlobalVar:
            params = variables(types)
            found = self.builder.get_unique_function_name(identifier(f"{node.name}_{kind}"))
            with self.builder.function(found, params, private=True):
                self.values |= dict(zip(outside, params[first:]))
                if kind == "test":
                    goes_on: Expr = params[1]
                    if limit:
                        goes_on = self.bind(op.logical_and(goes_on, self.bind(op.less(params[0], params[n]))))
                    self.builder.emit_func_output(goes_on)
                else:
                    goes_on, *results = node.subgraph("body", params[:n])
                    if any(not same_info(x.struct_info, t) for x, t in zip(results, types[2:n], strict=True)):
                        raise node.needs(going, "a step gives other shapes or dtypes than it takes")
                    count = self.bind(op.add(params[0], Constant(np.asarray(1, np.int64))))
                    self.builder.emit_func_output(Tuple((count, self.bind(op.reshape(goes_on, ())), *results)))
            self.values = dict(kept)
            return GlobalVar(found)

        made = add_loop(self.builder, identifier(node.name), written("test"), written("step"), start, moving, types)
        last = self.builder.emit(made)
        return tuple(self.builder.emit(TupleGetItem(last, i)) for i in range(2, n))

    def bind(self, expr: Expr) -> Expr:
        """Bind an expression to a variable of its own."""
        expr = uncomputed(expr) or expr
        return expr if isinstance(expr, Var | Constant | Tuple) else self.builder.emit(expr)

    def is_used(self, output: str) -> bool:
        return any(output in inputs_of(n) for n in self.graph.node) or any(output == o.name for o in self.graph.output)


def is_tensor(value: object) -> bool:
    """Whether kernels can take an array."""
    return isinstance(value, np.ndarray) and str(value.dtype) in KERNEL_DTYPES


def contents_of(x: object) -> Any:
    """What a library takes for an input that is known."""
    if isinstance(x, Tuple):
        return [contents_of(field) for field in x.fields]
    x = x.as_tensor() if isinstance(x, PackedWeight) else x
    return x.data if isinstance(x, Constant) else x.value if isinstance(x, Held) else None


def as_constant(value: Any) -> Any:
    """What an importer takes for a value whose contents are known."""
    if isinstance(value, list) and all(map(is_tensor, value)):
        return Tuple(tuple(Constant(np.ascontiguousarray(item)) for item in value))
    if value is None:
        return None
    return Constant(value) if is_tensor(value) else Held(value, is_known=True)


def _known(info: TensorStructInfo) -> tuple[int | None, ...]:
    """The sizes that are numbers, None for the others."""
    return () if info.shape is None else tuple(d if isinstance(d, int) else None for d in info.dims)


def load_model_file(path: str | Path, shapes: Shapes | str | None = None, **options: Any) -> IRModule:
    """Import a model file; `shapes` by input name, or as text "x:1x3x224x224".

    Raises ImportModelError in one line for a missing, empty, truncated or foreign file, for unsupported operators (all
    of them at once) and for dimensions that nobody gave a size.
    """
    given = parse_shapes(shapes) if isinstance(shapes, str) else shapes
    return from_onnx(read_parts(path), shape_dict=given, **{"symbolic": False, **options})

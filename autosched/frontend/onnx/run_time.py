"""ONNX models whose course or sizes follow from data, imported whole for the VM.

Branches become functions, one of which is called; a loop becomes a function that calls itself. A size that data says
becomes a symbol, which gets its value when the VM comes to it; so does what an operator counts with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.frontend.data_sizes import DataSizes
from autosched.frontend.loops import add_loop, variables
from autosched.frontend.onnx.contents import attributes_of
from autosched.frontend.onnx.converters.arrange import open_slice
from autosched.frontend.onnx.converters.control import MOST_STEPS
from autosched.frontend.onnx.functions import OWN_DOMAIN, captured, scan_as_loop
from autosched.frontend.onnx.importer import Importer, import_parts
from autosched.frontend.onnx.node import Node
from autosched.frontend.onnx.sizes import Sizes, sizes
from autosched.frontend.size_arithmetic import BY_DATA, EmptySizeVar, info_of, is_at_least, is_same, sliced, with_sizes
from autosched.ir.module import GlobalVar, IRModule
from autosched.relax import op
from autosched.relax.expr import (
    BindingBlock,
    Call,
    Constant,
    Expr,
    If,
    SeqExpr,
    ShapeExpr,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from autosched.relax.op.call import call_pure_packed
from autosched.relax.struct_info import (
    Dim,
    ObjectStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from autosched.relax.transform.dead_code import remove_unused_functions
from autosched.runtime.names import identifier
from autosched.runtime.vm_code import OUTPUT_NAMES
from autosched.tir.expr import PrimExpr, SizeVar
from autosched.tir.functor import free_vars

if TYPE_CHECKING:
    import onnx

    from autosched.frontend.onnx.large_tensors import ModelParts

# Inputs that say how many: none of them may be negative.
COUNTS = {"TopK": 1, "Tile": 1, "ConstantOfShape": 0, "OneHot": 1, "Split": 1}
MOST_COUNTS = 16  # integers of one value
ROUNDS = 4  # in which the dimensions that a loop's steps change are found

Dims = Sequence["Dim | None"]  # None: only a call knows


def import_for_vm(model: ModelParts) -> IRModule:
    """The model as a module with functions. Raises as `from_onnx`."""
    return import_parts(RunTimeImporter, model, libraries=True)


class RunTimeImporter(Importer):
    """Nodes as `Importer` has them, but for those whose results data decides."""

    def __init__(self, *args: Any, **more: Any):
        super().__init__(*args, **more)
        self.said: dict[tuple[str, Expr], Any] = {}  # what was made of a value, by what for
        self.by_data: list[str] = []  # symbols that may be 0
        self.n_sizes = 0
        self.data = DataSizes(self.builder, self.size)

    def run(self, shapes: Mapping[str, Sequence[int]]) -> IRModule:
        module = remove_unused_functions(super().run(shapes), ["main"])
        named = module["main"].with_attr(OUTPUT_NAMES, tuple(o.name for o in self.graph.output))
        module["main"] = named.with_attr(BY_DATA, tuple(self.by_data))
        return module

    def converted(self, proto: onnx.NodeProto, name: str, opset: int, inputs: Sequence[Any]) -> tuple[Any, ...] | None:
        key = proto.op_type if proto.domain in ("", "ai.onnx") else f"{proto.domain}.{proto.op_type}"
        inputs = list(inputs)
        if (at := COUNTS.get(key)) is not None and at < len(inputs):
            inputs[at] = self.counts(inputs[at])
        if (rule := _RULES.get(key)) is not None:
            found = rule(self, self.as_node(proto, name, opset, inputs))
            if found is not None:
                return tuple(map(self.bind, found))
        return super().converted(proto, name, opset, inputs)

    def call(self, proto: onnx.NodeProto, name: str, opset: int, inputs: Sequence[Expr | None]) -> bool:
        if proto.op_type == "Scan" and proto.domain in ("", "ai.onnx") and opset >= 9:
            attrs = attributes_of(proto, opset, name)
            if (lengths := self.one_length(proto, attrs, name, inputs)) is not None:
                for node in scan_as_loop(lengths, attrs, name):  # operators in the body are the model's own
                    self.node(node, node.name, opset if node.op_type == "Loop" else max(opset, 13))
                return True
        return super().call(proto, name, opset, inputs)

    def one_length(
        self, proto: onnx.NodeProto, attrs: Mapping[str, Any], name: str, inputs: Sequence[Expr | None]
    ) -> onnx.NodeProto | None:
        """A Scan whose inputs are said to be of the same length; None where all lengths are known."""
        first = len(inputs) - attrs["num_scan_inputs"]
        scanned = [x for x in inputs[first:] if x is not None]
        axes = [a % info_of(x).ndim for a, x in zip(attrs.get("scan_input_axes", [0] * len(scanned)), scanned)]
        lengths = [info_of(x).dims[a] for a, x in zip(axes, scanned, strict=True)]
        if all(isinstance(d, int) for d in lengths):
            return None
        length = next((d for d in lengths if isinstance(d, int)), lengths[0])
        made = type(proto)()
        made.CopyFrom(proto)
        for number, (x, axis) in enumerate(zip(scanned, axes, strict=True)):
            made.input[first + number] = f"{name}/scanned {number}"
            dims = [length if a == axis else d for a, d in enumerate(info_of(x).dims)]
            self.values[made.input[first + number]] = with_sizes(x, dims, self.bind)
        return made

    # --- sizes that data says ----------------------------------------------------------------------------------------

    def size(self, may_be_none: bool = True) -> SizeVar:
        """A symbol of its own."""
        name = f"s{self.n_sizes}"
        while name in self.symbols:
            name += "_"
        self.n_sizes += 1
        if may_be_none:
            self.by_data.append(name)
        made = self.symbols[name] = (EmptySizeVar if may_be_none else SizeVar)(name, "int64")
        return made

    def called(self, name: str, info: StructInfo, *args: Expr) -> Expr:
        """What a function of `runtime.built_in` gives."""
        return self.builder.emit(call_pure_packed(f"relax.run.{name}", *args, sinfo_args=info))

    def sized(self, value: Expr, dims: Dims, dtype: str) -> Expr:
        """A tensor whose other dimensions become symbols."""
        if all(d is not None for d in dims):
            return self.bind(value)
        return self.data.sized(value, dims, dtype)

    def counts(self, value: Any) -> Any:
        """Integers that kernels compute as symbols; what is no vector of few of them as it is."""
        info = value.struct_info if isinstance(value, Var) else None
        if not isinstance(info, TensorStructInfo) or not info.is_static or info.ndim > 1 or "int" not in info.dtype:
            return value
        count = info.static_shape[0] if info.ndim else 1
        if not 0 < count <= MOST_COUNTS:
            return value
        if ("counts", value) not in self.said:
            self.said["counts", value] = sizes(self.data.numbers(value, count), info.ndim == 0, info.dtype)
        return self.said["counts", value]

    def places(self, value: Expr, rank: int) -> Expr:
        """Where a tensor is not zero, [rank, how many]."""
        if ("places", value) not in self.said:
            self.said["places", value] = self.sized(op.nonzero(value), (rank, None), "int64")
        found: Expr = self.said["places", value]
        return found

    # --- functions ---------------------------------------------------------------------------------------------------

    def outside(self, *graphs: onnx.GraphProto) -> dict[str, Expr]:
        """What functions for subgraphs take beside their own inputs: values by name, and sizes under the name ""."""
        names = (name for graph in graphs for name in captured(graph))
        found: dict[str, Expr] = {name: x for name in names if isinstance(x := self.values.get(name), Var)}
        return {**found, "": ShapeExpr(tuple(self.symbols.values()))} if self.symbols else found

    def written(
        self, name: str, params: Sequence[Var], inside: Mapping[str, Expr], write: Callable[[], Sequence[Expr] | Expr]
    ) -> tuple[GlobalVar, Sequence[Expr]]:
        """(a function of the module, its results).

        inside  what values of the model are in it
        """
        unique = self.builder.get_unique_function_name(identifier(name))
        kept = self.values, self.symbols, self.said
        self.values, self.symbols, self.said = {**self.values, **inside}, dict(self.symbols), {}
        self.symbols |= {v.name: v for p in params for v in _symbols(p.struct_info)}
        try:
            with self.builder.function(unique, params, private=True):
                results = write()
                self.builder.emit_func_output(results if isinstance(results, Expr) else Tuple(tuple(results)))
        finally:
            self.values, self.symbols, self.said = kept
        return GlobalVar(unique), () if isinstance(results, Expr) else results

    def seen(self, dims: Sequence[Dim]) -> Dims:
        """The dimensions of a function's result as its caller knows them."""
        known = set(self.symbols.values())
        return [d if isinstance(d, int) or free_vars(d) <= known else None for d in dims]

    # --- rules -------------------------------------------------------------------------------------------------------

    def branch(self, node: Node) -> tuple[Expr, ...] | None:
        """Both branches as functions, one of which is called."""
        condition = node.input(0)
        if isinstance(condition, Constant):
            return None
        condition = self.bind(op.reshape(condition, ()))
        graphs = [node.attrs[kind] for kind in ("then_branch", "else_branch")]
        outside = self.outside(*graphs)
        types: list[Any] = [x.struct_info for x in outside.values()]
        made = []
        for kind in ("then_branch", "else_branch"):
            params = variables(types)
            inside = dict(zip(outside, params))
            made.append(self.written(f"{node.name}_{kind}", params, inside, partial(node.subgraph, kind)))
        infos = [[x.struct_info for x in results] for _, results in made]
        joined = [(self.joined(node, condition, a, b), a.dtype) for a, b in zip(*infos, strict=True)]
        loose = TupleStructInfo(tuple(_loose(dims, dtype) for dims, dtype in joined))
        sides = []
        for function, _ in made:
            result = Var("result", loose)
            call = Call(function, tuple(outside.values()), struct_info=loose)
            sides.append(SeqExpr((BindingBlock((VarBinding(result, call),)),), result))
        chosen = self.builder.emit(If(condition, sides[0], sides[1], loose))
        return tuple(self.sized(TupleGetItem(chosen, i), *of) for i, of in enumerate(joined))

    def joined(self, node: Node, condition: Expr, a: StructInfo | None, b: StructInfo | None) -> Dims:
        """The dimensions of what one of two branches gives. Raises ValueNeededError for other ranks or dtypes."""
        if not isinstance(a, TensorStructInfo) or not isinstance(b, TensorStructInfo):
            raise node.needs(condition, "branches that give other things than tensors need a known condition")
        if a.ndim != b.ndim or a.dtype != b.dtype:
            raise node.needs(condition, f"its branches give {a} and {b}, and the condition is not known at import")
        pairs = zip(self.seen(a.dims), self.seen(b.dims), strict=True)
        return [x if x is not None and y is not None and is_same(x, y) else None for x, y in pairs]

    def loop_by_data(self, node: Node) -> tuple[Expr, ...] | None:
        """A function that calls itself, over a counter, whether it goes on, the state, and what it has collected."""
        going: Expr = node.input(1) if node.has(1) else Constant(np.asarray(True))
        most = node.input(0) if node.has(0) else None
        body = node.attrs["body"]
        if isinstance(most, Constant) and isinstance(going, Constant) and _goes_on(body):
            if int(most.data.reshape(-1)[0]) <= MOST_STEPS or not bool(going.data.reshape(-1)[0]):
                return None
        start = [Constant(np.asarray(0, np.int64)), self.bind(op.reshape(going, ()))]
        start += [node.input(i) for i in range(2, len(node.inputs))]
        n, n_scanned = len(start), len(body.output) + 1 - len(start)
        limit = [] if most is None else [self.bind(op.reshape(most, ()))]
        outside = self.outside(body)
        moving = [*limit, *outside.values()]
        types = [info_of(x) for x in start]
        own: set[PrimExpr] = set()
        scanned: list[TensorStructInfo] = []
        objects = [ObjectStructInfo()] * n_scanned
        rest: list[Any] = [*objects, *(x.struct_info for x in moving)]

        def step(params: Sequence[Var]) -> list[Expr]:
            goes_on, *results = node.subgraph("body", params[:n])
            scanned[:] = map(info_of, results[n - 2 :])
            count = self.bind(op.add(params[0], Constant(np.asarray(1, np.int64))))
            lists = [
                self.called("collect", ObjectStructInfo(), kept, x) for kept, x in zip(params[n:], results[n - 2 :])
            ]
            return [count, self.bind(op.reshape(goes_on, ())), *results[: n - 2], *lists]

        def test(params: Sequence[Var]) -> Expr:
            if not limit:
                return params[1]
            return self.bind(op.logical_and(params[1], self.bind(op.less(params[0], params[n + n_scanned]))))

        for _ in range(ROUNDS):
            params = variables([*types, *rest])
            inside = dict(zip(outside, params[len(params) - len(outside) :]))
            taken, results = self.written(f"{node.name}_step", params, inside, partial(step, params))
            wider = [self.widened(node, going, t, info_of(x), own) for t, x in zip(types, results)]
            if wider == types:
                break
            types = wider
        else:
            raise node.needs(going, "its steps change shapes in too many ways")
        params = variables([*types, *rest])
        asked, _ = self.written(f"{node.name}_test", params, {}, partial(test, params))
        kept = [self.called("collection", ObjectStructInfo()) for _ in range(n_scanned)]
        dims = [self.seen(t.dims) for t in types]
        carried = TupleStructInfo((*(_loose(d, t.dtype) for d, t in zip(dims, types)), *objects))
        made = add_loop(
            self.builder, identifier(node.name), asked, taken, [*start, *kept], moving, [*types, *rest], carried
        )
        last = self.builder.emit(made)
        state = [self.sized(TupleGetItem(last, i), dims[i], types[i].dtype) for i in range(2, n)]
        return (*state, *(self.stacked(TupleGetItem(last, n + i), info) for i, info in enumerate(scanned)))

    def widened(
        self, node: Node, going: Expr, taken: TensorStructInfo, given: TensorStructInfo, own: set[PrimExpr]
    ) -> TensorStructInfo:
        """The type of a state, with symbols (`own`) for dimensions that steps change.

        One that is 1 at least to begin with, and after a step that takes it so, always is.
        """
        if taken.ndim != given.ndim or taken.dtype != given.dtype:
            raise node.needs(going, "a step gives other ranks or dtypes than it takes")
        dims: list[Dim] = []
        for d, new in zip(taken.dims, given.dims, strict=True):
            is_some = is_at_least(d, 1) and is_at_least(new, 1)
            if not is_same(d, new) and (d not in own or (is_at_least(d, 1) and not is_some)):
                d = self.size(not is_some)
                del self.symbols[d.name]  # its functions know it, and nobody else
                own.add(d)
            dims.append(d)
        return taken if all(a is b for a, b in zip(dims, taken.dims)) else TensorStructInfo(dims, taken.dtype)

    def stacked(self, kept: Expr, info: TensorStructInfo) -> Expr:
        """What a loop has collected, as one tensor."""
        dims = self.seen(info.dims)
        each = ShapeExpr(tuple(0 if d is None else d for d in dims))
        loose = TensorStructInfo(None, info.dtype, info.ndim + 1)
        found = self.called("collected", loose, self.builder.emit(kept), each, StringImm(info.dtype))
        return self.sized(found, (None, *dims), info.dtype)

    def non_zero(self, node: Node) -> tuple[Expr, ...] | None:
        """The positions of what is not zero."""
        x = node.input(0)
        return None if isinstance(x, Constant) or not node.info(0).ndim else (self.places(x, node.info(0).ndim),)

    def compress(self, node: Node) -> tuple[Expr, ...] | None:
        """The elements, or slices along an axis, where a condition holds."""
        condition, axis = node.input(1), node.attr("axis")
        if isinstance(condition, Constant):
            return None
        places = self.places(condition, 1)
        flat = self.bind(op.reshape(places, ShapeExpr((info_of(places).dims[1],))))
        x = node.input(0) if axis is not None else node.emit(op.reshape(node.input(0), ShapeExpr((-1,))))
        return (op.take(x, flat, axis=axis or 0),)

    def squeeze(self, node: Node) -> tuple[Expr, ...] | None:
        """Without dimensions that a call has to make 1."""
        axes = node.attr("axes") if node.opset < 13 else node.integers(1) if node.has(1) else None
        info = node.info(0)
        if axes is None or all(isinstance(info.dims[node.axis(a)], int) for a in axes):
            return None
        found = {node.axis(a) for a in axes}
        dims = [1 if i in found and not isinstance(d, int) else d for i, d in enumerate(info.dims)]
        one = self.builder.match_cast(self.bind(node.input(0)), TensorStructInfo(dims, info.dtype))
        return (op.squeeze(one, axis=tuple(sorted(found))),)

    def slice(self, node: Node) -> tuple[Expr, ...] | None:
        """A slice of an open dimension, which may be empty where that is not."""
        found = open_slice(node, self.data.part)
        return None if found is None else (found,)

    def first_rows(self, node: Node) -> tuple[Expr, ...] | None:
        """As many rows as a kernel has counted."""
        count = self.counts(node.input(1))
        return (sliced(node.input(0), 0, (0, count.dims[0])),) if isinstance(count, Sizes) else None


_RULES: dict[str, Callable[[RunTimeImporter, Node], tuple[Expr, ...] | None]] = {
    "If": RunTimeImporter.branch,
    "Loop": RunTimeImporter.loop_by_data,
    "NonZero": RunTimeImporter.non_zero,
    "Compress": RunTimeImporter.compress,
    "Squeeze": RunTimeImporter.squeeze,
    "Slice": RunTimeImporter.slice,
    f"{OWN_DOMAIN}.FirstRows": RunTimeImporter.first_rows,
}


def _loose(dims: Dims, dtype: str) -> TensorStructInfo:
    """The type of a value some of whose dimensions only a call knows."""
    known = [d for d in dims if d is not None]
    return TensorStructInfo(known, dtype) if len(known) == len(dims) else TensorStructInfo(None, dtype, len(dims))


def _symbols(info: StructInfo | None) -> list[SizeVar]:
    dims = info.dims if isinstance(info, TensorStructInfo) else ()
    return [v for d in dims if not isinstance(d, int) for v in free_vars(d) if isinstance(v, SizeVar)]


def _goes_on(body: onnx.GraphProto) -> bool:
    """Whether the condition that a loop's body gives is the one that it takes."""
    made = {output: proto for proto in body.node for output in proto.output}
    name = body.output[0].name
    while name in made and made[name].op_type == "Identity":
        name = made[name].input[0]
    return (
        name == body.input[1].name
        or any(name == t.name for t in body.initializer)
        or (name in made and made[name].op_type == "Constant")
    )

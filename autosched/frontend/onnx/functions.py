"""Functions: operators defined by a graph of others, by ONNX or the model itself, and how their calls are inlined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from autosched.errors import ImportModelError
from autosched.frontend.onnx.contents import attributes_of, schema_of
from autosched.relax.expr import Expr
from autosched.relax.struct_info import TensorStructInfo

if TYPE_CHECKING:
    import onnx

CLASSIFIERS = ("LinearClassifier", "TreeEnsembleClassifier")
OWN_DOMAIN = "autosched"  # of nodes that others are divided into
DIVIDED = ("NonMaxSuppression",)  # into one for kernels and one for a library
TWINS: Mapping[str, tuple[int, Mapping[str, int]]] = {
    "QuantizeLinear": (21, {}),
    "DequantizeLinear": (21, {}),
    "LinearAttention": (27, {"state_window": 0}),
    "CausalConvWithState": (
        27,
        {"ndim": 1, "dilation": 1, "channels_last": 0, "state_window": 0, "state_length": 0, "input_channels": 0,
         "state_channels_last": -1, "state_update_capacity": 0, "input_channel_offset": 0},
    ),
}  # fmt: skip
WRONG_DEFINITIONS = ("Bernoulli",)  # which gives a one with the probability of a zero
Functions: TypeAlias = "Mapping[tuple[str, str], onnx.FunctionProto]"  # (domain, name) -> FunctionProto


def own_functions(model: onnx.ModelProto) -> Functions:
    """The functions that a model brings with it."""
    return {(f.domain, f.name): f for f in model.functions}


def has_standard_function(op_type: str, opset: int) -> bool:
    """Whether ONNX's specification defines an operator by others."""
    schema = schema_of(op_type, opset) if op_type not in WRONG_DEFINITIONS else None
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def standard_function(node: onnx.NodeProto, opset: int, inputs: Sequence[object]) -> onnx.FunctionProto | None:
    """The specification's definition of a node's operator for the types of its inputs; None where there is none."""
    import onnx

    schema = schema_of(node.op_type, opset)
    if schema is None or node.op_type in WRONG_DEFINITIONS:
        return None
    if schema.has_function:
        version = _version(schema.function_opset_versions, opset)
        data = schema.get_function_with_opset_version(version)
        return _with_defaults(onnx.FunctionProto.FromString(data), schema)
    if schema.has_context_dependent_function:
        version = _version(schema.context_dependent_function_opset_versions, opset)
        attributes_of(node, opset, node.name)  # onnx's own code crashes where something is missing, or of another type
        if not all(x is None or is_tensor_like(x) for x in inputs):
            return None
        types = [_type_bytes(x) for x in inputs]
        data = schema.get_context_dependent_function_with_opset_version(version, node.SerializeToString(), types)
        return _with_defaults(onnx.FunctionProto.FromString(data), schema) if data else None
    return None


def standard_twin(node: onnx.NodeProto) -> tuple[onnx.NodeProto, int] | None:
    """A node of com.microsoft as the operator that ONNX has made of it, and since when; None for other nodes.

    Attributes that ONNX's does not have may only say what it does.
    """
    since, plain_values = TWINS.get(node.op_type, (0, {})) if node.domain == "com.microsoft" else (0, {})
    twin = type(node)()
    twin.CopyFrom(node)
    twin.domain = ""
    del twin.attribute[:]
    for a in node.attribute:
        if a.name not in plain_values:
            twin.attribute.add().CopyFrom(a)
        elif a.i != plain_values[a.name]:
            return None
    return (twin, since) if since else None


def is_tensor_like(x: object) -> bool:
    """Whether an input's element type and shape are known, its sizes or symbols for them."""
    info = x.struct_info if isinstance(x, Expr) else None
    value = getattr(x, "value", None)
    return (isinstance(info, TensorStructInfo) and info.shape is not None) or getattr(
        getattr(value, "dtype", None), "kind", "O"
    ) != "O"


def _with_defaults(function: onnx.FunctionProto, schema: onnx.defs.OpSchema) -> onnx.FunctionProto:
    """The function with the defaults of the operator's attributes, which its body alone does not say."""
    known = {a.name for a in function.attribute_proto}
    for name, attribute in schema.attributes.items():
        if attribute.default_value.type and name not in known:
            function.attribute_proto.append(attribute.default_value)
    return function


def _version(versions: Sequence[int], opset: int) -> int:
    """The newest definition that is not newer than the opset, else the oldest."""
    return max((v for v in versions if v <= opset), default=min(versions))


def _type_bytes(x: object) -> bytes:
    from onnx import TypeProto, helper

    value = getattr(x, "value", None)  # of what no kernel takes
    if value is not None and value.dtype.kind != "O":
        kind = helper.np_dtype_to_tensor_dtype(value.dtype)
        return helper.make_tensor_type_proto(kind, value.shape).SerializeToString()  # type: ignore[no-any-return]
    info = x.struct_info if isinstance(x, Expr) else None
    if not isinstance(info, TensorStructInfo):
        return TypeProto().SerializeToString()  # type: ignore[no-any-return]
    kind = helper.np_dtype_to_tensor_dtype(_numpy_dtype(info.dtype))
    shape = [d if isinstance(d, int) else None for d in info.dims]
    return helper.make_tensor_type_proto(kind, shape).SerializeToString()  # type: ignore[no-any-return]


def _numpy_dtype(dtype: str) -> object:
    import numpy as np

    return np.dtype(dtype)


def inputs_of(node: onnx.NodeProto) -> list[str]:
    """The values that a node needs: its inputs, and what its subgraphs take from outside."""
    import onnx

    found = [name for name in node.input if name]
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            found += captured(attribute.g)
    return found


def captured(graph: onnx.GraphProto) -> list[str]:
    """The values that a subgraph takes from outside."""
    own = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    own |= {output for inner in graph.node for output in inner.output}
    found = [name for inner in graph.node for name in inputs_of(inner) if name not in own]
    return found + [output.name for output in graph.output if output.name not in own]


def inline(function: onnx.FunctionProto, node: onnx.NodeProto, name: str) -> list[onnx.NodeProto]:
    """The nodes of a function as one call of it needs them.

    Values inside get the call's `name` in front, inputs and outputs the call's own names, attributes the call's values
    (or the function's defaults).
    """
    names = {"": ""}
    names |= dict(zip(function.input, node.input))
    names |= dict.fromkeys(function.input[len(node.input) :], "")
    names |= {inner: outer for inner, outer in zip(function.output, node.output) if outer}
    attributes = {a.name: a for a in function.attribute_proto} | {a.name: a for a in node.attribute}
    return [_renamed(inner, names, f"{name}/", attributes) for inner in function.node]


def renamed_body(nodes: Sequence[onnx.NodeProto], names: Mapping[str, str], prefix: str) -> list[onnx.NodeProto]:
    """The nodes of a subgraph: values in `names` are called that, others that the nodes make get the prefix."""
    known = dict(names)
    for node in nodes:
        known |= {output: prefix + output for output in node.output if output and output not in known}
    return [_renamed(node, known, prefix, None) for node in nodes]


def _renamed(
    node: onnx.NodeProto, names: dict[str, str], prefix: str, attributes: Mapping[str, onnx.AttributeProto] | None
) -> onnx.NodeProto:
    """A node with the values' new names; without `attributes` (those of a function's call) names from outside stay."""
    import onnx

    def new(value: str) -> str:
        if value not in names and attributes is not None:
            names[value] = prefix + value
        return names.get(value, value)

    out = onnx.NodeProto()
    out.CopyFrom(node)
    out.name = prefix + (node.name or next(filter(None, node.output), node.op_type))
    del out.input[:], out.output[:], out.attribute[:]
    out.input.extend(map(new, node.input))
    out.output.extend(map(new, node.output))
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            given = (attributes or {}).get(attribute.ref_attr_name)
            if given is None:
                continue
            copied = out.attribute.add()
            copied.CopyFrom(given)
            copied.name = attribute.name
            continue
        copied = out.attribute.add()
        copied.CopyFrom(attribute)
        if attribute.type == onnx.AttributeProto.GRAPH:
            _rename_graph(copied.g, names, prefix, attributes)
    return out


def _rename_graph(
    graph: onnx.GraphProto, names: dict[str, str], prefix: str, attributes: Mapping[str, onnx.AttributeProto] | None
) -> None:
    """Rename what a subgraph takes from outside; what it makes itself keeps its names, and so do its nodes.

    They get their path when the subgraph is imported: names that got it at each level would double in length.
    """
    own = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    own |= {output for node in graph.node for output in node.output}
    inside = {k: v for k, v in names.items() if k not in own} | {k: k for k in own}
    nodes = [_renamed(node, inside, prefix, attributes) for node in graph.node]
    for node, renamed in zip(graph.node, nodes, strict=True):
        renamed.name = node.name
    for output in graph.output:
        output.name = inside.get(output.name, output.name)
    del graph.node[:]
    graph.node.extend(nodes)


def split_node(node: onnx.NodeProto, name: str) -> list[onnx.NodeProto] | None:
    """A node as several that compute it one after the other; None for one that is computed as it is."""
    if node.domain == "ai.onnx.ml":
        return split_labels(node, name)
    return kept_rows(node, name) if node.domain in ("", "ai.onnx") and node.op_type in DIVIDED else None


def kept_rows(node: onnx.NodeProto, name: str) -> list[onnx.NodeProto]:
    """A NonMaxSuppression as what kernels compute, of a size that is known, and a library's choice of its rows."""
    from onnx import helper

    first = type(node)()
    first.CopyFrom(node)
    first.op_type, first.domain, first.name = "KeptBoxes", OWN_DOMAIN, name
    first.output[:] = [f"{name}/rows", f"{name}/count"]
    return [first, helper.make_node("FirstRows", first.output, node.output, f"{name}/kept", domain=OWN_DOMAIN)]


def scan_as_loop(scan: onnx.NodeProto, attrs: Mapping[str, Any], name: str) -> list[onnx.NodeProto]:
    """A Scan as a Loop that takes a slice of each scanned input at a time, of opset 13."""
    from onnx import TensorProto, helper

    body, n_scanned = attrs["body"], attrs["num_scan_inputs"]
    n_state = len(scan.input) - n_scanned
    sources = scan.input[n_state:]
    axes = attrs.get("scan_input_axes", [0] * n_scanned)
    backwards = attrs.get("scan_input_directions", [0] * n_scanned)
    n_outputs = len(body.output) - n_state
    turned = attrs.get("scan_output_directions", [0] * n_outputs)
    if any(attrs.get("scan_output_axes", [0] * n_outputs)):
        raise ImportModelError("Scan: outputs along another axis than the first", where=f"node '{name}'")

    def inner(text: str) -> str:
        return f"{name}/{text}"

    def make(kind: str, inputs: Sequence[str], output: str, **more: Any) -> onnx.NodeProto:
        return helper.make_node(kind, inputs, [output], inner(f"{kind} {output}"), **more)

    def number(output: str, value: int, shape: Sequence[int] = ()) -> onnx.NodeProto:
        return make("Constant", [], output, value=helper.make_tensor("", TensorProto.INT64, shape, [value]))

    step, going, at, last = inner("step"), inner("going"), inner("at"), inner("last")
    nodes = [
        number(inner("axis"), axes[0]), number(inner("one"), 1), make("Shape", sources[:1], inner("shape")),
        make("Gather", [inner("shape"), inner("axis")], inner("count")),
        make("Sub", [inner("count"), inner("one")], last),
        make("Constant", [], inner("true"), value=helper.make_tensor("", TensorProto.BOOL, (), [True])),
    ]  # fmt: skip
    steps = [make("Identity", [going], inner("on")), make("Sub", [last, step], at)]
    for source, part, axis, backward in zip(sources, body.input[n_state:], axes, backwards, strict=True):
        steps.append(make("Gather", [source, at if backward else step], part.name, axis=axis))
    given = [
        helper.make_tensor_value_info(step, TensorProto.INT64, []),
        helper.make_tensor_value_info(going, TensorProto.BOOL, []),
        *body.input[:n_state],
    ]
    on = helper.make_tensor_value_info(inner("on"), TensorProto.BOOL, [])
    loop = helper.make_graph([*steps, *body.node], body.name, given, [on, *body.output], body.initializer)
    made = [
        inner(f"forwards {n}") if output and n >= n_state and turned[n - n_state] else output
        for n, output in enumerate(scan.output)
    ]
    nodes.append(
        helper.make_node("Loop", [inner("count"), inner("true"), *scan.input[:n_state]], made, inner("loop"), body=loop)
    )
    ends = [number(inner("from"), -1, (1,)), number(inner("to"), -(2**63), (1,)), number(inner("first"), 0, (1,))]
    back = [inner(end) for end in ("from", "to", "first", "from")]
    reverse = [make("Slice", [a, *back], b) for a, b in zip(made, scan.output, strict=True) if a != b]
    return [*nodes, *ends, *reverse] if reverse else nodes


def split_labels(node: onnx.NodeProto, name: str) -> list[onnx.NodeProto] | None:
    """A classifier whose labels are texts as two nodes: one gives positions, the other names them; else None."""
    from onnx import helper

    texts = {a.name: list(a.strings) for a in node.attribute if a.name == "classlabels_strings" and a.strings}
    if not texts or node.op_type not in CLASSIFIERS:
        return None
    labels = texts["classlabels_strings"]
    kind = "classlabels_int64s" if node.op_type == "TreeEnsembleClassifier" else "classlabels_ints"
    first = type(node)()
    first.CopyFrom(node)
    first.name = name
    kept = [
        a for a in node.attribute if a.name not in ("classlabels_strings", "classlabels_int64s", "classlabels_ints")
    ]
    del first.attribute[:]
    first.attribute.extend(kept)
    first.attribute.append(helper.make_attribute(kind, list(range(len(labels)))))
    first.output[0] = f"{name}/position"
    if not node.output[0]:
        return [first]
    attrs = {"keys_int64s": list(range(len(labels))), "values_strings": labels}
    second = helper.make_node(
        "LabelEncoder", [first.output[0]], [node.output[0]], f"{name}/label", domain="ai.onnx.ml", **attrs
    )
    return [first, second]

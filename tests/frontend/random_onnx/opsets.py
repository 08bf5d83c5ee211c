"""Models as older versions of ONNX have them: what later ones give as inputs are attributes there."""

from __future__ import annotations

import random

import onnx
from onnx import helper, numpy_helper

OPSETS = (7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22)
REDUCTIONS = ("Max", "Min", "Mean", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")
# before a version: the inputs from the second on are these attributes
ATTRIBUTES = {
    "ReduceSum": (13, ("axes",)), "Squeeze": (13, ("axes",)), "Unsqueeze": (13, ("axes",)), "Split": (13, ("split",)),
    "Pad": (11, ("pads", "value")), "Clip": (11, ("min", "max")), "Slice": (10, ("starts", "ends", "axes")),
    "TopK": (10, ("k",)), "Dropout": (12, ("ratio",)),
    **{f"Reduce{name}": (18, ("axes",)) for name in REDUCTIONS},
}  # fmt: skip
NUMBERS = ("value", "min", "max", "k", "ratio")  # attributes that are no lists
EARLIER = {
    "allowzero": 0,
    "select_last_index": 0,
    "reduction": "none",
    "antialias": 0,
}  # as it was before there was this


def lowered(model: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """The model in one of the older versions that can say it; itself where none of some that are drawn can."""
    r = random.Random(f"opset {seed}")
    for opset in r.sample(OPSETS, 4):
        made = _at(model, opset)
        try:
            if made is not None:
                context = onnx.checker.C.CheckerContext()
                context.ir_version = made.ir_version
                context.opset_imports = {entry.domain: entry.version for entry in made.opset_import}
                for node in made.graph.node:
                    onnx.checker.check_node(node, context)
                onnx.shape_inference.infer_shapes(made, check_type=True, strict_mode=True)
                return made
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
            continue
    return model


def _at(model: onnx.ModelProto, opset: int) -> onnx.ModelProto | None:
    made = onnx.ModelProto()
    made.CopyFrom(model)
    constants = {c.name: numpy_helper.to_array(c) for c in made.graph.initializer}
    for entry in made.opset_import:
        entry.version = entry.version if entry.domain else opset
    for node in made.graph.node:
        since, names = ATTRIBUTES.get(node.op_type, (0, ()))
        if opset < since:
            given = list(node.input[1:])
            if len(given) > len(names) or any(n and n not in constants for n in given):
                return None
            node.attribute.extend(
                helper.make_attribute(name, constants[value].item() if name in NUMBERS else constants[value].tolist())
                for name, value in zip(names, given)
                if value
            )
            del node.input[1:]
        if node.op_type == "Dropout" and opset < 12 and len(node.output) > 1:
            return None  # a mask that no version says anything of
        if not node.domain:
            try:
                known = onnx.defs.get_schema(node.op_type, opset).attributes
            except onnx.defs.SchemaError:
                return None
            kept = [a for a in node.attribute if not _is_earlier(a, known)]
            del node.attribute[:]
            node.attribute.extend(kept)
    read = {name for node in made.graph.node for name in _names(node)}
    initial = [c for c in made.graph.initializer if c.name in read]
    del made.graph.initializer[:]
    made.graph.initializer.extend(initial)
    return made


def _is_earlier(attribute: onnx.AttributeProto, known: object) -> bool:
    """Whether an attribute that this version does not know says what was always so."""
    value = helper.get_attribute_value(attribute)
    value = value.decode() if isinstance(value, bytes) else value
    return attribute.name not in known and EARLIER.get(attribute.name) == value  # type: ignore[operator]


def _names(node: onnx.NodeProto) -> list[str]:
    inner = [n for a in node.attribute if a.HasField("g") for each in a.g.node for n in _names(each)]
    return [*node.input, *inner]

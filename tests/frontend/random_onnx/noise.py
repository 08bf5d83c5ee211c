"""How far a model's results follow from its inputs: ONNX Runtime's results where every value is disturbed a little.

Rounding differs between any two programs. A floor, a comparison or a conversion to integers makes a large difference of
it, a difference of nearly equal numbers too. What changes so under noise of some roundings' size says nothing about a
compiler.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

NOISE, SALT = "noise", "salt"  # inputs of the disturbed model: a number times each type's rounding; which noise
ROUNDING = {
    TensorProto.FLOAT16: ("float16", 2e-3),
    TensorProto.FLOAT: ("float", 1e-6),
    TensorProto.DOUBLE: ("double", 1e-15),
}
DOMAIN = "noise"
# ONNX does not say what they make of a NaN, or ONNX Runtime passes over it, at some places at least
OPEN_FOR_NAN = (
    "Hardmax", "ArgMax", "ArgMin", "TopK", "Unique", "Softmax", "LogSoftmax", "ReduceLogSumExp",
    "QuantizeLinear", "DynamicQuantizeLinear", "ReduceMax", "ReduceMin", "MaxPool", "GlobalMaxPool",
)  # fmt: skip
# of their arguments some are multiplied by weights that may be 0, or by others' sums of squares: the algorithm decides
OPEN_FOR_INFINITY = {
    "Resize": (0,), "Upsample": (0,), "GridSample": (0, 1), "AffineGrid": (0,), "RoiAlign": (0,), "Conv": (0,),
    "ConvTranspose": (0,), "DeformConv": (0, 2), "FusedConv": (0,),
    "Attention": (0, 1, 2), "MultiHeadAttention": (0, 1, 2), "GroupQueryAttention": (0, 1, 2),
    "InstanceNormalization": (0, 1), "BatchNormalization": (0, 1), "GroupNormalization": (0, 1),
    "LRN": (0,), "Det": (0,), "DFT": (0,), "STFT": (0,),
    "Gelu": (0,), "FastGelu": (0,), "BiasGelu": (0,), "LpNormalization": (0,), "LpPool": (0,), "GlobalLpPool": (0,),
}  # fmt: skip
OPEN = (*OPEN_FOR_NAN, *OPEN_FOR_INFINITY)
OPEN_REDUCTIONS = ("max", "min")  # of ScatterElements and ScatterND, for NaN
NAN_OF_NO_VARIANCE = ("MeanVarianceNormalization",)  # in ONNX Runtime; by ONNX's definition 0
EXACT = {
    "QuantizeLinear": (1,), "DequantizeLinear": (1,), "QLinearConv": (1, 4, 6), "Resize": (1, 2), "OneHot": (2,),
    "QLinearAdd": (1, 4, 6), "QLinearMul": (1, 4, 6), "QLinearSigmoid": (1, 3), "QLinearLeakyRelu": (1, 3),
    "QLinearSoftmax": (1, 3), "QLinearConcat": (0, 3, 6), "QLinearGlobalAveragePool": (1, 3),
    "QLinearAveragePool": (1, 3), "QLinearWhere": (2, 5, 7), "QLinearMatMul": (1, 4, 6), "QGemm": (1, 4, 7),
    "MatMulIntegerToFloat": (2, 3), "DynamicQuantizeMatMul": (2,), "MatMulNBits": (2,), "GatherBlockQuantized": (2,),
    "RoiAlign": (1,),
}  # fmt: skip
DISTURB = """
<domain: "noise", opset_import: ["" : {opset}]>
Disturb_{name} <part> (x, noise, salt) => (y)
{{
    zero = Constant <value_int = 0> ()
    count = Size (x)
    {places}
    each = Cast <to = 11> (places)
    step = Constant <value = double {{12.9898}}> ()
    along = Mul (each, step)
    own = Constant <value_float: float = @part> ()
    own_double = Cast <to = 11> (own)
    start = Add (own_double, salt)
    angle = Add (along, start)
    wave = Sin (angle)
    many = Constant <value = double {{87516.5453}}> ()
    large = Mul (wave, many)
    whole = Floor (large)
    share = Sub (large, whole)
    half = Constant <value = double {{0.5}}> ()
    centred = Sub (share, half)
    rounding = Constant <value = double {{{twice}}}> ()
    scaled = Mul (centred, rounding)
    moved = Mul (scaled, noise)
    unit = Constant <value = double {{1.0}}> ()
    factor = Add (moved, unit)
    shape = Shape (x)
    shaped = Reshape{zeros} (factor, shape)
    typed = Cast <to = {dtype}> (shaped)
    y = Mul (x, typed)
}}
"""  # y = x * (1 + noise * rounding * u), with u of [-1, 1) from the element's place


PLACES = "one = Constant <value_int = 1> () places = Range (zero, count, one)"
OLD_PLACES = """
    own_list = Constant <value = int64[1] {-1}> ()
    length = Reshape (count, own_list)
    ones = ConstantOfShape <value = int64[1] {1}> (length)
    pairs = NonZero (ones)
    places = Reshape (pairs, own_list)
"""  # before Range
COUNT_NANS = """
<domain: "noise", opset_import: ["" : {opset}]>
Count_nans (x) => (n)
{{
    found = IsNaN (x)
    each = Cast <to = 7> (found)
    n = ReduceSum <keepdims = 0> (each)
}}
"""
COUNT_INFINITIES = """
<domain: "noise", opset_import: ["" : {opset}]>
Count_infinities (x) => (n)
{{
    nothing = Sub (x, x)
    found = IsNaN (nothing)
    each = Cast <to = 7> (found)
    n = ReduceSum <keepdims = 0> (each)
}}
"""
COUNT_TINY = """
<domain: "noise", opset_import: ["" : {opset}]>
Count_tiny (x) => (n)
{{
    wide = Cast <to = 11> (x)
    size = Abs (wide)
    zero = Constant <value = double {{0.0}}> ()
    least = Constant <value = double {{6.2e-5}}> ()
    above = Greater (size, zero)
    below = Less (size, least)
    found = And (above, below)
    each = Cast <to = 7> (found)
    n = ReduceSum <keepdims = 0> (each)
}}
"""  # smaller than normal numbers of float16, whose casts ONNX Runtime leaves out where a cast back follows
COUNT_OUTSIDE = """
<domain: "noise", opset_import: ["" : {opset}]>
Count_outside <low, high> (x) => (n)
{{
    wide = Cast <to = 11> (x)
    first = Constant <value_float: float = @low> ()
    last = Constant <value_float: float = @high> ()
    least = Cast <to = 11> (first)
    most = Cast <to = 11> (last)
    above = Greater (wide, least)
    below = Less (wide, most)
    inside = And (above, below)
    found = Not (inside)
    each = Cast <to = 7> (found)
    n = ReduceSum <keepdims = 0> (each)
}}
"""
COUNT_MEANS_OF_NOTHING = """
<domain: "noise", opset_import: ["" : {opset}]>
Count_means_of_nothing (x, means) => (n)
{{
    count = Size (x)
    zero = Constant <value_int = 0> ()
    nothing = Equal (count, zero)
    each = Cast <to = 7> (nothing)
    results = Size (means)
    n = Mul (each, results)
}}
"""


class Undefined(Exception):
    """What an operator makes of its arguments is not defined."""


class Reference:
    """ONNX Runtime's results of a model, with the values between its nodes as they are or disturbed."""

    def __init__(self, model: onnx.ModelProto):
        """Raises what ONNX Runtime raises for a model that it does not take."""
        import onnxruntime

        onnxruntime.set_default_logger_severity(4)
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 4, 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        data = disturbed(model).SerializeToString()
        self.n_results = len(model.graph.output)
        self.session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])

    def run(self, feeds: dict[str, np.ndarray], noise: float = 0.0, salt: float = 0.0) -> list[np.ndarray]:
        """The results; with noise other ones for each salt. Raises Undefined where ONNX does not say what they are."""
        disturbance = {NOISE: np.array(noise, "float64"), SALT: np.array(salt, "float64")}
        found: list[np.ndarray] = self.session.run(None, {**feeds, **disturbance})
        if any(found[self.n_results :]):
            raise Undefined(
                "the mean of nothing, no variance, a cast of what the type has not, "
                f"NaN or an infinity as an argument of {', '.join(OPEN)}"
            )
        return found[: self.n_results]


def disturbed(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with every float input, constant and result of a node times 1 + noise * rounding * [-1, 1).

    x - x is taken of two disturbed values: a product x that is contracted with the difference is rounded once only.
    """
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph, types, exact = made.graph, _types(model), kept_exact(model)
    renamed: dict[str, str] = {}
    nodes: list[onnx.NodeProto] = []

    def noisy(name: str, dtype: int, result: str) -> str:
        op = f"Disturb_{ROUNDING[dtype][0]}"
        nodes.append(helper.make_node(op, [name, NOISE, SALT], [result], domain=DOMAIN, part=1.7 * len(nodes)))
        return result

    def disturb(name: str, dtype: int) -> None:
        if dtype in ROUNDING and name not in exact:
            renamed[name] = noisy(name, dtype, f"{name}_disturbed")

    for given in graph.input:
        disturb(given.name, given.type.tensor_type.elem_type)
    for constant in graph.initializer:
        disturb(constant.name, constant.data_type)
    counts: list[str] = []
    for node in graph.node:
        _rename(node, renamed)
        if node.op_type == "Sub" and node.input[0] == node.input[1] and types.get(node.output[0]) in ROUNDING:
            node.input[1] = noisy(node.input[1], types[node.output[0]], f"{node.output[0]}_subtracted")
        nodes.append(node)
        for count, name, limits in _unsure(node, types):
            counts.append(f"unsure_{len(nodes)}")
            nodes.append(helper.make_node(count, [name], counts[-1:], domain=DOMAIN, **limits))
        if node.op_type in NAN_OF_NO_VARIANCE:
            counts.append(f"nans_{len(nodes)}")
            nodes.append(helper.make_node("Count_nans", node.output[:1], counts[-1:], domain=DOMAIN))
        if node.op_type == "ReduceMean":
            counts.append(f"means_{len(nodes)}")
            arguments = [node.input[0], node.output[0]]
            nodes.append(helper.make_node("Count_means_of_nothing", arguments, counts[-1:], domain=DOMAIN))
        for name in node.output:
            disturb(name, types.get(name, 0))
    del graph.node[:]
    graph.node.extend(nodes)
    for output in graph.output:
        output.name = renamed.get(output.name, output.name)
    graph.output.extend(helper.make_tensor_value_info(name, TensorProto.INT64, ()) for name in counts)
    graph.input.extend(helper.make_tensor_value_info(name, TensorProto.DOUBLE, ()) for name in (NOISE, SALT))
    opset = next(entry.version for entry in made.opset_import if not entry.domain)
    places = PLACES if opset > 10 else OLD_PLACES
    opset = max(opset, 13)  # of the functions
    zeros = " <allowzero = 1>" if opset > 13 else ""
    for dtype, (name, rounding) in ROUNDING.items():
        text = DISTURB.format(name=name, twice=2 * rounding, dtype=dtype, opset=opset, zeros=zeros, places=places)
        made.functions.append(onnx.parser.parse_function(text))
    for text in (COUNT_NANS, COUNT_INFINITIES, COUNT_TINY, COUNT_OUTSIDE, COUNT_MEANS_OF_NOTHING):
        made.functions.append(onnx.parser.parse_function(text.format(opset=opset)))
    made.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return made


def _unsure(node: onnx.NodeProto, types: dict[str, int]) -> Iterator[tuple[str, str, dict[str, float]]]:
    """(function, argument, attributes) of what counts the elements for which a node's result is not defined."""
    reductions = [a.s.decode() in OPEN_REDUCTIONS for a in node.attribute if a.name == "reduction"]
    if node.op_type in OPEN_FOR_NAN or any(reductions):
        read = (0, 2) if any(reductions) else (0,)
        yield from (("Count_nans", node.input[k], {}) for k in read if node.input[k].endswith("_disturbed"))
    for k in OPEN_FOR_INFINITY.get(node.op_type, ()):
        if k < len(node.input) and node.input[k].endswith("_disturbed"):
            yield "Count_infinities", node.input[k], {}
    if node.op_type in ("Cast", "CastLike") and node.input[0].endswith("_disturbed"):
        to = helper.tensor_dtype_to_np_dtype(types[node.output[0]]) if node.output[0] in types else np.dtype("f4")
        if to == "float16":
            yield "Count_tiny", node.input[0], {}
        elif to.kind in "iu":
            ends = np.iinfo(to)
            yield "Count_outside", node.input[0], {"low": float(ends.min) - 1, "high": float(ends.max) + 1}


def kept_exact(model: onnx.ModelProto) -> set[str]:
    """Constants that are parameters of operators more than numbers: scales, sizes, limits of quantisation."""
    return {node.input[k] for node in model.graph.node for k in EXACT.get(node.op_type, ()) if k < len(node.input)}


def _types(model: onnx.ModelProto) -> dict[str, int]:
    inferred = onnx.shape_inference.infer_shapes(model).graph
    return {v.name: v.type.tensor_type.elem_type for v in (*inferred.value_info, *inferred.output)}


def _rename(node: onnx.NodeProto, renamed: dict[str, str]) -> None:
    """Read the disturbed values, also inside of branches and loops."""
    for k, name in enumerate(node.input):
        node.input[k] = renamed.get(name, name)
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            for inner in attribute.g.node:
                _rename(inner, renamed)


def spread_of(expected: np.ndarray, others: list[np.ndarray]) -> Any:
    """How far each element moved under noise, at most: infinity where it became another kind of number."""
    reference = expected.astype("float64")
    with np.errstate(invalid="ignore", over="ignore"):
        moved = [np.where(_equal(o, reference), 0.0, np.abs(o.astype("float64") - reference)) for o in others]
    return np.nan_to_num(np.max(moved, axis=0, initial=0.0), nan=np.inf)


def _equal(a: np.ndarray, b: np.ndarray) -> Any:
    return (a == b) | (np.isnan(a.astype("float64")) & np.isnan(b))

"""The nine light models that come with the `onnx` package, made into ordinary ONNX files.

They hold the graphs of well-known networks; their weights are made by ConstantOfShape nodes with one value, to keep
the files small. Here those nodes become initialisers, which `weights.randomise` then fills.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

# our name -> the file's
LIGHT = {
    "alexnet": "bvlc_alexnet",
    "densenet121": "densenet121",
    "inception_v1": "inception_v1",
    "inception_v2": "inception_v2",
    "resnet50": "resnet50",
    "shufflenet": "shufflenet",
    "squeezenet": "squeezenet",
    "vgg19": "vgg19",
    "zfnet512": "zfnet512",
}


def load_light(name: str) -> onnx.ModelProto:
    """Load one of the light models with every constant as an initialiser and only real inputs as inputs."""
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    model = onnx.load(folder / f"light_{LIGHT[name]}.onnx")
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    nodes = []
    for node in model.graph.node:
        if node.op_type == "ConstantOfShape":
            fill = numpy_helper.to_array(helper.get_node_attr_value(node, "value"))
            arrays[node.output[0]] = np.full(arrays[node.input[0]], fill.item(), fill.dtype)
        else:
            nodes.append(node)
    used = {source for node in nodes for source in node.input}
    graph = helper.make_graph(
        nodes,
        name,
        [value for value in model.graph.input if value.name not in arrays],
        list(model.graph.output),
        [numpy_helper.from_array(value, key) for key, value in arrays.items() if key in used],
    )
    # Since IR version 4 an initialiser need not be listed among the inputs.
    return helper.make_model(
        graph, ir_version=8, opset_imports=model.opset_import, producer_name="autosched-benchmarks"
    )

"""The models of tests and benchmarks by name, each as an ordinary ONNX model with seeded random weights.

    python -m benchmarks.models squeezenet -o squeezenet.onnx
    python -m benchmarks.models resnet18 --batch 3 --check

Nine networks come with the `onnx` package (`light.py`), four are written in PyTorch and exported (`torch_models.py`).
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import logging
import os
import tempfile
import warnings
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from benchmarks.light import LIGHT, load_light
from benchmarks.weights import activation_sizes, randomise

EXPORTED = ("mlp", "resnet18", "mobilenet_v2", "bert")
NAMES = (*LIGHT, *EXPORTED)
CACHE = Path(__file__).parents[1] / ".cache" / "models"


def get_model(
    name: str, batch: int = 1, *, seed: int = 0, softmax: bool = True, dynamic: bool = False, exporter: str = "dynamo"
) -> onnx.ModelProto:
    """Make a model of `NAMES` with seeded random weights; equal arguments give equal models.

    batch     static batch size; the light models know only 1
    softmax   False cuts a final Softmax off, which would hide errors in a comparison
    dynamic   export with a symbolic batch dimension (exported models only)
    exporter  PyTorch's "dynamo" or the older "legacy" one
    """
    if name not in NAMES:
        raise ValueError(f"no model '{name}'; there are {', '.join(NAMES)}")
    if name in LIGHT:
        if batch != 1 or dynamic:
            raise ValueError(f"{name} comes with batch 1 only")
        plain = load_light(name)
        model = randomise(plain, make_inputs(plain), seed)
    else:
        model = _load_exported(name, batch, seed, dynamic, exporter)
    return model if softmax else cut_softmax(model)


def make_inputs(model: onnx.ModelProto, seed: int = 0, batch: int = 1) -> dict[str, np.ndarray]:
    """Draw standard normal inputs for a model; `batch` stands in for symbolic dimensions."""
    generator = np.random.default_rng(seed)
    inputs = {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        shape = [dim.dim_value or batch for dim in kind.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        inputs[value.name] = generator.standard_normal(shape).astype(dtype)
    return inputs


def cut_softmax(model: onnx.ModelProto) -> onnx.ModelProto:
    """Make the input of a final Softmax the output; a model that does not end in one is returned as it is."""
    names = {value.name for value in model.graph.output}
    last = [node for node in model.graph.node if node.op_type == "Softmax" and node.output[0] in names]
    if len(last) != 1 or len(names) != 1:
        return model
    graph = helper.make_graph(
        [node for node in model.graph.node if node is not last[0]],
        model.graph.name,
        list(model.graph.input),
        [helper.make_tensor_value_info(last[0].input[0], onnx.TensorProto.FLOAT, None)],
        list(model.graph.initializer),
    )
    return helper.make_model(graph, ir_version=model.ir_version, opset_imports=model.opset_import)


def _load_exported(name: str, batch: int, seed: int, dynamic: bool, exporter: str) -> onnx.ModelProto:
    """Export a PyTorch model, or take it from the cache; the key covers the definitions and the weights' recipe."""
    sources = b"".join((Path(__file__).parent / f"{part}.py").read_bytes() for part in ("torch_models", "weights"))
    key = hashlib.sha256(sources).hexdigest()[:12]
    path = CACHE / f"{name}-{'n' if dynamic else batch}-{seed}-{exporter}-{key}.onnx"
    if path.is_file():
        return onnx.load(path)
    plain = _export(name, batch, dynamic, exporter)
    model = randomise(plain, make_inputs(plain, batch=batch), seed)
    with contextlib.suppress(OSError):  # a cache that cannot be written only costs time
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=CACHE, delete=False) as file:
            file.write(model.SerializeToString())
        os.replace(file.name, path)
    return model


def _export(name: str, batch: int, dynamic: bool, exporter: str) -> onnx.ModelProto:
    import torch

    from benchmarks.torch_models import MODELS, example

    torch.manual_seed(0)
    module = MODELS[name][0]().eval()
    size = max(batch, 2) if dynamic else batch  # the exporter takes a batch of 1 for a constant
    names = {"input_names": ["x"], "output_names": ["y"]}
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        if exporter == "dynamo":
            shapes = ({0: torch.export.Dim("n", min=1, max=1024)},) if dynamic else None
            program = torch.onnx.export(module, (example(name, size),), dynamo=True, dynamic_shapes=shapes, **names)
            return program.model_proto
        buffer = io.BytesIO()
        axes = {"x": {0: "n"}, "y": {0: "n"}} if dynamic else None
        torch.onnx.export(module, (example(name, size),), buffer, dynamo=False, dynamic_axes=axes, **names)
        return onnx.load_model_from_string(buffer.getvalue())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models", description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("-o", "--output", type=Path, help="file to write (default NAME.onnx)")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-softmax", action="store_true", help="cut a final Softmax off")
    parser.add_argument("--dynamic", action="store_true", help="symbolic batch dimension")
    parser.add_argument("--check", action="store_true", help="print the size of activations instead of writing a file")
    args = parser.parse_args()
    model = get_model(args.name, args.batch, seed=args.seed, softmax=not args.no_softmax, dynamic=args.dynamic)
    if args.check:
        sizes = activation_sizes(model, make_inputs(model, seed=1, batch=args.batch))
        for name, (deviation, largest) in sizes.items():
            print(f"{deviation:10.4f} {largest:10.3f}  {name}")
        return
    path = args.output or Path(f"{args.name}.onnx")
    path.write_bytes(model.SerializeToString())
    print(f"{path}: {len(model.graph.node)} nodes, {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()

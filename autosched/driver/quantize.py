"""Quantised ONNX models by ONNX Runtime's quantiser: bytes with scales that samples of the inputs decide."""

from __future__ import annotations

import contextlib
import importlib
import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from autosched.errors import ImportModelError, UsageError

LEAST_OPSET = 13  # the first with a scale for each channel


def input_shapes(path: Path) -> dict[str, tuple[int | None, ...]]:
    """The inputs of a model's file: their shapes, None for dimensions that are open."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = (value for value in model.graph.input if value.name not in weights)
    return {
        value.name: tuple(d.dim_value if d.dim_value > 0 else None for d in value.type.tensor_type.shape.dim)
        for value in inputs
    }


def split_samples(
    arrays: Mapping[str, np.ndarray], shapes: Mapping[str, Sequence[int | None]]
) -> list[dict[str, np.ndarray]]:
    """Calls of a model from arrays that hold many samples each.

    arrays  by input: [samples, *shape of the input], or the input's own shape with a longer first dimension
    Raises  UsageError for a missing or unknown input, shapes that do not fit, no samples, infinities and NaN.
    """
    if unknown := sorted(arrays.keys() - shapes.keys()):
        raise UsageError(f"the model has no input '{unknown[0]}'", hint=f"it has {', '.join(shapes)}")
    if missing := [name for name in shapes if name not in arrays]:
        raise UsageError(f"no data for input '{missing[0]}'", hint=f"the file needs {', '.join(shapes)}")
    parts = {name: _parts(name, arrays[name], shape) for name, shape in shapes.items()}
    counts = {name: len(found) for name, found in parts.items()}
    if len(set(counts.values())) != 1 or not all(counts.values()):
        said = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise UsageError(f"every input needs the same number of samples, and there are: {said}")
    return [{name: found[i] for name, found in parts.items()} for i in range(next(iter(counts.values())))]


def _parts(name: str, array: np.ndarray, shape: Sequence[int | None]) -> list[np.ndarray]:
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise UsageError(f"the data of input '{name}' hold infinities or NaN", hint="calibrate with finite values")
    if array.ndim == len(shape) + 1:
        found = list(array)
    elif array.ndim == len(shape) and shape and array.shape[0] % (shape[0] or 1) == 0:
        found = [array[i : i + (shape[0] or 1)] for i in range(0, array.shape[0], shape[0] or 1)]
    else:
        found = []
    wrong = not found or any(have != want for have, want in zip(found[0].shape, shape, strict=True) if want is not None)
    if wrong:
        wanted = ", ".join("?" if n is None else str(n) for n in shape)
        raise UsageError(
            f"the data of input '{name}' have shape {list(array.shape)}, which holds no samples [{wanted}]"
        )
    return found


def quantize(
    path: Path,
    samples: Sequence[Mapping[str, np.ndarray]],
    out: Path,
    *,
    activations: str = "uint8",
    per_channel: bool = True,
    skip: Sequence[str] = (),
) -> None:
    """Write an ONNX model whose products and convolutions are of bytes, between QuantizeLinear and DequantizeLinear.

    samples      what the model is called with to see the ranges of its values
    activations  the dtype of values: "uint8" or "int8"; weights are int8
    per_channel  whether each channel of a weight has a scale of its own
    skip         names of nodes that stay as they are
    Raises       UsageError where onnxruntime is not installed or a node of `skip` is not there, ImportModelError where
                 it cannot quantise the model.
    """
    try:
        quantization = importlib.import_module("onnxruntime.quantization")
    except ImportError as error:
        raise UsageError(f"quantize needs onnxruntime: {error}", hint='pip install "autosched[demo]"') from error
    import onnx

    model = onnx.load(path)
    names = {node.name for node in model.graph.node}
    if unknown := [name for name in skip if name not in names]:
        raise UsageError(f"the model has no node '{unknown[0]}'", hint="`autosched inspect` shows their names")
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
    kinds = {"uint8": quantization.QuantType.QUInt8, "int8": quantization.QuantType.QInt8}
    with tempfile.TemporaryDirectory() as folder, _quiet():
        source = path
        try:
            if opset < LEAST_OPSET:
                source = Path(folder) / "model.onnx"
                onnx.save(onnx.version_converter.convert_version(model, LEAST_OPSET), source)
            quantization.quantize_static(
                str(source), str(out), _Reader(samples), quant_format=quantization.QuantFormat.QDQ,
                activation_type=kinds[activations], weight_type=quantization.QuantType.QInt8,
                per_channel=per_channel, nodes_to_exclude=list(skip),
            )  # fmt: skip
        except Exception as error:  # whatever a quantiser raises for a model that it cannot take
            said = " ".join(str(error).split())[:300]
            raise ImportModelError(f"onnxruntime cannot quantise {path}: {type(error).__name__}: {said}") from error


class _Reader:
    """Samples as ONNX Runtime's quantiser asks for them."""

    def __init__(self, samples: Sequence[Mapping[str, np.ndarray]]):
        self.left: Iterator[Mapping[str, np.ndarray]] = iter(samples)

    def get_next(self) -> Mapping[str, np.ndarray] | None:
        return next(self.left, None)

    def __iter__(self) -> _Reader:
        return self

    def __next__(self) -> object:
        return next(self.left)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The quantiser's advice is for its own users."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)

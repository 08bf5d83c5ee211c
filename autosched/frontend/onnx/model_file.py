"""Reading model files, and saying in one line what is wrong with one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from autosched.errors import ImportModelError, UsageError
from autosched.frontend.onnx.contents import check_external_data, first_line
from autosched.frontend.onnx.large_tensors import ModelParts, read_pieces, split_file

if TYPE_CHECKING:
    import onnx

Shapes = Mapping[str, Sequence[int]]


def read_model(path: str | Path) -> onnx.ModelProto:
    """Read an ONNX file with its external data. Raises ImportModelError where that cannot be done."""
    return read_parts(path).whole()


def read_parts(path: str | Path) -> ModelParts:
    """Read an ONNX file with its external data, large tensors apart. Raises as `read_model`."""
    file = Path(path)
    if not file.exists():
        raise ImportModelError(f"no such model file: {file}")
    if file.is_dir():
        raise ImportModelError(f"{file} is a folder, not a model file")
    try:
        parts = _read_file(file)
    except (OSError, EOFError) as error:
        raise ImportModelError(f"cannot read {file}: {getattr(error, 'strerror', None) or error}") from error
    model = parts.message
    check_external_data(model, file.parent)
    import onnx

    try:
        onnx.load_external_data_for_model(model, str(file.parent))
    except Exception as error:  # the package raises many types here
        raise ImportModelError(f"the external data of {file} cannot be read: {first_line(error)}") from error
    return parts


def _read_file(file: Path) -> ModelParts:
    size_bytes = file.stat().st_size
    if size_bytes == 0:
        raise ImportModelError(f"the model file {file} is empty")
    with open(file, "rb", buffering=0) as opened:
        split = split_file(opened, size_bytes)
        if split is None:
            opened.seek(0)
            return ModelParts(parse_model(opened.read(), str(file)), {})
        with ThreadPoolExecutor(1) as pool:  # while the package onnx is loaded
            contents = pool.submit(read_pieces, opened, split.pieces)
            model = parse_model(split.message, str(file))
            return ModelParts(model, contents.result())


def parse_model(data: bytes, name: str = "the model") -> onnx.ModelProto:
    """A model from its bytes. Raises ImportModelError for anything that is no complete ONNX model."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        model = onnx.load_model_from_string(data)
    except DecodeError as error:
        raise ImportModelError(f"{name} is not an ONNX model, or it is truncated") from error
    check_model(model, name)
    return model


def check_model(model: onnx.ModelProto, name: str = "the model") -> None:
    """Raises ImportModelError where the message is no usable model (text and other formats often parse as one)."""
    if not model.ir_version or not model.opset_import or not model.graph.output:
        raise ImportModelError(f"{name} is not an ONNX model, or it is truncated")


def parse_shapes(text: str) -> dict[str, tuple[int, ...]]:
    """Shapes from "x:1x3x224x224,ids:1x128". Raises UsageError showing the syntax."""
    shapes: dict[str, tuple[int, ...]] = {}
    for part in filter(None, (p.strip() for p in text.replace(";", ",").split(","))):
        name, colon, dims = part.rpartition(":")
        try:
            shape = tuple(int(d) for d in dims.lower().split("x")) if dims != "scalar" else ()
        except ValueError:
            shape = (-1,)
        if not colon or not name or any(d <= 0 for d in shape):
            raise UsageError(f"cannot read the shape '{part}'", hint='write --shapes "x:1x3x224x224,mask:1x128"')
        shapes[name] = shape
    return shapes

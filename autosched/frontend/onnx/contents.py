"""What stands in a model's nodes and tensors, checked before anything is made of it.

The package `onnx` reads tensors and attributes as they come; a file of unknown origin may hold sizes that do not fit
its bytes, attributes of another type than the operator's, or names of files anywhere on the machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.errors import ImportModelError

if TYPE_CHECKING:
    import onnx

MOST_ELEMENTS = 1 << 40  # of one tensor: more than any machine has memory for
MOST_CONSTANT_BYTES = 1 << 28  # of a tensor that a node makes at import: larger ones are no weights but accidents
MOST_DIMENSIONS = 32  # NumPy has 64, and of those some are needed on the way


def check_size(shape: Sequence[int | None], what: str) -> None:
    """Refuse a shape that nothing can hold. Raises ImportModelError."""
    if len(shape) > MOST_DIMENSIONS:
        raise ImportModelError(f"{what} has {len(shape)} dimensions, more than {MOST_DIMENSIONS}")
    if any(d is not None and d < 0 for d in shape):
        raise ImportModelError(f"{what} has a negative size: {list(shape)}")
    if math.prod(1 if d is None else d for d in shape) > MOST_ELEMENTS:
        raise ImportModelError(f"{what} of shape {'x'.join(map(str, shape))} is larger than any memory")


def array_of(tensor: onnx.TensorProto, what: str, data: memoryview | None = None) -> np.ndarray:
    """A tensor's values. Raises ImportModelError where its sizes, type and bytes do not fit each other.

    data  its bytes where it does not hold them itself; the array is a view of them
    """
    from onnx import helper, numpy_helper

    check_size(tuple(tensor.dims), what)
    try:
        if data is not None:
            return np.frombuffer(data, helper.tensor_dtype_to_np_dtype(tensor.data_type)).reshape(tensor.dims)
        return np.asarray(numpy_helper.to_array(tensor))
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, MemoryError) as error:
        raise ImportModelError(f"{what} cannot be read: {first_line(error)}") from error


def attributes_of(node: onnx.NodeProto, opset: int, name: str) -> dict[str, Any]:
    """A node's attributes by name, texts decoded.

    Raises ImportModelError for one of another type than the operator's specification says, one that it needs and that
    is missing, and for fewer or more inputs than it takes.
    """
    from onnx import AttributeProto, helper

    where = f"node '{name}'"
    schema = schema_of(node.op_type, opset)
    expected = {} if schema is None else schema.attributes
    found = {}
    for a in node.attribute:
        if a.name in expected and int(expected[a.name].type) != a.type:
            kinds = (AttributeProto.AttributeType.Name(k) for k in (int(expected[a.name].type), a.type))
            raise ImportModelError(f"{node.op_type}: attribute '{a.name}' is no {' but '.join(kinds)}", where=where)
        try:
            value = helper.get_attribute_value(a)
            found[a.name] = value.decode() if isinstance(value, bytes) else value
        except (ValueError, UnicodeDecodeError) as error:
            text = f"{node.op_type}: attribute '{a.name}' cannot be read: {first_line(error)}"
            raise ImportModelError(text, where=where) from error
    if missing := [n for n, a in expected.items() if a.required and n not in found]:
        raise ImportModelError(f"{node.op_type}: attribute '{missing[0]}' is missing", where=where)
    if schema is not None and node.domain in ("", "ai.onnx") and len(node.input) < schema.min_input:
        raise ImportModelError(f"{node.op_type}: {len(node.input)} inputs, {schema.min_input} needed", where=where)
    given = max((i for i, value in enumerate(node.input, start=1) if value), default=0)
    if schema is not None and node.domain in ("", "ai.onnx") and given > schema.max_input:
        raise ImportModelError(f"{node.op_type}: {given} inputs, it takes {schema.max_input}", where=where)
    return found


def schema_of(op_type: str, opset: int) -> onnx.defs.OpSchema:
    """The specification of an operator in an opset; None where there is none."""
    from onnx import defs

    try:
        return defs.get_schema(op_type, min(opset, defs.onnx_opset_version()), "")
    except defs.SchemaError:
        return None


def check_external_data(model: onnx.ModelProto, folder: Path) -> None:
    """Refuse tensors whose data lies outside of the model's folder, through links too. Raises ImportModelError."""
    root = folder.resolve()
    for tensor in _tensors(model):
        if tensor.data_location != tensor.EXTERNAL:
            continue
        location = next((e.value for e in tensor.external_data if e.key == "location"), "")
        path = Path(location)
        if not location or "\0" in location or path.is_absolute() or ".." in path.parts:
            raise ImportModelError(
                f"tensor '{tensor.name}': its data lies in {location!r}, outside of the model's folder"
            )
        if not (root / path).resolve().is_relative_to(root):
            raise ImportModelError(f"tensor '{tensor.name}': its data {location!r} is a link out of the model's folder")
        for entry in tensor.external_data:
            if entry.key in ("offset", "length") and not (entry.value.isascii() and entry.value.isdigit()):
                raise ImportModelError(f"tensor '{tensor.name}': {entry.value!r} is no {entry.key} of its data")


def _tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """All tensors of a model, those in attributes and subgraphs too."""
    stack: list[onnx.GraphProto | onnx.FunctionProto] = [model.graph, *model.functions]
    while stack:
        top = stack.pop()
        yield from getattr(top, "initializer", ())
        for sparse in getattr(top, "sparse_initializer", ()):
            yield from (sparse.values, sparse.indices)
        for node in top.node:
            for a in node.attribute:
                yield from (a.t, *a.tensors)
                stack += [a.g, *a.graphs] if a.HasField("g") else a.graphs


def first_line(error: BaseException) -> str:
    """The first line of what an error says, its type where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def known_size(dim: onnx.TensorShapeProto.Dimension) -> int | None:
    """A dimension's size; None for an open one, for which some exporters write -1."""
    return int(dim.dim_value) if dim.HasField("dim_value") and dim.dim_value >= 0 else None

"""What a model's inputs may be: types, dimensions with names, sequences and what may be left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, count
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.errors import ImportModelError, InvalidTypeError, ShapeError
from autosched.frontend.onnx.contents import known_size
from autosched.runtime.memory import dtype_name
from autosched.runtime.names import identifier

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class ModelInput:
    """One input.

    dims         sizes, names of dimensions, None for any; None where their number is not known
    dtype        of its elements; "" where the model has none
    is_sequence  a list of such tensors;  is_optional  it may be None
    """

    name: str
    dims: tuple[int | str | None, ...] | None
    dtype: str
    is_sequence: bool = False
    is_optional: bool = False

    @property
    def is_array(self) -> bool:
        """Whether it is one array of a dtype that is known."""
        return bool(self.dtype) and self.dtype != "object" and not self.is_sequence and not self.is_optional

    @property
    def is_static(self) -> bool:
        """Whether shape and dtype are known."""
        return self.is_array and self.dims is not None and all(isinstance(d, int) for d in self.dims)

    def example(self, shape: tuple[int, ...] | None = None) -> np.ndarray:
        """Zeros of the input's type, where that is known, of its own shape or a given one."""
        own = tuple(d for d in self.dims or () if isinstance(d, int))
        return np.zeros(own if shape is None else shape, _numpy_dtype(self.dtype))

    def check(self, value: Any, sizes: dict[str, tuple[int, str]]) -> Any:
        """The value, where it fits; `sizes` has what earlier inputs gave the named dimensions, and gets this one's.

        Raises InvalidTypeError, ShapeError.
        """
        if value is None:
            if self.is_optional:
                return None
            raise InvalidTypeError(f"input '{self.name}' is None")
        if isinstance(value, list) != self.is_sequence:
            kind = "a sequence: give a list of arrays" if self.is_sequence else "a tensor, not a list of arrays"
            raise InvalidTypeError(f"input '{self.name}' is {kind}")
        for item in value if self.is_sequence else [value]:
            self._check_tensor(item, {} if self.is_sequence else sizes)  # items of a sequence may differ
        return value

    def _check_tensor(self, value: np.ndarray, sizes: dict[str, tuple[int, str]]) -> None:
        if self.dtype and dtype_name(value.dtype) != self.dtype:
            raise InvalidTypeError(f"input '{self.name}' has dtype {value.dtype} instead of {self.dtype}")
        if self.dims is None:
            return
        if len(self.dims) != value.ndim or any(
            isinstance(dim, int) and dim != size for dim, size in zip(self.dims, value.shape, strict=True)
        ):
            wanted = [d if d is not None else "?" for d in self.dims]
            raise ShapeError(f"input '{self.name}' has shape {list(value.shape)} instead of {wanted}")
        for dim, size in zip(self.dims, value.shape, strict=True):
            if isinstance(dim, str):
                known, first = sizes.setdefault(dim, (size, self.name))
                if known != size:
                    text = f"inputs '{first}' and '{self.name}' share the dimension '{dim}'"
                    raise ShapeError(f"{text}, which is {known} in one and {size} in the other")


def model_inputs(graph: onnx.GraphProto) -> tuple[ModelInput, ...]:
    """The inputs of a model but for its initialisers. Raises ImportModelError for types that are not known."""
    weights = {t.name for t in graph.initializer}
    return tuple(_input(v) for v in graph.input if v.name not in weights)


def _input(value: onnx.ValueInfoProto) -> ModelInput:
    kind, optional, sequence = value.type, False, False
    if kind.HasField("optional_type"):
        kind, optional = kind.optional_type.elem_type, True
    if kind.HasField("sequence_type"):
        kind, sequence = kind.sequence_type.elem_type, True
    if not kind.HasField("tensor_type"):
        raise ImportModelError(f"input '{value.name}' is no tensor, and no sequence of them")
    tensor = kind.tensor_type
    dims = tuple(_dim(d) for d in tensor.shape.dim) if tensor.HasField("shape") else None
    return ModelInput(value.name, dims, _dtype(tensor.elem_type, value.name), sequence, optional)


def _dim(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    size = known_size(dim)
    return str(dim.dim_param) or None if size is None else size


def _dtype(kind: int, name: str) -> str:
    from onnx import helper

    try:
        return str(np.dtype(helper.tensor_dtype_to_np_dtype(kind))) if kind else ""
    except (KeyError, TypeError, ValueError):
        raise ImportModelError(f"input '{name}' has the unknown element type {kind}") from None


def _numpy_dtype(name: str) -> np.dtype:
    import ml_dtypes  # the dtypes that NumPy itself lacks

    return np.dtype(getattr(ml_dtypes, name, None) or name)


def with_sizes(model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> onnx.ModelProto:
    """The model with the sizes of these inputs, those of shared names too; itself where there are none."""
    from autosched.frontend.onnx.importer import shared_sizes

    if not shapes:
        return model
    declared = {v.name: v for v in model.graph.input}
    if unknown := [name for name in shapes if name not in declared]:
        raise ImportModelError(f"the model has no input '{unknown[0]}'", hint=f"it has {', '.join(declared)}")
    result = type(model)()
    result.CopyFrom(model)
    whole = shared_sizes(declared, shapes)
    for value in result.graph.input:
        if value.name not in whole:
            continue
        dims = value.type.tensor_type.shape.dim
        if len(dims) != len(whole[value.name]) and value.type.tensor_type.HasField("shape"):
            raise ImportModelError(f"input '{value.name}' has {len(dims)} dimensions, not {len(whole[value.name])}")
        for _ in range(len(whole[value.name]) - len(dims)):
            dims.add()
        for dim, size in zip(dims, whole[value.name], strict=True):
            if (known_size(dim) or size) != size:
                raise ImportModelError(f"input '{value.name}' has {dim.dim_value} where {size} is given")
            dim.dim_value = size
    return result


def with_names(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with a name of its own for each open dimension of an input that has none; itself where all have one."""
    taken = {dim.dim_param for value in model.graph.input for dim in value.type.tensor_type.shape.dim}
    found: onnx.ModelProto | None = None
    constants = {tensor.name for tensor in model.graph.initializer}
    for index, value in enumerate(model.graph.input):
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if value.name in constants or _dim(dim) is not None:
                continue
            if found is None:
                found = type(model)()
                found.CopyFrom(model)
            plain = f"{identifier(value.name)}_{axis}"
            name = next(n for n in chain((plain,), (f"{plain}_{i}" for i in count(1))) if n not in taken)
            taken.add(name)
            found.graph.input[index].type.tensor_type.shape.dim[axis].dim_param = name
    return model if found is None else found

"""ONNX models that are compiled when they are called: for the sizes of their inputs, and for values that decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from autosched.driver.build.staged import PLAIN, Build, StagedModel, Value
from autosched.driver.model_files import Ranges
from autosched.errors import ArtifactError, InvalidTypeError, ShapeError, UsageError
from autosched.frontend.onnx.functions import own_functions
from autosched.frontend.onnx.importer import fill_tables, opset_of, refuse_unsupported
from autosched.frontend.onnx.model_inputs import ModelInput, model_inputs
from autosched.frontend.onnx.stages import import_stage
from autosched.frontend.stages import OpenSizes, Stage
from autosched.runtime.array import as_numpy
from autosched.runtime.artifact import Contents, from_contents, save_contents
from autosched.runtime.names import given_by_name

if TYPE_CHECKING:
    import onnx


class LateModel(StagedModel):
    """A model whose course is known when it is called; several threads may call it.

    model   the ModelProto, its external data with it
    build   compiles a module
    target  as JSON, for what is saved
    bounds  sizes of inputs and ranges of them, by name
    reason  why one build does not serve all sizes, where they are open
    is_open whether one stage may serve all sizes of inputs
    Raises  UsageError for bounds of an unknown input, ShapeError for those that do not fit one
    """

    def __init__(
        self, model: onnx.ModelProto, build: Build, target: str, bounds: Ranges | None = None, reason: str = "",
        is_open: bool = True,
    ):  # fmt: skip
        fill_tables()
        self.inputs: tuple[ModelInput, ...] = model_inputs(model.graph)
        super().__init__(model.graph.name or "main", [value.name for value in self.inputs], build, is_open)
        self.reason, self.manifest, self.model = reason, {"target": target}, model
        dims = (d for value in self.inputs for d in value.dims or ("?",) if not isinstance(d, int))
        self.open_dims = tuple(dict.fromkeys(str(d or "?") for d in dims))
        self.output_names = tuple(o.name for o in model.graph.output)
        self.bounds = {name: tuple(sizes) for name, sizes in (bounds or {}).items()}
        _check_bounds(self.bounds, self.inputs)
        self._opset, self._functions = opset_of(model), own_functions(model)
        refuse_unsupported(model.graph, self._opset, self._functions, libraries=True)

    def check_inputs(self, args: Sequence[object], named: Mapping[str, object]) -> dict[str, Value]:
        names = self.input_names
        given = given_by_name(args, named, names, f"inputs are {', '.join(names)}")
        sizes: dict[str, tuple[int, str]] = {}
        result = {}
        for declared in self.inputs:
            if declared.name not in given and not declared.is_optional:
                raise InvalidTypeError(f"input '{declared.name}' is missing", hint=f"inputs are {', '.join(names)}")
            value = result[declared.name] = declared.check(_plain(given.get(declared.name)), sizes)
            if declared.name in self.bounds and value is not None:
                _check_sizes(declared, value.shape, self.bounds[declared.name])
        return result

    def example(self, name: str, shape: tuple[int, ...] | None = None) -> np.ndarray | None:
        value = self.inputs[self.input_names.index(name)]
        return value.example(shape) if value.is_static or (shape is not None and value.is_array) else None

    def import_stage(self, there: Mapping[str, Value], known: tuple[str, ...], opened: OpenSizes | None) -> Stage:
        return import_stage(self.model.graph, self._opset, self._functions, there, known, opened)

    def prepare(self) -> None:
        """Compile the first stages where all sizes are known, so that what is wrong is said before a call."""
        if any(not value.is_static for value in self.inputs):
            return
        there = {value.name: value.example() for value in self.inputs}
        self._next(self._start, there, list(there), {})

    def save(self, path: str | Path) -> None:
        """Write the model itself: where it is loaded, it is compiled when it is called.

        Raises ArtifactError if the file cannot be written.
        """
        save_contents(self.contents(), Path(path))

    def contents(self) -> Contents:
        """What an artifact of it holds."""
        try:
            data = self.model.SerializeToString(deterministic=True)
        except Exception as error:  # protobuf's: more than 2 GiB
            raise ArtifactError(f"the model is too large to be saved: {type(error).__name__}") from error
        bounds = {name: [_pair(size) for size in sizes] for name, sizes in self.bounds.items()}
        manifest = {"source": "", "runs": "onnx", **self.manifest, **({"bounds": bounds} if bounds else {})}
        model = np.frombuffer(data, np.uint8)
        return Contents("source", {}, b"", {}, (model,), {"entry": "", "manifest": manifest})

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the model itself."""
        return from_contents, (self.contents(),)

    def __repr__(self) -> str:
        return f"<autosched.driver.LateModel of {', '.join(value.name for value in self.inputs)}>"


def _check_bounds(bounds: Ranges, inputs: Sequence[ModelInput]) -> None:
    """Raises UsageError, ShapeError for bounds that no input can have."""
    declared = {value.name: value for value in inputs}
    for name, sizes in bounds.items():
        if name not in declared:
            raise UsageError(f"the model has no input '{name}'", hint=f"there are {', '.join(declared)}")
        dims, what = declared[name].dims, f"input '{name}'"
        if declared[name].is_sequence or (dims is not None and len(dims) != len(sizes)):
            raise ShapeError(f"{what} has the dimensions {list(dims or ())}, and not {len(sizes)} of them")
        for dim, size in zip(dims or (), sizes):
            if isinstance(dim, int) and (isinstance(size, range) or size != dim):
                raise ShapeError(f"{what}: its dimension {dim} is no size that another, or a range, can be given for")


def _check_sizes(declared: ModelInput, shape: Sequence[int], wanted: Sequence[int | range]) -> None:
    """Raises ShapeError for a shape that is out of bounds."""
    what = f"input '{declared.name}'"
    if len(shape) != len(wanted):
        raise ShapeError(f"{what} has {len(shape)} dimensions, and the model is built for {len(wanted)}")
    for n, (found, size) in enumerate(zip(shape, wanted, strict=True)):
        low, high = _pair(size)
        if not low <= found <= high:
            dim = (declared.dims or (None,) * len(shape))[n]
            name = f"'{dim}'" if isinstance(dim, str) else f"dimension {n}"
            limits = f"{low} to {high}" if low < high else str(low)
            raise ShapeError(f"{what}: {name} is {found}, and the model is built for {limits}")


def _pair(size: int | range) -> tuple[int, int]:
    """The least and the largest size."""
    return (size[0], size[-1]) if isinstance(size, range) else (int(size), int(size))


def _plain(value: object) -> Value:
    """An input as an array, a list of arrays, or None."""
    if value is None:
        return None
    if type(value) is np.ndarray and value.dtype.kind in PLAIN:
        return value
    if isinstance(value, list) and not all(isinstance(item, int | float | bool | str) for item in value):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic | list | str):
        found = np.asarray(value)
        return found.astype(object) if found.dtype.kind in "US" else found
    return as_numpy(value)

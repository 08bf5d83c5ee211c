"""`autosched.onnx.InferenceSession`: ONNX models behind ONNX Runtime's interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from autosched.driver.build.entry import BuildOptions, build
from autosched.driver.build.late import LateModel
from autosched.errors import InvalidTypeError, InvalidValueError, TargetError
from autosched.frontend.onnx.contents import known_size
from autosched.frontend.onnx.model_file import parse_model, read_model
from autosched.runtime import Executable
from autosched.runtime.built_sizes import BuiltSizes

if TYPE_CHECKING:
    import onnx

    from autosched.json_types import Json

TARGETS = {"CPUExecutionProvider": "cpu", "CUDAExecutionProvider": "cuda"}


@dataclass(frozen=True)
class NodeArg:
    """An input or output: name, ONNX Runtime's spelling of its type ("tensor(float)"), and its shape.

    A dimension is a number, a symbol's name, or None where the model says nothing.
    """

    name: str
    type: str
    shape: tuple[int | str | None, ...]


class InferenceSession:
    """A model that runs as in ONNX Runtime: `InferenceSession("model.onnx").run(None, {"x": array})`.

    A model of fixed sizes is built at once. What depends on sizes or values of a run is built then, and the most
    recent ones are kept (AUTOSCHED_SYMBOLIC_SIZES).

    path_or_bytes  a file, its bytes, or a ModelProto
    sess_options   an object with `intra_op_num_threads`, such as ONNX Runtime's SessionOptions; 0 means all cores.
                   Its other fields are about ONNX Runtime itself and have no meaning here
    providers      of CPUExecutionProvider and CUDAExecutionProvider, the first is taken
    build_options  what else `autosched.build` takes: records, accuracy, indices, checks, …
    Raises         ImportModelError for a model that cannot be imported, TargetError for an unknown provider
    """

    def __init__(
        self,
        path_or_bytes: str | Path | bytes | onnx.ModelProto,
        sess_options: Any = None,
        providers: Sequence[str | tuple[str, Mapping[str, Json]]] | None = None,
        **build_options: Unpack[BuildOptions],
    ) -> None:
        self._providers = [p if isinstance(p, str) else p[0] for p in providers or ("CPUExecutionProvider",)]
        if unknown := [p for p in self._providers if p not in TARGETS]:
            raise TargetError(f"no provider '{unknown[0]}'", hint=f"there are {', '.join(TARGETS)}")
        if isinstance(path_or_bytes, bytes):
            self._model: Any = parse_model(path_or_bytes)
        else:
            self._model = read_model(path_or_bytes) if isinstance(path_or_bytes, str | Path) else path_or_bytes
        threads = getattr(sess_options, "intra_op_num_threads", 0) or None
        self._target, self._options = TARGETS[self._providers[0]], build_options
        self._options.setdefault("threads", threads)
        constants = {tensor.name for tensor in self._model.graph.initializer}
        self._inputs = [_node_arg(value) for value in self._model.graph.input if value.name not in constants]
        self._outputs = [_node_arg(value) for value in self._model.graph.output]
        self._built: BuiltSizes[Executable | LateModel] = BuiltSizes()
        at_once = self._target == "cpu" or all(_is_fixed(arg) for arg in self._inputs)
        self._fixed = self._build(None) if at_once else None

    def _build(self, shapes: Mapping[str, tuple[int, ...]] | None) -> Executable | LateModel:
        built: Executable | LateModel = build(self._model, target=self._target, shapes=shapes, **self._options)
        return built

    def get_inputs(self) -> list[NodeArg]:
        """What a run is given."""
        return list(self._inputs)

    def get_outputs(self) -> list[NodeArg]:
        """What a run gives."""
        return list(self._outputs)

    def get_providers(self) -> list[str]:
        """The providers that were asked for."""
        return list(self._providers)

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Json], run_options: None = None
    ) -> list[np.ndarray]:
        """Run on arrays by input name; gives the named outputs, or all of them, as NumPy arrays.

        Raises InvalidTypeError for a missing or unknown input or a wrong dtype, ShapeError for a wrong shape,
        InvalidValueError for an unknown output.
        """
        if run_options is not None:
            raise InvalidTypeError("run: run_options have no meaning here", hint="leave them out")
        names, known = [arg.name for arg in self._inputs], [arg.name for arg in self._outputs]
        if wrong := [name for name in output_names or () if name not in known]:
            raise InvalidValueError(f"no output '{wrong[0]}'", hint=f"there are {', '.join(known)}")
        if wrong := [*(n for n in names if n not in input_feed), *(n for n in input_feed if n not in names)]:
            problem = "missing" if wrong[0] in names else "unknown"
            raise InvalidTypeError(f"input '{wrong[0]}' is {problem}", hint=f"inputs are {', '.join(names)}")
        arrays = [_array(input_feed[name]) for name in names]
        executable = self._fixed
        if executable is None:
            shapes = {name: a.shape for name, a in zip(names, arrays, strict=True)}
            executable = self._built.get(tuple(shapes.items()), lambda: self._build(shapes))
        result = executable(*arrays)
        values = result if isinstance(result, tuple) else (result,)
        by_name = {name: _numpy(value) for name, value in zip(known, values, strict=True)}
        return [by_name[name] for name in output_names or known]


def _node_arg(value: onnx.ValueInfoProto) -> NodeArg:
    """A ValueInfoProto as users of ONNX Runtime see it."""
    from onnx import TensorProto

    if not value.type.HasField("tensor_type"):
        return NodeArg(value.name, str(value.type.WhichOneof("value")).replace("_type", ""), ())
    tensor = value.type.tensor_type
    sizes = ((known_size(d), d.dim_param or None) for d in tensor.shape.dim)
    dims = (name if size is None else size for size, name in sizes)
    return NodeArg(value.name, f"tensor({TensorProto.DataType.Name(tensor.elem_type).lower()})", tuple(dims))


def _array(value: object) -> Any:
    """An input as an array; sequences of them stay lists."""
    return value if value is None or (isinstance(value, list) and any(map(np.ndim, value))) else np.asarray(value)


def _numpy(value: object) -> Any:
    """An output as NumPy has it."""
    if isinstance(value, list):
        return [_numpy(item) for item in value]
    return value.numpy() if hasattr(value, "numpy") else value


def _is_fixed(arg: NodeArg) -> bool:
    return all(isinstance(d, int) for d in arg.shape)

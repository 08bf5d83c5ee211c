"""`Executable`: a built model: kernels, the graph that calls them, and constants."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from autosched.errors import ArtifactError, InvalidTypeError, NameNotFoundError, ShapeError, refuse
from autosched.runtime.array import NDArray, array, as_numpy, from_dlpack
from autosched.runtime.artifact import Contents, export_path, load_contents, save_contents
from autosched.runtime.description import to_html
from autosched.runtime.device import Device
from autosched.runtime.executor_pool import ExecutorPool
from autosched.runtime.graph import Graph, Value, check_graph, graph_of_kernel
from autosched.runtime.graph_executor import GraphExecutor
from autosched.runtime.graph_json import constant_values, layout_of
from autosched.runtime.kernel import Kernel
from autosched.runtime.memory import as_aligned, dtype_name
from autosched.runtime.module import Module
from autosched.runtime.names import given_by_name

if TYPE_CHECKING:
    from autosched.json_types import Json, JsonObject
    from autosched.runtime.registry import PackedFunc


class Executable:
    """A built model; immutable.

    kernels    by the names that the graph's nodes call them by
    graph      values, nodes, inputs, outputs
    constants  weights as the kernels want them (packed), in the order of the graph's ("const", i) storages
    native     object code of the native loop
    manifest   JSON values of the maker: versions, target, build report, scripts and configs to build again from
    params     names of inputs that are parameters: to be given once with `load_params` rather than for each run
    Raises     ArtifactError if these do not fit together.
    """

    compile_s = 0.0  # how long its maker has compiled: known to the maker's process only
    variant = ""  # of several in the artifact that it was loaded from, for which CPU this one was built
    variants: tuple[str, ...] = ()  # all of them

    def __init__(
        self,
        kernels: Mapping[str, Kernel],
        graph: Graph,
        constants: tuple[np.ndarray, ...],
        native: bytes,
        manifest: Mapping[str, Json] | None = None,
        params: tuple[str, ...] = (),
    ):
        check_graph(graph, kernels, constants)
        self.kernels, self.graph, self.native = dict(kernels), graph, native
        self.constants = tuple(as_aligned(constant) for constant in constants)
        self.manifest, self.param_names = dict(manifest or {}), params
        self._inputs = self.inputs
        self._executors: ExecutorPool[GraphExecutor] = ExecutorPool(os.cpu_count() or 1)

    @property
    def inputs(self) -> tuple[Value, ...]:
        """What each run is given, in order."""
        return tuple(self.graph.values[number] for number in self.graph.inputs)

    @property
    def outputs(self) -> tuple[Value, ...]:
        """What each run gives, in order."""
        return tuple(self.graph.values[number] for number in self.graph.outputs)

    def __call__(self, *args: object, **named: object) -> NDArray | tuple[NDArray, ...]:
        """Run the model on inputs by position or name; gives new arrays, a tuple where there are several outputs.

        Several threads may call it at once: each call has an executor to itself, with memory of its own.
        Raises InvalidTypeError (TypeError) on a missing, unknown or doubled input or a wrong dtype, ShapeError
        (ValueError) on a wrong shape.
        """
        results = self.run(self._sorted_inputs(args, named))
        return results[0] if len(results) == 1 else results

    def run(self, values: Sequence[NDArray | np.ndarray]) -> tuple[NDArray, ...]:
        """Run the model on one array for each input, in order, which fit it; see `__call__`."""
        executor = self._executors.take(self.create_executor)
        try:
            return executor.call(values)
        finally:
            self._executors.give_back(executor)

    def check_inputs(self, args: tuple[object, ...], named: Mapping[str, object]) -> dict[str, NDArray | np.ndarray]:
        """Sort inputs by name and see that names, dtypes and shapes are the model's; see `__call__`."""
        values = self._sorted_inputs(args, named)
        return {value.name: array for value, array in zip(self._inputs, values, strict=True)}

    def _sorted_inputs(self, args: tuple[object, ...], named: Mapping[str, object]) -> list[NDArray | np.ndarray]:
        """One array that fits for each input, in order."""
        if named or len(args) != len(self._inputs):
            signature = ", ".join(f"{value.name}: {value.dtype}{list(value.shape)}" for value in self._inputs)
            names = [value.name for value in self._inputs]
            given = given_by_name(args, named, names, f"inputs are {signature}")
            missing = [name for name in names if name not in given]
            if missing:
                raise InvalidTypeError(f"input '{missing[0]}' is missing", hint=f"inputs are {signature}")
            args = tuple(given[name] for name in names)
        return [_check_array(spec, value) for spec, value in zip(self._inputs, args, strict=True)]

    def _repr_html_(self) -> str:
        """What notebooks show: inputs, outputs, memory and kernels."""
        return to_html(self)

    def create_executor(self, device: Device | None = None, threads: int | None = None) -> GraphExecutor:
        """Make a graph executor with its own memory."""
        return GraphExecutor(self, device, threads=threads)

    def __getitem__(self, name: str) -> Callable[..., GraphExecutor]:
        """Give TVM's factory: `lib["default"](device)` makes a graph executor with the parameters loaded."""
        if name not in self._functions():
            raise NameNotFoundError(
                f"executable has no function '{name}'", hint=f"it has {', '.join(self._functions())}"
            )
        return self._functions()[name]

    get_function = __getitem__

    def _functions(self) -> dict[str, PackedFunc]:
        """TVM's functions of a factory by name."""
        return {
            "default": self._create_on,
            "debug_create": lambda _, *devices: self._create_on(*devices),
            "get_graph_json": self.get_graph_json,
            "get_graph_params": self.get_params,
        }

    def _create_on(self, *devices: Device) -> GraphExecutor:
        for device in devices:
            if not isinstance(device, Device):
                raise InvalidTypeError(f"an executor runs on a Device, not on a {type(device).__name__}")
        return self.create_executor(devices[0] if devices else None)

    # TVM's GraphExecutorFactoryModule

    def get_graph_json(self) -> str:
        """Give the graph as TVM's graph JSON."""
        return layout_of(self.graph, self.manifest).text

    graph_json = property(get_graph_json)

    def get_params(self) -> dict[str, NDArray]:
        """Give the constants by the names that the graph JSON calls them by."""
        values = [self.graph.values[number] for number in constant_values(self.graph)]
        return {value.name: array(self.constants[value.storage.index]) for value in values}

    params = property(get_params)

    def get_lib(self) -> Module:
        """Give the kernels as a module, which `graph_executor.create` takes with the graph JSON."""
        names = {key: graph_of_kernel(kernel, key) for key, kernel in self.kernels.items()}
        kept = ("autosched", "target", "functions")
        manifest: JsonObject = {name: value for name, value in self.manifest.items() if name in kept}
        return Module(self.kernels, self.native, functions=names, manifest=manifest, only_functions=True)

    lib = property(get_lib)
    libmod_name = "default"

    @property
    def module(self) -> Executable:
        """The executable itself: what TVM's module object is."""
        return self

    def get_executor_config(self) -> str:
        """Give what the executor runs: the graph JSON."""
        return self.get_graph_json()

    def get_devices(self) -> list[str]:
        """Give the names of the devices that constants are placed on: none, as all are on the CPU."""
        return []

    def __iter__(self) -> Iterator[object]:
        """Give graph JSON, library and parameters, which is how old scripts unpack the result of a build."""
        warnings.warn(
            "a build gives one executable; unpacking it as (graph, lib, params) is deprecated",
            DeprecationWarning,
            stacklevel=2,
        )
        return iter((self.get_graph_json(), self.get_lib(), self.get_params()))

    @property
    def source(self) -> str:
        """The generated Numba source of all kernels."""
        return "\n".join(kernel.source for kernel in self.kernels.values())

    def save(self, path: str | Path) -> None:
        """Write the artifact; `autosched.load` reads it.

        Raises ArtifactError if the file cannot be written; then nothing is left of it.
        """
        save_contents(self.contents(), Path(path))

    def contents(self) -> Contents:
        """What an artifact of it holds."""
        info = {"manifest": self.manifest, "params": list(self.param_names)}
        return Contents("graph", self.kernels, self.native, {"main": self.graph}, self.constants, info)

    def export_library(self, path: str | Path, fcompile: object = None, addons: object = None, **_: object) -> None:
        """Write the artifact, whatever the extension; `load_module` reads it. Raises as `export_path`."""
        refuse("export_library", addons=addons)
        self.save(export_path(path))

    @staticmethod
    def load(path: str | Path) -> Executable:
        """Read an artifact. Raises as `artifact.load_contents`, and ArtifactError if it holds no model."""
        contents = load_contents(Path(path))
        if contents.kind != "graph":
            raise ArtifactError(f"{path} holds functions and no model", hint="read it with load_module")
        return Executable.from_contents(contents)

    @staticmethod
    def from_contents(contents: Contents) -> Executable:
        """Make it of what an artifact holds."""
        manifest, params = contents.info["manifest"], tuple(contents.info["params"])
        made = Executable(
            contents.kernels, contents.graphs["main"], contents.constants, contents.native, manifest, params
        )
        made.variant, made.variants = contents.variant, contents.variants
        return made

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle what it is made of; executors are made anew where it is read."""
        return _restore, (self.contents(), self.variant, self.variants)

    def __repr__(self) -> str:
        sizes = f"{len(self.kernels)} kernels, {len(self.graph.nodes)} nodes, {len(self.constants)} constants"
        return f"<autosched.runtime.Executable: {sizes}>"


def _restore(contents: Contents, variant: str, variants: tuple[str, ...]) -> Executable:
    made = Executable.from_contents(contents)
    made.variant, made.variants = variant, variants
    return made


def _check_array(spec: Value, value: object) -> NDArray | np.ndarray:
    """An input as it is set: where it lies on a device, it stays there."""
    if not isinstance(value, NDArray | np.ndarray) and hasattr(value, "__cuda_array_interface__"):
        value = from_dlpack(value)
    data = value if isinstance(value, NDArray) else as_numpy(value)
    if (data.dtype if isinstance(data, NDArray) else dtype_name(data.dtype)) != spec.dtype:
        raise InvalidTypeError(f"input '{spec.name}' has dtype {data.dtype} instead of {spec.dtype}")
    if data.shape != spec.shape:
        raise ShapeError(f"input '{spec.name}' has shape {list(data.shape)} instead of {list(spec.shape)}")
    return data

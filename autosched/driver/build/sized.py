"""Models with symbolic sizes: one build for all sizes where that can be, else a build for each when it is called."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from autosched.driver.build.dynamic import build_dynamic
from autosched.driver.build.graph import build_graph
from autosched.driver.build.symbolic import refuse_to_compile
from autosched.errors import InvalidTypeError, ShapeError
from autosched.ir import IRModule
from autosched.records import RecordReader
from autosched.relax.struct_info import TensorStructInfo
from autosched.relax.transform.bind_symbolic import bind_function, symbolic_dims
from autosched.relax.transform.specialize_kernels import specialize_kernels
from autosched.runtime.array import NDArray, as_numpy
from autosched.runtime.artifact import Contents, from_contents, save_contents, source_contents
from autosched.runtime.built_sizes import BuiltSizes
from autosched.runtime.dynamic import DynamicExecutable
from autosched.runtime.executable import Executable
from autosched.runtime.graph_form import SizeRange
from autosched.target import Target
from autosched.tir.expr import Var as TirVar
from autosched.tir.expr import const, const_int
from autosched.tir.functor import substitute
from autosched.tir.separable import NotSeparableError
from autosched.tir.simplify import Analyzer

if TYPE_CHECKING:
    from autosched.json_types import JsonObject

Bounds = Mapping[str, tuple[int, int | None]]


def build_sized(
    module: IRModule, target: Target, records: RecordReader | None, threads: int, params: Mapping[str, object],
    accuracy: str, checks: bool, bounds: Bounds,
) -> DynamicExecutable | SizedModel:  # fmt: skip
    """Build a model with symbolic sizes, once for all of them where every kernel can be compiled for all.

    bounds  the least and the largest value of sizes by name
    A model that is not of that kind is built when it is called, once for each set of sizes; its manifest says why.
    """
    try:
        return build_dynamic(module, target, records, threads, params, accuracy=accuracy, checks=checks, bounds=bounds)
    except NotSeparableError as error:
        return SizedModel(
            module, target, records, threads, params, bounds, error.message, accuracy=accuracy, checks=checks
        )


class SizedModel:
    """A model whose kernels are compiled for the sizes that it is called with, when it is first called with them.

    reason  why one build does not serve all sizes
    """

    compile_s = 0.0

    def __init__(
        self, module: IRModule, target: Target, records: RecordReader | None, threads: int,
        params: Mapping[str, object], bounds: Bounds, reason: str, *, accuracy: str = "fast", checks: bool = False,
    ):  # fmt: skip
        self.module, self.target, self.reason = module, target, reason
        self._options = (records, threads, params, accuracy, checks)
        main = module["main"]
        self._params = [p for p in main.params if p.name not in params]
        self.sizes = {v: SizeRange(v.name, *bounds.get(v.name, (1, None))) for v in symbolic_dims(main)}
        self.manifest: JsonObject = {"target": target.to_json(), "report": [], "compiled_when_called": reason}
        self._built: BuiltSizes[Executable] = BuiltSizes()

    @property
    def input_names(self) -> list[str]:
        """What a call takes, in order."""
        return [param.name for param in self._params]

    def __call__(self, *args: object, **named: object) -> NDArray | tuple[NDArray, ...]:
        """Run the model; see `Executable.__call__`. New sizes are compiled first."""
        given = dict(zip(self.input_names, args)) | named
        return self.at(self.values_of(given))(*args, **named)

    def values_of(self, arrays: Mapping[str, object]) -> dict[TirVar, int]:
        """The sizes that the shapes of inputs say. Raises ShapeError where they contradict each other or a bound."""
        values: dict[TirVar, int] = {}
        for param in self._params:
            info = param.struct_info
            if param.name not in arrays:
                raise InvalidTypeError(f"input '{param.name}' is missing", hint=f"it is {info}")
            if not isinstance(info, TensorStructInfo) or info.shape is None:
                continue
            value = arrays[param.name]
            shape = value.shape if isinstance(value, NDArray) else as_numpy(value).shape
            if len(shape) != info.ndim:
                raise ShapeError(f"input '{param.name}' has shape {list(shape)} instead of {info}")
            for extent, size in zip(info.shape, shape, strict=True):
                if isinstance(extent, TirVar) and extent not in values:
                    self.sizes[extent].check(int(size), f"input '{param.name}'")
                    values[extent] = int(size)
                bound = substitute(extent, {v: const(n, v.dtype) for v, n in values.items()})
                known = const_int(Analyzer().simplify(bound))
                if known is not None and known != size:
                    raise ShapeError(
                        f"input '{param.name}' has extent {size} where {const_int(extent) or extent} is {known}"
                    )
        if missing := [v.name for v in self.sizes if v not in values]:
            raise ShapeError(f"the size of '{missing[0]}' does not follow from the inputs")
        return values

    def at(self, values: Mapping[TirVar, int]) -> Executable:
        """The model built for some sizes."""
        records, threads, params, accuracy, checks = self._options

        def build() -> Executable:
            refuse_to_compile("main", {v.name: n for v, n in values.items()})
            functions = dict(self.module.functions)
            functions[self.module.get_global_var("main")] = bind_function(self.module["main"], values)
            module = specialize_kernels(self.module.with_functions(functions))
            return build_graph(module, self.target, records, threads, params, accuracy, checks)

        return self._built.get(tuple(values.items()), build)

    def save(self, path: str | Path) -> None:
        """Write the model as text: where it is loaded, it is compiled when it is called.

        Raises ArtifactError if the file cannot be written.
        """
        save_contents(self.contents(), Path(path))

    export_library = save

    def contents(self) -> Contents:
        """What an artifact of it holds."""
        bounds = {
            size.name: (size.low, size.high) for size in self.sizes.values() if (size.low, size.high) != (1, None)
        }
        return source_contents(self.module.script(show_meta=True), self.target.to_json(), "model", bounds)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the model as text."""
        return from_contents, (self.contents(),)

    def __repr__(self) -> str:
        inputs = ", ".join(f"{p.name}: {p.struct_info}" for p in self._params)
        return f"<autosched.driver.SizedModel({inputs}): {self.reason}>"

"""`SizedModule`: a function that was compiled once and is called on arrays of any size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autosched.errors import ArtifactError, InvalidTypeError, ShapeError, TVMError
from autosched.runtime.array import NDArray
from autosched.runtime.artifact import Contents
from autosched.runtime.backends import open_program
from autosched.runtime.built_sizes import BuiltSizes
from autosched.runtime.dynamic import DynamicExecutable
from autosched.runtime.kernel import ArgSpec
from autosched.runtime.module import ENTRY_NAME, Function, Module
from autosched.target import choose_threads

FUNCTION = "function"  # in a manifest: the function's name, and what it is called with


class SizedFunction:
    """A function for all sizes of its arguments, outputs last. What it needs to know of each set of sizes is kept.

    executable   its kernels and graph, with one input or output for each array; its manifest's entry FUNCTION has a
                 `name`, and as `args`, in the order of the call, (value, name) of arrays and the names of sizes
    """

    def __init__(self, executable: DynamicExecutable):
        self.executable, self.form = executable, executable.form
        try:
            about: Mapping[str, Any] = executable.manifest[FUNCTION]
            self.name = str(about["name"])
            self.args = [arg if isinstance(arg, str) else int(arg[0]) for arg in about["args"]]
            self._names = {int(arg[0]): str(arg[1]) for arg in about["args"] if not isinstance(arg, str)}
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise ArtifactError(f"the artifact does not say how its function is called ({error})") from error
        known = {*self.form.inputs, *self.form.outputs}
        if list(self._names) != sorted(known) or any(
            isinstance(a, str) and a not in self.form.names for a in self.args
        ):
            raise ArtifactError(f"function '{self.name}' does not take what its graph reads and writes")
        self._ready: BuiltSizes[tuple[Function, Mapping[str, int]]] = BuiltSizes()  # by the shapes of the arrays

    @property
    def signature(self) -> str:
        """The call as messages show it."""
        parts = []
        for arg in self.args:
            if isinstance(arg, str):
                parts.append(f"{arg}: int")
            else:
                parts.append(f"{self._names[arg]}: Tensor({self.form.describe(arg)}, {self.form.values[arg].dtype})")
        return f"{self.name}({', '.join(parts)})"

    @property
    def source(self) -> str:
        """The generated source of its kernels."""
        return self.executable.source

    def __call__(self, *args: object) -> None:
        """Run on arrays in the order of the signature; see `runtime.Function`. Raises ShapeError for other sizes."""
        self.run(args, 1)

    def run(self, args: Sequence[Any], number: int) -> None:
        """Check the arguments once and run `number` times on them."""
        function, arrays = self.at(args)
        function.run(arrays, number)

    def seconds(self, args: Sequence[Any], number: int) -> float:
        """The same, and give the seconds that all runs took."""
        function, arrays = self.at(args)
        return function.seconds(arrays, number)

    def at(self, args: Sequence[Any]) -> tuple[Function, list[NDArray | np.ndarray]]:
        """(the function for the sizes of these arguments, those of them that are arrays)."""
        if len(args) != len(self.args):
            raise InvalidTypeError(f"{len(args)} arguments instead of {len(self.args)}", where=self.signature)
        arrays: list[Any] = []
        numbers: list[tuple[str, int]] = []
        for index, (at, arg) in enumerate(zip(self.args, args)):
            if isinstance(at, int) and (isinstance(arg, NDArray | np.ndarray) or hasattr(arg, "__dlpack__")):
                arrays.append(arg)
            elif isinstance(at, str) and hasattr(arg, "__index__") and not isinstance(arg, bool):
                numbers.append((at, int(arg)))
            else:
                what, kind = (f"'{at}'", "integer") if isinstance(at, str) else (f"'{self._names[at]}'", "array")
                what = f"argument {index} {what} is a {type(arg).__name__}, no {kind}"
                raise InvalidTypeError(what, where=self.signature)
        shapes = tuple([tuple(array.shape) for array in arrays])
        function, sizes = self._ready.get(shapes, lambda: self._function(shapes))
        for name, number in numbers:
            if number != sizes[name]:
                what = f"'{name}' is {sizes[name]} for the arrays, and is given as {number}"
                raise ShapeError(what, where=self.signature)
        return function, arrays

    def _function(self, shapes: Sequence[tuple[int, ...]]) -> tuple[Function, Mapping[str, int]]:
        """(the function for arrays of these shapes, the sizes)."""
        given = {at: shape for at, shape in zip(self._names, shapes, strict=True) if at in self.form.inputs}
        try:
            sizes = self.form.sizes_of(given)
        except ShapeError as error:
            raise ShapeError(error.message, where=self.signature) from None
        graph, kernels = self.executable.plan(sizes)
        specs = [
            ArgSpec(name, "output" if at in graph.outputs else "input", graph.values[at].dtype, graph.values[at].shape)
            for at, name in self._names.items()
        ]
        made = self.executable
        program, device = open_program(graph, kernels, made.constants, made.native, choose_threads())
        return Function(self.name, program, tuple(specs), device), sizes

    def __repr__(self) -> str:
        return f"<autosched.runtime.SizedFunction {self.signature}>"


class SizedModule(Module):
    """A module of one function for all sizes of its arguments."""

    def __init__(self, executable: DynamicExecutable):
        self.function = SizedFunction(executable)
        super().__init__(
            executable.kernels, executable.native, functions={}, entry=self.function.name, only_functions=True,
            manifest=executable.manifest,
        )  # fmt: skip

    def get_function(self, name: str, query_imports: bool = False) -> Any:
        """Give the function by its name; see `Module.get_function`."""
        return self.function if name in (self.function.name, ENTRY_NAME) else super().get_function(name, query_imports)

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        """Tell whether it is the function's name, or that of an imported one."""
        return name == self.function.name or super().implements_function(name, query_imports)

    def contents(self) -> Contents:
        """What an artifact of it holds."""
        return self.function.executable.contents()

    def with_imports(self) -> Module:
        """Refused. Raises TVMError always."""
        raise TVMError("functions with symbolic sizes cannot be part of another module")

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle what it is made of."""
        return SizedModule, (self.function.executable,)

    def __repr__(self) -> str:
        return f"<autosched.runtime.Module of {self.function.signature}>"

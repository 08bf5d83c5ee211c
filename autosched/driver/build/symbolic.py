"""Functions with symbolic extents: built for the sizes that they are called with, once for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from autosched.env import AUTOSCHED_STRICT
from autosched.errors import InvalidTypeError, InvalidValueError, ShapeError, TVMError, UsageError
from autosched.ir import IRModule
from autosched.runtime import Function, Module, NDArray
from autosched.runtime.artifact import Contents, from_source, source_contents
from autosched.runtime.built_sizes import BuiltSizes
from autosched.target import Target
from autosched.tir import PrimFunc
from autosched.tir.dtypes import is_float
from autosched.tir.expr import PrimExpr, Var, const, const_int
from autosched.tir.function import shape_vars, size_params
from autosched.tir.functor import substitute
from autosched.tir.simplify import Analyzer

Build = Callable[[Mapping[Var, int]], Module]


def is_symbolic(func: PrimFunc) -> bool:
    """Whether sizes of a function's arguments are variables."""
    return bool(shape_vars(func)) or any(p not in func.buffer_map for p in func.params)


class Runs(Protocol):
    """What is called on arrays: a `runtime.Function`, or a function that is more than its kernels."""

    def run(self, args: Sequence[Any], number: int) -> object: ...


class LateFunction(Runs, Protocol):
    """What a module has in place of a `runtime.Function` where more happens at a call than a run of its kernels."""

    name: str

    @property
    def signature(self) -> str: ...
    @property
    def source(self) -> str: ...
    def __call__(self, *args: object) -> object: ...
    def run(self, args: Sequence[object], number: int) -> object: ...


class SymbolicFunction:
    """A function whose sizes are known when it is called. The first call with new sizes builds it for them."""

    def __init__(self, name: str, func: PrimFunc, build: Build):
        self.name, self.func, self._build = name, func, build
        self._built: BuiltSizes[Function] = BuiltSizes()
        self._sizes_given = set(size_params(func))
        self._vars = list(dict.fromkeys([*size_params(func), *shape_vars(func)]))

    @property
    def source(self) -> str:
        """The function as text."""
        return self.func.script()

    @property
    def signature(self) -> str:
        """The call as messages show it."""
        parts = []
        for param in self.func.params:
            buffer = self.func.buffer_map.get(param)
            if buffer is None:
                parts.append(f"{param.name}: {param.dtype}")
            else:
                shape = ", ".join(str(const_int(d)) if const_int(d) is not None else str(d) for d in buffer.shape)
                parts.append(f"{buffer.name}: Tensor([{shape}], {buffer.dtype})")
        return f"{self.name}({', '.join(parts)})"

    def __call__(self, *args: object) -> None:
        """Run on arrays in the order of the signature; see `runtime.Function`."""
        self.run(args, 1)

    def run(self, args: Sequence[object], number: int) -> None:
        """Find the function for the sizes of the arguments, and run it `number` times."""
        function, arrays = self.specialized(args)
        function.run(arrays, number)

    def seconds(self, args: Sequence[object], number: int) -> float:
        """The same, and give the seconds that all runs took."""
        function, arrays = self.specialized(args)
        return function.seconds(arrays, number)

    def specialized(self, args: Sequence[object]) -> tuple[Function, list[NDArray | np.ndarray]]:
        """(the function for the sizes of these arguments, those of them that are arrays)."""
        values, arrays = self._sizes(args)
        missing = [v.name for v in self._vars if v not in values]
        if missing:
            raise ShapeError(f"the size of {missing[0]} does not follow from the arguments", where=self.signature)
        key = tuple(values[v] for v in self._vars)

        def build() -> Function:
            refuse_to_compile(self.name, {v.name: values[v] for v in self._vars})
            return self._build(values).get_function(self.name)

        return self._built.get(key, build), arrays

    def _sizes(self, args: Sequence[Any]) -> tuple[dict[Var, int], list[NDArray | np.ndarray]]:
        if len(args) != len(self.func.params):
            raise InvalidTypeError(f"{len(args)} arguments instead of {len(self.func.params)}", where=self.signature)
        values: dict[Var, int] = {}
        arrays: list[NDArray | np.ndarray] = []
        for index, (param, arg) in enumerate(zip(self.func.params, args, strict=True)):
            buffer = self.func.buffer_map.get(param)
            if buffer is None and param not in self._sizes_given:
                arrays.append(self._scalar(index, param, arg))
                continue
            if buffer is None:
                if isinstance(arg, bool) or not hasattr(arg, "__index__"):
                    raise InvalidTypeError(
                        f"argument {index} '{param.name}' is a {type(arg).__name__}, no integer", where=self.signature
                    )
                values[param] = int(arg)
                continue
            shape = getattr(arg, "shape", None)
            if shape is None or not isinstance(arg, NDArray | np.ndarray) and not hasattr(arg, "__dlpack__"):
                raise InvalidTypeError(
                    f"argument {index} '{buffer.name}' is a {type(arg).__name__}, no array", where=self.signature
                )
            if len(shape) != len(buffer.shape):
                raise ShapeError(
                    f"argument {index} '{buffer.name}' has {len(shape)} dimensions instead of {len(buffer.shape)}",
                    where=self.signature,
                )
            arrays.append(arg)
            for extent, size in zip(buffer.shape, shape, strict=True):
                self._match(f"argument {index} '{buffer.name}'", extent, int(size), values)
        return values, arrays

    def _scalar(self, index: int, param: Var, arg: Any) -> np.ndarray:
        """A number as the array of shape () that the kernel takes."""
        whole = not is_float(param.dtype)
        if not hasattr(arg, "__float__") or (whole and not hasattr(arg, "__index__")):
            kind = "integer" if whole else "number"
            raise InvalidTypeError(
                f"argument {index} '{param.name}' is a {type(arg).__name__}, no {kind}", where=self.signature
            )
        try:
            return np.asarray(int(arg) if whole else float(arg), dtype=param.dtype)
        except OverflowError:
            raise InvalidValueError(
                f"argument {index} '{param.name}' is {arg}, which is no {param.dtype}", where=self.signature
            ) from None

    def _match(self, what: str, extent: PrimExpr, size: int, values: dict[Var, int]) -> None:
        if isinstance(extent, Var) and extent not in values:
            values[extent] = size
            return
        known = const_int(Analyzer().simplify(substitute(extent, {v: _number(v, n) for v, n in values.items()})))
        if known is not None and known != size:
            raise ShapeError(f"{what} has extent {size} where {extent} is {known}", where=self.signature)

    def __repr__(self) -> str:
        return f"<autosched.driver.SymbolicFunction {self.signature}>"


def _number(var: Var, value: int) -> PrimExpr:
    return const(value, var.dtype)


class SymbolicModule(Module):
    """A module of functions whose sizes are known when they are called; others are as always.

    functions  those functions by name
    plain      the others, built
    source     all of them as they were before, which is what is saved
    """

    def __init__(
        self, functions: Mapping[str, LateFunction], plain: Module | None, entry: str, source: IRModule, target: Target
    ):
        plain = Module({}, b"", functions={}, only_functions=True) if plain is None else plain
        manifest = {**plain.manifest, "target": target.to_json()}
        super().__init__(
            plain.kernels, plain.native, functions=plain.graphs, entry=entry, only_functions=True, manifest=manifest
        )
        self._symbolic, self._whole, self._target = dict(functions), source, target

    @property
    def late_functions(self) -> Mapping[str, LateFunction]:
        """The functions that are more than their kernels, by name."""
        return self._symbolic

    def get_function(self, name: str, query_imports: bool = False) -> Any:
        """Give a function by name; see `Module.get_function`."""
        if name == self.entry_name:
            name = self._entry
        return self._symbolic[name] if name in self._symbolic else super().get_function(name, query_imports)

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        """Tell whether there is a function of that name."""
        return name in self._symbolic or super().implements_function(name, query_imports)

    def get_source(self, fmt: str = "") -> str:
        """Give the loops of functions whose kernels are not generated before the sizes are known."""
        return "\n".join([f.source for f in self._symbolic.values()] + [super().get_source(fmt)])

    inspect_source = get_source

    def contents(self) -> Contents:
        """What an artifact of it holds: text, which is compiled when it is called."""
        return source_contents(self._whole.script(show_meta=True), self._target.to_json(), "module")

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the functions as text."""
        return from_source, (self._whole.script(show_meta=True), self._target.to_json(), "module")

    def with_imports(self) -> Module:
        """Refused. Raises TVMError always."""
        raise TVMError("functions with symbolic sizes cannot be part of another module")

    def __repr__(self) -> str:
        return f"<autosched.runtime.Module of {', '.join([*self._symbolic, *self.graphs])}>"


def refuse_to_compile(name: str, sizes: Mapping[str, int]) -> None:
    """Raise UsageError where AUTOSCHED_STRICT is set and a function would be compiled in the middle of a call."""
    if AUTOSCHED_STRICT.get():
        shown = ", ".join(f"{size}={value}" for size, value in sizes.items())
        raise UsageError(
            f"'{name}' was never called with {shown or 'such values'}, and AUTOSCHED_STRICT forbids to compile it now",
            hint="call it with these sizes before AUTOSCHED_STRICT is set, or build it for fixed ones",
        )

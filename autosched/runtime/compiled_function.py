"""`CompiledFunction`: an own function that was compiled ahead of time, as a callable.

Its kernel's slots are the data of each argument (of a number, a place that holds it), then the place of what is
returned, if anything is, then two words for Numba's status and the address of what was raised, then the extents of all
arrays.
"""

from __future__ import annotations

import builtins
import ctypes
import io
import math
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.errors import InvalidTypeError, InvalidValueError
from autosched.runtime.artifact import Contents, load_contents
from autosched.runtime.cpu.kernel import CpuKernel
from autosched.runtime.kernel import ArgSpec
from autosched.runtime.loader import load_objects, unload_with

if TYPE_CHECKING:
    from autosched.json_types import Json, JsonObject

_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


@dataclass(frozen=True)
class Described:
    """Which calls a kernel is for.

    shapes  of the arguments that its configuration was found for; () of numbers
    facts   numbers that a call has to have: "n", "x_size", "x_dim0", …
    """

    kernel: str
    shapes: tuple[tuple[int, ...], ...]
    facts: Mapping[str, Json]

    def to_manifest(self) -> list[Json]:
        """Give it as JSON values."""
        return [self.kernel, [list(shape) for shape in self.shapes], dict(self.facts)]

    @staticmethod
    def from_manifest(entry: Json) -> Described:
        """Read what `to_manifest` gave. Raises ValueError, TypeError."""
        kernel, shapes, facts = entry
        return Described(str(kernel), tuple(tuple(int(n) for n in shape) for shape in shapes), dict(facts))


class _Code:
    """A kernel in memory: `run` is called with arguments that were compared with `specs`."""

    def __init__(self, kernel: CpuKernel, address: int):
        returns = bool(kernel.args) and kernel.args[-1].name == "return"
        self.specs = kernel.args[:-1] if returns else kernel.args
        self.result = np.dtype(kernel.args[-1].dtype) if returns else None
        self.kernel, self._entry = kernel, _ENTRY(address)
        self._dtypes = [np.dtype(spec.dtype) for spec in self.specs]
        self.is_array = [bool(spec.shape) for spec in self.specs]

    def misfit(self, values: Sequence[object]) -> tuple[str, object] | None:
        """The first argument that it does not take, with what is wrong; None where it takes them all."""
        for spec, dtype, is_array, value in zip(self.specs, self._dtypes, self.is_array, values, strict=True):
            if problem := _misfit(spec, dtype, is_array, value):
                return spec.name, problem
        return None

    def run(self, values: Sequence[Any]) -> Any:
        """Call it. Raises what it raises."""
        places, extents = [], []
        for dtype, is_array, value in zip(self._dtypes, self.is_array, values, strict=True):
            places.append(value if is_array else np.array(value, dtype))
            if is_array:
                extents += value.shape
        if self.result is not None:
            places.append(np.empty((), self.result))
        report = (ctypes.c_int64 * 2)()
        sizes = (ctypes.c_int64 * max(len(extents), 1))(*extents)
        addresses = [place.__array_interface__["data"][0] for place in places]
        slots = (ctypes.c_void_p * (len(places) + 2))(*addresses, ctypes.addressof(report), ctypes.addressof(sizes))
        self._entry(ctypes.addressof(slots), 0, 1, 0)
        if report[0]:
            raise _raised(report[1])
        return None if self.result is None else places[-1].item()


def _misfit(spec: ArgSpec, dtype: np.dtype, is_array: bool, value: object) -> str:
    if not is_array:
        if isinstance(value, np.ndarray) or not isinstance(value, bool | int | float | np.generic):
            return f"takes a number of {dtype}, not a {type(value).__name__}"
        given = np.asarray(value).dtype
        return "" if np.can_cast(given, dtype, "safe") else f"takes a number of {dtype}, not {given}"
    if not isinstance(value, np.ndarray):
        return f"takes an array, not a {type(value).__name__}"
    if value.dtype != dtype or value.ndim != len(spec.shape):
        return f"takes an array of {dtype} with {len(spec.shape)} dimensions, not {value.dtype} with {value.ndim}"
    if not value.flags.c_contiguous or not value.flags.aligned:
        return "takes an array of C layout: numpy.ascontiguousarray makes one"
    return (
        "may be written to, and the array is read-only" if spec.role == "output" and not value.flags.writeable else ""
    )


class CompiledFunction:
    """A function of an artifact; called, it runs the code for arguments of these types and the nearest sizes.

    name        "module:function"
    parameters  names of the arguments, in order
    """

    def __init__(self, contents: Contents):
        manifest = contents.info["manifest"]
        kernels = {name: kernel for name, kernel in contents.kernels.items() if isinstance(kernel, CpuKernel)}
        addresses = load_objects(kernels.values())
        codes = {name: _Code(kernel, addresses[kernel.phases[0].symbol]) for name, kernel in kernels.items()}
        unload_with(self, kernels.values())
        self.name, self.kernels = str(manifest["function"]), kernels
        self.__name__ = self.name.rpartition(":")[2]
        self._defaults: JsonObject = dict(manifest["defaults"])
        self._decides = None if manifest["decides"] is None else frozenset(manifest["decides"])
        self._variants = [(codes[one.kernel], one) for one in map(Described.from_manifest, manifest["variants"])]
        self.parameters = tuple(spec.name for spec in self._variants[0][0].specs)

    @staticmethod
    def load(path: str | Path) -> CompiledFunction:
        """Read an artifact of `autosched build package.module:function`. Raises ArtifactError."""
        return CompiledFunction(load_contents(Path(path)))

    def __repr__(self) -> str:
        return f"<compiled {self.name}({'; '.join(self.signatures)})>"

    @property
    def signatures(self) -> tuple[str, ...]:
        """The types that it takes, such as "float64[:], float64"."""
        texts = (", ".join(map(_type_text, code.specs)) for code, _ in self._variants)
        return tuple(dict.fromkeys(texts))

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Run it. Raises InvalidTypeError for arguments that it was not compiled for, and what the function raises."""
        values = self._bind(args, kwargs)
        problems, fitting = [], []
        for code, described in self._variants:
            found = code.misfit(values)
            if found is None:
                fitting.append((code, described))
            else:
                problems.append(found)
        if not fitting:
            name, problem = problems[0]
            raise InvalidTypeError(f"{self.__name__}: '{name}' {problem}; it takes {' or '.join(self.signatures)}")
        usable = [one for one in fitting if not one[1].facts or _has(one[1].facts, self.parameters, values)]
        if not usable:
            known = "; ".join(dict.fromkeys(_text(one.facts) for _, one in fitting))
            raise InvalidValueError(f"{self.__name__} was compiled for {known} alone, which its constraints read")
        if len(usable) == 1:
            return usable[0][0].run(values)
        code, _ = min(usable, key=lambda one: self._distance(one, values))
        return code.run(values)

    def _bind(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> tuple[object, ...]:
        names = self.parameters
        given = dict(zip(names, args, strict=False))
        if len(args) > len(names):
            raise InvalidTypeError(f"{self.__name__} takes {len(names)} arguments, not {len(args)}")
        if wrong := [name for name in kwargs if name not in names or name in given]:
            raise InvalidTypeError(f"{self.__name__} has no argument '{wrong[0]}' left; it takes {', '.join(names)}")
        whole = {**self._defaults, **given, **kwargs}
        if missing := [name for name in names if name not in whole]:
            raise InvalidTypeError(f"{self.__name__}: argument '{missing[0]}' is missing")
        return tuple(whole[name] for name in names)

    def _distance(self, one: tuple[_Code, Described], values: Sequence[Any]) -> tuple[int, float]:
        """How far a call is from what a kernel was tuned for: types that are converted, then sizes."""
        code, described = one
        casts, far = 0, 0.0
        for spec, shape, value in zip(code.specs, described.shapes, values, strict=True):
            if not spec.shape:
                casts += str(np.asarray(value).dtype) != spec.dtype
            elif self._decides is None or spec.name in self._decides:
                far += sum(abs(math.log2((a + 1) / (b + 1))) for a, b in zip(shape, value.shape, strict=True))
        return casts, far


def _has(facts: Mapping[str, object], names: Sequence[str], values: Sequence[object]) -> bool:
    known: dict[str, object] = {}
    for name, value in zip(names, values, strict=True):
        if isinstance(value, np.ndarray):
            known[f"{name}_size"] = value.size
            known |= {f"{name}_dim{i}": size for i, size in enumerate(value.shape)}
        else:
            known[name] = value
    return all(known.get(name) == value for name, value in facts.items())


def _text(facts: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in facts.items())


def _type_text(spec: ArgSpec) -> str:
    return f"{spec.dtype}[{','.join(':' * len(spec.shape))}]" if spec.shape else spec.dtype


class _Exceptions(pickle.Unpickler):
    """Reads what Numba writes of an exception: a class of Python's own, with its arguments."""

    def find_class(self, module: str, name: str) -> object:
        found = getattr(builtins, name, None) if module == "builtins" else None
        if isinstance(found, type) and issubclass(found, Exception):
            return found
        raise pickle.UnpicklingError(f"{module}.{name}")


def _raised(address: int) -> Exception:
    """The exception at an address: {its pickle, the pickle's bytes, a hash, a function, whether to call that}."""
    if address:
        data = ctypes.c_void_p.from_address(address).value
        size = ctypes.c_int32.from_address(address + 8).value
        is_dynamic = ctypes.c_int32.from_address(address + 32).value
        if data and not is_dynamic and 0 < size < 1 << 20:
            try:
                kind, arguments, *_ = _Exceptions(io.BytesIO(ctypes.string_at(data, size))).load()
                found = kind(*(arguments or ()))
                if isinstance(found, Exception):
                    return found
            except (pickle.UnpicklingError, TypeError, ValueError, EOFError, AttributeError):
                pass
    return RuntimeError("the compiled function raised an exception")

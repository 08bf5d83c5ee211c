"""`Program`: functions with branches, calls and tuples over built graphs; as bytes, and called."""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from autosched.errors import ArtifactError
from autosched.json_types import Json
from autosched.runtime.artifact import Contents
from autosched.runtime.artifact_check import check_read_graph, check_tensor
from autosched.runtime.backends import default_device
from autosched.runtime.device import Device
from autosched.runtime.dynamic import DynamicExecutable
from autosched.runtime.executable import Executable
from autosched.runtime.graph import Graph
from autosched.runtime.graph_form import SizeRange
from autosched.runtime.kernel import Kernel
from autosched.runtime.memory import machine_bytes
from autosched.runtime.module import Module
from autosched.runtime.params import load_param_dict, save_param_dict
from autosched.runtime.size_expr import read_shape, read_size
from autosched.runtime.values import Value
from autosched.runtime.vm_check import check_code
from autosched.runtime.vm_code import Code, Instruction, Param, Segment, VMFunction
from autosched.runtime.vm_interpreter import run

_FUNCTIONS = "functions"  # of the manifest: what kernels are built again from; the library has it
_MAGIC = b"ASVM\x01\0\0\0"


@dataclass(frozen=True)
class Program(Code):
    """Code that can be called, saved and read.

    manifest  what its maker noted
    """

    manifest: Mapping[str, Json] = field(default_factory=dict)

    def call(self, name: str, args: Sequence[object]) -> Value:
        """Run a function on values: arrays, tuples of them. Gives a fresh array or a nested tuple.

        Raises InvalidTypeError (TypeError) on a wrong count, dtype or kind, ShapeError (ValueError) on a wrong shape.
        """
        function = self.function(name)
        return run(self, function, function.checked(args))

    # As bytes

    def kernels(self) -> Iterator[tuple[str, Kernel]]:
        """All kernels under names that are theirs alone."""
        for number, segment in enumerate(self.segments):
            for key, kernel in segment.kernels.items():
                yield f"{number}.{key}", kernel

    def places(self) -> Set[Device]:
        """The devices that the kernels run on."""
        return self._places

    @cached_property
    def _places(self) -> Set[Device]:  # every call of a machine asks, and a program may have hundreds of kernels
        return frozenset(map(default_device, {kernel.backend for _, kernel in self.kernels()}))

    def library(self) -> Module:
        """The machine code, as a module."""
        native = self.segments[0].native if self.segments else b""
        return Module(dict(self.kernels()), native, functions={}, only_functions=True, manifest=dict(self.manifest))

    def to_bytes(self) -> bytes:
        """Everything but the machine code, and the constants that the manifest calls late: those come from a file."""
        segments = []
        arrays: dict[str, np.ndarray] = {f"c{i}": constant for i, constant in enumerate(self.constants)}
        for number, segment in enumerate(self.segments):
            entry = {
                "kernels": list(segment.kernels), "params": list(segment.param_names),
                "n_constants": len(segment.constants),
            }  # fmt: skip
            if isinstance(segment, DynamicExecutable):
                entry |= {"form": segment.form.to_manifest(), "forms": {n: list(b) for n, b in segment.forms.items()}}
                entry["manifest"] = {key: segment.manifest[key] for key in ("lanes",) if key in segment.manifest}
            else:
                entry["graph"] = segment.graph.to_manifest()
            segments.append(entry)
            arrays |= {f"s{number}.{i}": constant for i, constant in enumerate(segment.constants)}
        left_out = {name: arrays.pop(name) for name in self.manifest.get("late", ())}
        late = {name: [list(array.shape), str(array.dtype)] for name, array in left_out.items()}
        functions = [
            [
                f.name,
                [p.to_json() for p in f.params],
                f.n_registers,
                list(f.code),
                f.result,
                list(f.symbols),
                [[size.name, size.low, size.high] for size in f.ranges],
            ]
            for f in self.functions.values()
        ]
        text = json.dumps(
            {"functions": functions, "segments": segments, "n_constants": len(self.constants),
             "manifest": {k: v for k, v in self.manifest.items() if k != _FUNCTIONS}, "late": late,
             "symbolic": {name: [p.to_json() for p in params] for name, params in self.symbolic.items()}}
        ).encode()  # fmt: skip
        return _MAGIC + struct.pack("<Q", len(text)) + text + save_param_dict(arrays)

    @staticmethod
    def from_bytes(data: bytes, lib: Module | None) -> Program:
        """Put together what `to_bytes` and `library` gave. Raises ArtifactError where they do not fit."""
        if not data.startswith(_MAGIC):
            raise ArtifactError("the bytes are no VM program")
        try:
            (size,) = struct.unpack_from("<Q", data, len(_MAGIC))
            start = len(_MAGIC) + 8
            content = json.loads(data[start : start + size])
            arrays = {name: value.view() for name, value in load_param_dict(data[start + size :]).items()}
            arrays |= _late_arrays(content.get("late", {}))
            kernels = {} if lib is None else lib.kernels
            segments = tuple(
                _read_segment(number, entry, kernels, arrays, b"" if lib is None else lib.native)
                for number, entry in enumerate(content["segments"])
            )
            functions = {str(entry[0]): _read_function(*entry) for entry in content["functions"]}
            constants = tuple(arrays[f"c{i}"] for i in range(content["n_constants"]))
            kept = {} if lib is None else {k: v for k, v in lib.manifest.items() if k == _FUNCTIONS}
            symbolic = {name: tuple(map(Param.from_json, own)) for name, own in content.get("symbolic", {}).items()}
            made = Program(functions, segments, constants, symbolic, manifest={**content["manifest"], **kept})
            check_code(made)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError) as error:
            raise ArtifactError(f"the VM program is damaged or its library is another's ({error})") from error
        except struct.error as error:
            raise ArtifactError(f"the VM program is damaged ({error})") from error
        return made

    def to_text(self) -> str:
        """The bytes as text, for JSON."""
        return base64.b85encode(self.to_bytes()).decode()

    @staticmethod
    def from_text(text: str, lib: Module | None) -> Program:
        """Put together what `to_text` and `library` gave. Raises ArtifactError where they do not fit."""
        try:
            data = base64.b85decode(text)
        except ValueError as error:
            raise ArtifactError(f"the VM program is damaged ({error})") from error
        return Program.from_bytes(data, lib)


def _read_segment(
    number: int, entry: Mapping[str, Json], kernels: Mapping[str, Kernel], arrays: Mapping[str, np.ndarray],
    native: bytes,
) -> Segment:  # fmt: skip
    """A segment of what `to_bytes` has written of it. Raises ArtifactError, and ValueError for what cannot be run."""
    own = {key: kernels[f"{number}.{key}"] for key in entry["kernels"]}
    constants = tuple(arrays[f"s{number}.{i}"] for i in range(entry["n_constants"]))
    if "form" in entry:
        info = {key: entry[key] for key in ("form", "forms", "manifest", "params")}
        return DynamicExecutable.from_contents(Contents("dynamic", own, native, {}, constants, info))
    found = Executable(own, Graph.from_manifest(entry["graph"]), constants, native, params=tuple(entry["params"]))
    check_read_graph(f"segment {number}", found.graph, found.kernels, found.constants)
    return found


def _read_function(
    name: Json, params: Json, n_registers: int, code: Json, result: int, symbols: Json = (), ranges: Json = ()
) -> VMFunction:
    names = tuple(map(str, symbols))
    read = tuple(Param.from_json(param, names) for param in params)
    bounds = tuple(SizeRange(str(n), int(low), None if high is None else int(high)) for n, low, high in ranges)
    if not {size.name for size in bounds} <= {symbol for param in read for symbol in param.symbols}:
        raise ValueError(f"the bounds of '{name}' are of no sizes of its arguments")
    return VMFunction(str(name), read, n_registers, tuple(_read_code(code, names)), result, names, bounds)


def _read_code(code: Sequence[Json], names: Collection[str]) -> Iterator[Instruction]:
    """Instructions with their sizes as `size_expr` has them. Raises ValueError for what is no size."""
    for instruction in code:
        match instruction:
            case ["if", condition, list() as then, list() as otherwise]:
                yield ["if", condition, list(_read_code(then, names)), list(_read_code(otherwise, names))]
            case ["check", register, name, list() as shape, dtype]:
                yield ["check", register, name, list(read_shape(shape, names)), dtype]
            case ["value", result, list() as shape]:
                yield ["value", result, list(read_shape(shape, names))]
            case ["number" | "blank" as kind, result, size]:
                yield [kind, result, read_size(size, names)]
            case ["packed_dps", results, list() as outs, name, args]:
                yield ["packed_dps", results, [[list(read_shape(s, names)), d] for s, d in outs], name, args]
            case _:
                yield instruction


def _late_arrays(late: Mapping[str, Json]) -> dict[str, np.ndarray]:
    """Zeros in the place of constants that come from a file later. Raises ValueError for more than memory holds."""
    size_bytes = 0
    for name, (shape, dtype) in late.items():
        check_tensor(f"constant '{name}'", dtype, shape)
        size_bytes += math.prod(shape) * np.dtype(dtype).itemsize
    if size_bytes > machine_bytes():
        raise ValueError(f"its constants take {size_bytes} bytes")
    return {name: np.zeros(shape, dtype) for name, (shape, dtype) in late.items()}

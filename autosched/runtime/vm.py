"""TVM's `runtime.vm`: `Executable` and `VirtualMachine`, over `vm_program.Program`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from autosched.errors import ArgumentCountError, InvalidTypeError, InvalidValueError, TVMError
from autosched.runtime.array import NDArray, array
from autosched.runtime.device import CPU, Device, cpu
from autosched.runtime.dynamic import DynamicExecutable
from autosched.runtime.executable import Executable as GraphExecutable
from autosched.runtime.module import Module
from autosched.runtime.params import load_param_dict, save_param_dict
from autosched.runtime.timing import BenchmarkResult, MeasureOptions, measure
from autosched.runtime.vm_code import Param, Segment, VMFunction
from autosched.runtime.vm_program import Program

if TYPE_CHECKING:
    from autosched.runtime.registry import PackedFunc
    from autosched.runtime.values import Value
    from autosched.runtime.vm_code import Instruction

_LARGE = "late-bound constants are not loaded"


class Executable:
    """A program for the VM: its bytecode, and its kernels as a library."""

    def __init__(self, mod: Program | Executable):
        if isinstance(mod, Executable):
            mod = mod.program
        if not isinstance(mod, Program):
            raise InvalidTypeError(f"a VM executable is made by relay.vm.compile, not of a {type(mod).__name__}")
        self._program = mod
        self._late: dict[str, np.ndarray | None] = {}  # constants moved to a file; None until they are loaded

    @property
    def program(self) -> Program:
        """What runs. Raises TVMError where constants were moved to a file and not loaded again."""
        if self._late:
            raise TVMError(_LARGE, hint="call load_late_bound_consts(path)")
        return self._program

    # To and from bytes

    def save(self) -> tuple[bytearray, Module]:
        """Give the bytecode, and the library of its kernels, which `export_library` writes to a file."""
        return bytearray(self._program.to_bytes()), self._program.library()

    @staticmethod
    def load_exec(bytecode: bytes | bytearray | str, lib: Module | None) -> Executable:
        """Put together what `save` gave.

        Raises InvalidTypeError (TypeError) unless bytecode and library are what `save` gives; ArtifactError.
        """
        if isinstance(bytecode, str):
            bytecode = bytecode.encode("latin-1")
        if not isinstance(bytecode, bytes | bytearray):
            raise InvalidTypeError(f"load_exec: bytecode is bytes, not {type(bytecode).__name__}")
        if lib is not None and not isinstance(lib, Module):
            raise InvalidTypeError(f"load_exec: lib is a Module or None, not {type(lib).__name__}")
        found = Executable(Program.from_bytes(bytes(bytecode), lib))
        found._late = {name: None for name in found._program.manifest.get("late", [])}
        return found

    def move_late_bound_consts(self, path: str | Path, byte_limit: int) -> None:
        """Move constants of more than `byte_limit` bytes to a file: `save` leaves them out from now on."""
        program = self.program
        moved: dict[str, np.ndarray] = {}
        segments = []
        for number, segment in enumerate(program.segments):
            constants = []
            for index, constant in enumerate(segment.constants):
                if constant.nbytes > byte_limit:
                    moved[f"s{number}.{index}"] = constant
                    constant = np.zeros_like(constant)
                constants.append(constant)
            segments.append(_with_constants(segment, tuple(constants)))
        Path(path).write_bytes(save_param_dict(moved))
        manifest = {**program.manifest, "late": list(moved)}
        self._program = replace(program, segments=tuple(segments), manifest=manifest)
        self._late = dict.fromkeys(moved)

    def load_late_bound_consts(self, path: str | Path) -> None:
        """Read the constants that `move_late_bound_consts` moved. Raises ValueError where there is no file."""
        if not Path(path).is_file():
            raise InvalidValueError(f"file {path} does not exist")
        arrays = {name: value.view() for name, value in load_param_dict(Path(path).read_bytes()).items()}
        if missing := [name for name in self._late if name not in arrays]:
            raise InvalidValueError(f"{path} lacks constant {missing[0]}")
        program = self._program
        segments = tuple(
            _with_constants(segment, tuple(arrays.get(f"s{number}.{i}", c) for i, c in enumerate(segment.constants)))
            for number, segment in enumerate(program.segments)
        )
        manifest = {key: value for key, value in program.manifest.items() if key != "late"}
        self._program, self._late = replace(program, segments=segments, manifest=manifest), {}

    def load_late_bound_consts_from_map(self, constants: Mapping[str, NDArray]) -> None:
        """Take the constants that `move_late_bound_consts` moved from a dictionary."""
        program = self._program
        segments = tuple(
            _with_constants(
                segment,
                tuple(
                    constants[f"s{number}.{i}"].view() if f"s{number}.{i}" in constants else c
                    for i, c in enumerate(segment.constants)
                ),
            )
            for number, segment in enumerate(program.segments)
        )
        manifest = {key: value for key, value in program.manifest.items() if key != "late"}
        self._program, self._late = replace(program, segments=segments, manifest=manifest), {}

    # What is inside

    @property
    def module(self) -> Executable:
        """The executable itself: what TVM's module object is."""
        return self

    mod = module

    @property
    def lib(self) -> Module:
        """The kernels."""
        return self._program.library()

    @property
    def globals(self) -> list[str]:
        """The names of the functions."""
        return list(self._program.functions)

    @property
    def primitive_ops(self) -> list[str]:
        """The names of the kernels."""
        return [kernel.name for _, kernel in self._program.kernels()]

    def get_function_params(self, func_name: str) -> list[str]:
        """The names of a function's parameters. Raises AttributeError for an unknown function."""
        return [param.name for param in self._program.function(func_name).params]

    @property
    def bytecode(self) -> str:
        """The instructions as text."""
        return "\n".join(_function_text(function) for function in self._program.functions.values())

    @property
    def constants(self) -> str:
        """The constants as text, one a line."""
        found = [(f"VM Const[{i}]", c) for i, c in enumerate(self._program.constants)]
        for number, segment in enumerate(self._program.segments):
            found += [(f"segment {number} Const[{i}]", c) for i, c in enumerate(segment.constants)]
        return "\n".join(f"{name}: NDArray[{tuple(c.shape)}],{c.dtype}, on device cpu" for name, c in found)

    @property
    def primitives(self) -> str:
        """The kernels as text, one a line."""
        kernels = self._program.kernels()
        return "\n".join(f"VM PackedFunc[{i}]: {kernel.signature}" for i, (_, kernel) in enumerate(kernels))

    @property
    def virtual_devices(self) -> str:
        """The devices as text."""
        return "VM VirtualDevice[0]: device type 1, id 0 and mem_scope: (host)"

    @property
    def stats(self) -> str:
        """Counts as text."""
        program = self._program
        constants = [*program.constants, *(c for segment in program.segments for c in segment.constants)]
        shapes = ", ".join(str(list(c.shape)) if c.ndim else "scalar" for c in constants)
        return (
            "Relay VM executable statistics:\n"
            f"  Constant shapes (# {len(constants)}): [{shapes}]\n"
            f"  Globals (#{len(program.functions)}): {[(name, i) for i, name in enumerate(program.functions)]}\n"
            f"  Primitive ops (#{len(self.primitive_ops)}): {self.primitive_ops}\n"
        )

    def __repr__(self) -> str:
        return f"<autosched.runtime.vm.Executable of {', '.join(self._program.functions)}>"


def _with_constants(segment: Segment, constants: tuple[np.ndarray, ...]) -> Segment:
    if isinstance(segment, DynamicExecutable):
        return DynamicExecutable(
            segment.kernels, segment.forms, segment.form, constants, segment.native, segment.manifest,
            segment.param_names,
        )  # fmt: skip
    return GraphExecutable(
        segment.kernels, segment.graph, constants, segment.native, segment.manifest, segment.param_names
    )


def _function_text(function: VMFunction) -> str:
    params = ", ".join(param.name for param in function.params)
    lines = [f"{function.name}({params}):", f"# reg file size = {function.n_registers}"]

    def show(code: Sequence[Instruction], indent: str) -> None:
        for instruction in code:
            kind, *rest = instruction
            if kind == "if":
                lines.append(f"{indent}if ${rest[0]}:")
                show(rest[1], f"{indent}    ")
                lines.append(f"{indent}else:")
                show(rest[2], f"{indent}    ")
            else:
                lines.append(f"{indent}{kind} {' '.join(map(str, rest))}")

    show(function.code, "    ")
    return "\n".join([*lines, f"    ret ${function.result}", ""])


class VirtualMachine:
    """Runs a VM executable.

    exe         an Executable, or what it is made of
    device      one device or several; the CPU is added where it is missing
    memory_cfg  None, "naive", "pooled" or a dictionary from devices to those: accepted, as kernels own their memory
    Raises      TypeError for another kind of executable or device; TVMError for a device that does not exist here, and
                where the one that kernels run on is not among them
    """

    NAIVE_ALLOCATOR = 1
    POOLED_ALLOCATOR = 2

    def __init__(self, exe: Executable | Program, device: Device | Sequence[Device], memory_cfg: object = None):
        if not isinstance(exe, Executable | Program):
            raise InvalidTypeError(f"the VM runs an Executable, not a {type(exe).__name__}")
        self._exec = exe if isinstance(exe, Executable) else Executable(exe)
        self.devices = _devices(device)
        self.memory_cfg = _memory(memory_cfg, self.devices)
        for found in self.devices:
            if not found.exist:
                raise TVMError(f"device {found} does not exist here")
        self._program = self._exec.program
        for place in self._program.places():
            self._require(place)
        self._inputs: dict[str, list[Value]] = {}
        self._outputs: Value = None

    def _require(self, place: Device) -> None:
        """See that kernels run on one of the machine's devices."""
        if place not in self.devices:
            others = " and ".join(map(str, self.devices))
            raise TVMError(f"this program runs on {place}, and the VM has {others}", hint=f"make the VM on {place}")

    @property
    def module(self) -> VirtualMachine:
        """The machine itself: what TVM's module object is."""
        return self

    # Arguments

    def set_input(self, func_name: str, *args: Value, **kwargs: object) -> None:
        """Keep a function's arguments: keywords by name, the others fill the gaps in order.

        Raises ArgumentCountError (an AssertionError and ValueError) unless their number is exact and each is known.
        """
        self._inputs[func_name] = self._arguments(func_name, args, kwargs)

    def _arguments(self, func_name: str, args: Sequence[object], kwargs: Mapping[str, object]) -> list[Value]:
        function = self._program.function(_text(func_name))
        names = [param.name for param in function.params]
        for name in kwargs:
            if name not in names:
                raise ArgumentCountError(f"'{name}' is no parameter of {function.signature}")
        if len(args) + len(kwargs) != len(names):
            raise ArgumentCountError(
                f"{len(args) + len(kwargs)} arguments instead of {len(names)} for {function.signature}"
            )
        rest = iter(args)
        values = (kwargs[name] if name in kwargs else next(rest) for name in names)
        return [convert(value, param) for value, param in zip(values, function.params, strict=True)]

    def set_one_input(self, func_name: str, *args: Value, **kwargs: object) -> None:
        """Keep one argument of a function, by position or name: `set_one_input("main", "x", value)`.

        Raises ValueError on an unknown name, IndexError on an unknown position.
        """
        if kwargs:
            if len(kwargs) != 1 or args:
                raise InvalidValueError("set_one_input takes one argument")
            ((tag, value),) = kwargs.items()
        elif len(args) == 2:
            tag, value = args
        else:
            raise InvalidTypeError("set_one_input takes a name or position and a value")
        function = self._program.function(_text(func_name))
        index = self.get_input_index(tag, func_name) if isinstance(tag, str) else int(tag)
        if not 0 <= index < len(function.params):
            raise InvalidValueError(f"'{tag}' is no parameter of {function.signature}")
        kept = self._inputs.setdefault(func_name, [None] * len(function.params))
        kept[index] = convert(value, function.params[index])

    def get_input_index(self, input_name: str, func_name: str = "main") -> int:
        """The position of a parameter, -1 if there is none of that name."""
        names = [param.name for param in self._program.function(_text(func_name)).params]
        return names.index(input_name) if input_name in names else -1

    # Running

    def invoke(self, func_name: str, *args: object, **kwargs: object) -> Value:
        """Run a function on arguments, or on those kept by `set_input`; gives a fresh array or a tuple."""
        if args or kwargs:
            values = self._arguments(func_name, args, kwargs)
            self._inputs[func_name] = values
        else:
            values = self._kept(func_name)
        return self._program.call(_text(func_name), values)

    def _kept(self, func_name: str) -> list[Value]:
        function = self._program.function(_text(func_name))
        values = self._inputs.get(func_name, [] if not function.params else [None] * len(function.params))
        for value, param in zip(values, function.params, strict=True):
            if value is None:
                raise InvalidValueError(f"argument '{param.name}' is not set", where=function.signature)
        return values

    def run(self, *args: object, **kwargs: object) -> Value:
        """Run `main`."""
        return self.invoke("main", *args, **kwargs)

    def invoke_stateful(self, func_name: str, *args: Value, **kwargs: object) -> None:
        """Run a function and keep its results for `get_outputs`."""
        self._outputs = self.invoke(func_name, *args, **kwargs)

    def invoke_with_outputs(self, func_name: str, input_args: Value, output_args: Sequence[NDArray]) -> None:
        """Run a function and copy its results into arrays."""
        given = dict(input_args) if isinstance(input_args, Mapping) else {}
        result = self.invoke(func_name, **given) if given else self.invoke(func_name, *input_args)
        for value, out in zip(_flatten(result), output_args, strict=True):
            out.copyfrom(value)

    def get_outputs(self) -> list[Value]:
        """The results of the last `invoke_stateful`, as a list. Raises TVMError before one."""
        if self._outputs is None:
            raise TVMError("get_outputs: nothing has run yet", hint="call invoke_stateful first")
        return list(self._outputs) if isinstance(self._outputs, tuple) else [self._outputs]

    def benchmark(
        self,
        device: Device,
        *args: object,
        func_name: str = "main",
        repeat: int = 5,
        number: int = 5,
        min_repeat_ms: float | None = None,
        limit_zero_time_iterations: int = 100,
        end_to_end: bool = False,
        cooldown_interval_ms: float = 0,
        repeats_to_cooldown: int = 1,
        **kwargs: object,
    ) -> BenchmarkResult:
        """Time a function; the rules are `timing.measure`'s.

        end_to_end  time copying the arguments in as well
        """
        del device
        self.set_input(func_name, *args, **kwargs)

        def run(count: int) -> None:
            for _ in range(count):
                if end_to_end:
                    self.set_input(func_name, *args, **kwargs)
                self._program.call(func_name, self._inputs[func_name])

        options: MeasureOptions = {
            "number": number, "repeat": repeat, "min_repeat_ms": min_repeat_ms or 0,
            "limit_zero_time_iterations": limit_zero_time_iterations,
        }  # fmt: skip
        if not end_to_end:
            options |= {"cooldown_interval_ms": cooldown_interval_ms, "repeats_to_cooldown": repeats_to_cooldown}
        return measure(run, **options)

    def __getitem__(self, name: str) -> PackedFunc:
        self._program.function(_text(name))
        return lambda *args, **kwargs: self.invoke(name, *args, **kwargs)


def _text(name: object) -> str:
    if not isinstance(name, str):
        raise InvalidTypeError(f"a function is known by its name, not by {type(name).__name__}")
    return name


def _flatten(value: object) -> list[Value]:
    return [x for field in value for x in _flatten(field)] if isinstance(value, tuple) else [value]


def _devices(device: object) -> list[Device]:
    devices: list[Device] = []
    for found in device if isinstance(device, list | tuple) else [device]:
        if not isinstance(found, Device):
            raise InvalidTypeError(
                f"VirtualMachine: device: a Device or a list of them is needed, not {type(found).__name__}"
            )
        devices.append(found)
    if not any(found.device_type == CPU for found in devices):
        devices.append(cpu())
    return devices


def _memory(given: object, devices: Sequence[Device]) -> dict[Device, int]:
    kinds = {"naive": VirtualMachine.NAIVE_ALLOCATOR, "pooled": VirtualMachine.POOLED_ALLOCATOR}
    if given is not None and not isinstance(given, str | dict):
        raise InvalidTypeError(f"VirtualMachine: memory_cfg is a text or a dictionary, not {type(given).__name__}")
    if isinstance(given, str) and given not in kinds:
        raise InvalidValueError(f"VirtualMachine: memory_cfg '{given}'", hint='it is "naive" or "pooled"')
    default = kinds[given] if isinstance(given, str) else VirtualMachine.POOLED_ALLOCATOR
    found = {device: default for device in devices}
    for device, kind in given.items() if isinstance(given, dict) else ():
        if isinstance(kind, str) and kind not in kinds:
            raise InvalidValueError(f"VirtualMachine: memory_cfg '{kind}'", hint='it is "naive" or "pooled"')
        found[device] = kinds[kind] if isinstance(kind, str) else int(kind)
    return found


def convert(value: Value, param: Param | None = None) -> Value:
    """A Python value as the VM's: arrays, tuples of them; integers and truths are int32, floats float32.

    Raises InvalidTypeError (TypeError) for anything else.
    """
    if isinstance(value, NDArray | str):
        return value
    if isinstance(value, np.ndarray):
        return array(value)
    if isinstance(value, tuple | list):
        fields = param.fields if param is not None and param.fields is not None else [None] * len(value)
        if len(fields) != len(value):
            fields = [None] * len(value)
        return tuple(convert(v, f) for v, f in zip(value, fields, strict=True))
    if isinstance(value, np.generic):
        return array(np.asarray(value))
    if isinstance(value, bool) and param is not None and param.dtype == "bool":
        return array(np.asarray(value))
    if isinstance(value, int | float):
        return array(np.asarray(value, "float32" if isinstance(value, float) else "int32"))
    if hasattr(value, "__dlpack__"):
        return array(value)
    raise InvalidTypeError(f"the VM takes arrays, numbers, texts and tuples of them, not {type(value).__name__}")


def load_exec(bytecode: bytes | bytearray | str, lib: Module | None) -> Executable:
    """TVM's older name of `Executable.load_exec`."""
    return Executable.load_exec(bytecode, lib)

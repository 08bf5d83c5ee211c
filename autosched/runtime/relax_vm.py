"""TVM's `relax.VirtualMachine` and the executable of `relax.build`, over `vm_program.Program`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.errors import (
    AutoschedError,
    InvalidTypeError,
    InvalidValueError,
    NameNotFoundError,
    SizeError,
    UsageError,
    refuse,
)
from autosched.runtime.array import NDArray
from autosched.runtime.artifact import Contents, export_path, save_contents
from autosched.runtime.backends import default_device
from autosched.runtime.device import Device
from autosched.runtime.executable import Executable
from autosched.runtime.late_build import SYMBOLIC, LateBuild, LateText
from autosched.runtime.module import Module
from autosched.runtime.profiler_vm import VirtualMachineProfiler
from autosched.runtime.profiling import Report
from autosched.runtime.size_expr import shape_at, solve_sizes
from autosched.runtime.timing import BenchmarkResult, measure
from autosched.runtime.vm import Executable as VMText
from autosched.runtime.vm import VirtualMachine as Machine
from autosched.runtime.vm_code import Param, VMFunction
from autosched.runtime.vm_program import Program

if TYPE_CHECKING:
    from autosched.json_types import Json
    from autosched.runtime.kernel import Kernel
    from autosched.runtime.registry import PackedFunc
    from autosched.runtime.values import Value
    from autosched.runtime.vm_code import Instruction


class VMExecutable:
    """What `relax.build` gives: functions by name.

    program  the functions that were built
    late     makes the program of a function with symbolic shapes from its arguments
    """

    def __init__(self, program: Program, late: LateBuild | None = None):
        self.late = late
        self.program = self._bound(program)

    @staticmethod
    def of(what: object) -> VMExecutable:
        """The executable itself, or one around what `build` or `load_module` gave. Raises TypeError for the rest."""
        match what:
            case VMExecutable():
                return what
            case Program():
                return VMExecutable(what)
            case VMText():
                return VMExecutable(what.program)
            case Executable():
                return VMExecutable(program_of(what))
            case Module() if "vm" in what.manifest:
                late = LateText(what.manifest[SYMBOLIC]) if SYMBOLIC in what.manifest else None
                return VMExecutable(Program.from_text(what.manifest["vm"], what), late)
        raise InvalidTypeError(f"VirtualMachine: it runs what relax.build gives, not a {type(what).__name__}")

    @property
    def symbolic(self) -> Mapping[str, tuple[Param, ...]]:
        """The parameters of functions that are built when they are called."""
        return self.program.symbolic

    def _bound(self, program: Program) -> Program:
        """A program that finds functions here which it does not have."""
        return program if self.late is None else replace(program, late=self.program_for)

    @property
    def mod(self) -> VMExecutable:
        """The executable itself: what TVM's module object is."""
        return self

    def places(self) -> Set[Device]:
        """The devices that the functions run on."""
        late = frozenset() if self.late is None else {default_device(self.late.target.backend)}
        return self.program.places() | late

    def names(self) -> list[str]:
        """The names of the functions."""
        return [*self.program.functions, *self.symbolic]

    def call(self, name: str, args: Sequence[object]) -> Value:
        """Run a function on converted values. Raises as `Program.call`."""
        program = self.program_for(name, args)
        try:
            return program.call(name, args)
        except SizeError:  # of no elements, or of one that is broadcast
            if self.late is None or name not in self.late.names or program.has_effects(name):
                raise
            with contextlib.suppress(AutoschedError):
                program = self._bound(self.late.for_sizes(name, args))
        return program.call(name, args)

    def program_for(self, name: str, args: Sequence[object]) -> Program:
        """The program that runs a function on such values. Raises AttributeError for an unknown name."""
        if name in self.symbolic and self.late is not None:
            return self._bound(self.late(name, args))
        if name not in self.program.functions:
            raise NameNotFoundError(f"no function '{name}'", hint=f"there are {', '.join(self.names())}")
        return self.program

    def params(self, name: str) -> tuple[Param, ...]:
        """The parameters of a function. Raises AttributeError for an unknown name."""
        if name in self.symbolic:
            return self.symbolic[name]
        if name not in self.program.functions:
            raise NameNotFoundError(f"no function '{name}'", hint=f"there are {', '.join(self.names())}")
        return self.program.functions[name].params

    def symbols(self, name: str) -> Set[str]:
        """The sizes that a function's arguments say, by name. Raises AttributeError for an unknown name."""
        return frozenset[str]().union(*(param.symbols for param in self.params(name)))

    def input_specs(self, known: Mapping[str, Sequence[int]]) -> dict[str, tuple[tuple[int, ...], str]]:
        """Shape and dtype of each input of `main`, by name, at the sizes that the shapes of some inputs say.

        Raises  UsageError where a size is not said, or an input is no array of known rank; ShapeError where shapes
                do not fit.
        """
        params = self.params("main")
        specs = {p.name: (p.shape, p.dtype) for p in params if p.shape is not None and p.dtype is not None}
        if len(specs) < len(params):
            raise UsageError("the model takes other things than arrays of known dimensions", hint="call it from Python")
        if unknown := sorted(known.keys() - specs.keys()):
            raise UsageError(f"the model has no input '{unknown[0]}'", hint=f"it has {', '.join(specs)}")
        sizes = solve_sizes([(f"input '{name}'", specs[name][0], tuple(shape)) for name, shape in known.items()])[0]
        if unclear := sorted(self.symbols("main") - sizes.keys()):
            hint = "give --shapes, or arrays with -i"
            raise UsageError(f"the size '{unclear[0]}' of the inputs is not known", hint=hint)
        return {name: (shape_at(shape, sizes), dtype) for name, (shape, dtype) in specs.items()}

    @cached_property
    def _machine(self) -> VirtualMachine:
        return VirtualMachine(self)

    def __getitem__(self, name: str) -> PackedFunc:
        return self._machine[name]

    def __call__(self, *args: object, **named: object) -> Value:
        """Run `main` on arguments by position or name."""
        return self["main"](*args, **named)

    def jit(self, *, fcompile: object = None, addons: object = None, force_recompile: bool = False) -> VMExecutable:
        """The executable itself, which is compiled already."""
        refuse("jit", addons=addons)
        return self

    def as_text(self) -> str:
        """The instructions as text."""
        return VMText(self.program).bytecode

    as_python = as_text

    def stats(self) -> str:
        """Counts as text."""
        return VMText(self.program).stats

    def get_source(self, fmt: str = "") -> str:
        """The generated source of all kernels."""
        refuse("get_source", hint="the source is Numba's", fmt=fmt not in ("", "py"))
        return "\n".join(segment.source for segment in self.program.segments)

    inspect_source = get_source

    def export_library(self, path: str | Path, fcompile: object = None, addons: object = None, **_: object) -> None:
        """Write the artifact, whatever the extension; `load_module` reads it.

        Functions that have to be built for each set of sizes are written as text, and compiled when they are called.
        Raises as `export_path`, and ArtifactError if the file cannot be written.
        """
        refuse("export_library", addons=addons)
        save_contents(self.contents(), export_path(path))

    save = export_library

    def contents(self) -> Contents:
        """What an artifact of it holds."""
        lib = self.program.library()
        late = {SYMBOLIC: self.late.manifest(self.symbolic)} if self.late is not None and self.symbolic else {}
        info = {"entry": "", "manifest": {**lib.manifest, "vm": self.program.to_text(), **late}}
        return Contents("module", lib.kernels, lib.native, {}, (), info)

    @property
    def kernels(self) -> dict[str, Kernel]:
        """All kernels, by names that are theirs alone."""
        return dict(self.program.kernels())

    @property
    def manifest(self) -> Mapping[str, Json]:
        """What its maker noted."""
        return self.program.manifest

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the program; functions that have to be built for each set of sizes go as text."""
        late = LateText(self.late.manifest(self.symbolic)) if self.late is not None and self.symbolic else None
        return VMExecutable, (replace(self.program, late=None), late)

    def __repr__(self) -> str:
        return f"<autosched.runtime.VMExecutable of {', '.join(self.names())}>"


def program_of(model: Executable) -> Program:
    """A program whose `main` runs a built model."""
    params = tuple(Param(value.name, value.shape, value.dtype) for value in model.inputs)
    n, n_out = len(params), len(model.outputs)
    results = list(range(n, n + n_out))
    code: list[Instruction] = [["run", 0, list(range(n)), results]]
    if n_out > 1:
        code.append(["tuple", n + n_out, results])
    main = VMFunction("main", params, n + n_out + 1, tuple(code), n if n_out == 1 else n + n_out)
    return Program({"main": main}, (model,))


class VirtualMachine(Machine):
    """Runs what `relax.build` gives.

        vm = relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())
        out = vm["main"](data, *params["main"])

    rt_mod      the executable, or what `load_module` gave
    device      one device or a list of them; those that the kernels run on where none is given
    memory_cfg  accepted, as kernels own their memory
    Raises      as of `runtime.vm`
    """

    def __new__(cls, rt_mod: Any, device: Device | Sequence[Device] = (), *_: object, **__: object) -> Any:
        """Of a session's library the machine is made there, and this gives the session's."""
        if getattr(rt_mod, "type_key", "") != "rpc":
            return super().__new__(cls)
        return rt_mod.create_virtual_machine([device] if isinstance(device, Device) else list(device))

    def __init__(
        self, rt_mod: object, device: Device | Sequence[Device] = (), memory_cfg: object = None, profile: bool = False
    ):
        executable = VMExecutable.of(rt_mod)
        places = executable.places()
        super().__init__(executable.program, device if device != () else list(places), memory_cfg)
        for place in places:
            self._require(place)
        self.executable = executable
        self._saved: dict[str, Callable[[], Value]] = {}
        self._results: dict[str, Value] = {}
        self._instrument: PackedFunc | None = None

    # Running

    def invoke(self, func_name: str, *args: object, **kwargs: object) -> Value:
        """Run a function on arguments, or on those kept by `set_input`; gives a fresh array or a tuple."""
        if func_name in self._saved:
            return self._saved[func_name]()
        if args or kwargs or func_name not in self._inputs:
            values = self._arguments(func_name, args, kwargs)
        else:
            values = self._inputs[func_name]
        self._watch(func_name, True, None, values)
        result = self.executable.call(func_name, values)
        self._watch(func_name, False, result, values)
        torch = sys.modules.get("torch")
        if torch is not None and any(isinstance(a, torch.Tensor) for a in (*args, *kwargs.values())):
            return _as_torch(result, torch)
        return result

    def set_input(self, func_name: str, *args: object, **kwargs: object) -> None:
        """Keep a function's arguments for `invoke_stateful`. Raises as a call of it would, where shapes are known."""
        self._inputs[func_name] = self._checked(func_name, self._arguments(func_name, args, kwargs))

    def _checked(self, func_name: str, values: list[object]) -> list[Value]:
        """Values as the function takes them; those of a symbolic function are checked when it runs."""
        function = self.executable.program.functions.get(func_name)
        if function is None or func_name in self.executable.symbolic:
            return values
        checked = function.checked(values)
        function.sizes_of(checked)
        return checked

    def _arguments(self, func_name: str, args: Sequence[object], kwargs: Mapping[str, object]) -> list[Value]:
        params = self.executable.params(func_name)
        unknown = [name for name in kwargs if name not in {p.name for p in params}]
        if unknown or len(args) + len(kwargs) != len(params):
            shown = f"{func_name}({', '.join(map(str, params))})"
            if unknown:
                raise InvalidTypeError(f"'{unknown[0]}' is no parameter", where=shown)
            raise InvalidTypeError(f"{len(args) + len(kwargs)} arguments instead of {len(params)}", where=shown)
        rest = iter(args)
        return [_value(kwargs[p.name] if p.name in kwargs else next(rest), p) for p in params]

    def invoke_stateful(self, func_name: str, *args: object, **kwargs: object) -> None:
        """Run a function on what `set_input` kept and keep its results for `get_outputs`."""
        if not args and not kwargs and self.executable.params(func_name) and func_name not in self._inputs:
            raise InvalidValueError(f"the inputs of '{func_name}' are not set", hint="call set_input first")
        self._results[func_name] = self.invoke(func_name, *args, **kwargs)

    def get_outputs(self, func_name: str = "main") -> Value:
        """The results of the last `invoke_stateful` of a function: an array or a nested tuple."""
        if func_name not in self._results:
            raise InvalidValueError(f"'{func_name}' has not run", hint="call invoke_stateful first")
        return self._results[func_name]

    def invoke_closure(self, closure: Callable[..., object], *args: object) -> Value:
        """Call what a function has given as a closure."""
        return closure(*args)

    def save_function(
        self, func_name: str, saved_name: str, *args: object, include_return: bool = True, **kwargs: object
    ) -> None:
        """Keep a function with its arguments: `vm[saved_name]()` runs it.

        include_return  whether that gives the result; without it only time passes, which is what a timer wants
        """
        if saved_name in self._saved or saved_name in self.executable.names():
            raise InvalidValueError(f"there is a function '{saved_name}' already")
        values = self._checked(func_name, self._arguments(func_name, args, kwargs))

        def call() -> Value:
            result = self.executable.call(func_name, values)
            return result if include_return else None

        self._saved[saved_name] = call

    def time_evaluator(
        self,
        func_name: str,
        dev: Device,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: float = 0,
        cooldown_interval_ms: float = 0,
        repeats_to_cooldown: int = 1,
        f_preproc: str = "",
    ) -> Callable[..., BenchmarkResult]:
        """A function of `func_name`'s arguments that times it; the rules are `timing.measure`'s."""
        refuse("time_evaluator", f_preproc=f_preproc)
        if func_name not in self._saved:
            self.executable.params(func_name)

        def evaluate(*args: object, **kwargs: object) -> BenchmarkResult:
            saved = self._saved.get(func_name)
            values = [] if saved else self._arguments(func_name, args, kwargs)

            def run(count: int) -> None:
                for _ in range(count):
                    saved() if saved else self.executable.call(func_name, values)

            return measure(
                run, number=number, repeat=repeat, min_repeat_ms=min_repeat_ms,
                cooldown_interval_ms=cooldown_interval_ms, repeats_to_cooldown=repeats_to_cooldown,
            )  # fmt: skip

        return evaluate

    def set_instrument(self, instrument: Callable[..., object]) -> None:
        """Let `instrument(func, name, before_run, ret_value, *args)` see each call of a function."""
        if not callable(instrument):
            raise InvalidTypeError(f"set_instrument: an instrument is a function, not a {type(instrument).__name__}")
        self._instrument = instrument

    def _watch(self, name: str, before: bool, result: object, args: Sequence[object]) -> None:
        if self._instrument is not None:
            self._instrument(self[name], name, before, result, *args)

    def profile(self, func_name: str, *args: object) -> Report:
        """Run a function and say what each kernel took, in µs."""
        values = self._arguments(func_name, args, {})
        machine = VirtualMachineProfiler(VMText(self.executable.program_for(func_name, values)), self.devices)
        return machine.profile(*values, func_name=func_name)

    def get_function(self, name: str) -> PackedFunc:
        """A function by name; as `vm[name]`."""
        return self[name]

    def __getitem__(self, name: str) -> PackedFunc:
        if not isinstance(name, str):
            raise InvalidTypeError(f"a function is known by its name, not by {type(name).__name__}")
        if name not in self._saved:
            self.executable.params(name)
        return lambda *args, **kwargs: self.invoke(name, *args, **kwargs) if args or kwargs else self._bare(name)

    def _bare(self, name: str) -> Value:
        """`vm["f"]()`: without arguments, whatever `set_input` has kept for other calls."""
        if name in self._saved:
            return self._saved[name]()
        return self.executable.call(name, self._arguments(name, (), {}))


def _value(value: object, param: Param) -> Value:
    """A Python value as the program takes it; numbers and shapes stay for parameters that are no tensors."""
    if isinstance(value, NDArray) or (param.shape is None and param.fields is None and isinstance(value, int | float)):
        return value
    if param.fields is not None and isinstance(value, list | tuple):
        if len(value) != len(param.fields):
            return tuple(value)  # refused with the function's signature
        return tuple(_value(v, p) for v, p in zip(value, param.fields, strict=True))
    if hasattr(value, "detach") and hasattr(value, "numpy"):
        value = value.detach().cpu().numpy()
    if param.shape is not None and isinstance(value, int | float | bool):
        return np.asarray(value, param.dtype)
    return value


def _as_torch(value: Value, torch: ModuleType) -> Value:
    if isinstance(value, tuple):
        return tuple(_as_torch(v, torch) for v in value)
    return torch.from_numpy(value.numpy()) if isinstance(value, NDArray) else value

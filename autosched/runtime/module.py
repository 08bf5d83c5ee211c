"""`Module`: compiled functions that are called on arrays, outputs last."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.errors import InvalidTypeError, InvalidValueError, NameNotFoundError, ShapeError, refuse
from autosched.lazy_names import lazy_names
from autosched.runtime.array import NDArray, from_dlpack
from autosched.runtime.artifact import Contents, export_path, save_contents
from autosched.runtime.backends import GraphProgram, backend_of, default_device, open_program
from autosched.runtime.device import CPU, Device, cpu
from autosched.runtime.graph import Graph, Storage, check_graph, graph_of_kernel
from autosched.runtime.kernel import ArgSpec, Kernel
from autosched.runtime.memory import as_aligned
from autosched.runtime.timing import BenchmarkResult, check_counts, measure
from autosched.target import choose_threads, host_cpu

if TYPE_CHECKING:
    from autosched.json_types import Json

__getattr__, __dir__ = lazy_names(__name__)
ENTRY_NAME = "__tvm_main__"
_FLUSH = "cache_flush_cpu_non_first_arg"


class Function:
    """One function of a module: a graph of kernels that works in place on the caller's arrays."""

    def __init__(self, name: str, program: GraphProgram, args: tuple[ArgSpec, ...], device: Device | None = None):
        """Make it of a program and its arguments in the order of the call, which lie on a device."""
        self.name, self.program, self.args, self.device = name, program, args, device or cpu()
        self._kept: Sequence[object] = ()
        graph = program.graph
        self._values = [graph.root(number) for number in _call_order(graph)]
        self._expected = [(np.dtype(arg.dtype), arg.shape) for arg in args]

    @property
    def signature(self) -> str:
        """The call as messages show it."""
        return f"{self.name}({', '.join(map(str, self.args))})"

    def __repr__(self) -> str:
        return f"<autosched.runtime.Function {self.signature}>"

    def __call__(self, *args: NDArray | np.ndarray) -> None:
        """Run on arrays in the order of the signature; the outputs' arrays are written.

        Raises InvalidTypeError (TypeError) on a wrong count, dtype or what is no array; ShapeError (ValueError) on a
        wrong shape; InvalidValueError on an array that is not row-major or on another device.
        """
        self.run(args, 1)

    def run(self, args: Sequence[NDArray | np.ndarray], number: int) -> None:
        """Check the arguments once and run `number` times on them."""
        with self.program.lock:
            self._place(args)
            self.program.run(number)

    def seconds(self, args: Sequence[NDArray | np.ndarray], number: int) -> float:
        """The same, and give the seconds that all runs took."""
        with self.program.lock:
            self._place(args)
            return self.program.seconds(number)

    def _place(self, given: Sequence[NDArray | np.ndarray]) -> None:
        args: list[Any] = [_as_array(arg) for arg in given]
        self._check(args)
        for value, arg in zip(self._values, args):
            self.program.bind(value, arg.address if isinstance(arg, NDArray) else arg.ctypes.data)
        self._kept = args  # until the next call: a device may still be at work

    def _check(self, args: Sequence[NDArray | np.ndarray]) -> None:
        if len(args) != len(self.args):
            raise InvalidTypeError(f"{len(args)} arguments instead of {len(self.args)}", where=self.signature)
        for index, (arg, (dtype, shape)) in enumerate(zip(args, self._expected)):
            if isinstance(arg, NDArray) and arg.device != self.device:
                raise self._wrong_argument(index, arg)
            if isinstance(arg, NDArray) and self.device.device_type != CPU:
                if arg.dtype != str(dtype) or arg.shape != shape:
                    raise self._wrong_argument(index, arg)
                continue
            data = arg.view() if isinstance(arg, NDArray) else arg
            if (
                not isinstance(data, np.ndarray)
                or self.device.device_type != CPU
                or data.dtype != dtype
                or data.shape != shape
                or not data.flags.c_contiguous
            ):
                raise self._wrong_argument(index, arg)
            if self.args[index].role == "output" and not data.flags.writeable:
                what = f"argument {index} '{self.args[index].name}'"
                raise InvalidValueError(f"{what} is read-only", where=self.signature)

    def _wrong_argument(self, index: int, arg: object) -> Exception:
        spec = self.args[index]
        what = f"argument {index} '{spec.name}'"
        data = arg
        if not isinstance(data, np.ndarray | NDArray):
            return InvalidTypeError(f"{what} is a {type(arg).__name__}, no array", where=self.signature)
        if data.dtype != spec.dtype:
            return InvalidTypeError(f"{what} has dtype {data.dtype} instead of {spec.dtype}", where=self.signature)
        if data.shape != spec.shape:
            return ShapeError(
                f"{what} has shape {list(data.shape)} instead of {list(spec.shape)}", where=self.signature
            )
        if isinstance(data, np.ndarray) and not data.flags.c_contiguous:
            return InvalidValueError(
                f"{what} is not row-major", where=self.signature, hint="pass numpy.ascontiguousarray(…)"
            )
        place = data.device if isinstance(data, NDArray) else "the host"
        return InvalidValueError(
            f"{what} is on {place} instead of {self.device}", where=self.signature, hint=f"copy it to {self.device}"
        )


def _call_order(graph: Graph) -> list[int]:
    """The arguments in the order of the call: a function's values begin with them, numbered in that order."""
    return sorted({*graph.inputs, *graph.outputs})


def _moved(graph: Graph, kernels: Mapping[str, str], first_constant: int) -> Graph:
    """A graph in a module where kernels have other names and its constants come later."""
    values = tuple(
        replace(value, storage=Storage("const", value.storage.index + first_constant))
        if value.storage.kind == "const" else value
        for value in graph.values
    )  # fmt: skip
    nodes = tuple(replace(node, kernel=kernels.get(node.kernel, node.kernel)) for node in graph.nodes)
    return replace(graph, values=values, nodes=nodes)


def _as_array(arg: object) -> object:
    """Another library's tensor as an array that shares its memory; everything else as it is."""
    if isinstance(arg, NDArray | np.ndarray) or not hasattr(arg, "__dlpack__"):
        return arg
    found = from_dlpack(arg)
    return found.view() if found.device.device_type == CPU else found


class DeviceCode:
    """The kernels of a module for a device, as TVM's modules have them: in a module that the host's imports.

    Here the module itself has them. This shows their source, and `save` writes a file that `load_module` reads.
    """

    imported_modules: tuple[Module, ...] = ()
    imports = imported_modules

    def __init__(self, module: Module, kind: str):
        self.type_key = self.kind = kind
        self.get_source = self.inspect_source = module.get_source
        self.save = module.save

    def __repr__(self) -> str:
        return f"<autosched.runtime.DeviceCode for {self.type_key}>"


class Module:
    """Functions by name.

    kernels    name -> compiled kernel
    native     object code of the native loop
    threads    most threads to run on; None: as many as the machine, the container and the environment allow
    functions  name -> graph over the kernels, for those that call several; the others are one kernel each,
               unless `only_functions` says that there are no others
    constants  what the graphs' constants are
    manifest   JSON values of the maker: versions, target, scripts and configs to build again from
    """

    def __init__(
        self,
        kernels: Mapping[str, Kernel],
        native: bytes,
        *,
        functions: Mapping[str, Graph] | None = None,
        constants: tuple[np.ndarray, ...] = (),
        threads: int | None = None,
        entry: str | None = None,
        manifest: Mapping[str, Json] | None = None,
        only_functions: bool = False,
    ):
        self.kernels, self.native = dict(kernels), native
        self.constants = tuple(as_aligned(constant) for constant in constants)
        self.manifest = dict(manifest or {})
        self.graphs = dict(functions or {})
        inner = {node.kernel for graph in self.graphs.values() for node in graph.nodes}
        if not only_functions:
            alone = {name: kernel for name, kernel in kernels.items() if name not in inner}
            self.graphs |= {name: graph_of_kernel(kernel, name) for name, kernel in alone.items()}
        self.threads = choose_threads(threads)
        self._entry = entry or next(iter(self.graphs), "")
        self._functions: dict[str, Function] = {}
        self._imports: list[Module] = []
        for graph in self.graphs.values():
            check_graph(graph, self.kernels, constants)

    def _make(self, name: str) -> Function:
        graph = self.graphs[name]
        args = []
        for number in _call_order(graph):
            value = graph.values[number]
            args.append(ArgSpec(value.name, "output" if number in graph.outputs else "input", value.dtype, value.shape))
        program, device = open_program(graph, self.kernels, self.constants, self.native, self.threads)
        return Function(name, program, tuple(args), device)

    def get_function(self, name: str, query_imports: bool = False) -> Function:
        """Give a function by name.

        Raises InvalidValueError (ValueError) if the name is no text, NameNotFoundError (AttributeError) if there is
        no such function.
        """
        if not isinstance(name, str):
            raise InvalidValueError(f"a function's name is a text, not {type(name).__name__}")
        name = self._entry if name == ENTRY_NAME else name
        if name in self.graphs:
            if name not in self._functions:
                self._functions[name] = self._make(name)
            return self._functions[name]
        if query_imports:
            for module in self._imports:
                if module.implements_function(name, True):
                    return module.get_function(name, True)
        raise NameNotFoundError(f"module has no function '{name}'", hint=f"it has {', '.join(self.graphs) or 'none'}")

    def __getitem__(self, name: str) -> Function:
        return self.get_function(name, query_imports=True)

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        """Tell whether there is a function of that name."""
        return name in self.graphs or (
            query_imports and any(module.implements_function(name, True) for module in self._imports)
        )

    @property
    def mod(self) -> Module:
        """The module itself: what TVM 0.27's executable has inside."""
        return self

    def jit(self, *, fcompile: object = None, addons: object = None, force_recompile: bool = False) -> Module:
        """Give the module itself: it is compiled."""
        refuse("jit", addons=addons)
        del fcompile, force_recompile
        return self

    @property
    def entry_name(self) -> str:
        """The name that always stands for the entry function."""
        return ENTRY_NAME

    @property
    def entry_func(self) -> Function:
        """The function that calling the module calls: its first one."""
        return self.get_function(ENTRY_NAME)

    def __call__(self, *args: NDArray | np.ndarray, **keywords: object) -> None:
        """Call the entry function; its arguments are given by position. Gives what it returns (`T.ret`), or None."""
        if keywords:
            name = next(iter(keywords))
            raise InvalidTypeError(f"{self.entry_func!r} takes arguments by position, not '{name}' by name")
        return self.entry_func(*args)

    def time_evaluator(
        self,
        func_name: str,
        dev: Device,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: float = 0,
        limit_zero_time_iterations: int = 100,
        cooldown_interval_ms: float = 0,
        repeats_to_cooldown: int = 1,
        cache_flush_bytes: int = 0,
        f_preproc: str = "",
    ) -> Callable[..., BenchmarkResult]:
        """Give a function of the kernel's arguments that times it; the rules are `timing.measure`'s.

        cache_flush_bytes  bytes that are written before each measurement, to evict what the caches hold
        f_preproc          "cache_flush_cpu_non_first_arg": before each measurement all arguments but the first are
                           evicted
        """
        function = self.get_function(func_name, query_imports=True)
        check_counts("time_evaluator", number=number, repeat=repeat)
        if not isinstance(dev, Device):
            raise InvalidTypeError(f"time_evaluator: argument 'device' is a {type(dev).__name__}, not a Device")
        if f_preproc not in ("", _FLUSH):
            raise InvalidValueError(f"time_evaluator: unknown f_preproc '{f_preproc}'", hint=f"use '{_FLUSH}'")

        def evaluate(*args: NDArray | np.ndarray) -> BenchmarkResult:
            flush_bytes = cache_flush_bytes or (4 * host_cpu().cache.l3_bytes if f_preproc else 0)
            junk = np.zeros(flush_bytes, np.uint8)

            def prepare() -> None:
                junk[:] += 1
                if f_preproc and args:
                    first = args[0].view() if isinstance(args[0], NDArray) else args[0]
                    first.sum()  # brings it back

            return measure(
                lambda count: function.run(args, count),
                timer=lambda count: function.seconds(args, count),
                number=number,
                repeat=repeat,
                min_repeat_ms=min_repeat_ms,
                limit_zero_time_iterations=limit_zero_time_iterations,
                cooldown_interval_ms=cooldown_interval_ms,
                repeats_to_cooldown=repeats_to_cooldown,
                prepare=prepare if flush_bytes else None,
            )

        return evaluate

    # What it is made of

    @property
    def type_key(self) -> str:
        """What kind of module it is."""
        return "autosched"

    kind = type_key

    @property
    def is_dso_exportable(self) -> bool:
        """Whether `export_library` can write it."""
        return True

    @property
    def imported_modules(self) -> list[Module | DeviceCode]:
        """The code for a device, where there is one, and the modules whose functions are found after this one's."""
        device = default_device(backend_of(self.kernels.values()))
        own = [] if device.device_type == CPU else [DeviceCode(self, device.type)]
        return [*own, *self._imports]

    imports = imported_modules

    def import_module(self, module: Module) -> None:
        """Add a module to those whose functions are found through this one."""
        if not isinstance(module, Module):
            raise InvalidTypeError(f"import_module takes a Module, not {type(module).__name__}")
        self._imports.append(module)

    def get_source(self, fmt: str = "") -> str:
        """Give the generated Numba source of all kernels; with "ll" their LLVM text, with "asm" or "s" assembly.

        "ptx" is of kernels for GPUs, whose assembly it is.

        Raises InvalidValueError (ValueError) for another form.
        """
        kernels = self.kernels.values()
        if fmt not in ("", "py", "ll", "asm", "s") and not (fmt == "ptx" and all(hasattr(k, "ptx") for k in kernels)):
            raise InvalidValueError(f"get_source: no source in the form '{fmt}'", hint='use "", "ll" or "asm"')
        field = {"ll": "llvm", "asm": "asm", "s": "asm", "ptx": "ptx"}.get(fmt, "source")
        return "\n".join(str(getattr(kernel, field)) for kernel in self.kernels.values())

    inspect_source = get_source

    def save(self, path: str | Path, fmt: str = "") -> None:
        """Write the module as an artifact, with the functions of the modules that it imports."""
        if not isinstance(path, str | os.PathLike):
            raise InvalidTypeError(f"export_library, save: the path is a {type(path).__name__}, not a text")
        save_contents(self.contents(), Path(path))

    def contents(self) -> Contents:
        """What an artifact of it holds."""
        whole = self.with_imports()
        info = {"entry": whole._entry, "manifest": whole.manifest}
        return Contents("module", whole.kernels, whole.native, whole.graphs, whole.constants, info)

    def with_imports(self) -> Module:
        """One module with this one's functions and those that its imports add, looked up in TVM's order."""
        if not self._imports:
            return self
        kernels, graphs, constants = dict(self.kernels), dict(self.graphs), list(self.constants)
        functions = dict(self.manifest.get("functions", {}))
        for number, module in enumerate(whole.with_imports() for whole in self._imports):
            names = {key: key if key not in kernels else f"{key}__import{number}" for key in module.kernels}
            functions |= {names.get(k, k): text for k, text in module.manifest.get("functions", {}).items()}
            kernels |= {names[key]: kernel for key, kernel in module.kernels.items()}
            for name, graph in module.graphs.items():
                graphs.setdefault(name, _moved(graph, names, len(constants)))
            constants += module.constants
        manifest = {**self.manifest, "functions": functions}
        return Module(
            kernels, self.native, functions=graphs, constants=tuple(constants), threads=self.threads,
            entry=self._entry, manifest=manifest, only_functions=True,
        )  # fmt: skip

    def export_library(
        self,
        path: str | Path,
        fcompile: object = None,
        addons: object = None,
        workspace_dir: object = None,
        **_: object,
    ) -> None:
        """Write the module as an artifact, whatever the extension; `load_module` reads it. Raises as `export_path`."""
        refuse("export_library", addons=addons)
        self.save(export_path(path))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle what it is made of, without the programs that calls have made ready."""
        parts = (self.kernels, self.native, self.graphs, self.constants, self._entry, self.manifest, self._imports)
        return _restore, (*parts, self.threads)

    def __repr__(self) -> str:
        return f"<autosched.runtime.Module of {', '.join(self.graphs)}>"


def _restore(
    kernels: Mapping[str, Kernel],
    native: bytes,
    graphs: Mapping[str, Graph],
    constants: tuple[np.ndarray, ...],
    entry: str,
    manifest: Mapping[str, object],
    imports: Sequence[Module],
    threads: int,
) -> Module:
    made = Module(
        kernels, native, functions=graphs, constants=constants, entry=entry, manifest=manifest, only_functions=True,
        threads=min(threads, choose_threads()),
    )  # fmt: skip
    for module in imports:
        made.import_module(module)
    return made

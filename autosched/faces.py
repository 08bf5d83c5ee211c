"""Names that stand in a low room and are defined in a higher one: strings, resolved on first use.

TVM puts `relax.build` or `relax.frontend.onnx` into packages that, here, must not know the compiler above them. Such
a package says `__getattr__, __dir__ = lazy_names(__name__)`, and the table below says where each name is defined.
The table for "autosched" itself is what makes `import autosched` fast: nothing is loaded before it is used.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any, cast

_DEVICES = (
    *("cpu", "cuda", "gpu", "rocm", "opencl", "metal", "vulkan", "vpi", "hexagon", "ext_dev", "webgpu"),
    *("device", "context"),
)

_TIR_MATH = (
    *("abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "exp", "exp10", "exp2", "floor", "fma", "isfinite"),
    *("isinf", "isnan", "log", "log10", "log1p", "log2", "nearbyint", "pow", "power", "round", "rsqrt", "sigmoid"),
    *("sin", "sinh", "sqrt", "tan", "tanh", "trunc", "ceildiv", "fmod"),
)

# package -> name -> "module" (the module itself) or "module:attribute"
FACES: Mapping[str, Mapping[str, str]] = {
    "autosched": {
        # the compiler
        "build": "autosched.driver:build",
        "lower": "autosched.driver:lower",
        "tune": "autosched.driver:tune",
        "bench": "autosched.driver:bench",
        "compile": "autosched.driver.vm.relax_build:compile_any",
        "TuneOptions": "autosched.driver:TuneOptions",
        "TuneReport": "autosched.driver:TuneReport",
        "BenchReport": "autosched.driver:BenchReport",
        # functions of one's own
        "autotune": "autosched.own.decorate:autotune",
        "AutotunedFunction": "autosched.own.function:AutotunedFunction",
        # records and dispatch
        "ApplyHistoryBest": "autosched.records:ApplyHistoryBest",
        "ApplyConfig": "autosched.records:ApplyConfig",
        "FallbackContext": "autosched.records:FallbackContext",
        # what every room shares
        "IRModule": "autosched.ir:IRModule",
        "Target": "autosched.target:Target",
        "load": "autosched.faces:load",
        "Executable": "autosched.runtime:Executable",
        "Module": "autosched.runtime:Module",
        "BenchmarkResult": "autosched.runtime:BenchmarkResult",
        "nd": "autosched.runtime.ndarray",
        **{name: f"autosched.runtime.ndarray:{name}" for name in _DEVICES},
        # errors
        "AutoschedError": "autosched.errors:AutoschedError",
        "TVMError": "autosched.errors:TVMError",
        # packages
        "codegen": "autosched.codegen",
        "arith": "autosched.tir.arith",
        "autotvm": "autosched.autotvm",
        "contrib": "autosched.contrib",
        "dlight": "autosched.dlight",
        "driver": "autosched.driver",
        "sym": "autosched.tir.arith",
        "error": "autosched.errors",
        "errors": "autosched.errors",
        "get_global_func": "autosched.runtime.registry:get_global_func",
        "register_func": "autosched.runtime.registry:register_func",
        "register_global_func": "autosched.runtime.registry:register_func",
        "frontend": "autosched.frontend",
        "instrument": "autosched.ir.instrument",
        "ir": "autosched.ir",
        "meta_schedule": "autosched.meta_schedule",
        "_ffi": "autosched.runtime.registry",
        "ffi": "autosched.runtime.registry",
        "records": "autosched.records",
        "convert": "autosched.runtime.values:convert",
        "parser": "autosched.relay.parser",
        "relay": "autosched.relay",
        "rpc": "autosched.runtime.rpc",
        "support": "autosched.contrib.support",
        "relax": "autosched.relax",
        "runtime": "autosched.runtime",
        "script": "autosched.script",
        "space": "autosched.space",
        "target": "autosched.target",
        "testing": "autosched.testing",
        "task": "autosched.task",
        "te": "autosched.te",
        "templates": "autosched.templates",
        "tir": "autosched.tir",
        "tirx": "autosched.tir",
        "s_tir": "autosched.tir",
        "topi": "autosched.topi",
        "transform": "autosched.ir.transform",
        "tuner": "autosched.tuner",
    },
    "autosched.contrib": {
        "cblas": "autosched.contrib.cblas",
        "debugger": "autosched.contrib.debugger",
        "graph_executor": "autosched.contrib.graph_executor",
        "graph_runtime": "autosched.contrib.graph_executor",
        "cc": "autosched.contrib.cc",
        "download": "autosched.contrib.download",
        "tar": "autosched.contrib.tar",
        "utils": "autosched.contrib.utils",
    },
    "autosched.ir": {
        "PrimExpr": "autosched.tir.expr:PrimExpr",
        "Range": "autosched.tir.construct:RangeFace",
        "register_intrin_lowering": "autosched.tir.custom:register_intrin_lowering",
        "register_op_attr": "autosched.tir.custom:register_op_attr",
        "Op": "autosched.relax.expr:Op",
        "RelayExpr": "autosched.relax.expr:Expr",
        "FuncType": "autosched.relax.struct_info:FuncStructInfo",
        "PrimType": "autosched.relax.struct_info:PrimStructInfo",
        "TensorType": "autosched.relax.struct_info:TensorStructInfo",
        "TupleType": "autosched.relax.struct_info:TupleStructInfo",
        "load_json": "autosched.script.json_text:load_json",
        "save_json": "autosched.script.json_text:save_json",
        "instrument": "autosched.ir.instrument",
        "transform": "autosched.ir.transform",
    },
    "autosched.relay": {
        "Branch": "autosched.relay.expr:Branch",
        "analysis": "autosched.relay.analysis",
        "backend": "autosched.relay.backend",
        "build_module": "autosched.relay.build_module",
        "build_config": "autosched.ir.transform:PassContext",
        "expr": "autosched.relay.expr",
        "expr_functor": "autosched.relay.functor",
        "param_dict": "autosched.runtime.params",
        "frontend": "autosched.relay.frontend",
        "function": "autosched.relay.expr",
        "testing": "autosched.relay.testing",
        "transform": "autosched.relay.transform",
        "vm": "autosched.relay.vm",
    },
    "autosched.runtime": {
        "ndarray": "autosched.runtime.ndarray",
        "convert": "autosched.runtime.values:convert",
        "load_module": "autosched.faces:load_module",
        "profiler_vm": "autosched.runtime.profiler_vm",
        "ShapeTuple": "autosched.runtime.values:ShapeTuple",
        "String": "autosched.runtime.values:String",
        "vm": "autosched.runtime.vm",
    },
    "autosched.runtime.module": {
        "BenchmarkResult": "autosched.runtime.timing:BenchmarkResult",
        "enabled": "autosched.runtime.library:enabled",
        "load_module": "autosched.faces:load_module",
        "num_threads": "autosched.runtime.library:num_threads",
        "system_lib": "autosched.runtime.library:system_lib",
    },
    "autosched.relax": {
        "frontend": "autosched.relax.frontend",
        "transform": "autosched.relax.transform",
        "get_pipeline": "autosched.relax.pipeline:get_pipeline",
        "register_pipeline": "autosched.relax.pipeline:register_pipeline",
        "get_default_pipeline": "autosched.relax.pipeline:get_default_pipeline",
        "build": "autosched.driver.vm.relax_build:build_relax",
        "VirtualMachine": "autosched.runtime.relax_vm:VirtualMachine",
        "VMExecutable": "autosched.runtime.relax_vm:VMExecutable",
        "Executable": "autosched.runtime.relax_vm:VMExecutable",
        "PyExprVisitor": "autosched.relax.functor:PyExprVisitor",
        "PyExprMutator": "autosched.relax.functor:PyExprMutator",
        "ExprVisitor": "autosched.relax.functor:PyExprVisitor",
        "ExprMutator": "autosched.relax.functor:PyExprMutator",
        "expr_functor": "autosched.relax.functor",
        "backend": "autosched.relax.backend",
        "dpl": "autosched.relax.dpl",
        "analysis": "autosched.relax.analysis",
    },
    "autosched.relax.transform": {
        "MetaScheduleApplyDatabase": "autosched.meta_schedule.passes:MetaScheduleApplyDatabase",
        "MetaScheduleTuneIRMod": "autosched.meta_schedule.passes:MetaScheduleTuneIRMod",
        "MetaScheduleTuneTIR": "autosched.meta_schedule.passes:MetaScheduleTuneTIR",
    },
    "autosched.relax.frontend": {
        "nn": "autosched.frontend.nn",
        "onnx": "autosched.relax.frontend.onnx",
        "torch": "autosched.relax.frontend.torch",
    },
    "autosched.relax.frontend.torch": {
        "from_exported_program": "autosched.frontend.torch:from_exported_program",
        "from_fx": "autosched.frontend.torch:from_fx",
    },
    "autosched.relax.frontend.onnx": {
        "from_onnx": "autosched.frontend.onnx:from_onnx",
    },
    "autosched.te": {
        "schedule": "autosched.te.schedule",
        "tensor": "autosched.te.tensor",
    },
    "autosched.tir": {
        "analysis": "autosched.tir.analysis",
        "Layout": "autosched.tir.data_layout:Layout",
        "BijectiveLayout": "autosched.tir.data_layout:BijectiveLayout",
        "layout": "autosched.tir.data_layout:layout",
        "bijective_layout": "autosched.tir.data_layout:bijective_layout",
        "arith": "autosched.tir.arith",
        "comm_reducer": "autosched.te.build:comm_reducer",
        "ir_builder": "autosched.tir.ir_builder",
        "stmt_functor": "autosched.tir.stmt_functor",
        "sum": "autosched.te.build:sum",
        "TensorIntrin": "autosched.tir.tensor_intrin:TensorIntrin",
        "build": "autosched.driver:build",
        "ScheduleError": "autosched.errors:ScheduleError",
        "dlight": "autosched.dlight",
        "meta_schedule": "autosched.meta_schedule",
        "SBlock": "autosched.tir.stmt:Block",
        "SBlockRV": "autosched.tir.schedule:BlockRV",
        "all": "autosched.tir.expr:all_of",
        "any": "autosched.tir.expr:any_of",
        "max": "autosched.tir.expr:maximum",
        "min": "autosched.tir.expr:minimum",
        "max_value": "autosched.te.build:max_value",
        "min_value": "autosched.te.build:min_value",
        "schedule": "autosched.tir.schedule",
        "transform": "autosched.tir.transform",
        **{name: f"autosched.te.math:{name}" for name in _TIR_MATH},
    },
    "autosched.topi": {
        "generic": "autosched.topi.generic",
        "testing": "autosched.topi.testing",
        "x86": "autosched.topi.generic",
        "cuda": "autosched.topi.generic",
        "arm_cpu": "autosched.topi.generic",
    },
    "autosched.tir.analysis": {
        "estimate_tir_flops": "autosched.codegen.lower.tvm_passes:estimate_tir_flops",
    },
    "autosched.tir.schedule": {
        "ScheduleError": "autosched.errors:ScheduleError",
        "BlockRV": "autosched.tir.schedule.rv:BlockRV",
        "SBlockRV": "autosched.tir.schedule.rv:BlockRV",
    },
}

# TVM's paths of modules that stand elsewhere here: `import autosched.nd`, `from autosched.tirx import …`.
ALIASES: Mapping[str, str] = {
    "autosched.topi.x86": "autosched.topi.generic",
    "autosched.topi.cuda": "autosched.topi.generic",
    "autosched.topi.arm_cpu": "autosched.topi.generic",
    "autosched.arith": "autosched.tir.arith",
    "autosched.sym": "autosched.tir.arith",
    "autosched.nd": "autosched.runtime.ndarray",
    "autosched.transform": "autosched.ir.transform",
    "autosched.contrib.graph_runtime": "autosched.contrib.graph_executor",
    "autosched.error": "autosched.errors",
    "autosched.parser": "autosched.relay.parser",
    "autosched.rpc": "autosched.runtime.rpc",
    "autosched.support": "autosched.contrib.support",
    "autosched.instrument": "autosched.ir.instrument",
    "autosched.relax.ir.instrument": "autosched.relax.instrument",
    "autosched.relax.ir": "autosched.ir",
    "autosched.relax.frontend.nn": "autosched.frontend.nn",
    "autosched.relax.expr_functor": "autosched.relax.functor",
    "autosched.relax.backend.contrib": "autosched.relax.backend.cuda",
    "autosched.tirx": "autosched.tir",
    "autosched.s_tir.dlight": "autosched.dlight",
    "autosched.s_tir.meta_schedule": "autosched.meta_schedule",
    "autosched.s_tir": "autosched.tir",
    "autosched.relay.function": "autosched.relay.expr",
    "autosched.relay.expr_functor": "autosched.relay.functor",
    "autosched.relay.param_dict": "autosched.runtime.params",
    "autosched.relay.ty": "autosched.relay.types",
    "autosched.relax.ty": "autosched.relax.struct_info",
    "autosched.relax.vm_build": "autosched.driver.vm.relax_build",
    "autosched.relax.frontend.nn.modules": "autosched.frontend.nn.layers",
    "autosched.contrib.util": "autosched.contrib.utils",
    "autosched.contrib.ndk": "autosched.contrib.cc",
    "autosched.contrib.debugger.debug_runtime": "autosched.contrib.debugger.debug_executor",
    "autosched.autotvm.measure.measure": "autosched.autotvm.measure",
    "autosched.autotvm.measure.measure_methods": "autosched.autotvm.measure",
    "autosched.autotvm.task.topi_integration": "autosched.autotvm.task",
    "autosched.meta_schedule.builder": "autosched.meta_schedule.options",
    "autosched.meta_schedule.runner": "autosched.meta_schedule.options",
    "autosched.meta_schedule.cost_model": "autosched.meta_schedule.options",
    "autosched.meta_schedule.search_strategy": "autosched.meta_schedule.options",
    "autosched.rpc.client": "autosched.runtime.rpc",
    "autosched.rpc.server": "autosched.runtime.rpc",
    "autosched.rpc.tracker": "autosched.runtime.rpc",
    "autosched.testing.utils": "autosched.testing",
    "autosched._ffi.registry": "autosched.runtime.registry",
    "autosched._ffi": "autosched.runtime.registry",
    "autosched.ffi": "autosched.runtime.registry",
}

# The printer lies above `ir`; its hook there is filled on first use.
PRINTER = "autosched.script.printer:script"


class _AliasFinder:
    """Lets `import` find a module under a second name; both names give one module.

    A finder and loader by what it does: their base classes, in importlib.abc, take longer to load than all of this.
    """

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """Answer for the names of the table and everything below them."""
        return None if _real_name(name) is None else importlib.machinery.ModuleSpec(name, cast(Any, self))

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Any:
        """Give the module itself."""
        real = _real_name(spec.name)
        assert real is not None, "find_spec knew the name"
        module = importlib.import_module(real)
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: Any) -> None:
        """Nothing: the module has run under its own name; it gets back the spec that `import` has exchanged."""
        module.__spec__ = self._specs.get(module.__spec__.name, module.__spec__)

    def __init__(self) -> None:
        self._specs: dict[str, Any] = {}


def _real_name(name: str) -> str | None:
    rest = ""
    while name:  # the longest alias counts
        if name in ALIASES:
            return ALIASES[name] + rest
        name, dot, last = name.rpartition(".")
        rest = f"{dot}{last}{rest}"
    return None


def install_aliases() -> None:
    """Let `import` find the names of `ALIASES`."""
    if not any(isinstance(finder, _AliasFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AliasFinder())  # before the finder that would load a package's files a second time


def resolve(where: str) -> Any:
    """Import what "module" or "module:attribute" names."""
    module, _, attribute = where.partition(":")
    loaded = importlib.import_module(module)
    return getattr(loaded, attribute) if attribute else loaded


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make the `__getattr__` and `__dir__` of a package whose late names stand in the table.

    A name is looked up once: it becomes an attribute of the package when it is first used.
    """
    names = FACES[package]

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = resolve(names[name])
        setattr(sys.modules[package], name, value)
        return value

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *names})

    return get, list_names


def load(path: Any) -> Any:
    """Read an artifact: the Executable or Module that `save` or `export_library` wrote.

    Where its machine code runs here no compiler is needed; elsewhere its kernels are built again, with a warning.
    Raises  InvalidValueError if there is no such file; ArtifactError if it is damaged or from a newer version, and,
            with AUTOSCHED_STRICT, if its kernels would have to be built again.
    """
    library = resolve("autosched.runtime.library")
    try:
        return library.load_module(path)
    except resolve("autosched.runtime:NeedsRebuildError") as error:
        if error.reason == "source":
            return resolve("autosched.driver:rebuild")(error.contents)
        if resolve("autosched.env:AUTOSCHED_STRICT").get():
            hint = "unset AUTOSCHED_STRICT, or build the model on this machine"
            raise resolve("autosched.errors:ArtifactError")(error.message, hint=hint) from None
        logging.getLogger("autosched").warning("%s; its kernels are built again for this machine", error.message)
        return resolve("autosched.driver:rebuild")(error.contents)


def load_module(path: Any, fmt: str = "") -> Any:
    """TVM's name of `load`; a file's format is known from its first bytes."""
    return load(path)


def install_printer() -> None:
    """Give `ir` the printer, so that `mod.show()` and `mod.script()` work."""
    resolve("autosched.ir.printing:set_printer")(resolve(PRINTER))

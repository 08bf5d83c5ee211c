"""`build`: from a module to something that runs: compiler, records and runtime meet here."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autosched.codegen.native import native_object
from autosched.driver.choose import Choice, choose_all
from autosched.driver.compile import compile_functions, stored_functions
from autosched.driver.models import as_module
from autosched.driver.packed_call import graph_with_packing
from autosched.driver.pipeline import graph_passes, run_passes
from autosched.driver.report import BuildReport
from autosched.driver.schedules import CALL_TIR, apply_schedules, packing_function, schedule_attrs
from autosched.driver.settings import resolve_records, resolve_target, resolve_threads
from autosched.errors import UsageError
from autosched.ir import GlobalVar, IRModule, walk
from autosched.records import RecordReader
from autosched.relax.expr import Call, Function
from autosched.relax.to_graph import to_graph
from autosched.relax.transform import BindParams
from autosched.runtime import Executable, Module
from autosched.target import Target
from autosched.templates import apply_config
from autosched.tir import For, LoopKind, PrimFunc
from autosched.version import __version__

ACCURACIES = ("fast", "strict")


def build(
    what: Any,
    args: Sequence[Any] | None = None,
    target: Any = None,
    *,
    params: Mapping[str, Any] | None = None,
    records: Any = None,
    threads: int | None = None,
    accuracy: str = "fast",
    name: str = "main",
) -> Any:
    """Compile with the best configurations known for this machine.

    what      an IRModule with a relax `main`: gives an Executable; a PrimFunc, tensors, or an IRModule of PrimFuncs:
              gives a Module, called on arrays
    args      for tensors: the order of the function's arguments
    target    "cpu", an LLVM-style string, or a Target; else that of the `with` block, else this machine
    params    arrays bound to `main`'s parameters of these names
    records   a database, path, URL or list of them; else the `with` block's context, else the usual places
    threads   the budget that configurations are looked up for
    accuracy  "strict" leaves out algorithms that lose more than direct evaluation does
    Raises    TargetError, RecordError, UsageError for what cannot be used.
    """
    if isinstance(args, str | Target) and target is None:  # build(mod, "cpu"), TVM's order for modules
        args, target = None, args
    if accuracy not in ACCURACIES:
        raise UsageError(f"accuracy '{accuracy}'", hint=f"use one of {ACCURACIES}")
    module = as_module(what, args, name)
    chosen_target = resolve_target(target)
    reader = resolve_records(records)
    n_threads = resolve_threads(threads)
    if has_graph(module):
        return build_graph(module, chosen_target, reader, n_threads, params or {})
    if params:
        raise UsageError("params bind the parameters of a relax function", hint="this module has none")
    return build_functions(module, chosen_target, reader, n_threads)


def has_graph(module: IRModule) -> bool:
    """Whether the module has a function of the graph level."""
    return any(isinstance(f, Function) for _, f in module.functions_items())


def prepare(module: IRModule, target: Target, params: Mapping[str, Any]) -> IRModule:
    """The graph level's part of a build: afterwards `main` calls PrimFuncs in natural layout and nothing else."""
    if params:
        unknown = set(params) - {p.name for p in module["main"].params}
        if unknown:
            raise UsageError(f"no parameter '{sorted(unknown)[0]}' in main")
        module = BindParams("main", {k: np.asarray(v) for k, v in params.items()})(module)
    return run_passes(module, graph_passes(target))


def call_counts(module: IRModule) -> dict[str, int]:
    """How often `main` calls each PrimFunc."""
    calls = (b.value for b in module["main"].bindings())
    return Counter(c.args[0].name for c in calls if isinstance(c, Call) and c.op_name == CALL_TIR)


def build_graph(
    module: IRModule, target: Target, records: RecordReader | None, threads: int, params: Mapping[str, Any]
) -> Executable:
    """Build a model. The executable's manifest holds the build report and what it takes to build it again."""
    prepared = prepare(module, target, params)
    weights = call_counts(prepared)
    choices = choose_all(prepared, target, records, threads=threads, weights=weights)
    return assemble(prepared, choices, target, threads)


def assemble(prepared: IRModule, choices: Mapping[str, Choice], target: Target, threads: int) -> Executable:
    """The executable of a prepared module with the configurations chosen for its kernels."""
    scheduled = apply_schedules(prepared, choices, target)
    start = time.perf_counter()
    kernels = compile_functions(scheduled, target)
    compile_s = time.perf_counter() - start
    graph, constants, params = to_graph(scheduled)
    report = BuildReport(tuple(c.row for c in choices.values()), compile_s)
    manifest = {
        "autosched": __version__,
        "target": target.to_json(),
        "threads": threads,
        "report": [dict(row) for row in report.rows],
        "compile_s": compile_s,
        "functions": stored_functions(scheduled),
    }
    return Executable(kernels, graph, constants, native_object(), manifest, params)


def build_functions(module: IRModule, target: Target, records: RecordReader | None, threads: int) -> Module:
    """Build PrimFuncs that are called on arrays; one that has a schedule already keeps it.

    Where the configuration wants packed arguments, the function packs the caller's arrays each time it is called.
    """
    plan = Plan()
    for gv, func in module.functions_items():
        if is_scheduled(func):
            plan.add(gv.name, func)
        else:
            plan.add_chosen(gv.name, choose_all(IRModule({gv.name: func}), target, records, threads=threads)[gv.name])
    compiled = IRModule(plan.functions)
    kernels = compile_functions(compiled, target)
    graphs = {
        name: graph_with_packing(name, kernels[f"{name}_kernel"], {i: kernels[k] for i, k in packers.items()})
        for name, packers in plan.packers.items()
    }
    manifest = {"autosched": __version__, "target": target.to_json(), "functions": stored_functions(compiled)}
    entry = next(iter(plan.entries))
    return Module(kernels, native_object(), functions=graphs, entry=entry, threads=threads, manifest=manifest)


def is_scheduled(func: PrimFunc) -> bool:
    """Whether somebody has scheduled the function already: its attribute says so, or a loop is not serial."""
    if func.attrs.get("tir.is_scheduled"):
        return True
    return any(isinstance(x, For) and x.kind is not LoopKind.SERIAL for x in walk(func.body))


class Plan:
    """The functions to compile for a module of PrimFuncs, and which of them pack arguments for which."""

    def __init__(self) -> None:
        self.functions: dict[str | GlobalVar, PrimFunc] = {}
        self.packers: dict[str, dict[int, str]] = {}
        self.entries: dict[str, None] = {}

    def add(self, name: str, func: PrimFunc) -> None:
        """A function that is compiled as it is."""
        self.entries[name] = None
        self.functions[name] = func.with_attr("global_symbol", name)

    def add_chosen(self, name: str, choice: Choice) -> None:
        """A function with its configuration, and kernels for the arguments that this wants packed."""
        self.entries[name] = None
        target = choice.task.target
        applied = apply_config(choice.task.func, choice.config, target)
        func = applied.func.with_attr(schedule_attrs(choice.config, applied))
        packers: dict[int, str] = {}
        for position, pack in enumerate(applied.packs):
            if pack is not None:
                buffer = choice.task.func.buffers[position]
                packers[position] = f"{applied.func.buffers[position].name}_packed"
                self.functions[packers[position]] = packing_function(pack, buffer.dtype, target)
        if packers:
            self.packers[name] = packers
            name = f"{name}_kernel"
        self.functions[name] = func.with_attr("global_symbol", name)


def build_report(executable: Executable) -> BuildReport:
    """The report of the build that made an executable."""
    return BuildReport(tuple(executable.manifest.get("report", ())), float(executable.manifest.get("compile_s", 0.0)))

"""`build`: from a module to something that runs: compiler, records and runtime meet here."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from autosched import te
from autosched.codegen.native import native_object
from autosched.driver.choose import Choice, choose_all, is_scheduled
from autosched.driver.compile import compile_functions, prim_funcs, stored_functions
from autosched.driver.input_ranges import input_ranges
from autosched.driver.lower import OWN_PASSES, lower
from autosched.driver.models import as_module, join_targets, refuse_thread_bindings
from autosched.driver.outside_calls import build_steps, calls_outside
from autosched.driver.packed_call import graph_with_packing
from autosched.driver.pipeline import graph_passes, run_passes
from autosched.driver.report import BuildReport
from autosched.driver.schedules import CALL_TIR, apply_schedules, packing_function
from autosched.driver.settings import resolve_records, resolve_target, resolve_threads
from autosched.driver.strict import StrictReader
from autosched.driver.symbolic import SymbolicFunction, SymbolicModule, is_symbolic
from autosched.driver.threads import limit_threads
from autosched.driver.tune_first import tune_first
from autosched.driver.work import count_work
from autosched.errors import ScheduleError, UsageError
from autosched.ir import GlobalVar, IRModule
from autosched.ir.transform import PassContext
from autosched.records import RecordReader
from autosched.relax.expr import Call, Function
from autosched.relax.to_graph import to_graph
from autosched.relax.transform import BindParams
from autosched.runtime import Executable, Module
from autosched.target import Target
from autosched.templates import apply_config, schedule_attrs
from autosched.templates.accuracy import STRICT, with_strict
from autosched.tir import PrimFunc
from autosched.tir.custom import lower_custom_intrinsics
from autosched.tir.specialize import specialize, with_scalar_buffers
from autosched.version import __version__

ACCURACIES = ("fast", STRICT)


def build(
    what: Any,
    args: Sequence[Any] | None = None,
    target: Any = None,
    target_host: Any = None,
    runtime: Any = None,
    name: str | None = None,
    binds: Mapping[Any, Any] | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    records: Any = None,
    threads: int | None = None,
    accuracy: str = "fast",
    like: str | None = None,
    strict: bool = False,
) -> Any:
    """Compile with the best configurations known for this machine.

    what      an IRModule with a relax `main`: gives an Executable; a schedule, a PrimFunc, tensors, or an IRModule of
              PrimFuncs: gives a Module, called on arrays; a dictionary from targets to modules: all of them
    args      for a te schedule or tensors: the order of the function's arguments
    target    "cpu", an LLVM-style string, or a Target; else that of the `with` block, else this machine
    name      of the function; where none is given, a te schedule's is "default_function", a PrimFunc's its own
    params    arrays bound to `main`'s parameters of these names
    records   a database, path, URL or list of them; else the `with` block's context, else the usual places
    threads   the budget that configurations are looked up for
    accuracy  "strict" leaves out algorithms that lose more than direct evaluation does
    like      devices (a family, a part of a name, a target) whose records may be used where there are no others
    strict    raise UntrustedError where a kernel has no record that was verified on a machine like this one
    Raises    TargetError, RecordError, UsageError for what cannot be used.
    """
    del runtime  # accepted for TVM's sake
    if binds:
        raise UsageError("binds: buffers of the caller's own are not available", hint="leave it out")
    if isinstance(args, str | Target) and target is None:  # build(mod, "cpu"), TVM's order for modules
        args, target = None, args
    if isinstance(what, Mapping) and not isinstance(what, IRModule):
        what, target = join_targets(what, target)
    if target_host is not None:
        target, _ = Target.canon_target_and_host(target, target_host)
    if accuracy not in ACCURACIES:
        raise UsageError(f"accuracy '{accuracy}'", hint=f"use one of {ACCURACIES}")
    module = as_module(what, args, name)
    chosen_target = resolve_target(target)
    n_threads = resolve_threads(threads)
    if has_graph(module):
        tune_first(module, chosen_target, params, records, n_threads)
    reader = resolve_records(records, like=like)
    reader = StrictReader(reader) if strict else reader
    if has_graph(module):
        return build_graph(module, chosen_target, reader, n_threads, params or {}, accuracy)
    if params:
        raise UsageError("params bind the parameters of a relax function", hint="this module has none")

    if PassContext.current().config.get(OWN_PASSES):
        module = lower(module)

    def plain(functions: IRModule) -> Module:
        functions = lower_intrinsics(functions, chosen_target)
        refuse_thread_bindings(functions)
        outside = {name: f for name, f in prim_funcs(functions).items() if calls_outside(f)}
        if outside:
            return build_with_calls(functions, outside, plain, chosen_target)
        return build_functions(with_accuracy(functions, accuracy), chosen_target, reader, n_threads)

    if any(is_symbolic(f) for f in prim_funcs(module).values()):

        def specialized(name: str, values: Mapping[Any, int]) -> Module:
            func = module[name]
            if isinstance(what, te.Schedule):  # its axes are split when sizes are known
                func = te.to_prim_func(what, args or (), name, values)
            return plain(IRModule({name: with_scalar_buffers(specialize(func, values))}))

        return build_symbolic(module, specialized, plain, chosen_target)
    return plain(module)


def lower_intrinsics(module: IRModule, target: Target) -> IRModule:
    """The module with the user's own intrinsics, and functions of C, replaced by what code is generated for."""
    functions = {
        gv: lower_custom_intrinsics(f, target.kind.name) if isinstance(f, PrimFunc) else f
        for gv, f in module.functions_items()
    }
    return module.with_functions(functions)


def build_with_calls(
    module: IRModule, outside: Mapping[str, PrimFunc], plain: Callable[[IRModule], Module], target: Target
) -> Module:
    """A module in which some functions call registered Python functions between their kernels."""
    known = {name: f for name, f in prim_funcs(module).items() if name not in outside}
    steps = {name: build_steps(name, f, lambda kernels: plain(IRModule(dict(kernels)))) for name, f in outside.items()}
    entry = next(iter(prim_funcs(module)))
    return SymbolicModule(steps, plain(IRModule(dict(known))) if known else None, entry, module, target)


def build_symbolic(
    module: IRModule,
    specialized: Callable[[str, Mapping[Any, int]], Module],
    plain: Callable[[IRModule], Module],
    target: Target,
) -> Module:
    """A module whose functions with symbolic sizes are built when they are called."""
    functions = prim_funcs(module)
    known = {name: f for name, f in functions.items() if not is_symbolic(f)}
    late = {
        name: SymbolicFunction(name, f, functools.partial(specialized, name))
        for name, f in functions.items() if name not in known
    }  # fmt: skip
    return SymbolicModule(late, plain(IRModule(known)) if known else None, next(iter(functions)), module, target)


def with_accuracy(module: IRModule, accuracy: str) -> IRModule:
    """The module whose PrimFuncs say how accurate they have to be, so that spaces and look-ups see it."""
    if accuracy != STRICT:
        return module
    functions = {gv: with_strict(f) if isinstance(f, PrimFunc) else f for gv, f in module.functions_items()}
    return module.with_functions(functions)


def has_graph(module: IRModule) -> bool:
    """Whether the module has a function of the graph level."""
    return any(isinstance(f, Function) for _, f in module.functions_items())


def prepare(module: IRModule, target: Target, params: Mapping[str, Any]) -> IRModule:
    """The graph level's part of a build: afterwards `main` calls PrimFuncs in natural layout and nothing else."""
    if params:
        known = [p.name for p in module["main"].params]
        if unknown := sorted(set(params) - set(known)):
            names = ", ".join(f"'{name}'" for name in unknown)
            raise UsageError(f"main has no parameters {names}", hint=f"there are {', '.join(known) or 'none'}")
        module = BindParams("main", {k: np.asarray(v) for k, v in params.items()})(module)
    return run_passes(module, graph_passes(target))


def call_counts(module: IRModule) -> dict[str, int]:
    """How often `main` calls each PrimFunc."""
    calls = (b.value for b in module["main"].bindings())
    return Counter(c.args[0].name for c in calls if isinstance(c, Call) and c.op_name == CALL_TIR)


def build_graph(
    module: IRModule, target: Target, records: RecordReader | None, threads: int, params: Mapping[str, Any],
    accuracy: str = "fast",
) -> Executable:  # fmt: skip
    """Build a model. The executable's manifest holds the build report and what it takes to build it again."""
    prepared = with_accuracy(prepare(module, target, params), accuracy)
    weights = call_counts(prepared)
    choices = choose_all(prepared, target, records, threads=threads, weights=weights, cache="cold")
    executable = assemble(prepared, choices, target, threads)
    executable.manifest["input_ranges"] = input_ranges(module)
    return executable


def assemble(prepared: IRModule, choices: Mapping[str, Choice], target: Target, threads: int) -> Executable:
    """The executable of a prepared module with the configurations chosen for its kernels."""
    scheduled = apply_schedules(prepared, choices, target)
    start = time.perf_counter()
    kernels = compile_functions(scheduled, target)
    compile_s = time.perf_counter() - start
    graph, constants, params = to_graph(scheduled)
    work = {name: count_work(choice.task.func) for name, choice in choices.items()}
    split = {name: choice.threads for name, choice in choices.items() if choice.threads}
    graph = limit_threads(graph, kernels, work, target, split)
    report = BuildReport(tuple(c.row for c in choices.values()), compile_s)
    manifest = {
        "autosched": __version__,
        "target": target.to_json(),
        "threads": threads,
        "report": [dict(row) for row in report.rows],
        "functions": stored_functions(scheduled),
    }
    executable = Executable(kernels, graph, constants, native_object(), manifest, params)
    executable.compile_s = compile_s  # not in the manifest: equal builds give equal bytes
    return executable


def build_functions(module: IRModule, target: Target, records: RecordReader | None, threads: int) -> Module:
    """Build PrimFuncs that are called on arrays; one that has a schedule already keeps it.

    Where the configuration wants packed arguments, the function packs the caller's arrays each time it is called.
    """
    plan = Plan()
    for gv, func in module.functions_items():
        if is_scheduled(func):
            plan.add(gv.name, func)
        else:
            alone = IRModule({gv.name: func})
            try:
                plan.add_chosen(gv.name, choose_all(alone, target, records, threads=threads, cache="warm")[gv.name])
            except ScheduleError:  # no template can take it: its own loops run as they are
                plan.add(gv.name, func)
    compiled = IRModule(plan.functions)
    kernels = compile_functions(compiled, target)
    graphs = {
        name: graph_with_packing(name, kernels[f"{name}_kernel"], {i: kernels[k] for i, k in packers.items()})
        for name, packers in plan.packers.items()
    }
    manifest = {"autosched": __version__, "target": target.to_json(), "functions": stored_functions(compiled)}
    entry = next(iter(plan.entries))
    return Module(kernels, native_object(), functions=graphs, entry=entry, threads=threads, manifest=manifest)


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
        applied = choice.applied or apply_config(choice.task.func, choice.config, target)
        func = applied.func.with_attr(schedule_attrs(choice.config, applied))
        packers: dict[int, str] = {}
        for position, pack in enumerate(applied.packs):
            if pack is not None:
                buffer = choice.task.func.buffers[position]
                packers[position] = f"{name}_pack_{applied.func.buffers[position].name}"
                self.functions[packers[position]] = packing_function(pack, buffer.dtype, target)
        if packers:
            self.packers[name] = packers
            name = f"{name}_kernel"
        self.functions[name] = func.with_attr("global_symbol", name)


def build_report(executable: Executable) -> BuildReport:
    """The report of the build that made an executable."""
    return BuildReport(tuple(executable.manifest.get("report", ())), executable.compile_s)

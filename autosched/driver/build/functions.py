"""Building PrimFuncs that are called on arrays: a module of compiled functions."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autosched import te
from autosched.codegen.lower import tvm_passes
from autosched.codegen.native import native_for
from autosched.driver.build.choose import Choice, choose_all, is_scheduled
from autosched.driver.build.dynamic import build_dynamic
from autosched.driver.build.for_all_sizes import compile_for_all_sizes
from autosched.driver.build.lower import OWN_PASSES, lower
from autosched.driver.build.outside_calls import build_steps, calls_outside
from autosched.driver.build.returned_value import ReturningFunction, returns_value, with_result_buffer
from autosched.driver.build.schedules import (
    compile_functions,
    packing_function,
    prim_funcs,
    stored_functions,
    with_checks,
)
from autosched.driver.build.symbolic import LateFunction, SymbolicFunction, SymbolicModule, is_symbolic
from autosched.driver.models import refuse_thread_bindings
from autosched.errors import ScheduleError
from autosched.ir import GlobalVar, IRModule
from autosched.ir.transform import PassContext
from autosched.records import RecordReader
from autosched.runtime import Module
from autosched.runtime.dynamic import DynamicExecutable
from autosched.runtime.graph import Graph, Node, Storage, Value
from autosched.runtime.kernel import Kernel
from autosched.runtime.memory import ALIGNMENT
from autosched.runtime.sized_module import SizedFunction, SizedModule
from autosched.target import Target
from autosched.templates import apply_config, schedule_attrs
from autosched.templates.accuracy import with_accuracy
from autosched.tir import PrimFunc
from autosched.tir.custom import lower_custom_intrinsics
from autosched.tir.function import specialize, with_scalar_buffers
from autosched.tir.separable import NotSeparableError
from autosched.version import __version__

if TYPE_CHECKING:
    from autosched.tir.expr import Var


@dataclass(frozen=True)
class FunctionBuilder:
    """Builds PrimFuncs that are called on arrays, whatever their sizes are and whatever they call.

    source   what the caller gave to `build`, and `args` the order of its arguments
    records  where configurations are looked up;   threads  the budget that they are looked up for
    """

    source: object
    args: Sequence[te.Tensor]
    target: Target
    records: RecordReader | None
    threads: int
    accuracy: str
    checks: bool = False

    def build(self, module: IRModule) -> Module:
        """A module of compiled functions; those with symbolic sizes for all of them, or for each when it is called."""
        if PassContext.current().config.get("tir.disable_vectorize"):
            module = tvm_passes.SkipVectorize()(module)
        if PassContext.current().config.get(OWN_PASSES):
            module = lower(module)
        returning = {name: f for name, f in prim_funcs(module).items() if returns_value(f)}
        if returning:
            return self.with_results(module, returning)
        functions = prim_funcs(module)
        if not any(is_symbolic(f) for f in functions.values()):
            return self.plain(module)
        whole = {name: made for name, f in functions.items() if is_symbolic(f) and (made := self.for_all(name, f))}
        if whole.keys() == functions.keys() and len(whole) == 1:
            return SizedModule(next(iter(whole.values())))
        late = {name: SizedFunction(made) for name, made in whole.items()}
        return build_symbolic(module, functools.partial(self.specialized, module), self.plain, self.target, late)

    def for_all(self, name: str, func: PrimFunc) -> DynamicExecutable | None:
        """A function of symbolic sizes, compiled for all of them; None where it is compiled for each."""

        def build(module: IRModule) -> DynamicExecutable:
            return build_dynamic(module, self.target, self.records, self.threads, {}, self.accuracy, self.checks)

        try:
            return compile_for_all_sizes(name, lower_intrinsics(IRModule({name: func}), self.target)[name], build)
        except NotSeparableError as error:
            logging.getLogger("autosched").info("'%s' is compiled for each size: %s", name, error.message)
            return None

    def with_results(self, module: IRModule, returning: Mapping[str, PrimFunc]) -> Module:
        """A module of which some functions return numbers."""
        late: dict[str, LateFunction] = {}
        for name, func in returning.items():
            alone = self.build(IRModule({name: with_result_buffer(func)}))
            late[name] = ReturningFunction(name, func, alone.get_function(name))
        rest = {gv: f for gv, f in module.functions_items() if gv.name not in returning}
        built = self.build(IRModule(dict(rest), module.attrs)) if rest else None
        if isinstance(built, SymbolicModule):
            late = {**built.late_functions, **late}
        return SymbolicModule(late, built, next(iter(prim_funcs(module))), module, self.target)

    def plain(self, module: IRModule) -> Module:
        """Functions of known sizes."""
        module = lower_intrinsics(module, self.target)
        if self.target.is_cpu:
            refuse_thread_bindings(module)
        outside = {name: f for name, f in prim_funcs(module).items() if calls_outside(f)}
        if outside:
            return build_with_calls(module, outside, self.plain, self.target)
        module = with_accuracy(module, self.accuracy)
        return build_functions(module, self.target, self.records, self.threads, self.checks)

    def specialized(self, module: IRModule, name: str, values: Mapping[Var, int]) -> Module:
        """A function of symbolic sizes for some values of them."""
        func = module[name]
        if isinstance(self.source, te.Schedule):  # its axes are split when sizes are known
            func = te.to_prim_func(self.source, self.args, name, values)
        return self.plain(IRModule({name: with_scalar_buffers(specialize(func, values))}))


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
    specialized: Callable[[str, Mapping[Var, int]], Module],
    plain: Callable[[IRModule], Module],
    target: Target,
    for_all: Mapping[str, SizedFunction],
) -> Module:
    """A module whose functions with symbolic sizes are built when they are called, but for those that are built."""
    functions = prim_funcs(module)
    known = {name: f for name, f in functions.items() if not is_symbolic(f)}
    late: dict[str, LateFunction] = {
        name: for_all.get(name) or SymbolicFunction(name, f, functools.partial(specialized, name))
        for name, f in functions.items() if name not in known
    }  # fmt: skip
    return SymbolicModule(late, plain(IRModule(known)) if known else None, next(iter(functions)), module, target)


def build_functions(
    module: IRModule, target: Target, records: RecordReader | None, threads: int, checks: bool = False
) -> Module:
    """Build PrimFuncs that are called on arrays; one that has a schedule already keeps it.

    Where the configuration wants packed arguments, the function packs the caller's arrays each time it is called.
    """
    plan = Plan()
    for gv, func in module.functions_items():
        if is_scheduled(func, recurrences=target.is_cpu):
            plan.add(gv.name, func)
        else:
            alone = IRModule({gv.name: func})
            try:
                plan.add_chosen(gv.name, choose_all(alone, target, records, threads=threads, cache="warm")[gv.name])
            except ScheduleError:  # no template can take it: its own loops run as they are
                plan.add(gv.name, func)
    compiled = with_checks(IRModule(plan.functions), checks)
    if PassContext.current().config.get("tir.disable_vectorize"):  # what templates have vectorized
        compiled = tvm_passes.SkipVectorize()(compiled)
    kernels = compile_functions(compiled, target)
    graphs = {
        name: graph_with_packing(name, kernels[f"{name}_kernel"], {i: kernels[k] for i, k in packers.items()})
        for name, packers in plan.packers.items()
    }
    manifest = {"autosched": __version__, "target": target.to_json(), "functions": stored_functions(compiled)}
    entry = next(iter(plan.entries))
    return Module(kernels, native_for(target), functions=graphs, entry=entry, threads=threads, manifest=manifest)


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


def graph_with_packing(name: str, kernel: Kernel, packers: Mapping[int, Kernel]) -> Graph:
    """Pack some arguments into the arena, then run the kernel.

    packers  per position among the kernel's arguments the kernel that packs the natural array for it
    """
    values: list[Value] = []
    nodes: list[Node] = []
    inputs: list[int] = []
    outputs: list[int] = []
    operands: list[int] = []
    offset = 0
    for position, arg in enumerate(kernel.args):
        if arg.role == "output":
            values.append(Value(arg.name, arg.shape, arg.dtype, Storage("output", len(outputs))))
            outputs.append(len(values) - 1)
            continue
        natural = packers[position].inputs[0] if position in packers else arg
        values.append(Value(arg.name, natural.shape, natural.dtype, Storage("input", len(inputs))))
        inputs.append(len(values) - 1)
        if position in packers:
            packed = Value(f"{arg.name}_packed", arg.shape, arg.dtype, Storage("arena", offset))
            values.append(packed)
            nodes.append(Node(packed.name, packers[position].name, (inputs[-1],), (len(values) - 1,)))
            offset += -(-packed.size_bytes // ALIGNMENT) * ALIGNMENT
        operands.append(len(values) - 1)
    nodes.append(Node(name, f"{name}_kernel", tuple(operands), tuple(outputs)))
    return Graph(tuple(values), tuple(nodes), tuple(inputs), tuple(outputs), offset)

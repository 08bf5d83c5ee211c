"""Building a model: the graph level's passes, choices for its kernels, and the executable made of them."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Collection, Mapping

import numpy as np

from autosched.codegen.compile import Compilation, patient_collector
from autosched.codegen.native import native_for, start_helper_of_first_build
from autosched.codegen.pool import close_spares
from autosched.driver.build.choose import BuildReport, Choice, choose_all
from autosched.driver.build.graph_options import GraphOptions, choose_graph
from autosched.driver.build.input_ranges import input_ranges
from autosched.driver.build.pipeline import graph_passes, run_passes
from autosched.driver.build.precision import precision_of
from autosched.driver.build.schedules import (
    CALL_TIR,
    compile_functions,
    pack_arguments,
    prim_funcs,
    stored_functions,
    with_checks,
)
from autosched.driver.build.tuned_layouts import TunedLayouts
from autosched.durations import log_step, step
from autosched.errors import ShapeError, UsageError
from autosched.ir import IRModule, preorder
from autosched.records import RecordReader
from autosched.relax.expr import Call, Function, If, MatchCast
from autosched.relax.rewrite import bindings_of
from autosched.relax.struct_info import tensor_infos
from autosched.relax.to_graph import to_graph
from autosched.relax.transform import BindParams, LayoutOracle
from autosched.relax.transform.bind_symbolic import symbolic_dims
from autosched.runtime import Executable
from autosched.runtime.graph import NOP, Graph
from autosched.runtime.kernel import Kernel
from autosched.runtime.memory import gathered
from autosched.runtime.team import LEAST_COMPUTE_S, estimated_s, most_threads
from autosched.target import Target, choose_threads
from autosched.templates.accuracy import with_accuracy
from autosched.templates.kernel import KernelRequest, Made
from autosched.templates.tf32 import TF32, allow_tf32
from autosched.templates.unpacked import read_unpacked
from autosched.tir.expr import Var as TirVar
from autosched.version import __version__

# Times each thread's second-level cache: arenas up to this, and half of the third one, in which a kernel's results
# have memory of their own. In memory of others a thread writes lines that another one has read, at 2 to 9 GB/s. On two
# threads of a Zen 4 XCiT-nano takes .97 of the time in 4 MB, ViT-tiny 1.00 in 2 MB, and .95 where the threads share no
# third-level cache; ConvNeXt-atto in 10 MB 1.01 and .97, EdgeNeXt-small in 22 MB 1.04 and .95. One thread takes 1.00 to
# 1.02.
MOST_APART = 3
BRANCHES = "branches"  # the attribute of a module whose independent parts run side by side
RUN_IT = "build it and call it, or tune what is in its parts as models of their own"


def has_graph(module: IRModule) -> bool:
    """Whether the module has a function of the graph level."""
    return any(isinstance(f, Function) for _, f in module.functions_items())


def has_control_flow(module: IRModule) -> bool:
    """Whether `main` branches, calls another function of the graph level, or says sizes that follow from data."""
    functions = {gv for gv, f in module.functions_items() if isinstance(f, Function)}
    bindings, said = [*bindings_of(module["main"].body)], {*symbolic_dims(module["main"])}
    values = (b.value for b in bindings)
    if any(isinstance(x, If) or (isinstance(x, Call) and x.op in functions) for x in values):
        return True
    casts = (x for b in bindings if isinstance(b, MatchCast) for x in preorder(b.struct_info))
    return any(isinstance(x, TirVar) and x not in said for x in casts)


def prepare(
    module: IRModule,
    target: Target,
    params: Mapping[str, object],
    oracle: LayoutOracle | None = None,
    options: GraphOptions | None = None,
) -> IRModule:
    """The graph level's part of a build: afterwards `main` calls PrimFuncs in natural layout and nothing else.

    oracle  what is known of convolutions in several layouts: `TunedLayouts` of the records that the build uses
    options of the passes; None: the defaults
    Raises  UsageError for unknown params, and for a model with branches or loops, which the VM runs
    """
    if has_control_flow(module):
        raise UsageError("the model branches or loops: it is built and run as a whole only", hint=RUN_IT)
    if params:
        known = [p.name for p in module["main"].params]
        if unknown := sorted(set(params) - set(known)):
            names = ", ".join(f"'{name}'" for name in unknown)
            raise UsageError(f"main has no parameters {names}", hint=f"there are {', '.join(known) or 'none'}")
        module = BindParams("main", {k: np.asarray(v) for k, v in params.items()})(module)
    precision = precision_of(module, target)
    prepared = run_passes(module, graph_passes(target, oracle, precision, options or GraphOptions()))
    if options is not None and options.branches:
        prepared = prepared.with_attr(BRANCHES, True)
    if precision == TF32:
        prepared = allow_tf32(prepared)
    if target.is_cpu:
        prepared = read_unpacked(prepared)
    _refuse_empty(prepared)
    return prepared


def _refuse_empty(module: IRModule) -> None:
    """Refuse kernels whose result has no elements. Raises ShapeError naming the value."""
    for binding in module["main"].bindings():
        call = binding.value
        if not isinstance(call, Call) or call.op_name != CALL_TIR:
            continue
        infos = [info for info in tensor_infos(call.struct_info) if info.is_static]
        if empty := next((info for info in infos if 0 in info.static_shape), None):
            name = call.span.file if call.span is not None and not call.span.line else binding.var.name
            shape = "x".join(map(str, empty.static_shape))
            raise ShapeError(f"'{name}' has no elements: its shape is {shape}", hint="such values are not computed")


def call_counts(module: IRModule) -> dict[str, int]:
    """How often `main` calls each PrimFunc."""
    calls = (b.value for b in module["main"].bindings())
    return Counter(c.args[0].name for c in calls if isinstance(c, Call) and c.op_name == CALL_TIR)


def build_graph(
    module: IRModule, target: Target, records: RecordReader | None, threads: int, params: Mapping[str, object],
    accuracy: str = "fast", checks: bool = False,
) -> Executable:  # fmt: skip
    """Build a model. The executable's manifest holds the build report and what it takes to build it again."""
    if target.is_cpu and choose_threads() > 1:
        start_helper_of_first_build(KernelRequest.__module__)
    try:
        with patient_collector():
            with step("driver/build/tuned_layouts.py", "read what is known of layouts"):
                layouts = TunedLayouts(records, target, threads)
            with step("driver/build/graph_options.py", "look the graph's options up"):
                graph = choose_graph(module, target, records, threads)
                options = graph.options if graph is not None else GraphOptions()
            prepared = with_accuracy(prepare(module, target, params, layouts, options), accuracy)
            weights = call_counts(prepared)
            with Kernels(target, checks) as kernels:
                with step("driver/build/choose.py", "look the configuration of each kernel up; others compile"):
                    choices = choose_all(
                        prepared, target, records, threads=threads, weights=weights, cache="cold", chosen=kernels.begin
                    )
                executable = assemble(prepared, choices, target, threads, checks, kernels)
    finally:
        close_spares()
    executable.manifest["input_ranges"] = input_ranges(module)
    if graph is not None:
        executable.manifest["graph"] = graph.row
    return executable


class Kernels:
    """The kernels of a model's functions; other processes make them from the moment that they are begun."""

    def __init__(self, target: Target, checks: bool):
        self._compilation, self._checks = Compilation[Made](target), checks
        self._requests: dict[str, KernelRequest] = {}

    def __enter__(self) -> Kernels:
        return self

    def __exit__(self, *error: object) -> None:
        self._compilation.__exit__(*error)

    def begin(self, choice: Choice) -> None:
        """Ask for the kernel of a choice, unless it was asked for before."""
        if choice.name not in self._requests:
            asked = KernelRequest(choice.task.func, choice.name, choice.config, choice.applied, self._checks)
            self._requests[choice.name] = asked
            self._compilation.add(asked)

    def finish(self) -> dict[str, Made]:
        """All that was asked for, by name. Raises what scheduling and compiling raise, for the first that fails."""
        return dict(zip(self._requests, self._compilation.finish([*self._requests.values()]), strict=True))


def assemble(
    prepared: IRModule, choices: Mapping[str, Choice], target: Target, threads: int, checks: bool = False,
    begun: Kernels | None = None,
) -> Executable:  # fmt: skip
    """The executable of a prepared module with the configurations chosen for its kernels.

    begun  has some of the kernels already
    """
    start = time.perf_counter()
    with begun or Kernels(target, checks) as wanted:
        for choice in choices.values():
            wanted.begin(choice)
        made = wanted.finish()
    compile_s = time.perf_counter() - start
    log_step("templates/kernel.py", f"schedule and compile {len(made)} kernels, or take them from the cache", compile_s)
    with step("driver/build/schedules.py", "pack the constants"):
        packed = pack_arguments(prepared, {name: m.scheduled.packs for name, m in made.items()}, target)
        rest = with_checks(without(packed, made), checks)
        others = compile_functions(rest, target)
    texts = {name: m.scheduled.text for name, m in made.items()} | stored_functions(rest)
    kernels = {name: made[name].compiled.kernel if name in made else others[name] for name in prim_funcs(packed)}
    with step("relax/to_graph.py", "order the calls, plan the memory"):
        work = {name: choice.flops for name, choice in choices.items()}
        in_place = {name: m.scheduled.in_place for name, m in made.items()}
        side_by_side = threads if target.is_cpu and prepared.attrs.get(BRANCHES) else 1
        seconds = call_seconds(kernels, work, target) if side_by_side > 1 else {}
        apart = most_apart(target, threads) if target.is_cpu and threads > 1 else 0
        graph, constants, params = to_graph(packed, in_place, seconds, side_by_side, LEAST_COMPUTE_S, apart)
    split = {name: choice.threads for name, choice in choices.items() if choice.threads}
    if target.is_cpu:
        graph = limit_threads(graph, kernels, work, target, split)
    report = BuildReport(tuple(c.row for c in choices.values()), compile_s)
    manifest = {
        "autosched": __version__,
        "target": target.to_json(),
        "threads": threads,
        "report": [dict(row) for row in report.rows],
        "functions": texts,
    }
    executable = Executable(kernels, graph, gathered(constants), native_for(target), manifest, params)
    executable.compile_s = compile_s  # not in the manifest: equal builds give equal bytes
    return executable


def most_apart(target: Target, threads: int) -> int:
    """The bytes of an arena up to which the results of each kernel have memory of their own."""
    return min(threads * MOST_APART * target.cache.l2_bytes, target.cache.l3_bytes // 2)


def without(module: IRModule, names: Collection[str]) -> IRModule:
    """The module without functions of these names."""
    return IRModule({gv: f for gv, f in module.functions.items() if gv.name not in names}, module.attrs)


def call_seconds(kernels: Mapping[str, Kernel], work: Mapping[str, int], target: Target) -> dict[str, float]:
    """What a call of each kernel takes on one thread, roughly; `work` as in `limit_threads`."""
    lanes = target.lanes("float32")
    return {
        name: estimated_s(work.get(name, kernel.flops), sum(arg.size_bytes for arg in kernel.args), lanes)
        for name, kernel in kernels.items()
    }


def limit_threads(
    graph: Graph,
    kernels: Mapping[str, Kernel],
    work: Mapping[str, int],
    target: Target,
    tuned: Mapping[str, int] | None = None,
) -> Graph:
    """Write into each node how many threads it is worth; see `runtime.team`.

    work   the arithmetic that a kernel's function asks for, by name; of others the kernel's own count is taken
    tuned  what tuning has found for a kernel, by name: it goes before the estimate
    """
    lanes = target.lanes("float32")
    most = {
        name: most_threads(work.get(name, kernel.flops), sum(arg.size_bytes for arg in kernel.args), lanes)
        for name, kernel in kernels.items()
    }
    most |= {name: n for name, n in (tuned or {}).items() if name in most}
    nodes = tuple(n if n.kernel == NOP else dataclasses.replace(n, threads=most[n.kernel]) for n in graph.nodes)
    return dataclasses.replace(graph, nodes=nodes)

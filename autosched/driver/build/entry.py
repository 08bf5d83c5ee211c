"""`build`: from a module to something that runs: compiler, records and runtime meet here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, Unpack, overload

from autosched import te
from autosched.codegen.backends import codegen_backend
from autosched.driver.build.choose import BuildReport
from autosched.driver.build.graph import build_graph, has_control_flow, has_graph
from autosched.driver.build.late import LateModel
from autosched.driver.build.onnx_models import build_onnx, is_onnx
from autosched.driver.build.pins import Pinned
from autosched.driver.build.positions import with_positions
from autosched.driver.build.precision import with_precision
from autosched.driver.build.sized import SizedModel, build_sized
from autosched.driver.build.torch_programs import build_program, is_program
from autosched.driver.model_files import Ranges, open_model, split_ranges, with_bounds
from autosched.driver.models import join_targets
from autosched.driver.options import RUN_AS
from autosched.driver.settings import Records, resolve_records, resolve_target, resolve_threads
from autosched.errors import TargetError, UsageError, refuse, refuse_too_deep
from autosched.ir import IRModule
from autosched.ir.module import check_symbols
from autosched.lazy_names import hook
from autosched.records import RecordReader
from autosched.relax.transform.bind_symbolic import symbolic_dims
from autosched.runtime import Executable
from autosched.runtime.dynamic import DynamicExecutable
from autosched.runtime.variants import Built, Variants
from autosched.target import Target
from autosched.target.target import TargetLike
from autosched.templates.accuracy import ACCURACIES


class BuildOptions(TypedDict, total=False):
    """The keyword arguments of `build` that say how a model is built, for functions that pass them on."""

    params: Mapping[str, object] | None
    records: Records | None
    threads: int | None
    accuracy: str
    precision: str | None
    pin: Mapping[str, str] | None
    like: str | None
    strict: bool
    run_as: str
    indices: str
    checks: bool


@overload
def build(
    what: str | Path,
    args: None = ...,
    target: str | Target | None = ...,
    target_host: TargetLike | None = ...,
    runtime: object = ...,
    name: str | None = ...,
    binds: Mapping[object, object] | None = ...,
    *,
    shapes: Ranges | None = ...,
    **options: Unpack[BuildOptions],
) -> Executable | DynamicExecutable | LateModel | SizedModel: ...
@overload
def build(
    what: object,
    args: Sequence[te.Tensor] | str | Target | None = ...,
    target: TargetLike | Sequence[TargetLike] | None = ...,
    target_host: TargetLike | None = ...,
    runtime: object = ...,
    name: str | None = ...,
    binds: Mapping[object, object] | None = ...,
    *,
    shapes: Ranges | None = ...,
    **options: Unpack[BuildOptions],
) -> Any: ...
def build(
    what: object,
    args: Sequence[te.Tensor] | str | Target | None = None,
    target: TargetLike | Sequence[TargetLike] | None = None,
    target_host: TargetLike | None = None,
    runtime: object = None,
    name: str | None = None,
    binds: Mapping[object, object] | None = None,
    *,
    params: Mapping[str, object] | None = None,
    records: Records | None = None,
    threads: int | None = None,
    accuracy: str = "fast",
    precision: str | None = None,
    like: str | None = None,
    strict: bool = False,
    run_as: str = "latency",
    indices: str = "raise",
    checks: bool = False,
    shapes: Ranges | None = None,
    pin: Mapping[str, str] | None = None,
) -> object:
    """Compile with the best configurations known for this machine.

    what      a model's file or "package.module:object", onnx's ModelProto, torch's ExportedProgram, or an IRModule with
              a relax `main`: gives an Executable (of an ONNX model whose sizes or values are known only when it is
              called, a LateModel; of another one with symbolic sizes what `build_sized` gives, or a SizedProgram; of a
              program that changes buffers a StatefulProgram; of a model with branches or loops a VMExecutable); a
              schedule, a PrimFunc, tensors, or an IRModule of PrimFuncs: gives a Module, called on arrays; a dictionary
              from targets to modules: all of them
    args      for a te schedule or tensors: the order of the function's arguments
    target    "cpu", an LLVM-style string, or a Target; None: that of the `with` block, else this machine. With a list
              of targets the model is built for each; `save` writes one artifact, and a machine loads the part
              it can run
    name      of the function; None: "default_function" for a te schedule, a PrimFunc's own name
    params    arrays bound to `main`'s parameters of these names
    records   a database, path, URL or list of them; else the `with` block's context, else the usual places
    threads   number of threads that configurations are looked up for
    accuracy  "strict" leaves out algorithms that lose more than direct evaluation does
    precision "bf16": products of a float32 model with constant weights round both factors to bfloat16, all else and all
              sums stay float32; "float32": those of a bfloat16 model do not. For CPUs. "tf32": float32 products may
              round their factors to 11 bits for tensor cores. For GPUs. None: as the model is
    like      devices (a family, a part of a name, a target) whose records may be used where there are no others
    strict    raise UntrustedError where a kernel has no record that was verified on a machine like this one
    run_as    "throughput": prefer records that were measured beside other instances
    indices   what a run does with a position out of range: "raise" IndexOutOfRangeError, or "clip" it to the nearest
    checks    check every access of every kernel, which is slow: a run raises IndexOutOfRangeError that names the
              access, its index, the kernel and its configuration
    shapes    fixes dynamic inputs of a model, {"x": (4, 784)}, or bounds them: {"x": (range(1, 513), 784)}
    pin       configurations of kernels by a part of their workload's text, {"matmul 128x784": "rows=6 vectors=2"};
              knobs that are not named have the template's default
    Raises    TargetError, RecordError, UsageError for what cannot be used; ImportModelError for a file.
    """
    refuse("build", hint="leave it out: there is one", runtime=str(getattr(runtime, "name", runtime or "cpp")) != "cpp")
    if binds:
        raise UsageError("binds: buffers of the caller's own are not available", hint="leave it out")
    if isinstance(args, str | Target):  # build(mod, "cpu"), TVM's order for modules
        args, target = None, args if target is None else target
    if isinstance(what, Mapping) and not isinstance(what, IRModule):
        what, target = join_targets(what, target)
    options: BuildOptions = {
        "params": params, "records": records, "threads": threads, "accuracy": accuracy, "precision": precision,
        "like": like, "strict": strict, "run_as": run_as, "indices": indices, "checks": checks,
    }  # fmt: skip
    if pin:
        pinned = options["records"] = Pinned(resolve_records(records, like=like), tuple(pin.items()))
        built = build(what, args, target, target_host, name=name, shapes=shapes, **options)
        pinned.check_used()
        return built
    if is_onnx(what) and not isinstance(target, list | tuple):
        return build_onnx(what, resolve_target(target), partial(build, target=target, **options), shapes)
    if is_program(what) and not isinstance(target, list | tuple) and args is None and not split_ranges(shapes)[1]:
        chosen_json = resolve_target(target).to_json()
        return build_program(what, partial(build, target=target, **options), split_ranges(shapes)[0], chosen_json)
    if isinstance(target, list | tuple):
        return build_variants(what, args, target, name=name, shapes=shapes, **options)
    if target_host is not None:
        target, _ = Target.canon_target_and_host(target, target_host)
    return _build_module(what, args, target, name, shapes, options)


def _build_module(
    what: object, args: Sequence[te.Tensor] | None, target: TargetLike | Sequence[TargetLike] | None, name: str | None,
    shapes: Ranges | None, options: BuildOptions,
) -> object:  # fmt: skip
    """Build what is one module, or becomes one at once, for one target; `options` are all but `pin`."""
    accuracy, params = options["accuracy"], options["params"] or {}
    if accuracy not in ACCURACIES:
        raise UsageError(f"accuracy '{accuracy}'", hint=f"use one of {ACCURACIES}")
    fixed, ranged = split_ranges(shapes)
    module = with_positions(open_model(what, args, name, fixed, symbolic=True), options["indices"])
    check_symbols(module, unnamed="main")
    chosen = resolve_target(target)
    module = with_precision(module, options["precision"], chosen)
    n_threads, how = resolve_threads(options["threads"], chosen), (accuracy, options["checks"])
    common = (_reader(options, chosen), n_threads)
    if not has_graph(module):
        if params:
            raise UsageError("params bind the parameters of a relax function", hint="this module has none")
        from autosched.driver.build.functions import FunctionBuilder  # with passes that models do not need

        with refuse_too_deep("build"):
            return FunctionBuilder(what, args or (), chosen, *common, *how).build(module)
    module, bounds = with_bounds(module, ranged)
    if has_control_flow(module):
        return hook("build for the VM")(module, chosen, *common, params, *how, bounds)
    if symbolic_dims(module["main"]):
        return build_sized(module, chosen, *common, params, *how, bounds)
    with refuse_too_deep("build"):
        return build_graph(module, chosen, *common, params, *how)


def _reader(options: BuildOptions, target: Target) -> RecordReader:
    """What a build for a target looks records up in. Raises for options that it cannot keep to."""
    if options["checks"] and not codegen_backend(target.backend).CHECKS:
        raise TargetError(f"checks=True: kernels for {target.kind.name} have none", hint="build for the target cpu")
    if (run_as := options["run_as"]) not in RUN_AS:
        raise UsageError(f"run_as '{run_as}'", hint=f"use one of {', '.join(RUN_AS)}")
    at_once = "" if run_as == RUN_AS[0] else run_as
    return resolve_records(options["records"], like=options["like"], run_as=at_once, strict=options["strict"])


def build_variants(
    what: object, args: Sequence[te.Tensor] | None, targets: Sequence[TargetLike], *, name: str | None = None,
    shapes: Ranges | None = None, **options: Unpack[BuildOptions],
) -> Variants:  # fmt: skip
    """Build once for each target; arguments as of `build`. Raises UsageError for equal ones, or what no file holds."""
    built: dict[str, Built] = {}
    for variant, target in name_targets(targets).items():
        made: Any = build(what, args, target, name=name, shapes=shapes, **options)
        if not hasattr(made, "contents"):
            raise UsageError(f"a {type(made).__name__} is built for one target", hint="give one target")
        built[variant] = made
    return Variants(built)


def name_targets(targets: Sequence[TargetLike]) -> dict[str, Target]:
    """The targets of one artifact by the names of its variants: a CPU's as in -mcpu, a GPU's architecture.

    Raises UsageError for none, and for several of one name; TargetError.
    """
    chosen = [resolve_target(target) for target in targets]
    names = [target.mcpu if target.is_cpu else target.gpu.arch for target in chosen]
    if not names or len({*names}) < len(names):
        hint = "name each CPU once, as in -mcpu, and each GPU's architecture, as in -arch"
        raise UsageError(f"targets for {', '.join(names) or 'nothing'}", hint=hint)
    return dict(zip(names, chosen, strict=True))


def build_report(executable: Executable | DynamicExecutable | SizedModel) -> BuildReport:
    """The report of the build that made an executable."""
    manifest = executable.manifest
    return BuildReport(tuple(manifest.get("report", ())), executable.compile_s, manifest.get("graph"))

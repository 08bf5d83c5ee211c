"""What MODEL may be on the command line, and how it becomes something that runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from autosched.cli.common import Common
from autosched.cli.inputs import Wanted
from autosched.cli.late import build_late
from autosched.cli.output import say
from autosched.cli.paths import check_file, is_object
from autosched.cli.waiting import Waiting, compiling
from autosched.durations import step
from autosched.errors import ImportModelError, UsageError

if TYPE_CHECKING:
    from autosched.driver.build.late import LateModel
    from autosched.driver.build.sized import SizedModel
    from autosched.driver.build.torch_programs import LateProgram
    from autosched.ir import IRModule
    from autosched.runtime import Executable
    from autosched.runtime.relax_vm import VMExecutable

Shapes = Mapping[str, tuple[int, ...]]


def is_built(path: Path) -> bool:
    """Tell an artifact of `build` from a model, by its first bytes, else by its name."""
    from autosched.runtime import is_artifact

    return is_artifact(path) or path.suffix == ".asx"


def artifact_of(model: Path) -> Path:
    """The file that a build writes where no other is named."""
    return Path(f"{str(model).partition(':')[2]}.asx") if is_object(model) else model.with_suffix(".asx")


def check_model(path: Path) -> None:
    """Refuse what is neither a readable file nor an object's name, and what calls itself an artifact and is none.

    Raises UsageError, ArtifactError.
    """
    if is_object(path):
        return
    check_file(path)
    if path.suffix == ".asx":
        from autosched.runtime import is_artifact, load_contents

        if not is_artifact(path):
            load_contents(path)  # says what is wrong with it


def check_source(path: Path) -> None:
    """Refuse what is neither a file nor an object's name, or has been built already. Raises UsageError."""
    if is_object(path):
        return
    check_file(path)
    if is_built(path):
        raise UsageError(f"{path} is built already", hint="give the model that it was built from")


def load_module(
    path: Path, shapes: Shapes | None, *, quiet: bool = False, symbolic: bool = False, may_wait: bool = False
) -> IRModule:
    """Import a model, whose sizes may stay symbols where `symbolic` says so.

    may_wait  what cannot be imported yet is tried otherwise: no shapes are looked for that an error could show
    Raises ImportModelError or UsageError with what is wrong.
    """
    check_source(path)
    if is_object(path):
        from autosched.cli.own import refuse_function

        refuse_function(path)
    with Waiting(f"reading {path.name}", quiet=quiet):
        from autosched import driver
        from autosched.driver.model_files import load_sized

        with step("driver/model_files.py", f"import {path.name}"):
            if symbolic or may_wait:
                module: IRModule = driver.load_model(path, shapes, symbolic=symbolic)
            else:
                module = load_sized(path, shapes)
    return module


def inputs_of(module: IRModule) -> Wanted | None:
    """Shape and dtype of each input by name; None where a size is known only when the model is called."""
    from autosched.relax import Function, TensorStructInfo

    found = {}
    main = module["main"] if "main" in module else None  # noqa: SIM401  # an IRModule has no `get`
    for param in main.params if isinstance(main, Function) else ():
        info = param.struct_info
        if not isinstance(info, TensorStructInfo) or info.shape is None:
            return None
        extents = tuple(extent for extent in info.dims if isinstance(extent, int))
        if len(extents) < info.ndim:
            return None
        found[param.name] = extents, info.dtype
    return found or None


def open_executable(
    path: Path,
    common: Common,
    shapes: Shapes | None = None,
    checks: bool = False,
    take: Callable[[Wanted], object] | None = None,
    variant: str = "",
) -> Executable | LateModel | LateProgram | SizedModel | VMExecutable:
    """Load an artifact, or import and build a model with what the databases know; the others are compiled at calls.

    An artifact is loaded without the compiler, unless its kernels are built again with all accesses checked.
    take     called with the inputs' shapes and dtypes before a model is built: refuses what does not fit
    variant  of an artifact for several targets the one that is opened; "": the best that runs here
    """
    check_model(path)
    if is_built(path):
        from autosched.runtime import Executable
        from autosched.runtime.library import load
        from autosched.runtime.relax_vm import VMExecutable

        if common.target != "cpu":
            raise UsageError("--target does not apply to an artifact", hint="build it again for another target")
        loaded = load(path, variant=variant)
        if getattr(loaded, "variants", ()):
            names = ", ".join(loaded.variants)
            say(f"{path}: kernels for {loaded.variant}, of {names}", quiet=common.verbosity < 1)
        is_late = hasattr(loaded, "check_inputs") and not isinstance(loaded, Executable)
        branching: VMExecutable | None = None
        if isinstance(loaded, VMExecutable) and "main" in loaded.names():
            branching = loaded
        if shapes and not is_late and not (branching is not None and branching.symbols("main")):
            raise UsageError(
                "--shapes is for models, and for artifacts of open sizes",
                hint=f"{path} is none; build it again",
            )
        if is_late:
            late: LateModel | LateProgram = loaded
            return late
        if hasattr(loaded, "values_of"):
            sized: SizedModel = loaded
            return sized
        if branching is not None:
            if checks:
                raise UsageError("--checks builds a model of one graph again", hint="give the model's file")
            return branching
        if not isinstance(loaded, Executable):
            raise UsageError(f"{path} holds functions and no model", hint="call them from Python: autosched.load")
        if checks:
            from autosched.driver.rebuild import rebuild

            checked = rebuild(loaded.contents(), checks=True)
            assert isinstance(checked, Executable), "a model is built again as a model"
            return checked
        return loaded
    if variant:
        raise UsageError("--variant is for artifacts", hint="--target says what a model is built for")
    records = list(common.db) or None
    try:
        module = load_module(path, shapes, quiet=common.is_quiet, may_wait=True)
    except ImportModelError as error:
        return build_late(
            error, path, shapes, target=common.target, records=records, threads=common.threads, checks=checks
        )
    from autosched import driver

    if take is not None and (wanted := inputs_of(module)) is not None:
        take(wanted)

    with compiling(f"building {path.name}", quiet=common.is_quiet):
        driver.tune_first(module, common.target, records=records, threads=common.threads)
        built: Executable = driver.build(
            module, target=common.target, records=records, threads=common.threads, checks=checks
        )
    return built


def require_device(target: str) -> None:
    """Refuse a device that is not here before a model is built for it."""
    from autosched.driver.settings import check_runs_here, resolve_target

    found = resolve_target(target)
    if not found.is_cpu:
        check_runs_here(found)


def open_whole(path: Path, common: Common, shapes: Shapes | None = None) -> Executable:
    """`open_executable` for commands that look at kernels. Raises UsageError for what has no one size."""
    return whole(open_executable(path, common, shapes), path)


def whole(found: object, path: Path, takes_shapes: bool = False) -> Executable:
    """What was opened, where it has one size and kernels. Raises UsageError.

    takes_shapes  whether the command takes an artifact of open sizes with --shapes
    """
    from autosched.runtime import Executable
    from autosched.runtime.dynamic import DynamicExecutable
    from autosched.runtime.relax_vm import VMExecutable
    from autosched.runtime.size_expr import format_shapes

    if isinstance(found, VMExecutable):
        raise UsageError(f"{path} branches or loops, and this is for models of one graph", hint="`run` runs it")
    if isinstance(found, DynamicExecutable):
        inputs = ", ".join(f"{name}: {shape}" for name, shape in found.input_shapes.items())
        example = format_shapes(found.least_shapes())
        where = "--shapes" if takes_shapes else "--shapes and the model's file"
        hint = f'give sizes with {where}: such as "{example}"'
        raise UsageError(f"{path} is built for all sizes ({inputs}), and this needs one size", hint=hint)
    if not isinstance(found, Executable):
        hint = "give all sizes with --shapes; values that come as inputs cannot be given"
        raise UsageError(f"{path} is compiled when it is called: there are no kernels to look at", hint=hint)
    return found

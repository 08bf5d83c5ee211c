"""Models whose course is known only when they run, on the command line: what is said of them, and how they are run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard, Unpack

import numpy as np

from autosched.cli import inputs
from autosched.cli.common import Common
from autosched.cli.output import count, say
from autosched.errors import ImportModelError, UsageError

if TYPE_CHECKING:
    from autosched.driver.build.entry import BuildOptions
    from autosched.driver.build.late import LateModel
    from autosched.driver.build.sized import SizedModel
    from autosched.driver.build.torch_programs import LateProgram
    from autosched.ir import IRModule
    from autosched.runtime.dynamic import DynamicExecutable
    from autosched.runtime.relax_vm import VMExecutable

Ranges = Mapping[str, tuple[int | range, ...]]
Shapes = Mapping[str, tuple[int, ...]]


def symbols(module: IRModule) -> list[str]:
    """The sizes of inputs that are not known."""
    from autosched.relax.transform.bind_symbolic import symbolic_dims

    return [size.name for size in symbolic_dims(module["main"])]


def build_late(
    error: ImportModelError | None, path: Path, shapes: Ranges | None, *, target: str, **options: Unpack[BuildOptions]
) -> LateModel | LateProgram | SizedModel:
    """The model whose import ended with this error, if any: built for all sizes of a batch, or when it is called.

    Raises the error where that would not help.
    """
    from autosched.driver import build_late_file, can_wait

    if error is not None and not can_wait(error):
        raise error
    late: LateModel | LateProgram | SizedModel = build_late_file(path, shapes, target=target, **options)
    return late


def tell(
    late: LateModel | LateProgram | SizedModel | DynamicExecutable | VMExecutable, common: Common, name: str = ""
) -> None:
    """Say what is compiled when, and what libraries compute; `name`: for which of several targets."""
    from autosched.driver.build.sized import SizedModel
    from autosched.runtime.dynamic import DynamicExecutable
    from autosched.runtime.relax_vm import VMExecutable
    from autosched.runtime.size_expr import show_limit

    lead = f"{name}: " * bool(name)
    if isinstance(late, VMExecutable):
        parts, kernels = len(late.program.segments), len(list(late.program.kernels()))
        between = "between which the model branches, loops or learns sizes"
        say(f"{lead}{count(kernels, 'kernel')} in {count(parts, 'part')}, {between}", quiet=common.is_quiet)
        return
    if isinstance(late, DynamicExecutable):
        named = (f"'{s.name}'{_bounds(s.low, s.high)}" for s in late.form.sizes)
        limits = "; ".join(show_limit(x.size, x.low, x.high) for x in late.form.limits)
        where = f", where {limits}" * bool(limits)
        say(f"{lead}compiled once for every size of {' and '.join(named)}{where}", quiet=common.is_quiet)
        return
    reason = late.reason
    if isinstance(late, SizedModel):  # the whole model, for each set of sizes
        say(f"{lead}compiled when it is called, for each size: {reason}", quiet=common.is_quiet)
        return
    sizes = f", for each size of {', '.join(late.open_dims)}" if late.open_dims else ""
    rest = f"{count(len(late.executables), 'part')} compiled now, the rest" if late.executables else "compiled"
    what = f"{rest} when it is called{sizes}: the first call{' with new ones' * bool(sizes)} takes seconds"
    what += f" ({reason})" * bool(reason and late.open_dims)
    say(f"{lead}{what}", quiet=common.is_quiet)
    names: dict[str, list[str]] = {}
    for call in late.calls:
        names.setdefault(f"{call.op_name} by {call.library_name}", []).append(call.name)
    for what, nodes in names.items():
        say(f"{lead}computed by a library: {what} ({', '.join(nodes)})", quiet=common.is_quiet)


def _bounds(low: int, high: int | None) -> str:
    return f" from {low} to {high}" if high is not None else f" from {low} on" * (low > 1)


def run_late(
    late: LateModel | LateProgram | SizedModel | DynamicExecutable | VMExecutable,
    *,
    archive: Path | None,
    files: Sequence[str],
    fill: str | None,
    seed: int,
    shapes: Shapes | None = None,
) -> dict[str, np.ndarray]:
    """Run on inputs from files, the others made up where their sizes are known; gives the outputs by name.

    shapes  of inputs that no file gives, for a model of one graph

    Raises UsageError for inputs of unknown size that no file gives, and for outputs that are no arrays of numbers.
    """
    from autosched.driver.build.sized import SizedModel
    from autosched.runtime.dynamic import DynamicExecutable
    from autosched.runtime.relax_vm import VMExecutable

    if isinstance(late, VMExecutable):
        return _run_branching(late, archive, files, fill, seed, shapes or {})
    if isinstance(late, DynamicExecutable):
        return _run_dynamic(late, archive, files, fill, seed, shapes or {})
    if isinstance(late, SizedModel):
        return _run_sized(late, archive, files)
    given = _read(late.input_names, archive, files)
    missing = [name for name in late.input_names if name not in given]
    examples = {name: zeros for name in missing if (zeros := late.example(name, (shapes or {}).get(name))) is not None}
    if unclear := [name for name in missing if name not in examples]:
        raise UsageError(f"the sizes of input '{unclear[0]}' are not known", hint="give --shapes, or arrays with -i")
    if missing and fill is None and (archive or files):
        raise UsageError(f"no data for input '{missing[0]}'", hint="give it, or use --fill random")
    for name, zeros in examples.items():
        given[name] = inputs.make_array(name, zeros.shape, str(zeros.dtype), fill or "random", seed)
    results = late.run(late.check_inputs((), given))
    if strange := [n for n, x in zip(late.output_names, results) if not _is_array(x)]:
        raise UsageError(f"output '{strange[0]}' is no array of numbers", hint="call the model from Python")
    return {n: x for n, x in zip(late.output_names, results, strict=True) if _is_array(x)}


def _read(names: Iterable[str], archive: Path | None, files: Sequence[str]) -> dict[str, np.ndarray]:
    """The arrays of an archive and of files, by the inputs' names."""
    given = inputs.read_arrays(archive, dict.fromkeys(names)) if archive else {}
    for text in files:
        name, _, path = text.rpartition("=")
        given |= inputs.read_arrays(Path(path), {name: None}) if name else {}
    return given


def _run_branching(
    model: VMExecutable, archive: Path | None, files: Sequence[str], fill: str | None, seed: int, asked: Shapes
) -> dict[str, np.ndarray]:
    """Run the `main` of a model with branches or loops, at the sizes of files and of `asked`."""
    from autosched.runtime.vm_code import OUTPUT_NAMES

    read = _read([p.name for p in model.params("main")], archive, files) if model.symbols("main") else {}
    wanted = model.input_specs({**asked, **{name: np.shape(array) for name, array in read.items()}})
    given = inputs.collect_inputs(wanted, archive=archive, files=files, fill=fill, seed=seed)
    results = model(**given)
    outputs = results if isinstance(results, tuple) else (results,)
    names = model.manifest.get(OUTPUT_NAMES) or [f"output{n}" for n in range(len(outputs))]
    return {name: array.numpy() for name, array in zip(names, outputs, strict=True)}


def _run_sized(model: SizedModel, archive: Path | None, files: Sequence[str]) -> dict[str, np.ndarray]:
    """Compile a model for the sizes of the files, and run it."""
    names = model.input_names
    given = _read(names, archive, files)
    if missing := [name for name in names if name not in given]:
        raise UsageError(f"the sizes of input '{missing[0]}' are not known", hint="give arrays with -i")
    results = model(**given)
    outputs = results if isinstance(results, tuple) else (results,)
    specs = model.at(model.values_of(given)).outputs
    return {spec.name: array.numpy() for spec, array in zip(specs, outputs, strict=True)}


def _run_dynamic(
    model: DynamicExecutable,
    archive: Path | None,
    files: Sequence[str],
    fill: str | None,
    seed: int,
    asked: Shapes,
) -> dict[str, np.ndarray]:
    """Run a model for all sizes: at those of the files and of `asked`, else at the least."""
    from autosched.runtime.size_expr import shape_at

    form = model.form
    numbers = {form.values[number].name: number for number in form.inputs}
    given = _read(numbers, archive, files)
    missing = [name for name in numbers if name not in given]
    if missing and fill is None and (archive or files):
        raise UsageError(f"no data for input '{missing[0]}'", hint="give it, or use --fill random")
    shapes = {**asked, **{name: np.shape(array) for name, array in given.items() if name in numbers}}
    sizes = model.sizes_at(shapes) if shapes else form.least()
    for name in missing:
        spec, limit = form.values[numbers[name]], model.manifest.get("input_ranges", {}).get(name, inputs.SMALL)
        shape = shape_at(form.shapes[numbers[name]], sizes)
        given[name] = inputs.make_array(name, shape, spec.dtype, fill or "random", seed, limit)
    results = model(**given)
    outputs = results if isinstance(results, tuple) else (results,)
    return {form.values[n].name: array.numpy() for n, array in zip(form.outputs, outputs, strict=True)}


def _is_array(value: object) -> TypeGuard[np.ndarray]:
    return isinstance(value, np.ndarray) and value.dtype.kind in "biufc"

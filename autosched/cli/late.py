"""Models whose course is known only when they run, on the command line: what is said of them, and how they are run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.cli import inputs
from autosched.cli.common import Common
from autosched.cli.output import count, say
from autosched.errors import ImportModelError, UsageError

if TYPE_CHECKING:
    from autosched.driver.build.late import LateModel

Shapes = Mapping[str, tuple[int, ...]]


def build_late(error: ImportModelError, path: Path, shapes: Shapes | None, **options: Any) -> LateModel:
    """The model whose import ended with this error, to be compiled when it is called.

    Raises the error where that would not help.
    """
    from autosched.driver import build_onnx_file, can_wait

    if path.suffix.lower() != ".onnx" or not can_wait(error):
        raise error
    late: LateModel = build_onnx_file(path, shapes, **options)
    return late


def tell(late: LateModel, common: Common) -> None:
    """Say what is compiled when, and what libraries compute."""
    open_dims = dict.fromkeys(str(d or "?") for i in late.inputs for d in i.dims or ("?",) if not isinstance(d, int))
    sizes = f", for each size of {', '.join(open_dims)}" if open_dims else ""
    rest = f"{count(len(late.executables), 'part')} compiled now, the rest" if late.executables else "compiled"
    what = f"{rest} when it is called{sizes}: the first call{' with new ones' * bool(sizes)} takes seconds"
    say(what, quiet=common.is_quiet)
    names: dict[str, list[str]] = {}
    for call in late.calls:
        names.setdefault(f"{call.op_name} by {call.library_name}", []).append(call.name)
    for what, nodes in names.items():
        say(f"computed by a library: {what} ({', '.join(nodes)})", quiet=common.is_quiet)


def run_late(
    late: LateModel, *, archive: Path | None, files: Sequence[str], fill: str | None, seed: int
) -> dict[str, np.ndarray]:
    """Run on inputs from files, the others made up where their sizes are known; gives the outputs by name.

    Raises UsageError for inputs of unknown size that no file gives, and for outputs that are no arrays of numbers.
    """
    given = inputs.read_arrays(archive, {i.name: None for i in late.inputs}) if archive else {}
    for text in files:
        name, _, path = text.rpartition("=")
        given |= inputs.read_arrays(Path(path), {name: None}) if name else {}
    missing = [i for i in late.inputs if i.name not in given]
    if unclear := [i.name for i in missing if not i.is_static]:
        raise UsageError(f"the sizes of input '{unclear[0]}' are not known", hint="give --shapes, or arrays with -i")
    if missing and fill is None and (archive or files):
        raise UsageError(f"no data for input '{missing[0].name}'", hint="give it, or use --fill random")
    for value in missing:
        zeros = value.example()
        given[value.name] = inputs.make_array(value.name, zeros.shape, str(zeros.dtype), fill or "random", seed)
    results = late.run(late.check_inputs((), given))
    if strange := [n for n, x in zip(late.output_names, results) if not _is_array(x)]:
        raise UsageError(f"output '{strange[0]}' is no array of numbers", hint="call the model from Python")
    return dict(zip(late.output_names, results, strict=True))


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "biufc"

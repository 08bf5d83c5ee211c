"""MODEL as a function of `autosched.autotune`: "package.module:function"."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from autosched.cli.common import Common
from autosched.cli.inputs import read_arrays
from autosched.cli.output import Column, Table, print_json, say, show
from autosched.cli.paths import check_output, is_object
from autosched.cli.waiting import compiling
from autosched.errors import UsageError

if TYPE_CHECKING:
    from autosched.driver import TuneOptions, TuneReport
    from autosched.json_types import JsonObject
    from autosched.own.function import AutotunedFunction
    from autosched.records import Found


NO_SHAPES = "a function's arguments are those of --inputs or its example"


def own_function(model: Path, inputs: Path | None = None, elsewhere: str = "") -> AutotunedFunction | None:
    """The autotuned function that MODEL names; None where it names something else.

    Raises UsageError for flags that are for functions alone, or for models alone.
    """
    found: AutotunedFunction | None = None
    if is_object(model):
        from autosched.driver.model_files import load_object
        from autosched.own.function import AutotunedFunction

        named = load_object(str(model))
        found = named if isinstance(named, AutotunedFunction) else None
    if found is None:
        if inputs is not None:
            raise UsageError("--inputs is for functions of autosched.autotune", hint="a model's inputs are made up")
        return None
    if elsewhere:
        raise UsageError(f"{elsewhere} measures models; your own functions are tuned on this machine")
    if (folder := str(Path.cwd())) not in sys.path:  # where workers look for what the function needs
        sys.path.insert(0, folder)
    return found


def refuse_function(path: Path) -> None:
    """Refuse a user's function where a model is wanted. Raises UsageError."""
    if own_function(path) is not None:
        hint = "tune, bench, build, logs explain and logs report take functions"
        raise UsageError(f"{path} is a function of autosched.autotune, not a model", hint=hint)


def refuse_precision(precision: str | None) -> None:
    """Refuse --precision for a user's function. Raises UsageError."""
    if precision is not None:
        raise UsageError("--precision is for models", hint="a function's arguments have the types that it says")


def arguments_of(function: AutotunedFunction, archive: Path | None) -> tuple[object, ...]:
    """The arguments to tune with: those of an .npz by the names of parameters, else the function's example.

    An array without dimensions in the archive is a number. Raises UsageError.
    """
    if archive is None:
        return function.example_arguments()
    given = {
        name: a.item() if a.ndim == 0 else a for name, a in read_arrays(archive, function.signature.defaults).items()
    }
    try:
        return function.signature.bind((), given)[0]
    except TypeError as error:
        names = ", ".join(function.signature.arguments)
        raise UsageError(f"{archive} does not fit {function.__name__}: {error}", hint=f"it takes {names}") from None


def tune_own(
    function: AutotunedFunction,
    common: Common,
    options: TuneOptions,
    archive: Path | None,
    progress: Callable[[TuneReport], None],
) -> TuneReport:
    """Tune a function as the flags of `tune` say. Raises UsageError for a choice of tasks: there is one."""
    from autosched.own.tune import tune_call

    if options.tasks not in (None, (0,)):
        raise UsageError("--tasks chooses among a model's tasks", hint="a function with its arguments is one task")
    alone = dataclasses.replace(options, tasks=None, cache="warm", verify="task")
    values = arguments_of(function, archive)
    return tune_call(function, values, options=alone, records=common.db[0] if common.db else None, progress=progress)


def build_own(
    common: Common,
    model: Path,
    output: Path | None,
    inputs: Path | None,
    signatures: tuple[str, ...],
    others: Mapping[str, object],
) -> bool:
    """Compile MODEL ahead of time if it is a function; whether it is one.

    others  flags that are for models, by name
    Raises  UsageError for these, and for what cannot be compiled ahead of time.
    """
    function = own_function(model, inputs)
    if function is None:
        if signatures:
            raise UsageError("--signature is for functions of autosched.autotune", hint="--shapes is for models")
        return False
    if used := [name for name, value in others.items() if value]:
        raise UsageError(f"{used[0]} is for models, not for your own functions")
    if others_than_cpu := [target for target in common.targets if target != "cpu"]:
        raise UsageError(f"your own functions are compiled for this CPU, not for '{others_than_cpu[0]}'")
    from autosched.own.ahead import check_function, save_function

    check_function(function)
    path = output or Path(f"{function.__name__}.asx")
    check_output(path, inputs=[*map(Path, common.db), *([inputs] if inputs else [])])
    has_call = inputs is not None or (function.has_example and not signatures)
    calls = [arguments_of(function, inputs)] if has_call else []
    with compiling(f"building {function.__name__}", quiet=common.is_quiet):
        variants = save_function(function, path, calls, signatures, list(common.db) or None)
    rows = [{"arguments": str(function.task_for(v.values).name), "configuration": str(v.config)} for v in variants]
    if common.format == "json":
        print_json({"artifact": str(path), "variants": rows})
    elif common.verbosity > 0 or common.format == "csv":
        show(Table((Column("arguments", "arguments"), Column("configuration", "configuration")), rows), common.format)
    codes = len({(str(v.config), tuple(str(np.asarray(a).dtype) for a in v.values)) for v in variants})
    say(f"{codes} configuration{'s' * (codes != 1)}; written to {path}", quiet=common.is_quiet)
    return True


def found_for(function: AutotunedFunction, values: tuple[object, ...], common: Common) -> Found:
    """What is known for these arguments: in the databases of --db, else in the function's own, else in the usual ones.

    A database of --db that is yet to be made knows nothing.
    """
    from autosched.driver.settings import resolve_records
    from autosched.own.space import Usable, expected_gain
    from autosched.records.places import is_there

    space = function.space_for(values, common.threads)
    sources = [where for where in common.db if is_there(where)] if common.db else function.sources or None
    reader = resolve_records(sources, predict=expected_gain)
    return reader.best(function.task_for(values, common.threads), Usable(space, {space.name: function.version}))


def list_own(function: AutotunedFunction, common: Common, archive: Path | None) -> list[JsonObject]:
    """The row of `tune --list`."""
    values = arguments_of(function, archive)
    task = function.task_for(values, common.threads)
    found = found_for(function, values, common)
    return [
        {
            "index": 0,
            "name": task.name,
            "weight": 1,
            "templates": [function.space.name],
            "configs": function.space_for(values, common.threads).count(),
            "best_s": found.expected_s,
            "record": str(found.trust) if found else found.reason,
        }
    ]

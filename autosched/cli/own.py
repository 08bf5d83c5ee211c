"""MODEL as a function of `autosched.autotune`: "package.module:function"."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autosched.cli.common import Common
from autosched.cli.inputs import read_arrays
from autosched.cli.model import is_object
from autosched.errors import UsageError

if TYPE_CHECKING:
    from autosched.driver import TuneOptions, TuneReport
    from autosched.own.function import AutotunedFunction


def own_function(model: Path, inputs: Path | None = None, on: str | None = None) -> AutotunedFunction | None:
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
    if on is not None:
        raise UsageError("--on measures models; functions of one's own are tuned on this machine")
    if (folder := str(Path.cwd())) not in sys.path:  # where workers look for what the function needs
        sys.path.insert(0, folder)
    return found


def arguments_of(function: AutotunedFunction, archive: Path | None) -> tuple[Any, ...]:
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


def list_own(function: AutotunedFunction, common: Common, archive: Path | None) -> list[dict[str, Any]]:
    """The row of `tune --list`."""
    values = arguments_of(function, archive)
    task = function.task_for(values, common.threads)
    found = function.explain(*values)
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

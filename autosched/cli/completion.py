"""Values that a shell completes, for the options whose values are names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import click

Complete = Callable[[click.Context, click.Parameter, str], list[str]]


def names(known: Callable[[], Iterable[str]]) -> Complete:
    """Complete one of these names."""
    return lambda context, option, typed: [name for name in known() if name.startswith(typed)]


def lists(known: Callable[[], Iterable[str]]) -> Complete:
    """Complete the last of several names with commas between them; none is offered twice."""

    def complete(context: click.Context, option: click.Parameter, typed: str) -> list[str]:
        before, comma, last = typed.rpartition(",")
        there = before.split(",")
        return [before + comma + name for name in known() if name.startswith(last) and name not in there]

    return complete


def strategies() -> Iterable[str]:
    """How `tune` can search."""
    from autosched.tuner.search.registry import strategies

    return ("auto", *strategies())


def templates() -> Iterable[str]:
    """The templates of all back ends."""
    from autosched.target.kinds import KINDS
    from autosched.templates.registry import all_templates

    backends = dict.fromkeys(kind.backend for kind in KINDS.values() if kind.backend)
    return dict.fromkeys(template.name for backend in backends for template in all_templates(backend))


def statuses() -> Iterable[str]:
    """How a trial may end."""
    from autosched.task import Status

    return [str(status) for status in Status]


def cpus() -> Iterable[str]:
    """The CPUs that LLVM code can be made for."""
    from autosched.target.cpus import known_cpus

    return known_cpus()


def kernels(context: click.Context, option: click.Parameter, typed: str) -> list[str]:
    """Complete the name of a kernel of the artifact that the command line names; a model is not built for it."""
    from autosched.errors import AutoschedError
    from autosched.runtime.artifact import load_contents

    words = (context.params.get("model"), *context.args)  # an argument before an option without a value stays in `args`
    files = [Path(str(word)) for word in words if str(word).endswith(".asx")]
    try:
        known = load_contents(files[0], mapped=True).kernels if files else ()
    except (AutoschedError, OSError):
        return []
    return [name for name in known if name.startswith(typed)]

"""The options that every command has, and the decorator that adds them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from autosched.cli.process import Process, set_up_logging
from autosched.cli.project_flags import ProjectCommand
from autosched.cli.values import Count
from autosched.env import AUTOSCHED_LOG
from autosched.errors import UsageError

FORMATS = ("table", "json", "csv", "markdown")


@dataclass(frozen=True, slots=True)
class Common:
    """What the common options say.

    target   target text; "cpu" is this machine
    targets  all of them, of a command that takes several
    threads  None: as many as the machine, its quota and the environment allow
    db       databases in the order in which they are asked; the first one is written to
    """

    target: str
    targets: tuple[str, ...]
    threads: int | None
    db: tuple[str, ...]
    format: str
    verbosity: int
    debug: bool

    @property
    def is_quiet(self) -> bool:
        """Tell whether only results and errors are wanted."""
        return self.verbosity < 0


TARGET_HELP = 'What to compile for: cpu, cuda, a device ("nvidia/nvidia-h200"), an LLVM or CUDA target with its flags.'


def common_options(*, several_targets: bool = False) -> list[click.Parameter]:
    """Make the options that follow a command's own."""
    repeatable = " Repeatable: one artifact for all of them." if several_targets else ""
    return [
        click.Option(
            ["--target"],
            multiple=True,
            default=("cpu",),
            show_default="cpu",
            metavar="TARGET",
            help=TARGET_HELP + repeatable,
        ),
        click.Option(["--threads"], type=Count(min=1), metavar="K", help="Threads (default: as many as are allowed)."),
        click.Option(["--db"], multiple=True, metavar="FILE", help="Tuning database: file, folder or URL; repeatable."),
        click.Option(
            ["-f", "--format"], type=click.Choice(FORMATS), default="table", show_default=True, help="Form of tables."
        ),
        click.Option(["-v", "--verbose"], count=True, help="Print more; twice for debugging."),
        click.Option(["-q", "--quiet"], is_flag=True, help="Print results and errors only."),
        click.Option(["--debug"], is_flag=True, help="Show tracebacks of errors."),
    ]


def make_command(
    name: str, *, example: str, several_targets: bool = False
) -> Callable[[Callable[..., object]], click.Command]:
    """Make a command of a function `f(common: Common, **own options)`; `example` ends its help.

    several_targets  --target may be repeated; other commands refuse that
    """
    lines = "\n".join(f"  {line}" for line in example.strip().splitlines())

    def decorate(function: Callable[..., object]) -> click.Command:
        def run(*, target: tuple[str, ...], threads: int | None, db: tuple[str, ...], **values: Any) -> object:
            form, verbose, quiet, debug = (values.pop(key) for key in ("format", "verbose", "quiet", "debug"))
            click.get_current_context().ensure_object(Process).debug = debug
            if len(target) != 1 and not several_targets:
                hint = "run it once for each; `autosched build` makes one artifact for several"
                raise UsageError(f"`autosched {name}` takes one --target, not {len(target)}", hint=hint)
            common = Common(target[0], target, threads, db, form, -1 if quiet else verbose, debug)
            set_up_logging(common.verbosity, AUTOSCHED_LOG.get())
            return function(common, **values)

        made = click.command(
            name,
            cls=ProjectCommand,
            help=function.__doc__,
            epilog=f"\b\nExample:\n{lines}",
            context_settings={"help_option_names": ["-h", "--help"]},
        )(function)
        made.params += common_options(several_targets=several_targets)
        made.callback = run
        return made

    return decorate

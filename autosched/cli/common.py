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

FORMATS = ("table", "json", "csv", "markdown")


@dataclass(frozen=True, slots=True)
class Common:
    """What the common options say.

    target   target text; "cpu" is this machine
    threads  None: as many as the machine, its quota and the environment allow
    db       databases in the order in which they are asked; the first one is written to
    """

    target: str
    threads: int | None
    db: tuple[str, ...]
    format: str
    verbosity: int
    debug: bool

    @property
    def is_quiet(self) -> bool:
        """Tell whether only results and errors are wanted."""
        return self.verbosity < 0


def common_options() -> list[click.Parameter]:
    """Make the options that follow a command's own."""
    return [
        click.Option(
            ["--target"], default="cpu", show_default=True, help="What to compile for: cpu or an LLVM target."
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


def make_command(name: str, *, example: str) -> Callable[[Callable[..., object]], click.Command]:
    """Make a command of a function `f(common: Common, **own options)`; `example` ends its help."""
    lines = "\n".join(f"  {line}" for line in example.strip().splitlines())

    def decorate(function: Callable[..., object]) -> click.Command:
        def run(*, target: str, threads: int | None, db: tuple[str, ...], **values: Any) -> object:
            form, verbose, quiet, debug = (values.pop(key) for key in ("format", "verbose", "quiet", "debug"))
            click.get_current_context().ensure_object(Process).debug = debug
            common = Common(target, threads, db, form, -1 if quiet else verbose, debug)
            set_up_logging(common.verbosity, AUTOSCHED_LOG.get())
            return function(common, **values)

        made = click.command(
            name,
            cls=ProjectCommand,
            help=function.__doc__,
            epilog=f"\b\nExample:\n{lines}",
            context_settings={"help_option_names": ["-h", "--help"]},
        )(function)
        made.params += common_options()
        made.callback = run
        return made

    return decorate

"""Groups of commands that say which command may have been meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

import click

from autosched.errors import UsageError

_MODELS = (".onnx", ".pt2", ".py", ".tvm", ".tvmscript")


class SuggestingGroup(click.Group):
    """Refuses unknown commands with the nearest one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Raises UsageError for a command that there is not."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            refuse_command(args[0], self.list_commands(ctx))
        return super().resolve_command(ctx, args)


def refuse_command(name: str, known: Iterable[str]) -> None:
    """Raises UsageError naming what may have been meant."""
    known = list(known)
    near = difflib.get_close_matches(name.lower(), known, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(known)}"
    if name in ("help", "version"):
        hint = f"write autosched --{name}" + ", or autosched COMMAND --help" * (name == "help")
    if not near and "tune" in known and Path(name).suffix.lower() in _MODELS:
        hint = f"say what is to be done with it: autosched tune {name}, autosched build {name}"
    if not near and "run" in known and Path(name).suffix.lower() == ".asx":
        hint = f"say what is to be done with it: autosched run {name}"
    raise UsageError(f"no command '{name}'", hint=hint)

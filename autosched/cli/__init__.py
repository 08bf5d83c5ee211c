"""The command line: `autosched tune | build | run | bench | logs | doctor`, one file a command."""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and give its exit code; arguments default to the process's own."""
    try:
        from autosched.cli.process import run_process

        return run_process(arguments)
    except KeyboardInterrupt:  # while the command's modules were loaded
        exec("")  # see `process.forget_interrupt`
        return 130

"""The command line: `autosched tune | build | run | bench | logs | doctor`, one file a command."""

from __future__ import annotations

import gc
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and give its exit code; arguments default to the process's own."""
    gc.set_threshold(50_000, 20, 50)  # a command makes many objects at its start and hardly a cycle: a tenth of it
    try:
        from autosched.cli.process import run_process

        return run_process(arguments)
    except KeyboardInterrupt:  # while the command's modules were loaded
        exec("")  # see `process.forget_interrupt`
        return 130

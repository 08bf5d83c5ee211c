"""A process that assembles for another: `python -m autosched.codegen.cuda.assembler_process`, frames on its pipes.

It reads (PTX, architecture, most registers, seconds) and answers with what was assembled, or with the exception. An
alarm ends it when it takes longer. It also ends when its stdin does, so it never outlives the process that started it
by more than that.
"""

from __future__ import annotations

import os
import signal
import sys

from autosched.codegen.cuda.assembler import Assembled, assemble_here
from autosched.codegen.pool import read_frame, write_frame
from autosched.errors import CodegenError


def main() -> None:
    """Serve until stdin ends; what libraries print goes to stderr."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that is served
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            ptx, arch, max_registers, seconds = read_frame(sys.stdin.buffer)
        except EOFError:
            return
        signal.alarm(seconds)
        answer: Assembled | CodegenError
        try:
            answer = assemble_here(ptx, arch, max_registers)
        except CodegenError as error:
            answer = error
        except Exception as error:  # noqa: BLE001  (whatever the bindings raise; the other process says it)
            answer = CodegenError(f"the assembler failed for {arch}: {error!r}")
        signal.alarm(0)
        write_frame(answers, answer)


if __name__ == "__main__":
    main()

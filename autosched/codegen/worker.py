"""A process that compiles kernels for another: `python -m autosched.codegen.worker`, frames on stdin and stdout.

It reads (request, target as JSON, key in the cache) and answers with the CompiledKernel, or
NATIVE_LOOP and answers with that loop's object code, or answers with the exception. It ends when its stdin does, so it
never outlives the process that started it.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from autosched.codegen.pool import NATIVE_LOOP, NotDone, read_frame, write_frame

if TYPE_CHECKING:
    from autosched.codegen.compile import Request


def main() -> None:
    """Serve until stdin ends; what libraries print goes to stderr."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        answer: object
        try:
            message = read_frame(sys.stdin.buffer)
        except EOFError:
            return
        except Exception:  # noqa: BLE001  (whatever reading a pickle raises; the frame is read)
            answer = NotDone()
        else:
            answer = _attempt(message)
        try:
            write_frame(answers, answer)
        except BrokenPipeError:  # the other process was interrupted
            return
        except Exception:  # noqa: BLE001  (it cannot be pickled; nothing was sent)
            write_frame(answers, NotDone())


def _attempt(message: str | tuple[Request, str, str]) -> object:
    try:
        return _answer(message)
    except Exception as error:  # noqa: BLE001  (it is raised again in the other process)
        return error


def _answer(message: str | tuple[Request, str, str]) -> object:
    from autosched.codegen.compile import compile_missing
    from autosched.codegen.native import native_object
    from autosched.target import Target

    if isinstance(message, str):
        assert message == NATIVE_LOOP, "the only request without a kernel"
        return native_object()
    request, target, key = message
    return compile_missing(request, Target(target), key)


if __name__ == "__main__":
    main()

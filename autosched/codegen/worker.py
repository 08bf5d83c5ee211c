"""A process that compiles kernels for another: `python -m autosched.codegen.worker [MODULE]`, frames on stdin and
stdout. MODULE is imported at once.

It reads (request, target as JSON, key in the cache) and answers with what the request makes, or with the exception;
what else it is asked meanwhile is read at once, so who asks never waits. It ends when its stdin does, so it never
outlives the process that started it.
"""

from __future__ import annotations

import importlib
import os
import pickle
import sys
import threading
from queue import SimpleQueue
from typing import IO, TYPE_CHECKING, Any

from autosched.codegen.pool import NotDone, read_bytes, write_frame

if TYPE_CHECKING:
    from autosched.codegen.compile import Asked


def main() -> None:
    """Serve until stdin ends; what libraries print goes to stderr."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    from autosched.codegen.compile import patient_collector
    from autosched.codegen.cpu import build, machine  # noqa: F401  (before it is asked for anything)

    for module in sys.argv[1:]:
        importlib.import_module(module)
    messages: SimpleQueue[bytes | None] = SimpleQueue()
    threading.Thread(target=_receive, args=(os.fdopen(os.dup(0), "rb"), messages), daemon=True).start()
    with patient_collector():  # for good: it would collect at the end of each kernel
        _serve(messages, answers)


def _receive(stream: IO[bytes], messages: SimpleQueue[bytes | None]) -> None:
    """Read until the stream ends, and say so by None."""
    try:
        while True:
            messages.put(read_bytes(stream))
    except EOFError:
        messages.put(None)


def _serve(messages: SimpleQueue[bytes | None], answers: IO[bytes]) -> None:
    """Answer until the messages end."""
    while (data := messages.get()) is not None:
        answer: object
        try:
            message = pickle.loads(data)
        except Exception:  # noqa: BLE001  (whatever reading a pickle raises)
            answer = NotDone()
        else:
            answer = _attempt(message)
        try:
            write_frame(answers, answer)
        except BrokenPipeError:  # the other process was interrupted
            return
        except Exception:  # noqa: BLE001  (it cannot be pickled; nothing was sent)
            write_frame(answers, NotDone())


def _attempt(message: tuple[Asked[Any], str, str]) -> object:
    try:
        return _answer(message)
    except Exception as error:  # noqa: BLE001  (it is raised again in the other process)
        return error


def _answer(message: tuple[Asked[Any], str, str]) -> object:
    from autosched.target import Target

    request, target, key = message
    return request.make(Target(target), key)


if __name__ == "__main__":
    main()

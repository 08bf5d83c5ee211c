"""A process that compiles kernels for another: `python -m autosched.codegen.worker`, frames on stdin and stdout.

A frame is 8 bytes of length and a pickle. It reads (request, target as JSON) and answers with the CompiledKernel, or
NATIVE_LOOP and answers with that loop's object code, or answers with the exception. It ends when its stdin does, so it
never outlives the process that started it.
"""

from __future__ import annotations

import os
import pickle
import sys
from typing import IO, Any

_LENGTH = 8


class NotDone:
    """The answer to what a worker could not read, or whose answer cannot be sent: who asked does it himself."""


NATIVE_LOOP = "native loop"


def write_frame(stream: IO[bytes], value: Any) -> None:
    """Send one value."""
    data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    stream.write(len(data).to_bytes(_LENGTH, "little") + data)
    stream.flush()


def read_frame(stream: IO[bytes]) -> Any:
    """Receive one value. Raises EOFError where the other side has ended."""
    head = stream.read(_LENGTH)
    if len(head) < _LENGTH:
        raise EOFError("the other process has ended")
    size = int.from_bytes(head, "little")
    data = stream.read(size)
    if len(data) < size:
        raise EOFError("the other process has ended within a message")
    return pickle.loads(data)


def main() -> None:
    """Serve until stdin ends; what libraries print goes to stderr."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        answer: Any
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


def _attempt(message: Any) -> Any:
    try:
        return _answer(message)
    except Exception as error:  # noqa: BLE001  (it is raised again in the other process)
        return error


def _answer(message: Any) -> Any:
    from autosched.codegen.compile import compile_func
    from autosched.codegen.native import native_object
    from autosched.target import Target

    if message == NATIVE_LOOP:
        return native_object()
    request, target = message
    return compile_func(request.func, Target(target), name=request.name, trace=request.trace, config=request.config)


if __name__ == "__main__":
    main()

"""From PTX to machine code, with what the assembler says of its use of a multiprocessor's resources.

The assembler runs in a process of its own, which ends itself when it takes too long: some code keeps it busy for hours,
and a library that has crashed or never returns cannot be stopped from within.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from autosched.codegen.pool import read_frame, start_process, write_frame
from autosched.env import AUTOSCHED_ASSEMBLER_SECONDS
from autosched.errors import CodegenError

_IN_TURN = "wgmma.mma_async instructions are serialized"  # what the assembler says when it has to wait after each


@dataclass(frozen=True, slots=True)
class Assembled:
    """A cubin, and by symbol the registers of a thread and the bytes of shared memory, stack and spills of a kernel."""

    cubin: bytes
    registers: Mapping[str, int]
    shared_bytes: Mapping[str, int]
    stack_bytes: Mapping[str, int]
    spill_bytes: Mapping[str, int]


def assemble(ptx: str, arch: str, max_registers: int = 0) -> Assembled:
    """Machine code for an architecture ("sm_90a"), within AUTOSCHED_ASSEMBLER_SECONDS.

    max_registers  of a thread; 0: as many as there are
    Raises         CodegenError with the assembler's log, or where it does not end in time
    """
    seconds = AUTOSCHED_ASSEMBLER_SECONDS.get()
    answer = _server().answer((ptx, arch, max_registers, seconds))
    if isinstance(answer, Exception):
        raise answer
    if isinstance(answer, Assembled):
        return answer
    if answer == -signal.SIGALRM:
        raise CodegenError(
            f"the assembler did not end within {seconds} seconds for {arch}",
            hint="use smaller tiles or unroll less; AUTOSCHED_ASSEMBLER_SECONDS sets the limit",
        )
    raise CodegenError(f"the assembler's process ended with code {answer} for {arch}", hint="use smaller tiles")


class _Server:
    """The process that assembles for this one, started when it is needed."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None

    def answer(self, message: tuple[str, str, int, int]) -> Assembled | Exception | int:
        """What it answers, or the code with which it ended instead."""
        with self.lock:
            if self.process is None or self.process.poll() is not None:
                self.process = start_process("autosched.codegen.cuda.assembler_process")
            process = self.process
            assert process.stdin is not None and process.stdout is not None, "both are pipes"
            try:
                write_frame(process.stdin, message)
                found: Assembled | Exception = read_frame(process.stdout)
                return found
            except (OSError, EOFError):
                self.process = None
                for stream in (process.stdin, process.stdout):
                    with contextlib.suppress(OSError):
                        stream.close()
                return process.wait()
            except BaseException:  # interrupted: what it is still to answer is nobody's
                self.process = None
                process.kill()
                raise


_servers: dict[int, _Server] = {}  # by process: a forked one has a server of its own


def _server() -> _Server:
    return _servers.setdefault(os.getpid(), _Server())


def assemble_here(ptx: str, arch: str, max_registers: int = 0) -> Assembled:
    """As `assemble`, in this process and without a limit."""
    from cuda.bindings import nvjitlink

    options = [f"-arch={arch}", "-O3", "-verbose"]
    if max_registers:
        options.append(f"-maxrregcount={max_registers}")
    handle = nvjitlink.create(len(options), options)
    try:
        data = ptx.encode()
        try:
            nvjitlink.add_data(handle, nvjitlink.InputType.PTX, data, len(data), "kernel")
            nvjitlink.complete(handle)
        except nvjitlink.nvJitLinkError as error:
            raise CodegenError(
                f"the assembler refuses the code for {arch}: {_log(handle, 'error') or error}"
            ) from error
        cubin = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, cubin)
        log = _log(handle, "info")
        if _IN_TURN in log:
            raise CodegenError(f"products of a warpgroup would wait for each other on {arch}: {log}")
        return _report(bytes(cubin), log)
    finally:
        nvjitlink.destroy(handle)


def _log(handle: int, kind: str) -> str:
    from cuda.bindings import nvjitlink

    size = getattr(nvjitlink, f"get_{kind}_log_size")(handle)
    text = bytearray(size)
    if size > 1:
        getattr(nvjitlink, f"get_{kind}_log")(handle, text)
    return text.decode(errors="replace").rstrip("\x00\n")


def _report(cubin: bytes, log: str) -> Assembled:
    found: dict[str, dict[str, int]] = {"registers": {}, "shared": {}, "stack": {}, "spills": {}}
    symbol = ""
    for line in log.splitlines():
        if match := re.search(r"(?:entry function|Function properties for) '?([\w$.]+)'?", line):
            symbol = match[1]
        if match := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            found["stack"][symbol] = int(match[1])
            found["spills"][symbol] = int(match[2]) + int(match[3])
        if match := re.search(r"[Uu]sed (\d+) registers", line):
            found["registers"][symbol] = int(match[1])
            shared = re.search(r"(\d+) bytes smem", line)
            found["shared"][symbol] = int(shared[1]) if shared else 0
    return Assembled(cubin, found["registers"], found["shared"], found["stack"], found["spills"])

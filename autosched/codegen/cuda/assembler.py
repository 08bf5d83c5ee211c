"""From PTX to machine code, with what the assembler says of its use of a multiprocessor's resources."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from autosched.errors import CodegenError


@dataclass(frozen=True, slots=True)
class Assembled:
    """A cubin, and by symbol the registers of a thread and the bytes of shared memory, stack and spills of a kernel."""

    cubin: bytes
    registers: Mapping[str, int]
    shared_bytes: Mapping[str, int]
    stack_bytes: Mapping[str, int]
    spill_bytes: Mapping[str, int]


def assemble(ptx: str, arch: str, max_registers: int = 0) -> Assembled:
    """Machine code for an architecture ("sm_90a"). Raises CodegenError with the assembler's log.

    max_registers  of a thread; 0: as many as there are
    """
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
        return _report(bytes(cubin), _log(handle, "info"))
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

"""The process of one session: it does what its client asks, alone, and ends with it.

It loads the runtime and no compiler. A request is an object {"op": …}; the answer is {"value": …} or {"error": …}.
Values are JSON, or name what stays here: {"array": number}, {"object": number}.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import resource
import select
import shutil
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from autosched.errors import InvalidTypeError, InvalidValueError, RPCError
from autosched.lazy_names import hook
from autosched.rpc.access import described, refuse_client, safe_name
from autosched.rpc.frames import ConnectionLost, Frames
from autosched.runtime import Device, Executable, GraphExecutor, Module, NDArray, NodeTime, empty
from autosched.runtime.array import BFLOAT16, know_dtype
from autosched.runtime.compiled_function import CompiledFunction
from autosched.runtime.device import CPU
from autosched.runtime.dynamic import DynamicExecutable
from autosched.runtime.graph_module import create as create_graph
from autosched.runtime.library import read_module
from autosched.runtime.module import Function
from autosched.runtime.profiling import Report
from autosched.runtime.registry import get_global_func
from autosched.runtime.relax_vm import VirtualMachine, VMExecutable
from autosched.runtime.sizes_executor import SizesGraphExecutor
from autosched.runtime.timing import BenchmarkResult
from autosched.target import Target, host_cpu

if TYPE_CHECKING:
    from autosched.json_types import Json, JsonObject
    from autosched.runtime.registry import PackedFunc
    from autosched.runtime.values import Value

_BLOCK_BYTES = 1 << 20
_DRAIN_S = 1.0
_MOST_SKIPPED_BYTES = 1 << 26  # that came with a request which has failed
_MOST_TEXT_BYTES = 1 << 28  # of a graph or another text
# What clients may call of a virtual machine, beside the functions that it runs.
_MACHINE_CALLS = frozenset(("invoke", "set_input", "invoke_stateful", "get_outputs", "save_function", "profile"))


@dataclass(frozen=True, slots=True)
class Limits:
    """What a session may take.

    memory_bytes  beyond what the process starts with
    file_bytes    of all files that are sent
    stall_s       without a byte of a message that has begun
    """

    memory_bytes: int
    file_bytes: int
    stall_s: float


class Session:
    """Serves the requests of one client.

    folder  holds its files, and nothing else
    """

    def __init__(self, frames: Frames, folder: Path, limits: Limits):
        self._frames, self._folder, self._limits = frames, folder, limits
        self._things: dict[int, object] = {}
        self._next = 0
        self._measuring: Any = None  # made by the first request that measures a tuner's candidates
        self._ops: Mapping[str, Callable[[Mapping[str, Json], int], Json]] = {
            name: getattr(self, f"_{name}")
            for name in ("info", "open", "append", "download", "remove", "list", "load", "empty", "write", "read",
                         "copy", "part", "function", "executor", "graph", "machine", "call", "time", "device",
                         "measure")
        }  # fmt: skip

    def serve(self) -> None:
        """Answer requests until the client goes. Raises ConnectionLost for what is no request."""
        try:
            while True:
                self._answer(*self._frames.receive())
        except ConnectionLost as error:
            refuse_client(self._frames, error)
            self._frames.drain(_DRAIN_S)
            raise

    def _answer(self, request: Mapping[str, object], n_raw: int) -> None:
        self._forget(request.get("free", []))
        operation = self._ops.get(str(request.get("op")))
        if operation is None:
            raise ConnectionLost(f"there is no operation {str(request.get('op'))[:40]!r}")
        if n_raw and request["op"] not in ("append", "write", "graph", "measure"):
            raise ConnectionLost(f"operation '{request['op']}' takes no raw bytes")
        try:
            value = operation(request, n_raw)
            if isinstance(value, memoryview):
                self._frames.send({"value": None}, value)
            else:
                self._frames.send({"value": value})
        except ConnectionLost:
            raise
        except Exception as error:  # the client gets whatever a request meets, and may go on
            self._frames.skip(_MOST_SKIPPED_BYTES)
            self._frames.send({"error": described(error)})

    def _forget(self, numbers: object) -> None:
        if not isinstance(numbers, list) or any(type(number) is not int for number in numbers):
            raise ConnectionLost("what is to be freed is named by numbers")
        for number in numbers:
            self._things.pop(number, None)

    # Files

    def _path(self, name: object) -> Path:
        return self._folder / safe_name(name)

    def _info(self, request: Mapping[str, object], n_raw: int) -> Json:
        cpu = host_cpu()
        return {
            "machine": platform.machine().lower(), "cores": cpu.cores, "target": Target("cpu").to_json(),
            "host": host_id(), "memory_bytes": self._limits.memory_bytes, "file_bytes": self._limits.file_bytes,
            "pid": os.getpid(),
        }  # fmt: skip

    def _open(self, request: Mapping[str, object], n_raw: int) -> None:
        """Begin a file of a size that is known."""
        path, size = self._path(request["name"]), _number(request["size"])
        there = sum(p.stat().st_size for p in self._folder.iterdir() if p != path)
        if there + size > self._limits.file_bytes:
            raise RPCError(
                f"files of {there + size} bytes are more than the server's limit of {self._limits.file_bytes}"
            )
        path.unlink(missing_ok=True)
        path.touch(0o600)

    def _append(self, request: Mapping[str, object], n_raw: int) -> None:
        path = self._path(request["name"])
        if not path.is_file():
            raise InvalidValueError(f"the session has no file '{request['name']}'", hint="open it first")
        if path.stat().st_size + n_raw > self._limits.file_bytes:
            raise ConnectionLost("a file grows beyond what was said")
        block = memoryview(bytearray(min(n_raw, _BLOCK_BYTES)))
        with open(path, "ab", 0) as file:
            while n_raw:
                part = block[: min(n_raw, _BLOCK_BYTES)]
                self._frames.take(part)
                file.write(part)
                n_raw -= len(part)

    def _download(self, request: Mapping[str, object], n_raw: int) -> memoryview[int]:
        """A part of a file; the client asks for one after the other."""
        path = self._path(request["name"])
        if not path.is_file():
            raise InvalidValueError(f"the session has no file '{request['name']}'")
        with open(path, "rb") as file:
            file.seek(_number(request["offset"]))
            return memoryview(file.read(_BLOCK_BYTES))

    def _remove(self, request: Mapping[str, object], n_raw: int) -> None:
        self._path(request["name"]).unlink(missing_ok=True)

    def _list(self, request: Mapping[str, object], n_raw: int) -> list[str]:
        return sorted(p.name for p in self._folder.iterdir())

    # Arrays

    def _array(self, number: Json) -> NDArray:
        found = self._things.get(number)
        if not isinstance(found, NDArray):
            raise RPCError(f"the session has no array {number}")
        return found

    def _keep(self, thing: object) -> int:
        self._next += 1
        self._things[self._next] = thing
        return self._next

    def _empty(self, request: Mapping[str, Json], n_raw: int) -> int:
        shape = tuple(_number(extent) for extent in request["shape"])
        dtype = str(request["dtype"])
        if dtype == BFLOAT16:
            know_dtype(BFLOAT16)
        if np.dtype(dtype).kind not in "biuf" and dtype != BFLOAT16:
            raise InvalidTypeError(f"no array of dtype {dtype}")
        return self._keep(empty(shape, dtype, _device(request["device"])))

    def _bytes(self, array: NDArray) -> memoryview:
        return array.view().reshape(-1).view(np.uint8).data

    def _write(self, request: Mapping[str, Json], n_raw: int) -> None:
        """Fill an array: its bytes come straight into their place."""
        found = self._things.get(request.get("array", -1))
        if not isinstance(found, NDArray) or n_raw != _size_bytes(found):
            raise ConnectionLost("bytes that are no array's")
        if found.device.device_type == CPU:
            self._frames.take(self._bytes(found))
        else:
            data = np.empty(found.shape, found.dtype)
            self._frames.take(data.reshape(-1).view(np.uint8).data)
            found.copyfrom(data)

    def _read(self, request: Mapping[str, object], n_raw: int) -> memoryview[int]:
        found = self._array(request["array"])
        if found.device.device_type == CPU:
            return self._bytes(found)
        return found.numpy().reshape(-1).view(np.uint8).data

    def _copy(self, request: Mapping[str, object], n_raw: int) -> None:
        self._array(request["to"]).copyfrom(self._array(request["source"]))

    def _part(self, request: Mapping[str, object], n_raw: int) -> int:
        """Rows of an array in the same memory."""
        whole, start, stop = self._array(request["array"]), _number(request["start"]), _number(request["stop"])
        if whole.device.device_type != CPU:
            raise InvalidValueError("only arrays in the host's memory are cut")
        return self._keep(NDArray(whole.view()[start:stop], whole.device))

    # Code

    def _load(self, request: Mapping[str, object], n_raw: int) -> Json:
        path = self._path(request["name"])
        if not path.is_file():
            raise InvalidValueError(f"the session has no file '{request['name']}'", hint="upload it first")
        return self._encode(read_module(path))

    def _function(self, request: Mapping[str, object], n_raw: int) -> Json:
        return {"object": self._keep(get_global_func(str(request["name"]))), "kind": "global"}

    def _executor(self, request: Mapping[str, Json], n_raw: int) -> Json:
        library, threads = self._things.get(request["library"]), request["threads"]
        if not isinstance(library, Executable):
            raise InvalidTypeError("an executor runs a model")
        device = _device(request["device"])
        return self._encode(library.create_executor(device, None if threads is None else _number(threads)))

    def _graph(self, request: Mapping[str, Json], n_raw: int) -> Json:
        text = self._frames.take_bytes(n_raw, _MOST_TEXT_BYTES).decode()
        library = self._things.get(request["library"])
        if not isinstance(library, Module | Executable):
            raise InvalidTypeError("a graph runs over a library")
        return self._encode(create_graph(text, library, [_device(pair) for pair in request["devices"]]).module)

    def _machine(self, request: Mapping[str, Json], n_raw: int) -> Json:
        devices = [_device(pair) for pair in request["devices"]]
        made = VirtualMachine(self._things.get(request["library"]), devices)
        return {"object": self._keep(made), "kind": "vm", "names": made.executable.names()}

    def _call(self, request: Mapping[str, Json], n_raw: int) -> Json:
        function = self._callable(self._things.get(request["object"]), request["name"])
        args = [self._decode(arg) for arg in request.get("args", ())]
        kwargs = {str(name): self._decode(arg) for name, arg in request.get("kwargs", {}).items()}
        return self._encode(function(*args, **kwargs))

    def _callable(self, thing: object, name: object) -> PackedFunc:
        """What a call of an object means. Raises InvalidTypeError for what is no function of it."""
        found: PackedFunc
        match thing:
            case Function() if name == "":
                return thing
            case Module():
                return thing[str(name)]
            case Executable() | DynamicExecutable() if name in ("default", "debug_create"):
                found = thing[name]
                return found
            case Executable() | DynamicExecutable() if name == "":
                return thing
            case GraphExecutor() | SizesGraphExecutor() if name == "profile":
                return thing.profile
            case GraphExecutor() | SizesGraphExecutor():
                return thing[str(name)]
            case VirtualMachine() if name == "call":
                return lambda function, *args: thing[str(function)](*args)
            case VirtualMachine() if name in _MACHINE_CALLS:
                found = getattr(thing, name)
                return found
            case _ if name == "" and callable(thing) and not isinstance(thing, type):
                found = thing  # a registered function
                return found
        raise InvalidTypeError(f"a {type(thing).__name__} of the session has no function '{name}'")

    def _time(self, request: Mapping[str, Json], n_raw: int) -> list[float]:
        """Time a function where it runs, as `time_evaluator` does here."""
        thing, options = self._things.get(request["object"]), dict(request["options"])
        if not isinstance(thing, Module | GraphExecutor | SizesGraphExecutor | VirtualMachine):
            raise InvalidTypeError(f"a {type(thing).__name__} has no time_evaluator")
        args = [self._decode(arg) for arg in request.get("args", ())]
        timed = thing.time_evaluator(str(request["name"]), _device(request["device"]), **options)
        return list(timed(*args).results)

    def _measure(self, request: Mapping[str, object], n_raw: int) -> Json:
        """Check or time a tuner's candidate; see `tuner.measure.remote`."""
        raw = bytes(self._frames.take_bytes(n_raw, _MOST_TEXT_BYTES))
        if self._measuring is None:
            self._measuring = hook("measuring")()
        return self._measuring.answer(request, raw, lambda number: self._array(number).view())

    def _device(self, request: Mapping[str, object], n_raw: int) -> Json:
        device, name = _device(request["device"]), str(request["name"])
        if name == "sync":
            return device.sync()
        names = ("exist", "device_name", "compute_version", "max_threads_per_block", "max_shared_memory_per_block",
                 "max_thread_dimensions", "multi_processor_count", "warp_size", "max_clock_rate",
                 "total_global_memory", "api_version")  # fmt: skip
        if name not in names:
            raise InvalidValueError(f"a device has no '{name}'")
        return getattr(device, name)

    # Values

    def _decode(self, value: Json) -> Value:
        match value:
            case {"array": int(number)}:
                return self._array(number)
            case {"bytes": int(number)}:
                return self._bytes(self._array(number)).tobytes()
            case {"object": int(number)}:
                return self._things[number]
            case {"device": pair}:
                return _device(pair)
            case {"tuple": list(items)}:
                return tuple(map(self._decode, items))
            case list():
                return [self._decode(item) for item in value]
            case dict():
                raise InvalidTypeError("an argument that is none")
        return value

    def _encode(self, value: object) -> Json:
        match value:
            case None | bool() | int() | float() | str():
                return value
            case NDArray():
                return self._encode_array(value)
            case np.ndarray():
                return self._encode_array(NDArray(np.ascontiguousarray(value)))
            case np.generic():
                return value.item()
            case tuple():
                return {"tuple": [self._encode(item) for item in value]}
            case list() if value and isinstance(value[0], NodeTime):
                return {"times": [[[n.name, n.kernel, n.inputs, n.outputs, n.threads, n.origin], t.seconds]
                                  for t in value for n in (t.node,)]}  # fmt: skip
            case list():
                return [self._encode(item) for item in value]
            case dict():
                return {"dict": [[self._encode(name), self._encode(item)] for name, item in value.items()]}
            case BenchmarkResult():
                return {"results": list(value.results)}
            case Report():
                return {"report": json.loads(value.json())}
        return {"object": self._keep(value), **_facts(value)}

    def _encode_array(self, array: NDArray) -> JsonObject:
        device = [array.device.device_type, array.device.device_id]
        return {"array": self._keep(array), "shape": list(array.shape), "dtype": array.dtype, "device": device}


def _facts(value: object) -> JsonObject:
    """What a client gets of an object that stays here."""
    match value:
        case Module() if "vm" in value.manifest:
            return {"kind": "vm module"}
        case Module():
            entry = value.entry_name
            args = [[arg.dtype, list(arg.shape)] for arg in value.entry_func.args] if entry else []
            return {"kind": "module", "names": list(value.graphs), "entry": entry, "args": args}
        case Function():
            return {"kind": "function", "signature": value.signature}
        case Executable():
            inputs = [[v.name, v.dtype, list(v.shape)] for v in value.inputs]
            return {"kind": "executable", "names": ["default", "debug_create"], "inputs": inputs, "entry": "",
                    "outputs": [[v.name, v.dtype, list(v.shape)] for v in value.outputs],
                    "ranges": {str(k): int(v) for k, v in value.manifest.get("input_ranges", {}).items()}}  # fmt: skip
        case DynamicExecutable():
            return {"kind": "dynamic", "names": ["default"], "entry": ""}
        case GraphExecutor() | SizesGraphExecutor():
            return {"kind": "executor", "device": [value.device.device_type, value.device.device_id]}
        case VMExecutable():
            return {"kind": "vm module"}
        case CompiledFunction():
            raise InvalidTypeError("an artifact of functions is for the machine that loads it", hint="send a model")
    raise InvalidTypeError(f"a {type(value).__name__} cannot be given to a client")


def _size_bytes(array: NDArray) -> int:
    return int(np.prod(array.shape, dtype=np.int64)) * np.dtype(array.dtype).itemsize


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise InvalidValueError(f"{value!r} is no count")
    return value


def _device(pair: Json) -> Device:
    kind, number = pair
    return Device(_number(kind), _number(number))


def host_id() -> str:
    """A text that is the same for all processes of this machine."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return platform.node()


# The process


def main() -> None:
    """Run a session: file descriptors of connection and lifeline, folder, and limits come as JSON in the arguments."""
    given = json.loads(sys.argv[1])
    folder, limits = Path(given["folder"]), Limits(given["memory_bytes"], given["file_bytes"], given["stall_s"])
    sock = socket.socket(fileno=given["connection"])
    sock.settimeout(None)
    threading.Thread(target=_watch, args=(sock, given["lifeline"], folder), daemon=True).start()
    with contextlib.suppress(ValueError, OSError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    limit(limits)
    session = Session(Frames(sock, limits.stall_s), folder, limits)
    code = 0
    try:
        session.serve()
    except ConnectionLost:
        pass
    except MemoryError:
        code = 3
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        sys.stderr.flush()
        _leave(folder, code)


def _leave(folder: Path, code: int = 0) -> NoReturn:
    """End the process with its folder: the server removes that too, but may be gone."""
    shutil.rmtree(folder.parent, ignore_errors=True)
    os._exit(code)


def limit(limits: Limits) -> None:
    """Let the system refuse memory and files beyond the limits; write no core files."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower(resource.RLIMIT_FSIZE, limits.file_bytes)
    with contextlib.suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        _lower(resource.RLIMIT_AS, pages * os.sysconf("SC_PAGE_SIZE") + limits.memory_bytes)


def _lower(which: int, wanted: int) -> None:
    _, hard = resource.getrlimit(which)
    if hard == resource.RLIM_INFINITY or wanted < hard:
        resource.setrlimit(which, (wanted, hard))


def _watch(sock: socket.socket, lifeline: int, folder: Path) -> None:
    """End the process, in the middle of a kernel too, when the client or the server is gone."""
    poll = select.poll()
    poll.register(lifeline, select.POLLIN | select.POLLHUP)
    poll.register(sock.fileno(), getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR)
    while True:
        if poll.poll():
            _leave(folder)

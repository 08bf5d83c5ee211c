"""The client's side: `connect`, and the session with its files, arrays and modules."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from autosched.errors import InvalidTypeError, InvalidValueError, RPCError, ShapeError, refuse
from autosched.rpc.access import HANDSHAKE_S, Access, greet, open_socket, raised, safe_name
from autosched.rpc.frames import ConnectionLost, Frames, SessionEnded
from autosched.runtime import BenchmarkResult, Device, NDArray, Node, NodeTime
from autosched.runtime.array import BFLOAT16, ArrayElsewhere, as_numpy, know_dtype
from autosched.runtime.device import RPC_SESS_MASK, device
from autosched.runtime.profiling import Report

if TYPE_CHECKING:
    from autosched.json_types import Json, JsonObject
    from autosched.runtime.registry import PackedFunc
    from autosched.runtime.values import Value

_BLOCK_BYTES = 1 << 20
_indices = itertools.count()


def connect(
    url: str, port: int, key: str = "", session_timeout: float = 0,
    session_constructor_args: Sequence[object] | None = None, enable_logging: bool = False, *,
    access: Access | None = None, connect_timeout: float = HANDSHAKE_S,
) -> RPCSession:  # fmt: skip
    """Open a session of a server.

    key              kind of device; the server's own has to be the beginning of it; "": whatever is there
    session_timeout  seconds after which the server ends the session; 0: when its own limit is reached
    access           secret and files for TLS; another machine needs both
    Raises           UsageError for a refused address, RPCError (RuntimeError) where the server cannot be reached or
                     refuses: another version, a wrong key or secret, too many sessions.
    """
    refuse("rpc.connect", session_constructor_args=session_constructor_args, enable_logging=enable_logging)
    access = access or Access()
    sock = open_socket(url, int(port), access, connect_timeout)
    frames = Frames(sock)
    try:
        greet(frames, access, "session", key, timeout=float(session_timeout))
        sock.settimeout(None)
    except OSError as error:
        frames.close()
        raise RPCError(f"the server at {url}:{port} does not answer: {error}") from None
    except BaseException:
        frames.close()
        raise
    return RPCSession(frames, f"{url}:{port}")


@dataclass(frozen=True, slots=True)
class RemoteDevice(Device):
    """A device of a session; arrays that are made on it lie there."""

    session: Any = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return Device.__str__(self)

    __repr__ = __str__

    @property
    def local(self) -> list[int]:
        """Type and number as they are on the other side."""
        return [self.device_type % RPC_SESS_MASK, self.device_id]

    def _ask(self, name: str) -> Json:
        return self.session.ask("device", device=self.local, name=name)

    @property
    def exist(self) -> bool:
        return bool(self._ask("exist"))

    def sync(self, stream: object = None) -> None:
        """Wait until the device has finished."""
        refuse("sync", stream=stream is not None)
        self._ask("sync")

    @property
    def device_name(self) -> str | None:
        found: str | None = self._ask("device_name")
        return found

    @property
    def compute_version(self) -> str | None:
        found: str | None = self._ask("compute_version")
        return found

    @property
    def total_global_memory(self) -> int | None:
        found: int | None = self._ask("total_global_memory")
        return found

    @property
    def multi_processor_count(self) -> int | None:
        found: int | None = self._ask("multi_processor_count")
        return found

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
        """An array on the device with undefined contents."""
        number = self.session.ask("empty", shape=list(shape), dtype=str(dtype), device=self.local)
        return RemoteArray(self.session, number, shape, str(dtype), self)


class RPCSession:
    """A session: a process on the other side that has files, arrays and modules. Several threads may use it.

    Sessions of one process have different numbers, which their devices carry. It ends with `close`, with the last
    reference to it and what it has given, or with this process.
    """

    def __init__(self, frames: Frames, where: str):
        self._frames, self.where = frames, where
        self._lock, self._free = threading.Lock(), list[int]()
        self._index = next(_indices)
        self._is_broken = ""
        self._releases: list[Callable[[], None]] = [frames.close]
        self._end = weakref.finalize(self, _close, self._releases)
        self._info: JsonObject | None = None

    def __enter__(self) -> RPCSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the session; what it has given cannot be used any more."""
        self._is_broken = self._is_broken or "the session was closed"
        self._end()

    def on_close(self, release: Callable[[], None]) -> None:
        """Call something when the session ends."""
        self._releases.append(release)

    @property
    def info(self) -> Mapping[str, Json]:
        """What the other side is: machine, cores, target (JSON), limits."""
        if self._info is None:
            self._info = dict(self.ask("info"))
        return self._info

    def ask(
        self,
        op: str,
        *,
        raw: object = b"",
        into: memoryview | None = None,
        within_s: float | None = None,
        **request: object,
    ) -> Any:
        """One request and its answer.

        raw       bytes that go with it;  into  takes the bytes of the answer, which must be as many
        within_s  a session that says nothing for so long has ended; None: there is no limit
        Raises    what the other side raises; ConnectionLost (RPCError) where the session is gone, SessionEnded where
                  it has said why.
        """
        with self._lock:
            if self._is_broken:
                raise ConnectionLost(f"the session at {self.where} has ended: {self._is_broken}")
            free, self._free = self._free, []
            try:
                self._frames.socket.settimeout(within_s)
                return self._ask({"op": op, **request, **({"free": free} if free else {})}, raw, into)
            except ConnectionLost as error:
                self._is_broken = error.message
                self._frames.close()
                raise type(error)(f"the session at {self.where} has ended: {error.message}") from None
            except (KeyboardInterrupt, SystemExit):
                self._is_broken = "a request was interrupted"  # its answer is still to come
                self._frames.close()
                raise

    def _ask(self, request: Mapping[str, object], raw: object, into: memoryview | None) -> Json:
        frames = self._frames
        try:
            frames.send(request, raw)
        except ConnectionLost as error:
            with contextlib.suppress(ConnectionLost):  # why it was closed, if that was said
                answer, _ = frames.receive()
                raise SessionEnded(_text(answer.get("error"))) from None
            raise error
        answer, n_raw = frames.receive()
        if "error" in answer:
            if answer.get("closes"):
                raise SessionEnded(_text(answer["error"]))
            raise raised(answer["error"])
        if into is not None:
            if n_raw != len(into):
                raise ConnectionLost(f"{n_raw} bytes were sent instead of {len(into)}")
            frames.take(into)
            return None
        return frames.take_bytes(n_raw, _BLOCK_BYTES) if n_raw else answer.get("value")

    # Files

    def upload(self, data: str | os.PathLike[str] | bytes | bytearray, target: str | None = None) -> None:
        """Send a file, or bytes under the name `target`. Raises InvalidValueError for a name that is none."""
        if isinstance(data, bytes | bytearray):
            if not target:
                raise InvalidValueError("upload: bytes need the name `target`")
            self.ask("open", name=safe_name(target), size=len(data))
            for at in range(0, len(data), _BLOCK_BYTES):
                self.ask("append", name=target, raw=memoryview(data)[at : at + _BLOCK_BYTES])
            return
        path = Path(data)
        name = safe_name(target or path.name)
        with open(path, "rb") as file:
            self.ask("open", name=name, size=os.fstat(file.fileno()).st_size)
            while block := file.read(_BLOCK_BYTES):
                self.ask("append", name=name, raw=block)

    def download(self, path: str) -> bytearray:
        """The bytes of an uploaded file."""
        found = bytearray()
        while block := self.ask("download", name=path, offset=len(found)):
            found += block
        return found

    def remove(self, path: str) -> None:
        """Delete an uploaded file."""
        self.ask("remove", name=path)

    def listdir(self, path: str = "") -> str:
        """The names of uploaded files, joined by commas."""
        refuse("listdir", hint="there is one folder", path=path not in ("", ".", "/"))
        return ",".join(self.ask("list"))

    # Code

    def load_module(self, path: str) -> Any:
        """Load an uploaded library there, with its machine code: no compiler is needed.

        Raises InvalidValueError if there is none of that name, ArtifactError if it does not run there.
        """
        return self.decode(self.ask("load", name=path))

    def get_function(self, name: str) -> Json:
        """A function that is registered in the session's process."""
        return self.decode(self.ask("function", name=name))

    # Devices

    def device(self, dev_type: str | int, dev_id: int = 0) -> RemoteDevice:
        """A device of the session."""
        found = device(dev_type, dev_id)
        return RemoteDevice(found.device_type + RPC_SESS_MASK * (self._index + 1), found.device_id, self)

    def cpu(self, dev_id: int = 0) -> RemoteDevice:
        """The session's CPU."""
        return self.device("cpu", dev_id)

    def cuda(self, dev_id: int = 0) -> RemoteDevice:
        """The session's CUDA device."""
        return self.device("cuda", dev_id)

    def context(self, dev_type: str | int, dev_id: int = 0) -> RemoteDevice:
        """The same as `device`."""
        return self.device(dev_type, dev_id)

    # Values

    def forget(self, number: int) -> None:
        """Have the other side free something with the next request."""
        self._free.append(number)

    def array_of(self, data: np.ndarray, where: RemoteDevice | None = None) -> RemoteArray:
        """A copy of an array there."""
        made = (where or self.cpu()).empty(data.shape, data.dtype)
        assert isinstance(made, RemoteArray)
        return made.copyfrom(data)

    def encode(self, value: Any, kept: list[Any]) -> Json:
        """An argument as a request names it; `kept` holds what was made for it until the answer is there."""
        match value:
            case None | bool() | int() | float() | str():
                return value
            case RemoteArray() | RemoteObject():
                if value.session is not self:
                    raise InvalidValueError("an argument is of another session", hint="copy it by a.numpy()")
                return {"array" if isinstance(value, RemoteArray) else "object": value.number}
            case Device():
                return {
                    "device": value.local if isinstance(value, RemoteDevice) else [value.device_type, value.device_id]
                }
            case bytes() | bytearray():
                kept.append(self.array_of(np.frombuffer(value, np.uint8)))
                return {"bytes": kept[-1].number}
            case np.generic():
                return value.item()
            case tuple():
                return {"tuple": [self.encode(item, kept) for item in value]}
            case list():
                return [self.encode(item, kept) for item in value]
        kept.append(self.array_of(as_numpy(value)))
        return {"array": kept[-1].number}

    def decode(self, value: Json) -> Value:
        """A result as the answer names it."""
        match value:
            case {"array": number, "shape": shape, "dtype": dtype, "device": [kind, index]}:
                return RemoteArray(self, number, tuple(shape), dtype, self.device(kind, index))
            case {"object": _}:
                return _KINDS[value["kind"]](self, value)
            case {"tuple": items}:
                return tuple(map(self.decode, items))
            case {"dict": pairs}:
                return {self.decode(name): self.decode(item) for name, item in pairs}
            case {"results": times}:
                return BenchmarkResult(times)
            case {"times": pairs}:
                return [NodeTime(Node(n[0], n[1], tuple(n[2]), tuple(n[3]), n[4], n[5]), s) for n, s in pairs]
            case {"report": found}:
                return Report(found["calls"], found["device_metrics"], found["configuration"])
            case list():
                return [self.decode(item) for item in value]
        return value

    def call(self, thing: int, name: str, args: Sequence[object], kwargs: Mapping[str, object] | None = None) -> Value:
        """Call a function of something there on values or arrays; arrays of this process are copied for the call."""
        kept: list[object] = []
        request: JsonObject = {"object": thing, "name": name, "args": [self.encode(arg, kept) for arg in args]}
        if kwargs:
            request["kwargs"] = {key: self.encode(arg, kept) for key, arg in kwargs.items()}
        return self.decode(self.ask("call", **request))

    def time(
        self, thing: int, name: str, where: Device, options: Mapping[str, object], args: Sequence[object]
    ) -> BenchmarkResult:
        """Time a function there; see `timing.measure`."""
        kept: list[object] = []
        encoded = [self.encode(arg, kept) for arg in args]
        local = where.local if isinstance(where, RemoteDevice) else [where.device_type, where.device_id]
        return BenchmarkResult(
            self.ask("time", object=thing, name=name, device=local, options=dict(options), args=encoded)
        )


def _text(error: object) -> str:
    return str(error.get("message")) if isinstance(error, dict) else "it has failed"


def _close(releases: Sequence[Callable[[], None]]) -> None:
    for release in releases:
        release()


class RemoteArray(ArrayElsewhere):
    """An array in the memory of a session; `numpy()` copies it here, straight into its place.

    `a[2:5]` is an array of those rows in the same memory: of it no more than the rows is copied.
    """

    __slots__ = ("number", "session")

    def __init__(self, session: RPCSession, number: int, shape: tuple[int, ...], dtype: str, where: RemoteDevice):
        if dtype == BFLOAT16:
            know_dtype(BFLOAT16)
        super().__init__(shape, dtype, where)
        self.session, self.number = session, number

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):
            self.session.forget(self.number)

    @property
    def address(self) -> int:
        """Raises InvalidTypeError: it means nothing here."""
        raise InvalidTypeError(f"an array on {self.device} has no address here", hint="use a.numpy(), a copy")

    def view(self) -> np.ndarray:
        """Raises InvalidTypeError: the memory is not here."""
        raise InvalidTypeError(f"an array on {self.device} has no view here", hint="use a.numpy(), a copy")

    def numpy(self) -> np.ndarray:
        """Give a NumPy copy."""
        data = np.empty(self._shape, self._dtype)
        if data.size:
            self.session.ask("read", array=self.number, into=data.reshape(-1).view(np.uint8).data)
        return data

    asnumpy = numpy

    def __array__(self, dtype: np.dtype | None = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise InvalidValueError(f"an array on {self.device} is only copied")
        return self.numpy() if dtype is None else self.numpy().astype(dtype)

    def copyfrom(self, source: NDArray | npt.ArrayLike) -> RemoteArray:
        """Fill from an array of the same shape, converting its dtype. Raises ShapeError on another shape."""
        if isinstance(source, RemoteArray) and source.session is self.session:
            if source.shape != self._shape:
                raise ShapeError(f"copyfrom: array of shape {source.shape} copied into one of shape {self._shape}")
            self.session.ask("copy", source=source.number, to=self.number)
            return self
        data = as_numpy(source)
        if data.shape != self._shape:
            raise ShapeError(f"copyfrom: array of shape {data.shape} copied into one of shape {self._shape}")
        data = np.ascontiguousarray(data, self._dtype)
        if data.size:
            self.session.ask("write", array=self.number, raw=data.reshape(-1).view(np.uint8).data)
        return self

    def copyto(self, target: NDArray | Device) -> NDArray:
        """Copy into another array of the same shape, or into a new one on a device; gives that array."""
        if isinstance(target, RemoteDevice) and target.session is self.session:
            return target.empty(self._shape, self._dtype).copyfrom(self)
        if isinstance(target, NDArray):
            return target.copyfrom(self)
        if isinstance(target, Device):
            from autosched.runtime.array import array

            return array(self.numpy(), target)
        raise InvalidTypeError(f"copyto takes an array or a device, not {type(target).__name__}")

    def __getitem__(self, index: object) -> RemoteArray:  # type: ignore[override]
        if not isinstance(index, slice) or index.step not in (None, 1) or not self._shape:
            raise InvalidTypeError("an array there is cut by rows: a[2:5]", hint="use a.numpy()[index]")
        start, stop, _ = index.indices(self._shape[0])
        stop = max(start, stop)
        number = self.session.ask("part", array=self.number, start=start, stop=stop)
        assert isinstance(self.device, RemoteDevice)
        return RemoteArray(self.session, number, (stop - start, *self._shape[1:]), self.dtype, self.device)

    def __setitem__(self, index: object, value: NDArray | npt.ArrayLike) -> None:
        part = self if isinstance(index, slice) and index == slice(None) else self[index]
        if isinstance(value, int | float | bool | np.generic):
            value = np.full(part.shape, value, part._dtype)
        part.copyfrom(value)

    def __repr__(self) -> str:
        return f"<autosched.rpc.RemoteArray {self.dtype}{list(self._shape)}, {self.device}>"

    def __reduce__(self) -> tuple[object, ...]:
        raise InvalidTypeError("an array of a session cannot be pickled", hint="use a.numpy()")

    def __dlpack__(self, **options: object) -> object:
        raise InvalidTypeError(f"the memory of an array on {self.device} is not here", hint="use a.numpy(), a copy")

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device.device_type, self.device.device_id


class RemoteObject:
    """Something that stays in the session's process, and is freed there with this."""

    def __init__(self, session: RPCSession, facts: Mapping[str, Json]):
        self.session, self.facts, self.number = session, facts, int(facts["object"])

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):
            self.session.forget(self.number)

    def __repr__(self) -> str:
        return f"<autosched.rpc.{type(self).__name__} of {self.session.where}: {self.facts['kind']}>"


class RemoteFunction(RemoteObject):
    """A registered function there."""

    def __call__(self, *args: object) -> Value:
        """Call it; arrays of this process are copied for the call, and outputs are written there alone."""
        return self.session.call(self.number, "", args)


class RemoteModule(RemoteObject):
    """A library, or a built model, that was loaded there."""

    type_key = "rpc"

    def session_index(self) -> int:
        """The number of the session."""
        return self.session._index

    @property
    def entry_name(self) -> str:
        """The name that stands for the entry function."""
        return str(self.facts.get("entry", ""))

    @property
    def entry_func(self) -> PackedFunc:
        """The function that calling the module calls."""
        return self[self.entry_name]

    def __call__(self, *args: object, **named: object) -> Value:
        """Call the entry function of a library on arrays there, or run a model on its inputs."""
        return self.session.call(self.number, self.entry_name, args, named)

    def get_function(self, name: str, query_imports: bool = False) -> PackedFunc:
        """A function by name. Raises NameNotFoundError (AttributeError) when there is none."""
        return self[name]

    def __getitem__(self, name: str) -> PackedFunc:
        if self.facts["kind"] == "vm module":
            raise InvalidTypeError(
                "functions of the virtual machine need one", hint="use relax.VirtualMachine(lib, device)"
            )
        names = [*self.facts["names"], self.entry_name]
        if name not in names:
            from autosched.errors import NameNotFoundError

            raise NameNotFoundError(f"module has no function '{name}'", hint=f"it has {', '.join(names)}")
        return lambda *args: self.session.call(self.number, name, args)

    def time_evaluator(self, func_name: str, dev: Device, **options: object) -> Callable[..., BenchmarkResult]:
        """Give a function of the kernel's arguments that times it there; options as for a module of this process."""
        return lambda *args: self.session.time(self.number, func_name, dev, options, args)

    def create_executor(self, device: RemoteDevice, threads: int | None = None) -> RemoteExecutor:
        """A graph executor of a built model, on so many threads; None: as many as are allowed there."""
        facts = self.session.ask("executor", library=self.number, device=device.local, threads=threads)
        return RemoteExecutor(self.session, facts)

    def create_executor_of(self, graph_json: str, devices: Sequence[Device]) -> Any:
        """The executor of a graph in TVM's JSON over this library's functions."""
        where = [_local(found) for found in devices]
        return self.session.decode(
            self.session.ask("graph", library=self.number, devices=where, raw=graph_json.encode())
        )

    def create_virtual_machine(self, devices: Sequence[Device]) -> RemoteMachine:
        """A virtual machine that runs this library's functions."""
        facts = self.session.ask("machine", library=self.number, devices=[_local(found) for found in devices])
        return RemoteMachine(self.session, facts)


class RemoteExecutor(RemoteObject):
    """A graph executor there: functions by name, as `GraphModule` wants them."""

    type_key = "rpc"

    @property
    def device(self) -> RemoteDevice:
        """The device that it runs on."""
        return self.session.device(*self.facts["device"])

    def __getitem__(self, name: str) -> PackedFunc:
        return lambda *args: self.session.call(self.number, name, _local_codes(name, args))

    get_function = __getitem__

    def profile(self, number: int = 10) -> list[NodeTime]:
        """Each node's seconds, the mean of `number` runs."""
        found: list[NodeTime] = self.session.call(self.number, "profile", (number,))
        return found

    def time_evaluator(
        self, func_name: str, dev: Device | None = None, **options: object
    ) -> Callable[..., BenchmarkResult]:
        """Give a function that times one of the executor's functions there."""
        where = dev or self.device
        return lambda *args: self.session.time(self.number, func_name, where, options, _local_codes(func_name, args))


class RemoteMachine(RemoteObject):
    """A virtual machine there, with the functions of `relax.VirtualMachine`."""

    def __getitem__(self, name: str) -> PackedFunc:
        return lambda *args: self.session.call(self.number, "call", (name, *args))

    get_function = __getitem__

    def invoke(self, func_name: str, *args: object, **kwargs: object) -> Value:
        """Run a function on arguments, or on those kept by `set_input`."""
        return self.session.call(self.number, "invoke", (func_name, *args), kwargs)

    def set_input(self, func_name: str, *args: object, **kwargs: object) -> None:
        """Keep a function's arguments there."""
        self.session.call(self.number, "set_input", (func_name, *args), kwargs)

    def invoke_stateful(self, func_name: str, *args: object, **kwargs: object) -> None:
        """Run a function on what `set_input` kept, and keep its results."""
        self.session.call(self.number, "invoke_stateful", (func_name, *args), kwargs)

    def get_outputs(self, func_name: str = "main") -> Value:
        """The results of the last `invoke_stateful`."""
        return self.session.call(self.number, "get_outputs", (func_name,))

    def save_function(
        self, func_name: str, saved_name: str, *args: object, include_return: bool = True, **kwargs: object
    ) -> None:
        """Keep a function with its arguments."""
        self.session.call(
            self.number, "save_function", (func_name, saved_name, *args), {"include_return": include_return, **kwargs}
        )

    def time_evaluator(self, func_name: str, dev: Device, **options: object) -> Callable[..., BenchmarkResult]:
        """Give a function of `func_name`'s arguments that times it there."""
        return lambda *args: self.session.time(self.number, func_name, dev, options, args)

    def profile(self, func_name: str, *args: object) -> Report:
        """Run a function and say what each kernel took there, in µs."""
        found: Report = self.session.call(self.number, "profile", (func_name, *args))
        return found


_KINDS: Mapping[str, Callable[[RPCSession, Mapping[str, Json]], RemoteObject]] = {
    **dict.fromkeys(("module", "executable", "dynamic", "vm module"), RemoteModule),
    **dict.fromkeys(("global", "function"), RemoteFunction), "executor": RemoteExecutor,
}  # fmt: skip


def _local(found: Device) -> list[int]:
    return [found.device_type % RPC_SESS_MASK, found.device_id]


def _local_codes(name: str, args: Sequence[Json]) -> Sequence[object]:
    """Arguments in which a device is given as its numbers, as it is called there."""
    if name != "run_from_inputs":
        return args
    return (args[0] % RPC_SESS_MASK, *args[1:])


__all__ = ["ConnectionLost", "RPCSession", "RemoteArray", "RemoteDevice", "RemoteModule", "connect"]

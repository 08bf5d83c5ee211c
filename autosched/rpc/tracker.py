"""`Tracker`: hands devices out by key, one client at a time each; and the client's side of it.

A device is free where its server says that no session runs, and nobody holds it. A request is a connection of its own,
and so is a server's announcement: whoever dies is noticed by the end of the connection, and what it held is free.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from autosched.errors import RPCError, refuse
from autosched.printable import printable
from autosched.rpc.access import HANDSHAKE_S, Access, admit, check_key, greet, open_socket, refuse_client, welcome
from autosched.rpc.client import RPCSession, connect
from autosched.rpc.frames import Frames
from autosched.rpc.listening import Listener

if TYPE_CHECKING:
    from autosched.json_types import JsonObject

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class _Device:
    """A server that has announced itself."""

    key: str
    address: str
    port: int
    sessions: int = 0
    holder: _Request | None = None


@dataclass(eq=False, slots=True)
class _Request:
    """A client that waits for a device, or holds one."""

    key: str
    client: str
    priority: int
    number: int
    device: _Device | None = None


@dataclass(slots=True)
class _Pool:
    """Devices and requests; `changed` guards them."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    devices: list[_Device] = field(default_factory=list)
    waiting: list[_Request] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def assign(self) -> None:
        """Give free devices to those who wait: by priority, then to the client with the fewest devices, then in order.

        The caller holds the lock.
        """
        while True:
            held: dict[str, int] = {}
            for device in self.devices:
                if device.holder is not None:
                    held[device.holder.client] = held.get(device.holder.client, 0) + 1
            free = {d.key: d for d in reversed(self.devices) if d.holder is None and not d.sessions}
            able = [request for request in self.waiting if request.key in free]
            if not able:
                break
            first = min(able, key=lambda r: (-r.priority, held.get(r.client, 0), r.number))
            first.device = free[first.key]
            first.device.holder = first
            self.waiting.remove(first)
        self.changed.notify_all()

    def give_back(self, request: _Request) -> None:
        """Take back what a client held or waited for."""
        with self.changed:
            if request in self.waiting:
                self.waiting.remove(request)
            if request.device is not None and request.device.holder is request:
                request.device.holder = None
            self.assign()


class Tracker:
    """Serves from threads of this process until `terminate`. Arguments and errors as `Server`'s."""

    def __init__(
        self, host: str = "127.0.0.1", port: int = 9190, port_end: int = 9198, silent: bool = False,
        reuse_addr: bool = True, timeout: float | None = None, *, access: Access | None = None,
    ):  # fmt: skip
        refuse("rpc.Tracker", timeout=timeout)
        self.host, self.access = host, access or Access()
        self._pool, self._is_closed, self._is_silent = _Pool(), threading.Event(), silent
        self._listener = Listener(host, port, port_end, self.access, self._serve, self._say, reuse_addr)
        self.port = self._listener.port
        self._say(f"tracking at {host}:{self.port}")
        self._listener.start()

    def __enter__(self) -> Tracker:
        return self

    def __exit__(self, *_: object) -> None:
        self.terminate()

    def terminate(self) -> None:
        """End all connections and give the port back; safe to call twice. Sessions that run go on."""
        self._is_closed.set()
        with self._pool.changed:
            self._pool.changed.notify_all()
        self._listener.close()

    def _say(self, text: str) -> None:
        if not self._is_silent:
            print(printable(text), file=sys.stderr, flush=True)

    def wait(self) -> None:
        """Wait until `terminate` is called."""
        self._is_closed.wait()

    def summary(self) -> JsonObject:
        """Per key the devices, those that are free, and the requests that wait."""
        with self._pool.changed:
            keys = sorted({d.key for d in self._pool.devices} | {r.key for r in self._pool.waiting})
            found: JsonObject = {"server_info": [], "queue_info": {}}
            for key in keys:
                devices = [d for d in self._pool.devices if d.key == key]
                free = sum(d.holder is None and not d.sessions for d in devices)
                pending = sum(r.key == key for r in self._pool.waiting)
                found["queue_info"][key] = {"total": len(devices), "free": free, "pending": pending}
            found["server_info"] = [
                {"key": d.key, "addr": [d.address, d.port], "sessions": d.sessions, "held": d.holder is not None}
                for d in self._pool.devices
            ]
        return found

    def _serve(self, frames: Frames, peer: str) -> None:
        client = admit(frames, self.access, ("announce", "request", "list"), None)
        self._listener.greeted(frames)
        frames.socket.settimeout(None)
        {"announce": self._announce, "request": self._request, "list": self._list}[client["purpose"]](
            frames, client, peer
        )

    def _list(self, frames: Frames, client: dict[str, object], peer: str) -> None:
        welcome(frames, client, summary=self.summary())

    def _announce(self, frames: Frames, client: JsonObject, peer: str) -> None:
        """Keep a server's device for as long as its connection holds."""
        address, port = client.get("address"), client.get("port")
        if not isinstance(address, str) or type(port) is not int or not client["key"]:
            error = RPCError("a device is announced with a key, an address and a port")
            refuse_client(frames, error)
            raise error
        address = peer if address in ("", "0.0.0.0", "::") else address
        device = _Device(client["key"], address, port, _count(client.get("sessions")))
        welcome(frames, client)
        with self._pool.changed:
            self._pool.devices.append(device)
            self._pool.assign()
        try:
            while True:
                said, _ = frames.receive()
                with self._pool.changed:
                    device.sessions = _count(said.get("sessions"))
                    self._pool.assign()
                frames.send({})
        finally:
            with self._pool.changed:
                self._pool.devices.remove(device)
                self._pool.assign()

    def _request(self, frames: Frames, client: JsonObject, peer: str) -> None:
        """Have a client wait for a device, and take that back when its connection ends."""
        priority = client.get("priority")
        request = _Request(
            client["key"],
            str(client.get("client"))[:64],
            priority if type(priority) is int else 1,
            next(self._pool.numbers),
        )
        welcome(frames, client)
        ended = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(frames, ended), daemon=True)
        with self._pool.changed:
            self._pool.waiting.append(request)
            self._pool.assign()
        try:
            watcher.start()
            with self._pool.changed:
                self._pool.changed.wait_for(lambda: request.device or ended.is_set() or self._is_closed.is_set())
            if request.device is not None and not ended.is_set():
                frames.send({"address": request.device.address, "port": request.device.port})
                ended.wait()
        finally:
            self._pool.give_back(request)

    def _watch(self, frames: Frames, ended: threading.Event) -> None:
        with contextlib.suppress(RPCError):
            frames.receive()
        with self._pool.changed:
            ended.set()
            self._pool.changed.notify_all()


def _count(value: object) -> int:
    return value if type(value) is int and value >= 0 else 0


def connect_tracker(url: str, port: int, *, access: Access | None = None) -> TrackerSession:
    """Reach a tracker. Raises UsageError for a refused address, RPCError where it cannot be reached or refuses."""
    session = TrackerSession(url, int(port), access or Access())
    session.summary()
    return session


class TrackerSession:
    """A client of a tracker: asks for devices, and for what there is."""

    def __init__(self, url: str, port: int, access: Access):
        self._address, self._access, self._client = (url, port), access, uuid.uuid4().hex

    def summary(self) -> JsonObject:
        """Per key the devices, those that are free, and the requests that wait."""
        frames = Frames(open_socket(*self._address, self._access, HANDSHAKE_S))
        try:
            found: JsonObject = greet(frames, self._access, "list", "")["summary"]
        finally:
            frames.close()
        return found

    def text_summary(self) -> str:
        """The same as text."""
        found = self.summary()
        lines = ["Server List", *(f"{s['addr'][0]}:{s['addr'][1]}  {s['key']}" for s in found["server_info"])]
        lines += ["Queue Status", "key  total  free  pending"]
        return "\n".join(
            [*lines, *(f"{k}  {q['total']}  {q['free']}  {q['pending']}" for k, q in found["queue_info"].items())]
        )

    def request(
        self, key: str, priority: int = 1, session_timeout: float = 0, max_retry: int = 5,
        session_constructor_args: Sequence[object] | None = None, *, timeout: float | None = None,
    ) -> RPCSession:  # fmt: skip
        """Wait for a device of a key, and open a session on it; the device is ours until the session ends.

        priority  the larger, the sooner
        timeout   seconds to wait for a device; None: for ever
        Raises    RPCError if none comes in time, or its server cannot be reached `max_retry` times.
        """
        end = None if timeout is None else time.monotonic() + timeout
        check_key(key)
        last: Exception | None = None
        for attempt in range(max(1, max_retry)):
            frames = Frames(open_socket(*self._address, self._access, HANDSHAKE_S))
            try:
                greet(frames, self._access, "request", key, client=self._client, priority=int(priority))
                frames.socket.settimeout(None if end is None else max(0.001, end - time.monotonic()))
                try:
                    found, _ = frames.receive()
                except RPCError as error:
                    waited = f"no device '{key}' in {timeout:g} s" if end and time.monotonic() >= end else str(error)
                    raise RPCError(f"tracker at {self._address[0]}:{self._address[1]}: {waited}") from None
                frames.socket.settimeout(None)
            except BaseException:
                frames.close()
                raise
            try:
                session = connect(
                    str(found["address"]), int(found["port"]), key, session_timeout, session_constructor_args,
                    access=self._access,
                )  # fmt: skip
            except RPCError as error:
                frames.close()
                last = error
                time.sleep(min(0.1 * 2**attempt, 1.0))
                continue
            session.on_close(frames.close)
            return session
        raise RPCError(f"no session on a device '{key}' after {max_retry} attempts: {last}")

    def request_and_run(
        self,
        key: str,
        func: Callable[[RPCSession], T],
        priority: int = 1,
        session_timeout: float = 0,
        max_retry: int = 2,
    ) -> T:
        """Call a function on a session; where the session is lost it is called again with another, so many times."""
        for attempt in range(max(1, max_retry)):
            try:
                with self.request(key, priority, session_timeout) as session:
                    return func(session)
            except RPCError:
                if attempt + 1 >= max_retry:
                    raise
        raise AssertionError("the last attempt returns or raises")

"""`Server`: lets clients use this machine's devices, each in a process of its own.

The server reads a connection's greeting; from then on the session's process serves it: it gets the connection itself
where there is no TLS, else the server passes bytes on. What a session does wrong ends that session alone.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from autosched.env import child_environment
from autosched.errors import AutoschedError, RPCError, refuse
from autosched.printable import printable
from autosched.rpc.access import HANDSHAKE_S, Access, admit, check_key, open_socket, refuse_client, welcome
from autosched.rpc.access import greet as greet_tracker
from autosched.rpc.frames import STALL_S, Frames
from autosched.rpc.listening import Listener
from autosched.runtime.memory import machine_bytes

MOST_SESSIONS = 8
_SESSION_S = 4 * 3600.0
_FILE_BYTES = 16 << 30
_WORDS_BYTES = 4096
_RELAY_BYTES = 1 << 18
_REJOIN_S = 1.0  # how long an absent tracker is left alone
_REPORT_S = 1.0  # a tracker hears from us at least so often
PREFIX = "autosched-rpc-"
NOTICE = "whoever knows the secret can run machine code here, with the rights of this user"


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """What each session may take.

    memory_bytes  beyond what its process starts with; None: half of the machine's memory
    file_bytes    of all its files
    time_s        from its begin to its end
    stall_s       without a byte of a message that has begun
    """

    memory_bytes: int | None = None
    file_bytes: int = _FILE_BYTES
    time_s: float = _SESSION_S
    stall_s: float = STALL_S


class SessionProcess:
    """A session's process, its folder, and the pipe whose end tells it that we are gone.

    connection  the file descriptor that it serves; the caller closes its own
    """

    def __init__(self, connection: int, limits: SessionLimits):
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        (self.folder / "files").mkdir(0o700)
        self._words = open(self.folder / "words", "w+b")  # noqa: SIM115 (closed by `end`)
        ours, theirs = os.pipe()
        given = {
            "connection": connection, "lifeline": ours, "folder": str(self.folder / "files"),
            "memory_bytes": limits.memory_bytes or machine_bytes() // 2, "file_bytes": limits.file_bytes,
            "stall_s": limits.stall_s,
        }  # fmt: skip
        path = [entry or os.getcwd() for entry in sys.path]
        code = f"import sys; sys.path[:] = {path!r}; from autosched.rpc.session import main; main()"
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code, json.dumps(given)], cwd=self.folder / "files", stdin=subprocess.DEVNULL,
                stdout=self._words, stderr=self._words, pass_fds=(connection, ours), process_group=0,
                env=child_environment({"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}),
            )  # fmt: skip
        except BaseException:
            os.close(theirs)
            raise
        finally:
            os.close(ours)
        self.remove = weakref.finalize(self, _remove, theirs, self.folder)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def kill(self) -> None:
        """End the process and all that it has started."""
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def wait(self) -> str:
        """Wait until it has ended; gives what it died of, "" where it ended by itself."""
        code = self._process.wait()
        self.kill()  # what it has started
        if code == 0:
            return ""
        size = self._words.seek(0, os.SEEK_END)
        self._words.seek(max(0, size - _WORDS_BYTES))
        words = self._words.read().decode(errors="replace").strip().splitlines()
        how = f"exited with code {code}" if code > 0 else f"was ended by {_signal(-code)}"
        return f"{how}: {words[-1]}" if words else how

    def end(self) -> None:
        """Kill it, if it lives, and remove its files."""
        if self._process.poll() is None:
            self.kill()
            self._process.wait()
        self._words.close()
        self.remove()


def _remove(lifeline: int, folder: Path) -> None:
    os.close(lifeline)
    shutil.rmtree(folder, ignore_errors=True)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass(slots=True)
class _State:
    """What the threads of a server share; the lock guards it."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    sessions: set[SessionProcess] = field(default_factory=set)
    changed: threading.Condition = field(default_factory=threading.Condition)
    is_closed: bool = False


class Server:
    """Serves sessions from threads of this process until `terminate`.

    host          address to listen at; another one than this machine's own needs TLS and a secret
    port          the first one that is free from here to `port_end` is taken; 0: any
    key           kind of device, as clients and the tracker call it; "": clients may name any
    tracker_addr  (host, port) of a tracker that hands this device out
    access        secret and files for TLS
    limits        of each session
    custom_addr   address under which the tracker's clients reach us; None: the one that the tracker sees
    Raises        UsageError for a refused address, RPCError if no port is free.
    """

    def __init__(
        self, host: str = "127.0.0.1", port: int = 9091, port_end: int = 9199, is_proxy: bool = False,
        tracker_addr: tuple[str, int] | None = None, key: str = "", load_library: object = None,
        custom_addr: str | None = None, silent: bool = False, no_fork: bool = True,
        server_init_callback: Callable[..., object] | None = None,
        reuse_addr: bool = True, timeout: float | None = None, *, access: Access | None = None,
        limits: SessionLimits | None = None, most_sessions: int = MOST_SESSIONS,
    ):  # fmt: skip
        refuse(
            "rpc.Server", is_proxy=is_proxy, load_library=load_library, server_init_callback=server_init_callback,
            timeout=timeout,
        )  # fmt: skip
        del no_fork
        self.host, self.key, self.access = host, check_key(key), access or Access()
        self.limits, self._most = limits or SessionLimits(), most_sessions
        self._state, self._is_silent = _State(), silent
        self._listener = Listener(host, port, port_end, self.access, self._serve, self._say, reuse_addr)
        self.port = self._listener.port
        self._say(f"serving at {host}:{self.port}, key '{key}': {NOTICE}")
        self._listener.start()
        self._joining: threading.Thread | None = None
        if tracker_addr is not None:
            self._joining = threading.Thread(target=self._join, args=(tracker_addr, custom_addr), daemon=True)
            self._joining.start()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.terminate()

    def _say(self, text: str) -> None:
        if not self._is_silent:
            print(printable(text), file=sys.stderr, flush=True)

    @property
    def n_sessions(self) -> int:
        """Sessions that run now."""
        return len(self._state.sessions)

    def terminate(self) -> None:
        """End all sessions and give the port back; safe to call twice."""
        with self._state.lock:
            self._state.is_closed = True
            sessions = list(self._state.sessions)
        for session in sessions:
            session.kill()
        self._listener.close()
        self._note_change()
        if self._joining is not None:
            self._joining.join(5)
        end = time.monotonic() + 5
        while self._state.sessions and time.monotonic() < end:
            time.sleep(0.01)

    def wait(self) -> None:
        """Wait until `terminate` is called."""
        with self._state.changed:
            self._state.changed.wait_for(lambda: self._state.is_closed)

    def _note_change(self) -> None:
        with self._state.changed:
            self._state.changed.notify_all()

    def _serve(self, frames: Frames, peer: str) -> None:
        client = admit(frames, self.access, ("session",), self.key)
        self._listener.greeted(frames)
        self._run(frames, client)

    def _run(self, frames: Frames, client: dict[str, object]) -> None:
        connection, time_s, wanted_s = frames.socket, self.limits.time_s, client.get("timeout")
        if isinstance(wanted_s, int | float) and 0 < wanted_s < time_s:
            time_s = float(wanted_s)
        ours: socket.socket | None = None
        with self._state.lock:
            if self._state.is_closed or len(self._state.sessions) >= self._most:
                refuse_client(frames, RPCError(f"{self._most} sessions run here already", hint="try again later"))
                return
            theirs = connection
            if isinstance(connection, ssl.SSLSocket):
                theirs, ours = socket.socketpair()
            session = SessionProcess(theirs.fileno(), self.limits)
            self._state.sessions.add(session)
        self._note_change()
        late = threading.Timer(time_s, session.kill)
        late.daemon = True
        relay: threading.Thread | None = None
        try:
            welcome(frames, client)
            connection.settimeout(None)
            late.start()
            if ours is not None:
                theirs.close()
                relay = threading.Thread(target=pass_on, args=(connection, ours, session.kill), daemon=True)
                relay.start()
            died_of = session.wait()
            if relay is not None:
                relay.join(HANDSHAKE_S)
            if died_of:
                text = (
                    f"the session was ended after {time_s:g} s" if late.finished.is_set() else f"the session {died_of}"
                )
                connection.settimeout(1.0)
                refuse_client(frames, RPCError(text))
                self._say(text)
        finally:
            late.cancel()
            session.end()
            if ours is not None:
                ours.close()
            with self._state.lock:
                self._state.sessions.discard(session)
            self._note_change()

    # The tracker

    def _join(self, tracker: tuple[str, int], custom_addr: str | None) -> None:
        """Announce this device to a tracker, and again when that has been away; say how many sessions run."""
        while not self._state.is_closed:
            frames = None
            try:
                frames = Frames(open_socket(*tracker, self.access, HANDSHAKE_S))
                address = custom_addr or self.host
                greet_tracker(frames, self.access, "announce", self.key, port=self.port, address=address)
                frames.socket.settimeout(None)
                self._report(frames)
            except (AutoschedError, OSError) as error:
                self._say(f"the tracker at {tracker[0]}:{tracker[1]} is away: {error}")
            finally:
                if frames is not None:
                    frames.close()
            with self._state.changed:
                self._state.changed.wait_for(lambda: self._state.is_closed, _REJOIN_S)

    def _report(self, frames: Frames) -> None:
        while not self._state.is_closed:
            said = self.n_sessions
            frames.send({"sessions": said})
            frames.receive()
            with self._state.changed:
                self._state.changed.wait_for(functools.partial(self._has_news, said), _REPORT_S)

    def _has_news(self, said: int) -> bool:
        return self._state.is_closed or self.n_sessions != said


def pass_on(client: socket.socket, session: socket.socket, ended: Callable[[], None]) -> None:
    """Pass bytes between a client with TLS and a session's process until one side ends; then call `ended`.

    A TLS connection must not be read and written at the same time, so one thread does both.
    """
    to_session, to_client = bytearray(), bytearray()
    with contextlib.suppress(OSError, ValueError):
        client.setblocking(False)
        session.setblocking(False)
        _pass_on(client, session, to_session, to_client)
        client.settimeout(HANDSHAKE_S)
        client.sendall(to_client)
    ended()


def _pass_on(client: socket.socket, session: socket.socket, to_session: bytearray, to_client: bytearray) -> None:
    while True:
        takes_client, takes_session = len(to_session) < _RELAY_BYTES, len(to_client) < _RELAY_BYTES
        poll = select.poll()
        poll.register(client, takes_client * select.POLLIN | bool(to_client) * select.POLLOUT)
        poll.register(session, takes_session * select.POLLIN | bool(to_session) * select.POLLOUT)
        pending = isinstance(client, ssl.SSLSocket) and client.pending() > 0 and takes_client
        poll.poll(0 if pending else None)
        if (takes_client and _read(client, to_session)) or (takes_session and _read(session, to_client)):
            return
        _write(session, to_session)
        _write(client, to_client)


_WAIT = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


def _read(source: socket.socket, into: bytearray) -> bool:
    """Take what is there; tells whether the source has ended."""
    try:
        data = source.recv(_RELAY_BYTES)
    except _WAIT:
        return False
    into += data
    return not data


def _write(target: socket.socket, data: bytearray) -> None:
    if data:
        with contextlib.suppress(*_WAIT):
            del data[: target.send(data)]


__all__: Sequence[str] = ("Server", "SessionLimits", "SessionProcess")

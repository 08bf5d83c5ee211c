"""`Listener`: a port, and a thread for each connection that it takes."""

from __future__ import annotations

import contextlib
import errno
import socket
import ssl
import threading
import time
from collections.abc import Callable

from autosched.errors import AutoschedError, RPCError, UsageError
from autosched.rpc.access import HANDSHAKE_S, NOT_DONE_HERE, Access, tune
from autosched.rpc.frames import Frames

MOST_CONNECTIONS = 4096
MOST_GREETINGS = 256
GRACE_S = 1.0


class Listener:
    """Has a thread serve each connection until `close`.

    A connection has not shown who it is until `serve` calls `greeted`. There are at most MOST_GREETINGS of these: where
    more come, the oldest is ended once it is GRACE_S old, so that silent connections keep nobody out.

    serve   called with a connection and its peer's address; the connection is closed when it returns
    say     takes a line about a connection that was refused or lost
    Raises  UsageError for a refused address, RPCError if no port is free.
    """

    def __init__(
        self, host: str, port: int, port_end: int, access: Access, serve: Callable[[Frames, str], None],
        say: Callable[[str], None], reuse_addr: bool = True,
    ):  # fmt: skip
        access.check_host(host, "listening at")
        access.secret_bytes()
        self._context, self._serve, self._say = access.server_context(), serve, say
        self._changed, self._is_closed = threading.Condition(), False
        self._open, self._greeting = set[socket.socket](), dict[socket.socket, float]()  # the latter since when
        self._socket = _listen(host, port, port_end, reuse_addr)
        self.port = int(self._socket.getsockname()[1])
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def start(self) -> None:
        """Take connections from now on."""
        self._thread.start()

    def greeted(self, frames: Frames) -> None:
        """A connection has shown who it is: it stays for as long as it is served."""
        self._forget(frames.socket)

    def close(self) -> None:
        """Give the port back and end all connections; safe to call twice."""
        with self._changed:
            self._is_closed = True
            connections = list(self._open)
            self._changed.notify_all()
        with contextlib.suppress(OSError):  # a thread in `accept` wakes up
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for connection in connections:
            _shut(connection)
        self._thread.join(5)

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                connection, address = self._socket.accept()
            except OSError as error:
                if self._is_closed or error.errno in (errno.EBADF, errno.EINVAL):
                    return
                time.sleep(0.05)  # no file descriptors are left: those that end free some
                continue
            try:
                connection.settimeout(HANDSHAKE_S)
                tune(connection)
                if self._context is not None:
                    connection = self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
                self._let_in(connection)
            except (OSError, RPCError) as error:
                self._say(f"a connection was refused or lost: {error}")
                connection.close()
                continue
            threading.Thread(target=self._attend, args=(connection, str(address[0])), daemon=True).start()

    def _let_in(self, connection: socket.socket) -> None:
        """Note a new connection, if there may be one more. Raises RPCError where the server is full or closed."""
        with self._changed:
            while len(self._greeting) >= MOST_GREETINGS and not self._is_closed:
                oldest, since = next(iter(self._greeting.items()))
                left_s = since + GRACE_S - time.monotonic()
                if left_s > 0:
                    self._changed.wait(left_s)
                else:
                    del self._greeting[oldest]
                    _shut(oldest)
            if self._is_closed or len(self._open) >= MOST_CONNECTIONS:
                raise RPCError(f"{len(self._open)} connections are open")
            self._open.add(connection)
            self._greeting[connection] = time.monotonic()

    def _attend(self, connection: socket.socket, peer: str) -> None:
        """One connection, from its greeting to its end."""
        frames = Frames(connection)
        try:
            if isinstance(connection, ssl.SSLSocket):
                connection.do_handshake()
            self._serve(frames, peer)
        except (AutoschedError, OSError, ValueError) as error:
            if not self._is_closed and NOT_DONE_HERE not in str(error):  # clients ask everyone for a tracker's list
                self._say(f"a connection was refused or lost: {error}")
        finally:
            self._forget(connection)
            with self._changed:
                self._open.discard(connection)
            frames.close()

    def _forget(self, connection: socket.socket) -> None:
        with self._changed:
            self._greeting.pop(connection, None)
            self._changed.notify_all()


def _shut(connection: socket.socket) -> None:
    """Have the thread that serves a connection see its end."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


def _listen(host: str, port: int, port_end: int, reuse_addr: bool) -> socket.socket:
    """Listen at the first port that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in range(port, max(port_end, port + 1)):
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            if reuse_addr:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((host.strip("[]"), number))
            sock.listen(128)
            return sock
        except socket.gaierror as error:
            sock.close()
            raise UsageError(f"{host} is no address of this machine: {error.strerror}") from None
        except (OSError, OverflowError) as error:
            sock.close()
            reason = error.strerror if isinstance(error, OSError) else error
    if port_end <= port + 1:
        raise RPCError(f"port {port} of {host} cannot be used: {reason}")
    raise RPCError(f"no port from {port} to {port_end - 1} of {host} can be used: {reason}")

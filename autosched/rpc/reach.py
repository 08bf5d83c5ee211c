"""Remote devices as users name them, `host:port/key`: a server, or a tracker that hands servers of the key out."""

from __future__ import annotations

from dataclasses import dataclass

from autosched.errors import RPCError, UsageError
from autosched.rpc.access import NOT_DONE_HERE, Access, check_key
from autosched.rpc.client import RPCSession, connect
from autosched.rpc.tracker import TrackerSession, connect_tracker

MOST_PORT = 65535


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server or a tracker listens, and the kind of device; "" is any kind, of a server."""

    host: str
    port: int
    key: str = ""

    @staticmethod
    def parse(text: str) -> Address:
        """Read "host:port" or "host:port/key", an IPv6 host in brackets. Raises UsageError for anything else."""
        place, _, key = text.partition("/")
        host, _, port = place.rpartition(":")
        if not host or not (port.isascii() and port.isdigit() and 0 < int(port) <= MOST_PORT):
            raise UsageError(f"'{text}' is no remote device", hint="write host:port, or host:port/key")
        if ":" in host and not (host.startswith("[") and host.endswith("]")):
            raise UsageError(f"'{text}' is no remote device", hint="write an IPv6 host in brackets: [::1]:9091")
        return Address(host.strip("[]"), int(port), check_key(key))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}{'/' + self.key if self.key else ''}"


def open_session(address: Address, access: Access | None = None, timeout_s: float | None = None) -> RPCSession:
    """A session of the server there, or of one that the tracker there has for the key.

    timeout_s  for a tracker to have a device free, or announced; None: for ever where there is one, else not at all
    Raises     UsageError for a refused address or a tracker without key, RPCError where nobody serves us.
    """
    try:
        return connect(address.host, address.port, address.key, access=access)
    except RPCError as error:
        if NOT_DONE_HERE not in error.message:
            raise
    if not address.key:
        raise UsageError(f"{address} is a tracker", hint=f"say which kind of device: {address}/KEY")
    tracker = connect_tracker(address.host, address.port, access=access)
    if timeout_s is None:
        _count(tracker, address)
    return tracker.request(address.key, timeout=timeout_s)


def count_devices(address: Address, access: Access | None = None) -> int:
    """How many devices of the key there are: 1 of a server, those that are announced of a tracker.

    Raises  UsageError for a refused address, RPCError where nobody answers or a tracker has no such device.
    """
    try:
        tracker = connect_tracker(address.host, address.port, access=access)
    except RPCError as error:
        if NOT_DONE_HERE not in error.message:
            raise
        return 1
    return _count(tracker, address)


def _count(tracker: TrackerSession, address: Address) -> int:
    found = tracker.summary()
    count = int(found["queue_info"].get(address.key, {}).get("total", 0))
    if not count:
        there = ", ".join(sorted({f"'{server['key']}'" for server in found["server_info"]})) or "none"
        raise RPCError(f"the tracker at {address} has no device '{address.key}'", hint=f"there are: {there}")
    return count

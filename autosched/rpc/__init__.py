"""Remote devices under TVM's names: a session's files, arrays, modules and executors lie where the device is.

Run `Server` (or `autosched rpc serve`) beside the device, and `connect` to it; a `Tracker` hands out several.
"""

from autosched.errors import RPCError
from autosched.rpc.access import Access
from autosched.rpc.client import RemoteArray, RemoteDevice, RemoteModule, RPCSession, connect
from autosched.rpc.local import LocalSession, PopenSession
from autosched.rpc.server import Server, SessionLimits
from autosched.rpc.tracker import Tracker, TrackerSession, connect_tracker

__all__ = [
    "Access",
    "LocalSession",
    "PopenSession",
    "RPCError",
    "RPCSession",
    "RemoteArray",
    "RemoteDevice",
    "RemoteModule",
    "Server",
    "SessionLimits",
    "Tracker",
    "TrackerSession",
    "connect",
    "connect_tracker",
]

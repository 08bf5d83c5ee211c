# Made by `python -m tests.stubs` from the file beside it and autosched/public_names.py.
from autosched.errors import RPCError as RPCError
from autosched.rpc.access import Access as Access
from autosched.rpc.client import RPCSession as RPCSession
from autosched.rpc.client import RemoteArray as RemoteArray
from autosched.rpc.client import RemoteDevice as RemoteDevice
from autosched.rpc.client import RemoteModule as RemoteModule
from autosched.rpc.client import connect as connect
from autosched.rpc.local import LocalSession as LocalSession
from autosched.rpc.local import PopenSession as PopenSession
from autosched.rpc.server import Server as Server
from autosched.rpc.server import SessionLimits as SessionLimits
from autosched.rpc.tracker import Tracker as Tracker
from autosched.rpc.tracker import TrackerSession as TrackerSession
from autosched.rpc.tracker import connect_tracker as connect_tracker

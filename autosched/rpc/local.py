"""Sessions on this machine: in this process (`LocalSession`), or in one of its own (`PopenSession`)."""

from __future__ import annotations

import shutil
import socket
import tempfile
from pathlib import Path
from typing import Any

from autosched.errors import InvalidValueError, refuse
from autosched.rpc.access import safe_name
from autosched.rpc.client import RPCSession
from autosched.rpc.frames import Frames
from autosched.rpc.server import SessionLimits, SessionProcess
from autosched.runtime.device import Device, device
from autosched.runtime.library import read_module
from autosched.runtime.registry import get_global_func


class LocalSession:
    """A session whose other side is this process: files are uploaded into a folder of its own."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="autosched-rpc-")

    def _path(self, name: str) -> Path:
        return Path(self._folder.name) / safe_name(Path(name).name)

    def upload(self, data: bytes | str | Path, target: str | None = None) -> None:
        """Copy a file, or bytes under the name `target`, to the session. Raises ValueError for bytes without name."""
        if isinstance(data, bytes | bytearray):
            if not target:
                raise InvalidValueError("upload: bytes need the name `target`")
            self._path(target).write_bytes(data)
        else:
            shutil.copy(Path(data), self._path(target or str(data)))

    def download(self, path: str) -> bytearray:
        """The bytes of an uploaded file."""
        return bytearray(self._path(path).read_bytes())

    def remove(self, path: str) -> None:
        """Delete an uploaded file."""
        self._path(path).unlink(missing_ok=True)

    def listdir(self, path: str = "") -> str:
        """The names of uploaded files, joined by commas."""
        refuse("listdir", hint="there is one folder", path=path not in ("", ".", "/"))
        return ",".join(sorted(p.name for p in Path(self._folder.name).iterdir()))

    def load_module(self, path: str) -> Any:
        """Load an uploaded library. Raises ValueError if there is none of that name."""
        return read_module(str(self._path(path)))

    def get_function(self, name: str) -> Any:
        """A registered function."""
        return get_global_func(name)

    def device(self, dev_type: str | int, dev_id: int = 0) -> Device:
        """A device of the session."""
        return device(dev_type, dev_id)

    def cpu(self, dev_id: int = 0) -> Device:
        """The session's CPU."""
        return device("cpu", dev_id)

    def cuda(self, dev_id: int = 0) -> Device:
        """The session's CUDA device."""
        return device("cuda", dev_id)


class PopenSession(RPCSession):
    """A session in a process of its own on this machine, without a server; `limits` as a server's."""

    def __init__(self, binary: object = None, *, limits: SessionLimits | None = None):
        refuse("PopenSession", hint="the other side is autosched's own", binary=binary)
        ours, theirs = socket.socketpair()
        with theirs:
            process = SessionProcess(theirs.fileno(), limits or SessionLimits())
        super().__init__(Frames(ours), f"process {process.pid}")
        self.on_close(process.end)

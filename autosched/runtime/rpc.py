"""TVM's RPC by name: the session of this process works, other machines are refused."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any, NoReturn

from autosched.errors import InvalidValueError, TVMError, refuse
from autosched.runtime.device import Device, device
from autosched.runtime.library import read_module
from autosched.runtime.registry import get_global_func


class LocalSession:
    """A session whose other side is this process: files are uploaded into a folder of its own."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="autosched-rpc-")

    def _path(self, name: str) -> Path:
        path = Path(self._folder.name) / Path(name).name
        return path

    def upload(self, data: Any, target: str | None = None) -> None:
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


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise TVMError(
        "TVM's RPC to other machines is not available",
        hint="tune on a cluster with autosched.tune, or use LocalSession",
    )


connect = connect_tracker = Server = Tracker = _refuse
RPCSession = LocalSession

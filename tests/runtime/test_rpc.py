"""The session of this process, and values as TVM's runtime holds them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autosched import rpc
from autosched.errors import TVMError
from autosched.runtime import NDArray, cpu, library
from autosched.runtime.values import ShapeTuple, String, convert


def test_files_of_the_local_session(tmp_path: Path) -> None:
    session = rpc.LocalSession()
    (tmp_path / "a.bin").write_bytes(b"abc")
    session.upload(str(tmp_path / "a.bin"))
    session.upload(bytearray(b"xyz"), "b.bin")
    assert session.listdir() == "a.bin,b.bin" and session.download("b.bin") == b"xyz"
    session.remove("a.bin")
    assert session.listdir() == "b.bin" and session.cpu() == cpu(0)
    with pytest.raises(ValueError, match="target"):
        session.upload(b"no name")
    with pytest.raises(ValueError):
        session.load_module("nobody.so")


@pytest.mark.parametrize("name", ["connect", "connect_tracker", "Server"])
def test_other_machines_are_refused(name: str) -> None:
    with pytest.raises(TVMError, match="not available"):
        getattr(rpc, name)("127.0.0.1", 9090)


def test_values() -> None:
    assert ShapeTuple(np.array([1, 2])) == (1, 2) and String("a") == "a"
    assert isinstance(convert(np.ones(2)), NDArray) and convert([1, [2]]) == (1, (2,)) and convert("x") == "x"


def test_a_system_library_has_no_functions() -> None:
    with pytest.raises(AttributeError):
        library.system_lib()["f"]

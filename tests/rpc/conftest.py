"""A server, and a library for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from autosched import rpc
from tests.rpc.parts import save_add_one


@pytest.fixture(scope="module")
def server() -> Iterator[rpc.Server]:
    with rpc.Server("127.0.0.1", 0, key="board", silent=True, limits=rpc.SessionLimits(1 << 30, 1 << 26)) as found:
        yield found


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_add_one(tmp_path_factory.mktemp("library") / "lib.tar")

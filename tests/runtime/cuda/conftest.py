"""Devices for tests without a GPU: the emulator's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from autosched.runtime.cuda.devices import use_driver


@pytest.fixture
def emulated() -> Iterator[None]:
    """Let the emulator stand for CUDA's devices."""
    pytest.importorskip("numba_cuda", reason="the CUDA packages are an extra")
    from autosched.codegen.cuda.emulate import EmulatorDriver

    with use_driver(EmulatorDriver):
        yield

"""Runs whose checks have not been looked at: a device's results are, when they come to the host."""

from __future__ import annotations

import threading
from typing import Protocol


class Checked(Protocol):
    """A program whose kernels note what is out of range in words on the device."""

    def check(self) -> None:
        """Raise IndexOutOfRangeError for what was noted; the words are cleared."""


_lock = threading.Lock()
_pending: dict[int, dict[int, Checked]] = {}  # by device and identity, in the order of the runs; kept until looked at


def note_run(device: int, program: Checked) -> None:
    """Remember that a program with checks has been given to a device."""
    with _lock:
        _pending.setdefault(device, {})[id(program)] = program


def check_runs(device: int) -> None:
    """Raise IndexOutOfRangeError for the first run that met a number out of range, when a device's work is done."""
    while _pending.get(device):
        with _lock:
            runs = _pending.get(device, {})
            program = runs.pop(next(iter(runs))) if runs else None
        if program is not None:
            program.check()

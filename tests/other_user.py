"""Files of another user, for tests that run as root or as anybody else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

STRANGER = 54_321


def give_to_another(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a path belong to another user than this one: root gives it away, anybody else becomes another user."""
    if os.geteuid() == 0:
        os.chown(path, STRANGER, -1, follow_symlinks=False)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: STRANGER)

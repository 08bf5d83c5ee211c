"""Leases as files of a shared folder: a hard link is made by exactly one of those who try, on network disks too."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from autosched.errors import RecordError
from autosched.records.leases import config_name, is_gone, task_name
from autosched.space import Config
from autosched.task import Task


class FileLeases:
    """The leases of one owner in a folder, which is made when the first one is taken."""

    def __init__(self, folder: Path, owner: str):
        self.folder, self.owner = folder, owner
        self._held: dict[Path, str] = {}  # file -> the task's name

    def claim(self, task: Task, configs: Sequence[Config], lease_s: float) -> list[Config]:
        """Lease what nobody else holds; see `RecordStore.claim`. Raises RecordError."""
        if not configs:
            return []
        name = task_name(task)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle, own = tempfile.mkstemp(dir=self.folder, prefix=".new.")
            try:
                with os.fdopen(handle, "w") as file:
                    json.dump({"owner": self.owner, "until": time.time() + lease_s}, file)
                return [config for config in configs if self._take(Path(own), name, config)]
            finally:
                Path(own).unlink(missing_ok=True)
        except OSError as error:
            raise RecordError(f"cannot lease: {error.strerror}", where=str(self.folder)) from None

    def _take(self, own: Path, name: str, config: Config) -> bool:
        lease = self.folder / f"{name}-{config_name(config)}"
        is_ours = _link(own, lease) or (self._is_free(lease) and _link(own, lease))
        if is_ours:
            self._held[lease] = name
        return is_ours

    def _is_free(self, lease: Path) -> bool:
        """Put an expired lease, or one's own, out of the way; False where it is another's."""
        owner, until = _read(lease)
        if owner != self.owner and until > time.time():
            return False
        aside = lease.with_name(f".old.{self.owner}.{lease.name}")
        try:
            os.rename(lease, aside)
        except FileNotFoundError:
            return not lease.exists()  # another one was quicker
        moved = _read(aside)
        if moved[0] != self.owner and moved[1] > time.time():  # another one had just taken it: give it back
            _link(aside, lease)
            aside.unlink(missing_ok=True)
            return False
        aside.unlink(missing_ok=True)
        return True

    def release(self, task: Task | None = None) -> None:
        """Remove one's own leases, of one task or of all."""
        name = None if task is None else task_name(task)
        for lease, of_task in list(self._held.items()):
            if name in (None, of_task):
                if _read(lease)[0] == self.owner:
                    with suppress(OSError):
                        lease.unlink()
                del self._held[lease]


def _link(own: Path, lease: Path) -> bool:
    """Whether the lease is ours now."""
    try:
        os.link(own, lease)
        return True
    except FileExistsError:
        return False


def _read(lease: Path) -> tuple[str, float]:
    """Owner and end of a lease; one that cannot be read, or whose owner is gone, has expired."""
    try:
        document = json.loads(lease.read_text())
        owner, until = str(document["owner"]), float(document["until"])
        return owner, 0.0 if is_gone(owner) else until
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return "", 0.0

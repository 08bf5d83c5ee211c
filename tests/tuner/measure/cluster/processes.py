"""A scheduler and workers as real processes of this machine."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

SMALL = "llvm -mcpu=x86-64-v3 -l2-bytes=262144"  # declared: two kinds of device that this machine can stand for
LARGE = "llvm -mcpu=x86-64-v3 -l2-bytes=4194304"


class Processes:
    """Processes with their output in files; all are killed at the end."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.all: list[subprocess.Popen[bytes]] = []

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start `python -m words`."""
        log = open(self.folder / f"{len(self.all)}.log", "wb")  # noqa: SIM115 (the child's)
        process = subprocess.Popen([sys.executable, "-m", *words], stdout=log, stderr=log, process_group=0)
        log.close()
        self.all.append(process)
        return process

    def scheduler(self, *words: str, host: str = "127.0.0.1") -> str:
        """Start a scheduler; gives its address."""
        file = self.folder / f"scheduler{len(self.all)}.json"
        place = ("--host", host, "--port", "0", "--no-dashboard", "--scheduler-file", str(file))
        self.start("distributed.cli.dask_scheduler", *place, *words)
        self.wait_for(lambda: file.exists() and file.read_text().rstrip().endswith("}"))  # it is not written at once
        address: str = json.loads(file.read_text())["address"]
        return address

    def worker(self, address: str, target: str, *words: str) -> subprocess.Popen[bytes]:
        """Start a worker."""
        options = ("--target", target, "--threads", "1", "--builders", "1")
        return self.start("autosched", "worker", address, *options, *words)

    def said(self, process: subprocess.Popen[bytes]) -> str:
        """What a process has printed."""
        return (self.folder / f"{self.all.index(process)}.log").read_text()

    def wait_for(self, is_there: object, limit_s: float = 60.0) -> None:
        """Wait until a function gives something true."""
        assert callable(is_there)
        end = time.monotonic() + limit_s
        while not is_there():
            assert time.monotonic() < end, "\n".join(path.read_text() for path in self.folder.glob("*.log"))
            time.sleep(0.05)

    def close(self) -> None:
        """End all of them, with what they started."""
        for process in self.all:
            for number in (signal.SIGCONT, signal.SIGTERM):
                with contextlib.suppress(OSError):
                    os.killpg(process.pid, number)
        for process in self.all:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@contextlib.contextmanager
def processes(folder: Path) -> Iterator[Processes]:
    """Processes for the time of a `with`."""
    found = Processes(folder)
    try:
        yield found
    finally:
        found.close()


def start_three(found: Processes, address: str, targets: Sequence[str]) -> list[subprocess.Popen[bytes]]:
    """Start workers and wait until all have joined."""
    workers = [found.worker(address, target) for target in targets]
    found.wait_for(lambda: all("has joined" in found.said(worker) for worker in workers))
    return workers

"""The commands that README and documents show run as printed, each with the files that those before it made."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import autosched
from tests.cli.models import dense_file
from tests.pages import PAGES, ROOT, blocks, commands
from tests.rpc.parts import make_certificates

pytestmark = pytest.mark.early

DEFAULT_PORTS = ("8786", "9091", "9190")  # of dask's scheduler, `rpc serve` and `rpc track`
SERVERS = ("dask scheduler", "autosched worker", "autosched rpc serve", "autosched rpc track")


class Shell:
    """Runs command lines in a folder, with ports of its own; what serves goes on until `close`."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.ports = dict(zip(DEFAULT_PORTS, free_ports(len(DEFAULT_PORTS))))
        self.servers: list[tuple[subprocess.Popen[bytes], Path]] = []
        programs = folder / "bin"
        programs.mkdir()
        command = programs / "autosched"
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tests.moments "$@"\n')
        command.chmod(0o755)
        path = os.pathsep.join((str(programs), str(Path(sys.executable).parent), os.environ["PATH"]))
        self.environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "XDG_DATA_HOME": str(folder / "data")}

    def run(self, line: str) -> None:
        if line.startswith("autosched tune "):
            line += " --trials 4"
        if line.startswith("autosched bench "):
            line += " --time 100ms --warmup 10ms"
        words = shlex.split(line)
        if words[0] == "pip":
            check_install(words)
        elif words[0] == "make":
            subprocess.run(["make", "--dry-run", *words[1:]], cwd=ROOT, check=True, capture_output=True)
        elif line.startswith(SERVERS):
            self.serve(line)
        else:
            self.wait_for_devices(line)
            done = subprocess.run(
                ["bash", "-c", self.with_ports(line)], cwd=self.folder, env=self.environment, capture_output=True,
                text=True, timeout=240,
            )  # fmt: skip
            if "--target cuda" in line and not autosched.cuda(0).exist:
                assert done.returncode == 2 and "cuda:0 does not exist" in done.stderr, f"{line}: {done.stderr[-2000:]}"
            else:
                assert done.returncode == 0, f"{line}: {done.stderr[-2000:]}"

    def with_ports(self, line: str) -> str:
        for name, port in self.ports.items():
            line = line.replace(f":{name}", f":{port}")
        return line.replace("//tuner:", "//127.0.0.1:")

    def serve(self, line: str) -> None:
        port = dict(zip(SERVERS, ("8786", "", "9091", "9190")))[next(name for name in SERVERS if line.startswith(name))]
        where = f" --port {self.ports[port]}" if port else ""
        where += " --no-dashboard" if line.startswith("dask") else ""
        log = self.folder / f"server{len(self.servers)}.log"
        with log.open("wb") as output:
            words = ["bash", "-c", "exec " + self.with_ports(line) + where]
            process = subprocess.Popen(
                words, cwd=self.folder, env=self.environment, stdout=output, stderr=output, process_group=0
            )
        self.servers.append((process, log))
        if port:
            self.wait(lambda: answers(self.ports[port]), line)

    def wait_for_devices(self, line: str) -> None:
        """Where a line asks a tracker for a device: until one has announced itself."""
        if found := re.search(r"--remote 127.0.0.1:9190/(\w+)", line):
            words = ["autosched", "rpc", "devices", f"127.0.0.1:{self.ports['9190']}"]

            def is_there() -> bool:
                done = subprocess.run(words, cwd=self.folder, env=self.environment, capture_output=True, text=True)
                return found[1] in done.stdout

            self.wait(is_there, line)

    def wait(self, is_there: object, line: str) -> None:
        assert callable(is_there)
        end = time.monotonic() + 60
        while not is_there():
            assert time.monotonic() < end, f"{line}: {[log.read_text() for _, log in self.servers]}"
            time.sleep(0.1)

    def close(self) -> None:
        for process, _ in self.servers:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.servers.clear()


def free_ports(count: int) -> list[int]:
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [place.getsockname()[1] for place in taken]
    for place in taken:
        place.close()
    return ports


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def check_install(words: list[str]) -> None:
    """`make dist` installs README's packages in an empty environment; here: the extras and files are there."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert words[1] == "install"
    for word, before in zip(words[2:], words[1:]):
        if before == "-r":
            assert (ROOT / word).is_file(), word
        elif found := re.fullmatch(r"\.\[(.*)\]", word):
            assert {*found[1].split(",")} <= {*setup["options.extras_require"]}, word
        else:
            assert word in (".", "-r", "--no-deps", "onnxruntime"), word


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    dense_file(tmp_path / "model.onnx", op="Softmax")
    dense_file(tmp_path / "squeezenet.onnx")
    np.savez(tmp_path / "in.npz", x=np.ones((4, 16), "float32"))
    shell = Shell(tmp_path)
    yield shell
    shell.close()


def marked(page: Path) -> object:
    """The first page's commands are README's, and `inspect`, which has tests of its own."""
    return pytest.param(page, id=page.name, marks=[pytest.mark.slow] if page.name == "index.md" else [])


@pytest.mark.parametrize("page", [marked(page) for page in PAGES if blocks(page, "sh", "console")])
def test_commands_run_as_printed(page: Path, shell: Shell) -> None:
    """Servers of a block, which stand in other terminals, end with it."""
    make_certificates(shell.folder, "scheduler", "worker", "me")
    for block in blocks(page, "sh", "console"):
        for line in commands(block):
            shell.run(line)
        shell.close()
    if page.name == "README.md":
        assert np.load(shell.folder / "out.npz")["y"].shape == (4, 8)
        assert (shell.folder / "report.html").stat().st_size > 100_000
